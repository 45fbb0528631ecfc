"""The first minutes: the demo, the lines to paste, and the commands that show what things take."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from e2e.test_startup import without_credentials
from outside.buckets import NewServer
from outside.clients import AWS, s3_client
from outside.server import BINARY, Server, until


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the caller's but where temporary folders are made."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "AWS_PAGER": ""}


def test_a_demo_makes_its_own_data_shows_a_ratio_serves_the_console_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as to:
        demo = subprocess.Popen([str(BINARY), "demo"], env=environment(tmp_path), stdout=to, stderr=to)
    try:
        found = until(lambda: re.search(r"^Console: (http://\S+)$", log.read_text(), re.MULTILINE), 60, "it serves")

        def page() -> bytes:
            try:
                with urllib.request.urlopen(found[1], timeout=5) as answer:
                    return bytes(answer.read())
            except OSError:
                return b""

        assert b"/console/app.js" in until(page, 30, "the console answers")
        total = re.search(r"^total .* ([\d.]+)$", log.read_text(), re.MULTILINE)
        assert total
        assert float(total[1]) > 3, log.read_text()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0, log.read_text()
    finally:
        demo.kill()
        demo.wait(30)
    assert list(tmp_path.glob("deltaweir-demo-*")) == []


def test_a_demo_keeps_its_store_where_it_is_told_to(tmp_path: Path) -> None:
    command = [str(BINARY), "demo", "--once", "--folder", str(tmp_path / "kept")]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "app/build-8.tar" in done.stdout
    assert (tmp_path / "kept" / "root-credentials.json").exists()
    again = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1
    assert "already exists" in again.stderr


def test_the_lines_to_paste_run_as_they_stand_and_show_a_ratio(new_server: NewServer, tmp_path: Path) -> None:
    server = without_credentials(new_server())
    small = tmp_path / "program"
    server.start()
    lines = [line.strip() for line in server.log.read_text().splitlines()]
    begin = next(number for number, line in enumerate(lines) if line.startswith("export AWS_ENDPOINT_URL"))
    end = next(number for number, line in enumerate(lines) if line.endswith("ls s3://first"))
    small.write_bytes(BINARY.read_bytes()[: 4 << 20])
    # A part of the program is as good as all of it, and a debug build has hundreds of MiB.
    script = "\n".join(lines[begin:end]).replace(f"'{BINARY}'", f"'{small}'") + "\n" + lines[end]
    path = f"{AWS.parent}:{os.environ['PATH']}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    pasted = subprocess.run(
        ["bash", "-e"],
        cwd=elsewhere,
        input=script,
        env=environment(tmp_path) | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert pasted.returncode == 0, pasted.stderr
    assert re.search(r"delta +4.0 MiB +\S+ \S+ +[\d.]+ +build-2$", pasted.stdout, re.MULTILINE), pasted.stdout


@pytest.mark.parametrize("folder", ["server", "ada's own $HOME"])
def test_the_console_is_named_with_what_opens_it(new_server: NewServer, tmp_path: Path, folder: str) -> None:
    server = new_server(folder).start()
    found = re.search(r"^console on (http://\S+)/, its token: (cat '.+')$", server.log.read_text(), re.MULTILINE)
    assert found, server.log.read_text()
    assert found[1] == f"http://127.0.0.1:{server.admin_port}"
    shown = subprocess.run(["bash", "-c", found[2]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == server.admin_token


def test_an_object_that_its_own_key_encrypts_says_why_it_does_not_shrink(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    s3.put_object(Bucket="delta-00", Key="plain", Body=b"abc" * 9999)
    s3.put_object(Bucket="delta-00", Key="own", Body=b"abc" * 9999, ServerSideEncryption="AES256")
    assert "encrypted   AES256, by a key of its own" in server.run("explain", "s3://delta-00/own").stdout
    assert "encrypted" not in server.run("explain", "s3://delta-00/plain").stdout


def test_listing_explaining_and_jobs_are_short(new_server: NewServer) -> None:
    server: Server = new_server().start()
    done = server.run("demo", "--help")
    assert "--once" in done.stdout
    jobs = server.run("jobs").stdout.splitlines()
    assert jobs[0].split()[:2] == ["job", "state"]
    assert any(line.startswith("gc ") for line in jobs)
    assert server.run("ls").stdout.splitlines()[0].startswith("bucket")
    refused = server.run("ls", "somewhere", check=False)
    assert "s3://BUCKET" in refused.stderr


def test_config_check_finds_a_missing_certificate_and_an_unknown_action(new_server: NewServer) -> None:
    server = new_server()
    server.tables["server"] = {"tls_cert": "none.pem", "tls_key": "none.key"}
    server.write_config()
    refused = server.run("config", "check", check=False)
    assert refused.returncode == 1
    assert "none.pem" in refused.stderr
    lines = server.config.read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if line.startswith("tls_cert"))
    assert f"{server.config}:{line}: server.tls_cert" in refused.stderr, "the file and the line"
    server.tables["server"] = {}
    policy = server.folder / "policy.json"
    policy.write_text(
        '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:Gett", "Resource": "*"}}'
    )
    pair = 'access_key_id = "AKIAOTHER"\nsecret_access_key = "0123456789"'
    server.more_config = f'[[users]]\nname = "u"\n{pair}\npolicy = "file:policy.json"\n'
    server.write_config()
    refused = server.run("config", "check", check=False)
    assert refused.returncode == 1
    assert "s3:Gett" in refused.stderr
    assert "policy.json:1: " in refused.stderr
    assert re.search(rf"{re.escape(str(server.config))}:\d+: users\[0\]\.policy: ", refused.stderr), refused.stderr

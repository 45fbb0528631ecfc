"""`deltaweir --remote URL`: the operator's commands from another machine, over TLS and with a token."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outside.buckets import NewServer, mode_tables
from outside.certificates import Authority
from outside.clients import s3_client
from outside.remote import READ_TOKEN, TOKEN, Elsewhere, authority_and_server, serve_over_tls
from outside.server import Server

POLICY = {"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::delta-00/*"}}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Elsewhere]]:
    """A server with one object, and the command line that trusts its authority."""
    folder = tmp_path_factory.mktemp("remote")
    authority, tls = authority_and_server(folder)
    root = folder / "ejected"
    root.mkdir()
    server = Server(folder / "server", mode_tables() | {"eject": {"roots": [str(root)]}})
    serve_over_tls(server, tls, authority.path)
    try:
        s3 = s3_client(f"https://127.0.0.1:{server.port}", verify=authority.path)
        s3.create_bucket(Bucket="delta-00")
        s3.put_object(Bucket="delta-00", Key="k", Body=b"content" * 1000)
        yield server, Elsewhere(folder / "elsewhere", f"https://127.0.0.1:{server.admin_port}", authority.path)
    finally:
        server.kill()


def test_operators_commands_work_from_another_machine(pair: tuple[Server, Elsewhere], tmp_path: Path) -> None:
    server, elsewhere = pair
    assert elsewhere.json("status")["served"] is True
    assert elsewhere.json("stats")["totals"]["objects"] == 1
    assert elsewhere.json("ls", "s3://delta-00")["entries"][0]["key"] == "k"
    assert "k" in elsewhere.run("explain", "s3://delta-00/k").stdout
    [blob] = (path.name for path in server.blob_files() if len(path.name) == 32)
    assert blob in elsewhere.run("inspect", blob).stdout
    assert elsewhere.run("top", "--once", "--interval", "0.1").stdout
    ended = elsewhere.json("requests")["requests"]
    assert any(request["op"] == "PutObject" for request in ended)
    assert elsewhere.json("requests", ended[-1]["request_id"])["request_id"] == ended[-1]["request_id"]
    lines = elsewhere.json("logs", "--text", "serving version")["lines"]
    assert [line["target"] for line in lines] == ["deltaweir::cli::serve"]
    assert elsewhere.json("jobs", "scrub", "start")["counts"]["damaged"] == 0
    assert elsewhere.json("scrub")["counts"]["damaged"] == 0
    assert elsewhere.json("scrub", "--quarantined")["quarantine"]["blobs"] == []
    assert elsewhere.json("gc", "--now")
    assert elsewhere.json("convert", "--pause")["converter"]["paused"] is True
    assert elsewhere.json("convert", "--resume")["converter"]["paused"] is False
    assert elsewhere.json("backup")
    assert len(elsewhere.json("backup", "--list")["backups"]) == 1
    made = elsewhere.json("users", "add", "ci", "--policy", "readonly")
    assert made["access_key_id"]
    document = tmp_path / "policy.json"
    document.write_text(json.dumps(POLICY))
    elsewhere.run("users", "policies", "put", "one", str(document))
    elsewhere.run("users", "policies", "attach", "one", "--user", "ci")
    assert elsewhere.json("policy", "test", "ci", "s3:GetObject", "arn:aws:s3:::delta-00/k")["allowed"] is True
    elsewhere.run("quota", "set", "--bucket", "delta-00", "--bytes", "1GiB")
    assert len(server.json("quota", "list")["quotas"]) == 1
    target = str(server.folder.parent / "ejected" / "out")
    assert elsewhere.json("eject", "s3://delta-00", target)["failed"] == 0
    assert (Path(target) / "k").read_bytes() == b"content" * 1000
    assert "eject.roots" in elsewhere.refused("eject", "s3://delta-00", str(tmp_path / "other"))


def test_the_audit_log_is_read_and_followed_back_from_another_machine(pair: tuple[Server, Elsewhere]) -> None:
    server, elsewhere = pair
    elsewhere.run("quota", "set", "--user", "root", "--objects", "100000")
    told = elsewhere.run("audit", "search", "--action", "/api/v1/quota").stdout
    found = [json.loads(line) for line in told.splitlines()]
    assert found
    assert {line["user"] for line in found} == {"token"}
    here = server.run("audit", "search", "--action", "/api/v1/quota").stdout.splitlines()
    assert found == [json.loads(line) for line in here]
    newest = json.loads(elsewhere.run("audit", "tail", "-n", "1").stdout)
    assert newest["seq"] >= found[-1]["seq"]
    sound = elsewhere.json("audit", "verify")
    assert sound["last"] >= newest["seq"]
    assert "are whole" in elsewhere.run("audit", "verify").stdout
    assert elsewhere.run("audit", "search", "--user", "nobody-of-that-name").stdout == ""
    assert "--since is a time" in elsewhere.refused("audit", "search", "--since", "yesterday")


def test_a_changed_line_of_the_audit_log_is_told_to_another_machine(new_server: NewServer, tmp_path: Path) -> None:
    authority, tls = authority_and_server(tmp_path)
    server = serve_over_tls(new_server(), tls, authority.path)
    elsewhere = Elsewhere(tmp_path / "elsewhere", f"https://127.0.0.1:{server.admin_port}", authority.path)
    elsewhere.run("gc")
    elsewhere.run("audit", "verify")
    [lines] = (server.data / "audit").glob("audit-*.jsonl")
    lines.write_text(lines.read_text().replace('"/api/v1/gc"', '"/api/v1/gs"', 1))
    assert ", line " in elsewhere.refused("audit", "verify")


def test_who_is_not_trusted_is_not_sent_the_token(pair: tuple[Server, Elsewhere], tmp_path: Path) -> None:
    _, elsewhere = pair
    other = Authority(tmp_path, "other")
    for trusts in (other.path, None):
        said = dataclasses.replace(elsewhere, ca_file=trusts).refused("stats")
        assert "certificate" in said, said
    said = dataclasses.replace(elsewhere, ca_file=tmp_path / "nothing.pem").refused("stats")
    assert "--ca-file: cannot read" in said
    (tmp_path / "empty.pem").write_text("no certificate")
    said = dataclasses.replace(elsewhere, ca_file=tmp_path / "empty.pem").refused("stats")
    assert "--ca-file" in said


def test_a_wrong_token_and_one_that_may_only_read_are_told_so(pair: tuple[Server, Elsewhere]) -> None:
    _, elsewhere = pair
    wrong = dataclasses.replace(elsewhere, token="x" * 32)
    assert wrong.refused("stats") == "deltaweir: the admin token is missing or wrong\n"
    reader = dataclasses.replace(elsewhere, token=READ_TOKEN)
    assert reader.json("stats")["totals"]["objects"] == 1
    for change in (
        ["gc"],
        ["users", "add", "eve"],
        ["quota", "clear", "--bucket", "delta-00"],
        ["jobs", "gc", "pause"],
    ):
        assert reader.refused(*change) == "deltaweir: this token may only read\n", change
    nobody = dataclasses.replace(elsewhere, token=None)
    assert "DELTAWEIR_ADMIN_TOKEN" in nobody.refused("stats")
    told = dataclasses.replace(nobody, environment={"DELTAWEIR_ADMIN_TOKEN": TOKEN})
    assert told.json("stats")["totals"]["objects"] == 1
    short = dataclasses.replace(elsewhere, token="short")
    assert "--token-file: there is no token" in short.refused("stats")


def test_plain_http_is_for_loopback_alone_and_no_redirect_is_followed(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server().start()
    elsewhere = Elsewhere(tmp_path / "elsewhere", f"http://127.0.0.1:{server.admin_port}", token=server.admin_token)
    assert elsewhere.json("stats")["totals"]["objects"] == 0
    name = f"http://{socket.gethostname()}:{server.admin_port}"
    said = dataclasses.replace(elsewhere, url=name).refused("stats")
    assert "--remote: plain HTTP would send the token in the clear" in said
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def redirect() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(65536))
                location = f"http://127.0.0.1:{server.admin_port}/api/v1/stats"
                connection.sendall(f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=redirect)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        said = dataclasses.replace(elsewhere, url=url).refused("stats")
        thread.join()
    assert "302" in said, said
    assert asked


def test_commands_of_this_machine_refuse_to_go_elsewhere(pair: tuple[Server, Elsewhere]) -> None:
    _, elsewhere = pair
    for command in (
        ["serve"],
        ["doctor"],
        ["config", "check"],
        ["restore", "--list"],
        ["rebuild"],
        ["estimate", "."],
        ["inspect", "./token"],
        ["completions", "bash"],
    ):
        assert elsewhere.refused(*command) == "deltaweir: this command works on this machine: leave --remote out\n", (
            command
        )


def test_without_remote_the_socket_is_asked_as_ever(pair: tuple[Server, Elsewhere]) -> None:
    server, elsewhere = pair
    assert server.json("stats")["totals"]["objects"] == 1
    refused = server.run("stats", "--ca-file", str(elsewhere.ca_file), check=False)
    assert refused.returncode == 1
    assert "--remote" in refused.stderr


def test_a_token_file_that_others_may_write_is_refused(pair: tuple[Server, Elsewhere], tmp_path: Path) -> None:
    server, elsewhere = pair
    file = tmp_path / "open"
    file.write_text(TOKEN)
    file.chmod(0o666)
    flags = ["--remote", elsewhere.url, "--ca-file", str(elsewhere.ca_file), "--token-file", str(file)]
    assert "everybody may write it" in server.run(*flags, "stats", check=False).stderr
    file.chmod(0o644)
    done = server.run(*flags, "stats")
    assert "everybody may read the secret in it" in done.stderr

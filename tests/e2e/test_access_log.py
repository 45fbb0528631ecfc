"""The access log: its fields and formats, and whose address counts behind a proxy."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.failure import error_code
from outside.policies import allow, put_policy
from outside.server import Server, Value, until

CLIENT = "203.0.113.7"
ELSEWHERE = "198.51.100.9"
COMBINED = re.compile(
    r'(?P<peer>\S+) - (?P<user>\S+) \[(?P<at>[^\]]+)\] "(?P<request>[^"]*)" (?P<status>\d{3}) (?P<bytes>\d+) "-" '
    r'"(?P<program>[^"]*)" (?P<id>[0-9A-F]{16}) (?P<op>\w+) (?P<code>\S+) (?P<form>\S+) \d+ (?P<ttfb>[\d.]+) '
    r"(?P<ms>[\d.]+) (?P<end>\S+)"
)


def logging(new_server: NewServer, form: str, **server: Value) -> Server:
    """A server whose access log has lines of its own."""
    made = new_server(server=dict(server))
    made.tables["access_log"] = {"format": form, "path": str(made.folder / "access.log")}
    return made.start()


def lines(server: Server, least: int) -> list[str]:
    """The access log, once it has so many lines."""
    path = server.folder / "access.log"

    def enough() -> list[str]:
        found = path.read_text().splitlines() if path.exists() else []
        return found if len(found) >= least else []

    return list(until(enough, 10, f"{least} lines are logged"))


def get(url: str, headers: Mapping[str, str] | None = None) -> int:
    """The status of an unsigned request."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers or {})), timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def from_client(server: Server, *forwarded: str) -> dict[str, Any]:
    """The line of a request that came with this `X-Forwarded-For`."""
    path = server.folder / "access.log"
    before = len(path.read_text().splitlines()) if path.exists() else 0
    get(f"{server.endpoint}/nowhere/k", {"X-Forwarded-For": ", ".join(forwarded)} if forwarded else {})
    told: dict[str, Any] = json.loads(lines(server, before + 1)[before])
    return told


def test_a_line_tells_form_first_byte_and_program(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="zstd-00")
    s3.put_object(Bucket="zstd-00", Key="k", Body=b"abc" * 9999)
    s3.get_object(Bucket="zstd-00", Key="k")["Body"].read()
    found = until(lambda: re.search(r'deltaweir::access: .*op="GetObject".*', server.log.read_text()), 10, "a line")
    line = re.sub(r"\x1b\[[0-9;]*m", "", found[0])
    assert 'form="zstd"' in line
    assert re.search(r' ttfb_ms=[\d.]+ ms=[\d.]+ program="Boto3/\S+" end="complete"', line), line
    assert "peer=127.0.0.1" in line
    assert "via=" not in line


def test_json_lines_stand_in_a_file_of_their_own(new_server: NewServer) -> None:
    server = logging(new_server, "json")
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-aes256-00")
    s3.create_bucket(Bucket="zstd-00")
    s3.put_object(Bucket="zstd-00", Key="a\nb", Body=b"abc" * 9999)
    s3.put_object(Bucket="delta-aes256-00", Key="hidden name", Body=b"x")
    s3.get_object(Bucket="zstd-00", Key="a\nb")["Body"].read()
    told = [json.loads(line) for line in lines(server, 5)]
    by_op = {line["op"]: line for line in told}
    read = by_op["GetObject"]
    assert (read["bucket"], read["key"], read["status"], read["form"]) == ("zstd-00", "a\nb", 200, "zstd")
    assert 0 < read["ttfb_ms"] <= read["ms"]
    assert (read["user"], read["peer"], read["bytes_out"]) == ("root", "127.0.0.1", 29997)
    assert read["program"].startswith("Boto3/")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", read["at"])
    assert "hidden name" not in (server.folder / "access.log").read_text()
    assert "deltaweir::access" not in server.final_log()
    assert (server.folder / "access.log").stat().st_mode & 0o777 == 0o600


def test_clf_is_one_line_of_the_combined_format_whatever_the_key_is(new_server: NewServer) -> None:
    server = logging(new_server, "clf")
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="zstd-00")
    s3.create_bucket(Bucket="delta-aes256-00")
    s3.put_object(Bucket="zstd-00", Key='a "b"\n\t c/é', Body=b"abc" * 9999)
    s3.put_object(Bucket="delta-aes256-00", Key="hidden name", Body=b"x")
    assert get(f"{server.endpoint}/zstd-00/none") == 403
    found = [COMBINED.fullmatch(line) for line in lines(server, 5)]
    told = [match for match in found if match is not None]
    assert len(told) == len(found)
    assert told[2]["request"] == "PUT /zstd-00/a%20%22b%22%0A%09%20c/%C3%A9 HTTP/1.1"
    assert (told[2]["user"], told[2]["form"], told[2]["status"]) == ("root", "zstd", "200")
    assert told[3]["request"] == "PUT /delta-aes256-00/- HTTP/1.1"
    assert (told[4]["user"], told[4]["status"], told[4]["code"]) == ("-", "403", "AccessDenied")
    assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000", told[0]["at"])


def test_a_rotated_log_is_opened_anew_at_a_hangup(new_server: NewServer) -> None:
    server = logging(new_server, "json")
    get(f"{server.endpoint}/nowhere/1")
    lines(server, 1)
    moved = (server.folder / "access.log").rename(server.folder / "access.log.1")
    get(f"{server.endpoint}/nowhere/2")
    until(lambda: len(moved.read_text().splitlines()) == 2, 10, "lines go on into the old file")
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    until((server.folder / "access.log").exists, 10, "the file is made anew")
    get(f"{server.endpoint}/nowhere/3")
    lines(server, 1)
    assert len(moved.read_text().splitlines()) == 2


def test_settings_that_contradict_each_other_are_refused(new_server: NewServer) -> None:
    server = new_server()
    contradictions: list[tuple[dict[str, dict[str, Value]], str]] = [
        ({"access_log": {"path": "x.log"}}, "access_log.path"),
        ({"access_log": {"format": "xml"}}, "access_log"),
        ({"server": {"trusted_proxies": ["10.0.0.0/33"]}}, "server.trusted_proxies[0]"),
        ({"server": {"trusted_proxies": ["127.0.0.1", "proxy.example"]}}, "server.trusted_proxies[1]"),
    ]
    for tables, key in contradictions:
        server.tables = tables
        server.write_config()
        refused = server.run("config", "check", check=False)
        assert refused.returncode == 1
        assert key in refused.stderr


def test_behind_a_trusted_proxy_the_right_most_address_that_is_no_proxys_is_the_client(new_server: NewServer) -> None:
    server = logging(new_server, "json", trusted_proxies=["127.0.0.1", "10.0.0.0/8"])
    for forwarded, client in (
        ((CLIENT,), CLIENT),
        ((ELSEWHERE, CLIENT), CLIENT),
        ((ELSEWHERE, CLIENT, "10.1.2.3"), CLIENT),
        ((f"{CLIENT}:4711",), CLIENT),
        (("2001:db8::7",), "2001:db8::7"),
        ((CLIENT, "unknown"), "127.0.0.1"),
        (("10.1.2.3",), "10.1.2.3"),
        ((), "127.0.0.1"),
    ):
        told = from_client(server, *forwarded)
        assert told["peer"] == client, forwarded
        assert told.get("via") == (None if client == "127.0.0.1" else "127.0.0.1"), forwarded


def test_nobody_elses_word_counts(new_server: NewServer) -> None:
    server = logging(new_server, "json", trusted_proxies=["10.0.0.0/8"])
    told = from_client(server, CLIENT)
    assert (told["peer"], told.get("via")) == ("127.0.0.1", None)


@pytest.mark.parametrize("trusted", [True, False])
def test_policies_and_the_audit_log_see_the_same_address(new_server: NewServer, trusted: bool) -> None:
    server = logging(new_server, "json", trusted_proxies=["127.0.0.1"] if trusted else [])
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="zstd-00")
    s3.put_object(Bucket="zstd-00", Key="k", Body=b"x")
    office = {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}
    put_policy(s3, "zstd-00", allow("zstd-00", "s3:GetObject", Condition=office))
    url = f"{server.endpoint}/zstd-00/k"
    allowed = 200 if trusted else 403
    assert get(url, {"X-Forwarded-For": CLIENT}) == allowed
    assert get(url, {"X-Forwarded-For": f"{ELSEWHERE}, {CLIENT}"}) == allowed
    # What the client itself wrote stands left of what the proxy saw.
    assert get(url, {"X-Forwarded-For": f"{CLIENT}, {ELSEWHERE}"}) == 403
    assert get(url, {"X-Forwarded-For": f"{CLIENT}, unknown"}) == 403
    assert get(url, {"X-Real-IP": CLIENT, "Forwarded": f"for={CLIENT}"}) == 403
    assert get(url) == 403
    seen = {json.loads(line).get("peer") for line in lines(server, 9)}
    assert seen == ({"127.0.0.1", CLIENT, ELSEWHERE} if trusted else {"127.0.0.1"})
    tail = server.run("audit", "tail", "-n", "4").stdout.splitlines()
    denied = {json.loads(line)["peer"] for line in tail if json.loads(line).get("status") == 403}
    assert denied == ({"127.0.0.1", ELSEWHERE} if trusted else {"127.0.0.1"})


def test_the_file_of_the_log_must_be_writable(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server()
    server.tables["access_log"] = {"format": "clf", "path": str(tmp_path / "none" / "access.log")}
    process = server.launch()
    assert process.wait(30) == 1
    assert "none/access.log" in server.log.read_text()


def test_a_pipe_that_nobody_reads_yet_is_a_log_like_others(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server()
    path = tmp_path / "access.log"
    os.mkfifo(path)
    server.tables["access_log"] = {"format": "json", "path": str(path)}
    server.start()
    assert error_code(s3_client(server.endpoint).head_bucket, Bucket="none")[0] == 404
    with path.open("rb") as reader:
        assert json.loads(reader.readline())["op"] == "HeadBucket"
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "were reloaded" in server.log.read_text(), 20, "the log is opened anew")
        assert error_code(s3_client(server.endpoint).head_bucket, Bucket="none")[0] == 404
        assert json.loads(reader.readline())["op"] == "HeadBucket"
    assert server.stop() == 0

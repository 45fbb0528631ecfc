"""The admin listener: who reaches it, with what, and what they cannot do with it."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import stat
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.test_clouds import certificate
from outside.buckets import NewServer, mode_tables
from outside.clients import s3_client
from outside.server import Server, Value, until

READ_TOKEN = "fedcba9876543210fedcba9876543210"
SECRET = b"what the bucket keeps to itself " * 64


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with a token that reads, and a sealed bucket with one object."""
    tables: dict[str, dict[str, Value]] = {"server": {"admin_read_token": READ_TOKEN}}
    with Server(tmp_path_factory.mktemp("admin"), mode_tables() | tables) as server:
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket="delta-aes256-00")
        s3.put_object(Bucket="delta-aes256-00", Key="k", Body=SECRET)
        yield server


def test_a_token_is_made_at_the_first_start_and_asked_for(new_server: NewServer) -> None:
    server = new_server().start()
    made = server.data / "admin-token"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    token = made.read_text()
    assert len(token) >= 32
    assert server.admin_status("/api/v1/stats", token="") == 401
    assert server.admin_status("/api/v1/stats") == 200
    assert {server.admin_status(path, token="") for path in ("/healthz", "/readyz", "/metrics", "/")} == {200}
    assert server.json("stats")["totals"]["objects"] == 0, "the command line needs no token"
    server.restart()
    assert made.read_text() == token
    assert token not in server.final_log()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "0.0.0.0:{port}"},
        {"Host": "[::]:{port}"},
        {"Host": "rebound.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_web_page_is_refused_even_with_the_token(server: Server, headers: dict[str, str]) -> None:
    # C140
    sent = {name: value.format(port=server.admin_port) for name, value in headers.items()}
    for path in ("/", "/metrics", "/api/v1/stats"):
        assert server.admin_status(path, headers=sent) == 403, path
    assert server.admin_status("/api/v1/gc", "POST", headers=sent) == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_is_no_call(server: Server, kind: str) -> None:
    # C131
    assert server.admin_status("/api/v1/jobs/scrub", "POST", b"{}", {"Content-Type": kind}) == 415
    assert server.admin_status("/api/v1/jobs/scrub", "POST", b"{}", {"Content-Type": kind}, token="") == 401
    assert server.admin_status("/api/v1/gc", "POST") == 200


def test_the_token_that_reads_changes_nothing(server: Server) -> None:
    for path in ("/metrics", "/api/v1/stats", "/api/v1/jobs", "/api/v1/explain?bucket=delta-aes256-00&key=k"):
        assert server.admin_status(path, token=READ_TOKEN) == 200, path
    for path in ("/api/v1/gc", "/api/v1/cache/drop", "/api/v1/jobs/scrub", "/api/v1/jobs/gc?action=pause"):
        assert server.admin_status(path, "POST", token=READ_TOKEN) == 403, path


def test_eject_writes_into_no_directory_that_its_caller_made_up(new_server: NewServer, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (root / "out").symlink_to(elsewhere)
    server = new_server(eject={"roots": [str(root)]}).start()
    s3 = s3_client(server.endpoint)
    for bucket in ("delta-00", "delta-aes256-00"):
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="k", Body=SECRET)

    def eject(bucket: str, target: Path) -> int:
        body = json.dumps({"bucket": bucket, "target": str(target)}).encode()
        return server.admin_status("/api/v1/jobs/eject", "POST", body)

    for target in (elsewhere / "new", root / ".." / "elsewhere", root / "out" / "new", Path("relative")):
        assert eject("delta-00", target) == 403, target
        refused = server.run("eject", "s3://delta-aes256-00", str(target), check=False)
        assert refused.returncode != 0
        assert "eject.roots" in refused.stderr
    assert list(elsewhere.iterdir()) == []
    assert eject("delta-00", root / "a") == 200
    until(lambda: not server.admin("/api/v1/jobs/eject")["running"], 30, "the ejection has ended")
    assert (root / "a" / "k").read_bytes() == SECRET
    server.run("eject", "s3://delta-aes256-00", str(root / "b"))
    assert (root / "b" / "k").read_bytes() == SECRET
    server.run("eject", "s3://delta-00", str(elsewhere / "c"))
    assert (elsewhere / "c" / "k").read_bytes() == SECRET, "the owner of the store may, with what is not sealed"


def test_health_is_answered_while_others_hold_every_connection(server: Server) -> None:
    # C141
    with ExitStack() as held:
        for _ in range(200):
            idle = held.enter_context(socket.create_connection(("127.0.0.1", server.admin_port), timeout=10))
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(5):
            assert server.admin_status("/healthz", token="") == 200
            assert server.admin_status("/api/v1/stats") == 200


def test_calls_that_wait_leave_the_reserve_to_health(server: Server) -> None:
    # C141: these calls wait for the rest of their bodies, so none of their connections is idle.
    head = (
        "POST /api/v1/jobs/scrub HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {server.admin_token}\r\nContent-Length: 2\r\n\r\n"
    )
    with ExitStack() as held:

        def refused() -> bool:
            connection = held.enter_context(socket.create_connection(("127.0.0.1", server.admin_port), timeout=10))
            connection.sendall(head.encode())
            return server.admin_status("/api/v1/stats") == 503

        until(refused, 20, "every connection for calls is taken")
        assert server.admin_status("/healthz", token="") == 200
        assert server.admin_status("/readyz", token="") == 200
    until(lambda: server.admin_status("/api/v1/stats") == 200, 20, "places are given back")


def test_wrong_tokens_of_one_peer_are_answered_late_and_the_right_one_at_once(new_server: NewServer) -> None:
    # C117: ten seconds' worth at once, then one a second; who is right waits for nobody.
    server = new_server(limits={"auth_failures_per_second": 1}).start()
    asked = f"GET /api/v1/stats HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'x' * 32}\r\n\r\n"
    for _ in range(10):
        assert server.admin_status("/api/v1/stats", token="x" * 32) == 401
    with ExitStack() as held:
        connections = []
        for _ in range(40):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", server.admin_port), timeout=10))
            connection.sendall(asked.encode())
            connections.append(connection)
        answered = until(lambda: select.select(connections, [], [], 0)[0], 20, "there is no room for all to wait")
        assert answered[0].recv(12) == b"HTTP/1.1 429"
        assert server.admin_status("/api/v1/stats") == 200


def test_off_loopback_the_admin_listener_speaks_tls_or_is_refused(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server()
    server.environment["DELTAWEIR_ADMIN_TOKEN"] = READ_TOKEN
    server.tables["server"] = {"admin_listen": f"0.0.0.0:{server.admin_port}"}
    server.write_config()
    refused = server.run("serve", check=False)
    assert refused.returncode != 0
    assert "admin_over_http" in refused.stderr
    cert, key = certificate(tmp_path)
    server.tables["server"] |= {"tls_cert": str(cert), "tls_key": str(key)}
    server.launch()
    context = ssl.create_default_context(cafile=cert)

    def asked(path: str) -> bytes:
        headers = {"Authorization": f"Bearer {READ_TOKEN}"}
        request = urllib.request.Request(f"https://127.0.0.1:{server.admin_port}{path}", headers=headers)
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return bytes(answer.read())
        return b""

    until(lambda: asked("/readyz") == b"ready\n", 30, "it answers over TLS")
    assert b"totals" in asked("/api/v1/stats")
    assert server.admin_status("/healthz") == 0, "and not over plain HTTP"

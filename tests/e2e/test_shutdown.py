"""SIGTERM: what is under way is finished, what is new is refused, the exit is clean."""

from __future__ import annotations

import fcntl
import os
import signal
import socket

import pytest

from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.content import MIB, noise, release
from outside.server import Server, until
from outside.wire import Connection, signed


def refuses_connections(server: Server) -> bool:
    """Whether the S3 listener is gone."""
    try:
        socket.create_connection(("127.0.0.1", server.port), 1).close()
    except OSError:
        return True
    return False


def begin_upload(server: Server, connection: Connection, sent: bytes) -> None:
    """Sends a part of a PUT, and waits until the server has begun with it."""
    connection.send(sent)
    until(lambda: server.metrics().total("deltaweir_http_inflight", op="PutObject") == 1, 20, "the upload is under way")


def test_an_upload_under_way_is_finished_before_the_server_ends(new_server: NewServer) -> None:
    server = new_server().start()
    blunt_client(server.endpoint).create_bucket(Bucket="delta-00")
    body = noise(1, 6 * MIB)
    request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k", body=body)
    assert server.process is not None
    with Connection(server.port) as connection:
        begin_upload(server, connection, request[: len(request) // 2])
        server.process.send_signal(signal.SIGTERM)
        until(lambda: refuses_connections(server), 20, "new connections are refused")
        assert server.process.poll() is None
        assert server.admin_status("/readyz") == 503
        connection.send(request[len(request) // 2 :])
        answer = connection.answer("PUT")
        assert answer is not None
        assert answer.status == 200
    assert server.process.wait(30) == 0
    server.start()
    assert blunt_client(server.endpoint).get_object(Bucket="delta-00", Key="k")["Body"].read() == body


def test_a_download_under_way_is_finished_too(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    body = release(1, 24 * MIB, 0)
    s3.put_object(Bucket="delta-00", Key="k", Body=body)
    assert server.process is not None
    with Connection(server.port) as connection:
        connection.send(signed(connection.host, "GET", "/delta-00/k"))
        connection.buffer = connection.socket.recv(1024)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: refuses_connections(server), 20, "new connections are refused")
        answer = connection.answer()
    assert answer is not None
    assert (answer.complete, answer.body == body) == (True, True)
    assert server.process.wait(30) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once_with_0(new_server: NewServer, number: signal.Signals) -> None:
    server = new_server().start()
    idle = Connection(server.port)
    assert server.process is not None
    server.process.send_signal(number)
    assert server.process.wait(10) == 0
    idle.socket.close()


def test_a_second_signal_ends_a_server_behind_its_last_lines(new_server: NewServer) -> None:
    """The reader of the log stalls until the server is told for the second time."""
    requests = 300
    server = new_server()
    server.tables["access_log"] = {"format": "json", "path": str(server.folder / "access.log")}
    server.write_config()
    os.mkfifo(server.folder / "access.log")
    reader = os.open(server.folder / "access.log", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    try:
        server.start()
        assert server.process is not None
        s3 = blunt_client(server.endpoint)
        s3.create_bucket(Bucket="delta-00")
        for _ in range(requests - 1):
            s3.head_bucket(Bucket="delta-00")
        with Connection(server.port) as connection:
            # It keeps the server from ending by itself.
            request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k", body=noise(1, MIB))
            begin_upload(server, connection, request[:9000])
            server.process.send_signal(signal.SIGTERM)
            until(lambda: refuses_connections(server), 20, "it is about to end")
            assert server.process.poll() is None
            server.process.send_signal(signal.SIGTERM)
            os.set_blocking(reader, True)
            read = b"".join(iter(lambda: os.read(reader, 1 << 16), b""))
            assert server.process.wait(30) == 130
    finally:
        os.close(reader)
    assert read.count(b"\n") == requests

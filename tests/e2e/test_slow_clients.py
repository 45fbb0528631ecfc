"""Clients that take their time, or too many places: bounded, told so, and nobody else waits for them."""

from __future__ import annotations

import time

from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.server import Server, until
from outside.wire import Connection, signed


def impatient(new_server: NewServer) -> Server:
    """A server that waits a second or two where others wait half a minute."""
    server = new_server(server={"head_timeout": "1s", "stall_timeout": "2s"}).start()
    blunt_client(server.endpoint).create_bucket(Bucket="delta-00")
    return server


def test_a_head_that_does_not_end_is_cut_off(new_server: NewServer) -> None:
    server = impatient(new_server)
    with Connection(server.port, timeout_s=10) as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        started = time.monotonic()
        while connection.socket.recv(4096):
            pass
        assert time.monotonic() - started < 8


def test_a_thousand_slow_heads_do_not_keep_others_out(new_server: NewServer) -> None:
    server = new_server(server={"head_timeout": "20s"}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    before = server.status_bytes("VmRSS")
    slow = [Connection(server.port) for _ in range(800)]
    for connection in slow:
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
    started = time.monotonic()
    for number in range(20):
        s3.put_object(Bucket="delta-00", Key=f"k{number}", Body=noise(number, 10_000))
    assert time.monotonic() - started < 15
    assert server.status_bytes("VmRSS") - before < 800 * 64 * 1024 + 64 * MIB
    for connection in slow:
        connection.socket.close()


def test_a_body_that_stalls_is_given_up_and_nothing_is_stored(new_server: NewServer) -> None:
    server = impatient(new_server)
    request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k", body=noise(1, MIB))
    with Connection(server.port, timeout_s=20) as connection:
        connection.send(request[: len(request) // 2])
        answer = connection.answer("PUT")
        assert answer is None or (answer.status, answer.code) == (400, "RequestTimeout")
        assert connection.closed()
    assert error_code(blunt_client(server.endpoint).head_object, Bucket="delta-00", Key="k") == (404, "404")


def test_a_reader_that_stops_reading_is_given_up(new_server: NewServer) -> None:
    server = impatient(new_server)
    blunt_client(server.endpoint).put_object(Bucket="delta-00", Key="k", Body=noise(1, 64 * MIB))
    with Connection(server.port) as connection:
        connection.send(signed(connection.host, "GET", "/delta-00/k"))
        in_flight = "deltaweir_http_inflight"
        until(lambda: server.metrics().total(in_flight, op="GetObject") == 1, 20, "the download began")
        until(lambda: server.metrics().total(in_flight, op="GetObject") == 0, 30, "the server gave the reader up")


def test_past_the_most_requests_at_once_clients_are_asked_to_come_again(new_server: NewServer) -> None:
    server = new_server(limits={"requests_max": 2}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k", body=noise(1, MIB))
    waiting = [Connection(server.port) for _ in range(2)]
    for connection in waiting:
        connection.send(request[:-1])
    in_flight = "deltaweir_http_inflight"
    until(lambda: server.metrics().total(in_flight, op="PutObject") == 2, 20, "both uploads are under way")
    assert error_code(s3.list_buckets) == (503, "SlowDown")
    for connection in waiting:
        connection.send(request[-1:])
        answer = connection.answer("PUT")
        assert answer is not None
        assert answer.status == 200
        connection.socket.close()
    until(lambda: server.metrics().total(in_flight) == 0, 20, "the places are free again")
    assert s3.list_buckets()["Buckets"]

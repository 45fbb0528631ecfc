"""Requests over HTTP/2 that would mean something else over HTTP/1 (C65)."""

from __future__ import annotations

import socket

import h2.config
import h2.connection
import h2.events
import pytest

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.server import Server

Headers = list[tuple[str, str]]


@pytest.fixture
def server(new_server: NewServer) -> Server:
    """One with a bucket that nobody signs for."""
    server = new_server().start()
    s3_client(server.endpoint).create_bucket(Bucket="off-00")
    return server


def ask(server: Server, headers: Headers) -> int | None:
    """The status of one request as it stands; `None` when its stream or connection was ended instead."""
    config = h2.config.H2Configuration(
        client_side=True, header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False
    )
    client = h2.connection.H2Connection(config)
    client.initiate_connection()
    client.send_headers(1, headers, end_stream=True)
    with socket.create_connection(("127.0.0.1", server.port), 20) as wire:
        wire.sendall(client.data_to_send())
        while data := wire.recv(65_536):
            for event in client.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    return next(int(value) for name, value in event.headers or [] if name in (":status", b":status"))
                if isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                    return None
            wire.sendall(client.data_to_send())
    return None


def head(server: Server, **changed: str) -> Headers:
    """A GET of one key, some of its pseudo headers changed."""
    pseudo = {"method": "GET", "scheme": "http", "authority": f"127.0.0.1:{server.port}", "path": "/off-00/k"} | changed
    return [(f":{name}", value) for name, value in pseudo.items()]


def test_a_request_that_is_two_over_http_1_is_refused(server: Server) -> None:
    assert ask(server, head(server)) == 403, "an honest one comes through to the question of who asks"
    smuggled = "x HTTP/1.1\r\nHost: other\r\n\r\nDELETE /off-00/k"
    refused: list[Headers] = [
        head(server, path=f"/off-00/{smuggled}"),
        head(server, path="/off-00/k\n"),
        head(server, method="GET / HTTP/1.1\r\nX: "),
        head(server, authority="a\r\nX-Forwarded-For: 10.0.0.1"),
        [*head(server), ("x-amz-meta-a", "1\r\nx-amz-acl: public-read")],
        [*head(server), ("x-amz-meta-a\r\nx-amz-acl", "public-read")],
        [*head(server), ("transfer-encoding", "chunked")],
        [*head(server), ("connection", "keep-alive")],
        [*head(server), ("host", "other.example")],
        [*head(server), (":path", "/off-00/other")],
    ]
    told = {str(headers): ask(server, headers) for headers in refused}
    assert {headers: status for headers, status in told.items() if status not in (None, 400)} == {}


def test_a_host_that_contradicts_the_authority_is_a_bad_request(server: Server) -> None:
    same = ("host", f"127.0.0.1:{server.port}")
    assert ask(server, [*head(server), same]) == 403
    assert ask(server, [*head(server), ("host", "off-00.s3.example.com")]) == 400

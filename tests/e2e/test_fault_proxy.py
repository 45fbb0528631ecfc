"""The fault proxy itself: every kind does what it says, and what meets no fault passes unchanged."""

from __future__ import annotations

import http.client
import http.server
import threading
import time
from collections.abc import Iterator

import pytest

from outside.faults import Fault, FaultProxy, Kind

BODY = bytes(range(256)) * 400


class Echo(http.server.BaseHTTPRequestHandler):
    """Keeps the bodies of PUTs, answers a GET with `BODY`."""

    protocol_version = "HTTP/1.1"
    received: list[bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if len(body) == int(self.headers["Content-Length"]):
            self.received.append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def received() -> list[bytes]:
    """Bodies that reached upstream."""
    return []


@pytest.fixture
def proxy(received: list[bytes]) -> Iterator[FaultProxy]:
    """A proxy in front of an echo."""
    handler = type("Handler", (Echo,), {"received": received})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with FaultProxy(server.server_address[1]) as running:
            yield running
        server.shutdown()


def connection(proxy: FaultProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)


def get(proxy: FaultProxy) -> tuple[http.client.HTTPResponse, bytes]:
    asking = connection(proxy)
    asking.request("GET", "/a")
    answer = asking.getresponse()
    return answer, answer.read()


def put(proxy: FaultProxy) -> int:
    asking = connection(proxy)
    asking.request("PUT", "/a", BODY)
    return asking.getresponse().status


def test_without_a_fault_everything_passes_over_one_connection(proxy: FaultProxy, received: list[bytes]) -> None:
    asking = connection(proxy)
    for _ in range(2):
        asking.request("GET", "/a")
        assert asking.getresponse().read() == BODY
        asking.request("HEAD", "/a")
        assert asking.getresponse().read() == b""
        asking.request("PUT", "/a", BODY)
        assert asking.getresponse().read() == b""
        asking.request("PUT", "/chunked", iter([BODY[:100], BODY[100:]]), {"Content-Length": str(len(BODY))})
        assert asking.getresponse().read() == b""
    assert received == [BODY] * 4 and proxy.fired() == 0 and len(proxy.exchanges) == 8


def test_a_rule_meets_only_what_fits_and_as_often_as_it_says(proxy: FaultProxy) -> None:
    proxy.inject(Fault(Kind.STATUS, 503, retry_after_s=7), "GET", contains="/a", times=2)
    assert put(proxy) == 200
    for _ in range(2):
        answer, body = get(proxy)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "7") and b"<Code>SlowDown</Code>" in body
    assert get(proxy)[1] == BODY
    assert proxy.fired() == 2
    proxy.inject(Fault(Kind.STATUS), "GET", contains="/other")
    assert get(proxy)[0].status == 200
    proxy.heal()
    assert not proxy.rules


def test_an_answer_is_cut_by_a_reset_or_by_an_end(proxy: FaultProxy) -> None:
    proxy.inject(Fault(Kind.RESET_ANSWER), "GET")
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        get(proxy)
    proxy.inject(Fault(Kind.SHORT_BODY), "GET")
    with pytest.raises(http.client.IncompleteRead) as cut:
        get(proxy)
    assert cut.value.partial == BODY[: len(BODY) // 2]
    assert proxy.fired() == 2


def test_a_request_is_lost_before_its_end_or_after_it_was_done(proxy: FaultProxy, received: list[bytes]) -> None:
    proxy.inject(Fault(Kind.RESET_REQUEST), "PUT")
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        put(proxy)
    assert received == []
    proxy.inject(Fault(Kind.COMMIT_THEN_RESET), "PUT")
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        put(proxy)
    assert received == [BODY]


def test_a_request_arrives_twice_and_is_answered_once(proxy: FaultProxy, received: list[bytes]) -> None:
    proxy.inject(Fault(Kind.DUPLICATED), "PUT")
    assert put(proxy) == 200
    assert received == [BODY, BODY]


def test_time_passes_before_an_answer_or_within_it(proxy: FaultProxy) -> None:
    for kind in (Kind.STALL, Kind.SLOW):
        proxy.inject(Fault(kind, pause_s=0.3 if kind is Kind.STALL else 0.03), "GET")
        began = time.monotonic()
        assert get(proxy)[1] == BODY
        assert time.monotonic() - began >= 0.3

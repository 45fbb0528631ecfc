"""A collector of traces: takes OTLP over HTTP as protobuf, and keeps the spans."""

from __future__ import annotations

import http.server
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

Fields = dict[int, list[bytes | int]]
"""A message of protobuf: the values of each field by its number, undecoded."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a test asks about a span."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, str | int]


@dataclass
class Collector:
    """Listens on loopback for as long as it is entered."""

    status: int = 200
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    requests: list[dict[str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        collector = self

        class Answers(http.server.BaseHTTPRequestHandler):
            """One connection."""

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is printed."""

            def do_POST(self) -> None:
                """Takes spans."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append({name.lower(): value for name, value in self.headers.items()})
                if collector.status == 200:
                    collector.take(body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """Where spans go."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def take(self, body: bytes) -> None:
        """An `ExportTraceServiceRequest`."""
        for resource_spans in messages(fields_of(body), 1):
            for resource in messages(resource_spans, 1):
                self.services.add(str(attributes_of(resource, 1)["service.name"]))
            for scope_spans in messages(resource_spans, 2):
                self.spans.extend(span_of(span) for span in messages(scope_spans, 2))

    def children(self, span: Span) -> list[Span]:
        """The spans below one, in the order of their beginnings."""
        below = [one for one in self.spans if one.parent == span.id]
        return sorted(below, key=lambda one: (one.start_ns, one.end_ns))


def span_of(span: Fields) -> Span:
    """A `Span`."""
    (status,) = messages(span, 15) or [{}]
    return Span(
        name=text(span, 5),
        trace=raw(span, 1).hex(),
        id=raw(span, 2).hex(),
        parent=raw(span, 4).hex(),
        kind=number(span, 6),
        start_ns=number(span, 7),
        end_ns=number(span, 8),
        failed=number(status, 3) == 2,
        attributes=attributes_of(span, 9),
    )


def attributes_of(message: Fields, number_: int) -> dict[str, str | int]:
    """`KeyValue`s: texts and whole numbers, the kinds that the server sends."""
    found: dict[str, str | int] = {}
    for pair in messages(message, number_):
        (value,) = messages(pair, 2)
        found[text(pair, 1)] = text(value, 1) if 1 in value else number(value, 3)
    return found


def raw(message: Fields, at: int) -> bytes:
    """A field of bytes; empty when it is not there."""
    (value,) = message.get(at, [b""])
    assert isinstance(value, bytes)
    return value


def text(message: Fields, at: int) -> str:
    """A field of text."""
    return raw(message, at).decode()


def number(message: Fields, at: int) -> int:
    """A field that is a number; 0 when it is not there."""
    (value,) = message.get(at, [0])
    assert isinstance(value, int)
    return value


def messages(message: Fields, at: int) -> list[Fields]:
    """A repeated field of messages."""
    return [fields_of(value) for value in message.get(at, []) if isinstance(value, bytes)]


def fields_of(body: bytes) -> Fields:
    """Takes a message apart (protobuf's wire format)."""
    found: Fields = {}
    for at, value in wire(body):
        found.setdefault(at, []).append(value)
    return found


def wire(body: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Each field's number and value."""
    at = 0
    while at < len(body):
        tag, at = varint(body, at)
        match tag & 7:
            case 0:
                value, at = varint(body, at)
                yield tag >> 3, value
            case 1:
                yield tag >> 3, struct.unpack_from("<Q", body, at)[0]
                at += 8
            case 2:
                length, at = varint(body, at)
                assert at + length <= len(body), "a field ends behind its message"
                yield tag >> 3, body[at : at + length]
                at += length
            case 5:
                yield tag >> 3, struct.unpack_from("<I", body, at)[0]
                at += 4
            case other:
                raise AssertionError(f"wire type {other}")


def varint(body: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next thing begins."""
    value = shift = 0
    while True:
        byte = body[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at

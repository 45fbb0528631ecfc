"""HTTP/1.1 spoken byte by byte, for requests no client library would send."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outside.sigv4 import EMPTY_SHA256, Header, Scope, authorize


@dataclass(frozen=True)
class Answer:
    """One response, its body read to the end."""

    status: int
    headers: tuple[Header, ...]
    body: bytes
    complete: bool
    """False when the connection ended before the length that was announced."""

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def code(self) -> str | None:
        """The error code of the S3 document, if the body is one."""
        found = re.search(rb"<Code>([^<]*)</Code>", self.body)
        return found[1].decode() if found else None


class Connection:
    """A TCP connection to the S3 listener."""

    def __init__(self, port: int, timeout_s: float = 20) -> None:
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    @property
    def host(self) -> str:
        """The `Host` of plain requests."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends everything; a peer that has answered and closed already is no error here."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def _more(self) -> bool:
        try:
            data = self.socket.recv(256 * 1024)
        except ConnectionResetError:
            return False
        self.buffer += data
        return bool(data)

    def _line(self) -> bytes | None:
        while b"\r\n" not in self.buffer:
            if not self._more():
                return None
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        left = size
        while left:
            if not self.buffer and not self._more():
                return b"".join(parts), False
            part, self.buffer = self.buffer[:left], self.buffer[left:]
            parts.append(part)
            left -= len(part)
        return b"".join(parts), True

    def answer(self, method: str = "GET") -> Answer | None:
        """The next final response; `None` when the connection ended before its status line."""
        while True:
            line = self._line()
            if line is None:
                return None
            status = int(line.split()[1])
            headers: list[Header] = []
            while (field := self._line()) not in (b"", None):
                assert field is not None
                name, _, value = field.decode("utf-8", "surrogateescape").partition(":")
                headers.append((name, value.strip()))
            if status >= 200:
                break
        body, complete = self._body(method, status, headers)
        return Answer(status, tuple(headers), body, complete)

    def _body(self, method: str, status: int, headers: Sequence[Header]) -> tuple[bytes, bool]:
        fields = {name.lower(): value for name, value in headers}
        if method == "HEAD" or status in (204, 304):
            return b"", True
        if fields.get("transfer-encoding", "").lower() == "chunked":
            return self._chunked()
        if "content-length" in fields:
            return self._exactly(int(fields["content-length"]))
        while self._more():
            pass
        body, self.buffer = self.buffer, b""
        return body, True

    def _chunked(self) -> tuple[bytes, bool]:
        body = b""
        while True:
            line = self._line()
            if line is None:
                return body, False
            data, complete = self._exactly(int(line, 16))
            body += data
            if not complete or self._line() is None:
                return body, False
            if not data:
                return body, True

    def closed(self) -> bool:
        """Whether the peer ends the connection without another byte, within the socket's timeout."""
        try:
            return not self.buffer and not self._more()
        except TimeoutError:
            return False


def encode(method: str, target: str, headers: Sequence[Header], body: bytes = b"") -> bytes:
    """A request as it goes on the wire, nothing added."""
    head = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(head).encode("utf-8", "surrogateescape") + body


def ask(connect: Callable[[], Connection], data: bytes, method: str = "GET") -> Answer:
    """One request on a connection of its own, its answer."""
    with connect() as connection:
        connection.send(data)
        answer = connection.answer(method)
    assert answer is not None
    return answer


def signed(
    host: str,
    method: str,
    target: str,
    headers: Sequence[Header] = (),
    body: bytes = b"",
    payload: str | None = None,
    scope: Scope | None = None,
) -> bytes:
    """A correctly signed request; `payload` is the content hash to claim when it is not the body's."""
    claimed = payload or (hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256)
    basic = [("Host", host), *headers]
    if body or method in ("PUT", "POST"):
        basic.append(("Content-Length", str(len(body))))
    names = sorted(
        {name.lower() for name, _ in basic} - {"content-length", "expect", "connection", "transfer-encoding"}
    )
    names = sorted([*names, "x-amz-date", "x-amz-content-sha256"])
    complete, _ = authorize(scope or Scope(), method, target, basic, claimed, names)
    return encode(method, target, complete, body)

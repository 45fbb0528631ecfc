"""One keep-alive HTTP/1.1 connection with a clock on it.

The head is built and signed before the clock starts. Bodies are sent with `sendfile` over plain TCP and read straight
into the caller's buffer, so that the client costs two system calls per megabyte and can be shown not to be the
bottleneck. Parsing the answer's head is the standard library's.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import BinaryIO

from taxbench.client.endpoint import Endpoint
from taxbench.client.sigv4 import SignedHead

READ_BYTES = 1 << 20
PACED_BYTES = 32 << 10
COALESCE_BYTES_MAX = 16 << 10
"""Bodies up to this size leave in the same segment as the head, so that Nagle and delayed ACKs are the server's
doing.
"""


class ExchangeError(Exception):
    """The exchange did not end with a whole answer. `before_answer` tells whether repeating it is harmless."""

    def __init__(self, reason: str, before_answer: bool) -> None:
        super().__init__(reason)
        self.before_answer = before_answer


@dataclass(slots=True)
class Body:
    """What to send: bytes, or a window of an open file."""

    data: bytes = b""
    file: BinaryIO | None = None
    offset: int = 0
    length: int = 0


@dataclass(slots=True)
class Exchange:
    """One request and its whole answer, with times in seconds."""

    status: int
    headers: dict[str, str]
    body_len: int
    connect_s: float
    ttfb_s: float
    total_s: float
    max_gap_s: float
    small_body: bytes = b""


NO_BODY = Body()


@dataclass
class TimedConnection:
    """A connection that opens when it is first needed and stays open for as long as the server lets it."""

    endpoint: Endpoint
    _sock: socket.socket | None = field(default=None, init=False)
    _tls: ssl.SSLContext | None = field(default=None, init=False)

    def close(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.close()
            self._sock = None

    def exchange(
        self, head: SignedHead, body: Body = NO_BODY, sink: memoryview | None = None, pace: float = 0.0
    ) -> Exchange:
        """Sends a request and reads the answer to its last byte.

        A successful answer's body goes to `sink` when one is given; other bodies are kept in `small_body`.

        # Errors
        `ExchangeError` on a timeout, a cut or over-long body, or a connection that broke.
        """
        started = time.perf_counter()
        connect_s = 0.0
        try:
            if self._sock is None or self._stale():
                self.close()
                self._sock = self._connect()
                connect_s = time.perf_counter() - started
            self._send(head.head, body, pace)
        except TimeoutError as error:
            self.close()
            raise ExchangeError("timed out while sending", before_answer=False) from error
        except OSError as error:
            if not isinstance(error, (BrokenPipeError, ConnectionResetError)) or self._sock is None:
                self.close()
                raise ExchangeError(f"connection failed: {error}", before_answer=True) from error
            # A server that refuses a body answers early and closes; its answer may still be readable below.
        return self._receive(head, sink, started, connect_s)

    def _connect(self) -> socket.socket:
        sock = socket.create_connection((self.endpoint.host, self.endpoint.port), timeout=self.endpoint.timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.endpoint.tls:
            if self._tls is None:
                self._tls = ssl.create_default_context(cafile=self.endpoint.ca_file or None)
            return self._tls.wrap_socket(sock, server_hostname=self.endpoint.host)
        return sock

    def _stale(self) -> bool:
        """Whether an idle connection became readable: the server closed it, since nothing was asked."""
        assert self._sock is not None
        readable, _, _ = select.select([self._sock], [], [], 0)
        return bool(readable)

    def _send(self, head: bytes, body: Body, pace: float) -> None:
        sock = self._sock
        assert sock is not None
        if body.length == 0 and not body.data:
            sock.sendall(head)
            return
        if body.file is not None and body.length <= COALESCE_BYTES_MAX:
            body.file.seek(body.offset)
            body = Body(data=body.file.read(body.length))
        if body.data and len(body.data) <= COALESCE_BYTES_MAX and not pace:
            sock.sendall(head + body.data)
            return
        sock.sendall(head)
        if pace:
            self._send_paced(body, pace)
        elif body.file is not None:
            sock.sendfile(body.file, body.offset, body.length)
        else:
            sock.sendall(body.data)

    def _send_paced(self, body: Body, bytes_per_s: float) -> None:
        """Sends at a steady rate: never ahead of the schedule, and not catching up in bursts after a stall."""
        sock = self._sock
        assert sock is not None
        due = time.perf_counter()
        length = len(body.data) or body.length
        for begin in range(0, length, PACED_BYTES):
            size = min(PACED_BYTES, length - begin)
            if body.file is not None:
                sock.sendfile(body.file, body.offset + begin, size)
            else:
                sock.sendall(memoryview(body.data)[begin : begin + size])
            due = max(due + size / bytes_per_s, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))

    def _receive(self, head: SignedHead, sink: memoryview | None, started: float, connect_s: float) -> Exchange:
        sock = self._sock
        assert sock is not None
        try:
            if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                readable, _, _ = select.select([sock], [], [], self.endpoint.timeout_s)
                if not readable:
                    raise TimeoutError
            first_byte = time.perf_counter()
            response = http.client.HTTPResponse(sock, method=head.method)
            response.begin()
        except TimeoutError as error:
            self.close()
            raise ExchangeError("stalled: no answer before the timeout", before_answer=False) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ExchangeError(f"connection broke before the answer: {error!r}", before_answer=True) from error
        headers = {name.lower(): value for name, value in response.getheaders()}
        try:
            wanted = sink if sink is not None and response.status in (200, 206) else None
            body_len, small, max_gap_s = _read_body(response, wanted, first_byte)
        except TimeoutError as error:
            self.close()
            raise ExchangeError("stalled: the body stopped before its end", before_answer=False) from error
        except (OSError, http.client.HTTPException, OverflowError) as error:
            self.close()
            raise ExchangeError(f"body cut: {error!r}", before_answer=False) from error
        ended = time.perf_counter()
        promised = headers.get("content-length")
        if (
            promised is not None
            and head.method != "HEAD"
            and response.status not in (204, 304)
            and int(promised) != body_len
        ):
            self.close()
            raise ExchangeError(f"body cut: {body_len} of {promised} bytes", before_answer=False)
        if response.will_close:
            self.close()
        response.close()
        return Exchange(
            status=response.status,
            headers=headers,
            body_len=body_len,
            connect_s=connect_s,
            ttfb_s=first_byte - started,
            total_s=ended - started,
            max_gap_s=max_gap_s,
            small_body=small,
        )


def _read_body(
    response: http.client.HTTPResponse, sink: memoryview | None, first_byte: float
) -> tuple[int, bytes, float]:
    """Reads to the end.

    Gives the length, the bytes when there is no sink, and the longest silence between two reads.
    """
    if sink is None:
        small = response.read()
        return len(small), small, 0.0
    at, last, max_gap_s = 0, first_byte, 0.0
    while True:
        window = sink[at : at + READ_BYTES]
        if not len(window):
            if response.read(1):
                raise OverflowError("the body is longer than the object")
            return at, b"", max_gap_s
        got = response.readinto(window)
        now = time.perf_counter()
        max_gap_s = max(max_gap_s, now - last)
        last = now
        if not got:
            return at, b"", max_gap_s
        at += got

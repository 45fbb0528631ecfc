"""A proxy that speaks just enough HTTP/1.1 to break one exchange on purpose and pass all others on.

It stands between the server and the store that keeps its blobs, or between a client and the server. Faults are rules:
the next request that fits a rule meets its fault. Everything that passed is remembered, in order, with its time.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

HEAD_BYTES_MAX = 64 << 10
PIECE_BYTES = 8 << 10


class Kind(enum.Enum):
    """One way to break an exchange."""

    STATUS = "an error status, and nothing is passed on"
    RESET_REQUEST = "the connection is reset in the middle of the request's body; upstream sees the same"
    RESET_ANSWER = "the connection is reset in the middle of the answer's body"
    SHORT_BODY = "the answer ends early although its Content-Length promises more"
    COMMIT_THEN_RESET = "upstream does what was asked, and its answer is lost in a reset"
    DUPLICATED = "the request reaches upstream twice; the first answer is passed on"
    STALL = "nothing moves for a while, then everything goes on"
    SLOW = "the answer's body comes in small pieces with pauses"


@dataclass(frozen=True)
class Fault:
    """A kind with its details."""

    kind: Kind
    status: int = 500
    retry_after_s: int | None = None
    pause_s: float = 0.0


@dataclass
class Rule:
    """Which requests meet a fault, and how many."""

    fault: Fault
    method: str
    contains: str
    left: int


@dataclass(frozen=True)
class Exchange:
    """A request that arrived."""

    at_s: float
    method: str
    target: str
    fault: Fault | None


@dataclass
class Message:
    """A head as it came, and its body."""

    head: bytes
    body: bytes

    @property
    def first_line(self) -> list[str]:
        """The first line's words."""
        return self.head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")

    def header(self, name: str) -> str | None:
        """A header's value."""
        return header(self.head, name)


def header(head: bytes, name: str) -> str | None:
    """A header's value in a head."""
    for line in head.split(b"\r\n")[1:]:
        found, colon, value = line.decode("latin-1").partition(":")
        if colon and found.strip().lower() == name:
            return value.strip()
    return None


class GoneError(Exception):
    """The other side closed between two messages."""


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """A head with its empty line."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        raise GoneError from error


async def read_body(reader: asyncio.StreamReader, head: bytes, *, has_none: bool) -> bytes:
    """A body as it is on the wire: chunked framing is kept."""
    if has_none:
        return b""
    if (header(head, "transfer-encoding") or "").lower() == "chunked":
        body = b""
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            body += line
            if size == 0:
                while (trailer := await reader.readuntil(b"\r\n")) != b"\r\n":
                    body += trailer
                return body + b"\r\n"
            body += await reader.readexactly(size + 2)
    return await reader.readexactly(int(header(head, "content-length") or 0))


def reset(writer: asyncio.StreamWriter) -> None:
    """Closes with RST instead of FIN."""
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@dataclass
class FaultProxy:
    """Listens on a free loopback port while it is entered; passes everything on to `upstream_port`."""

    upstream_port: int
    port: int = 0
    exchanges: list[Exchange] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    loop: asyncio.AbstractEventLoop | None = None
    thread: threading.Thread | None = None

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def inject(self, fault: Fault, method: str, contains: str = "", times: int = 1) -> None:
        """The next `times` requests of `method` whose target contains `contains` meet `fault`."""
        with self.lock:
            self.rules.append(Rule(fault, method, contains, times))

    def heal(self) -> None:
        """Forgets every rule that is left."""
        with self.lock:
            self.rules.clear()

    def fired(self) -> int:
        """How many requests met a fault."""
        with self.lock:
            return sum(exchange.fault is not None for exchange in self.exchanges)

    def forget(self) -> None:
        """Forgets what passed so far."""
        with self.lock:
            self.exchanges.clear()

    def seen(self, method: str) -> list[Exchange]:
        """What passed of one method, in order."""
        with self.lock:
            return [exchange for exchange in self.exchanges if exchange.method == method]

    def __enter__(self) -> FaultProxy:
        started = threading.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            async with server:
                await server.serve_forever()

        def run() -> None:
            self.loop = asyncio.new_event_loop()
            try:
                self.loop.run_until_complete(serve())
            except asyncio.CancelledError:
                pass
            finally:
                self.loop.close()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert started.wait(10), "the proxy listens"
        return self

    def __exit__(self, *_: object) -> None:
        assert self.loop is not None and self.thread is not None
        loop = self.loop

        def cancel() -> None:
            for task in asyncio.all_tasks(loop):
                task.cancel()

        loop.call_soon_threadsafe(cancel)
        self.thread.join(10)

    def _meet(self, method: str, target: str) -> Fault | None:
        """The fault of a request that has just arrived."""
        with self.lock:
            rule = next((r for r in self.rules if r.left and r.method == method and r.contains in target), None)
            fault = None
            if rule is not None:
                rule.left -= 1
                fault = rule.fault
            self.exchanges.append(Exchange(time.monotonic(), method, target, fault))
        return fault

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                head = await read_head(reader)
                method, target = head.split(b" ", 2)[0].decode(), head.split(b" ", 2)[1].decode()
                fault = self._meet(method, target)
                if upstream is None:
                    upstream = await asyncio.open_connection("127.0.0.1", self.upstream_port, limit=HEAD_BYTES_MAX)
                if not await self._exchange(reader, writer, head, fault, upstream):
                    return
        except (GoneError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            for stream in (writer, upstream[1] if upstream else None):
                if stream is not None:
                    stream.close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        head: bytes,
        fault: Fault | None,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> bool:
        """One request and its answer; whether the connection goes on."""
        kind = fault.kind if fault else None
        if (header(head, "expect") or "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            lines = head.split(b"\r\n")
            head = b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))
        if kind is Kind.RESET_REQUEST:
            await self._reset_within_request(reader, writer, head, upstream[1])
            return False
        request = Message(head, await read_body(reader, head, has_none=False))
        if fault is not None and kind is Kind.STATUS:
            await self._refuse(writer, fault)
            return False
        if fault is not None and kind is Kind.STALL:
            await asyncio.sleep(fault.pause_s)
        answer = await self._ask(request, upstream)
        if kind is Kind.DUPLICATED:
            # The duplicate's answer goes nowhere, whatever it says.
            again = await asyncio.open_connection("127.0.0.1", self.upstream_port, limit=HEAD_BYTES_MAX)
            await self._ask(request, again)
            again[1].close()
        if kind is Kind.COMMIT_THEN_RESET:
            reset(writer)
            return False
        half = len(answer.body) // 2
        if kind in (Kind.RESET_ANSWER, Kind.SHORT_BODY):
            writer.write(answer.head + answer.body[:half])
            await writer.drain()
            if kind is Kind.RESET_ANSWER:
                reset(writer)
            return False
        pieces = PIECE_BYTES if kind is Kind.SLOW else max(len(answer.body), 1)
        writer.write(answer.head)
        for start in range(0, len(answer.body), pieces):
            writer.write(answer.body[start : start + pieces])
            await writer.drain()
            if fault is not None and kind is Kind.SLOW:
                await asyncio.sleep(fault.pause_s)
        await writer.drain()
        return (answer.header("connection") or "").lower() != "close"

    async def _reset_within_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, upstream: asyncio.StreamWriter
    ) -> None:
        half = int(header(head, "content-length") or 0) // 2
        upstream.write(head + await reader.readexactly(half))
        await upstream.drain()
        reset(upstream)
        reset(writer)

    async def _refuse(self, writer: asyncio.StreamWriter, fault: Fault) -> None:
        code = {429: "TooManyRequests", 503: "SlowDown"}.get(fault.status, "InternalError")
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>on purpose</Message></Error>".encode()
        again = "" if fault.retry_after_s is None else f"Retry-After: {fault.retry_after_s}\r\n"
        head = f"HTTP/1.1 {fault.status} Fault\r\n{again}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    async def _ask(self, request: Message, upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> Message:
        reader, writer = upstream
        writer.write(request.head + request.body)
        await writer.drain()
        head = await read_head(reader)
        while head.split(b" ")[1] == b"100":
            head = await read_head(reader)
        status = int(head.split(b" ")[1])
        has_none = request.first_line[0] == "HEAD" or status in (204, 304)
        return Message(head, await read_body(reader, head, has_none=has_none))

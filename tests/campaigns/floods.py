"""Five floods at once, from one user and one peer, in a process of its own that is pinned to one core.

    python -m campaigns.floods JSON

Prints `ready` once all of them are under way, then goes on until its standard input ends, and prints what it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from outside.sigv4 import Scope
from outside.users import key_id, secret
from outside.wire import signed

PEER = "127.0.0.2"
"""Where all of it comes from: another peer than everybody else on loopback."""
USER = "alt"
BUCKET = "of-alt"
LARGE, LARGE_BYTES = "large", 32 << 20
SLOW_BODY_BYTES = 1 << 20
TICK_S = 1.0
"""How often a slow upload sends a byte, and a slow reader takes some."""


@dataclass(frozen=True)
class Flood:
    """How much of each."""

    port: int
    admin_port: int
    core: int
    idle: int
    slow_uploads: int
    slow_readers: int
    guessers: int
    open_uploads: int


class Floods:
    """Everything that runs at once."""

    def __init__(self, flood: Flood) -> None:
        self.flood = flood
        self.done: Counter[str] = Counter()
        self.scope = Scope(key_id(USER), secret(USER))
        self.host = f"127.0.0.1:{flood.port}"

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection from the peer."""
        return await asyncio.open_connection("127.0.0.1", port, local_addr=(PEER, 0), limit=1 << 14)

    async def again(self, name: str, flood: Coroutine[Any, Any, None]) -> None:
        """One go: whatever ends it, the next one begins."""
        self.done[name] += 1
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            await flood

    async def keep(self, name: str, make: Any) -> None:
        """One go after another."""
        while True:
            await self.again(name, make())
            await asyncio.sleep(0.05)

    async def idle(self, port: int) -> None:
        """A connection that sends nothing, or half a head."""
        reader, writer = await self.connect(port)
        if self.done["idle"] % 2:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        await reader.read()
        writer.close()

    async def slow_upload(self) -> None:
        """A body of which a byte comes each second."""
        request = signed(self.host, "PUT", f"/{BUCKET}/slow", body=bytes(SLOW_BODY_BYTES), scope=self.fresh())
        reader, writer = await self.connect(self.flood.port)
        head = len(request) - SLOW_BODY_BYTES
        writer.write(request[:head])
        answered = asyncio.create_task(reader.read(12))
        for place in range(head, len(request)):
            await asyncio.wait([answered], timeout=TICK_S)
            if answered.done():
                self.done["slow uploads refused"] += 1
                break
            writer.write(request[place : place + 1])
        writer.close()
        await answered

    async def slow_reader(self) -> None:
        """A download of which next to nothing is taken."""
        reader, writer = await self.connect(self.flood.port)
        writer.write(signed(self.host, "GET", f"/{BUCKET}/{LARGE}", scope=self.fresh()))
        while await reader.read(512):
            await asyncio.sleep(TICK_S)
        writer.close()

    async def guess(self, number: int) -> None:
        """Wrong signatures, keys and tokens, each as soon as the one before was answered."""
        port = self.flood.admin_port if number % 3 == 2 else self.flood.port
        wrong = Scope(key_id(USER) if number % 3 else "AKNOBODY", "not the secret")
        token = f"GET /api/v1/stats HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'x' * 32}\r\n\r\n"
        request = token.encode() if number % 3 == 2 else signed(self.host, "GET", f"/{BUCKET}/k", scope=wrong)
        reader, writer = await self.connect(port)
        while True:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            await reader.readexactly(int(length[1]) if length else 0)
            self.done["guesses answered"] += 1
            if b"connection: close" in head.lower():
                break
        writer.close()

    async def open_uploads(self) -> None:
        """Uploads that nobody completes."""
        reader, writer = await self.connect(self.flood.port)
        for number in range(self.flood.open_uploads):
            writer.write(signed(self.host, "POST", f"/{BUCKET}/open-{number}?uploads", scope=self.fresh()))
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            await reader.readexactly(int(length[1]) if length else 0)
            self.done["uploads opened" if b" 200 " in head[:16] else "uploads not opened"] += 1
        writer.close()

    def fresh(self) -> Scope:
        """The user's scope, of now."""
        return Scope(self.scope.key_id, self.scope.secret)

    async def run(self) -> None:
        """All of them, until standard input ends."""
        flood = self.flood
        admin = max(1, flood.idle // 16)
        floods = [
            *(self.keep("idle", lambda: self.idle(flood.port)) for _ in range(flood.idle)),
            *(self.keep("idle", lambda: self.idle(flood.admin_port)) for _ in range(admin)),
            *(self.keep("slow uploads", self.slow_upload) for _ in range(flood.slow_uploads)),
            *(self.keep("slow readers", self.slow_reader) for _ in range(flood.slow_readers)),
            *(self.keep("guessers", lambda n=number: self.guess(n)) for number in range(flood.guessers)),
            self.keep("openers", self.open_uploads),
        ]
        tasks = [asyncio.create_task(one) for one in floods]
        wanted = flood.idle + admin + flood.slow_uploads + flood.slow_readers
        while sum(self.done[name] for name in ("idle", "slow uploads", "slow readers")) < wanted:
            await asyncio.sleep(0.1)
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in tasks:
            task.cancel()
        print(json.dumps(self.done), flush=True)


def main() -> None:
    flood = Flood(**json.loads(sys.argv[1]))
    os.sched_setaffinity(0, {flood.core})
    asyncio.run(Floods(flood).run())


if __name__ == "__main__":
    main()

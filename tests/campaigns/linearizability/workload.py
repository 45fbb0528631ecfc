"""Clients that read and write a few keys at the same time, and write down what they did and what they were told.

What a client does next comes from the seed and its number alone; how their requests interleave is the machine's.
Every body is different, so a tag says which request wrote it. Keys come in generations: after some requests a client
goes on to fresh ones, which keeps each key's history short and begins deletes, creations and first bases anew.
"""

from __future__ import annotations

import random
import threading
import time
import xml.etree.ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from campaigns.linearizability.history import Event, Kind
from outside.content import KIB, md5, noise
from outside.sigv4 import Header
from outside.wire import Answer, Connection, signed

XMLNS = "{http://s3.amazonaws.com/doc/2006-03-01/}"
FILLER = noise(4711, 400 * KIB)
SIZES = {200: 60, 5 * KIB: 20, 70 * KIB: 15, 400 * KIB: 5}
"""How long bodies are, and how often: in the catalog's row, in one chunk, in several, in several blocks of a delta."""


@dataclass(frozen=True)
class Plan:
    """What the clients do."""

    seed: int
    """Also in the names of the keys: runs against one server need different ones."""
    seconds: float = 30
    clients: int = 20
    buckets: Sequence[str] = ("delta-00", "delta-aes256-00")
    keys: int = 4
    """Keys of a generation in each bucket."""
    generation: int = 60
    """Requests of a client before it goes on to the next generation."""
    think_s_max: float = 0.04
    timeout_s: float = 4
    """How long a client waits for an answer; then nobody knows."""


class Caller:
    """One client's connection. What goes wrong with it is an answer that never came."""

    def __init__(self, port: int, timeout_s: float) -> None:
        self.port = port
        self.timeout_s = timeout_s
        self._connection: Connection | None = None

    def call(self, method: str, target: str, headers: Sequence[Header] = (), body: bytes = b"") -> Answer | None:
        """A signed request and its answer; `None` when there was none, or not all of it."""
        try:
            if self._connection is None:
                self._connection = Connection(self.port, self.timeout_s)
            connection = self._connection
            connection.send(signed(connection.host, method, target, headers, body))
            answer = connection.answer(method)
        except (OSError, ValueError):
            answer = None
        if answer is None or not answer.complete or answer.header("connection") == "close":
            self.close()
        return answer if answer is not None and answer.complete else None

    def close(self) -> None:
        """Ends the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None


def body_of(seed: int, client: int, number: int, size: int) -> bytes:
    """What a request writes: its own name, then filling that all share, so that deltas and bases are in play."""
    name = f"seed {seed} client {client} request {number}\n".encode()
    return name + FILLER[: max(0, size - len(name))]


@dataclass
class Recording:
    """What the clients wrote down."""

    events: list[Event] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Answers that ended cleanly with bytes that are not those of their tag."""


class Client:
    """One client: its connection, what it last saw of each key, and the recording it writes to."""

    def __init__(self, plan: Plan, number: int, port: int, recording: Recording) -> None:
        self.plan = plan
        self.number = number
        self.caller = Caller(port, plan.timeout_s)
        self.recording = recording
        self.rng = random.Random(f"{plan.seed}/{number}")
        self.seen: dict[str, str] = {}

    def run(self, until: float) -> None:
        """Works until the monotonic clock says `until`."""
        number = 0
        while time.monotonic() < until:
            generation = number // self.plan.generation
            bucket = self.rng.choice(self.plan.buckets)
            key = f"{bucket}/{self.plan.seed}-{generation:03}/{self.rng.randrange(self.plan.keys)}"
            known = self._one(number, key, self.rng.random())
            number += 1
            # A client that was told nothing waits a little, as clients do; the others think.
            time.sleep(self.rng.uniform(0, self.plan.think_s_max) if known else self.rng.uniform(0.1, 0.3))
        self.caller.close()

    def _one(self, number: int, key: str, choice: float) -> bool:
        tag = self.seen.get(key, md5(b"never written"))
        size = self.rng.choices(list(SIZES), list(SIZES.values()))[0]
        body = body_of(self.plan.seed, self.number, number, size)
        if choice < 0.20:
            return self.put(key, body)
        if choice < 0.32:
            return self.put(key, body, if_none_match="*")
        if choice < 0.44:
            return self.put(key, body, if_match=tag)
        if choice < 0.52:
            return self.delete(key)
        if choice < 0.55:
            return self.delete(key, if_match=tag)
        if choice < 0.78:
            return self.read(Kind.GET, key)
        if choice < 0.84:
            return self.read(Kind.HEAD, key)
        if choice < 0.87:
            return self.read(Kind.GET, key, if_none_match=tag)
        if choice < 0.90:
            return self.read(Kind.GET, key, if_match=tag)
        return self.list(key.rpartition("/")[0] + "/", self.rng.choice([2, 3, 1000]))

    def put(self, key: str, body: bytes, if_match: str | None = None, if_none_match: str | None = None) -> bool:
        """PUT; whether it is known what came of it."""
        event = self._ask(Kind.PUT, key, body, if_match, if_none_match)
        if event.status == 200 and event.etag is not None:
            self.seen[key] = event.etag
        return not event.unknown

    def delete(self, key: str, if_match: str | None = None) -> bool:
        """DELETE."""
        return not self._ask(Kind.DELETE, key, if_match=if_match).unknown

    def read(self, kind: Kind, key: str, if_match: str | None = None, if_none_match: str | None = None) -> bool:
        """GET or HEAD."""
        event = self._ask(kind, key, b"", if_match, if_none_match)
        if event.status == 200 and event.etag is not None:
            self.seen[key] = event.etag
        return not event.unknown

    def _ask(
        self, kind: Kind, key: str, body: bytes = b"", if_match: str | None = None, if_none_match: str | None = None
    ) -> Event:
        headers: list[Header] = []
        if if_match is not None:
            headers.append(("If-Match", f'"{if_match}"'))
        if if_none_match is not None:
            headers.append(("If-None-Match", "*" if if_none_match == "*" else f'"{if_none_match}"'))
        start = time.monotonic_ns()
        answer = self.caller.call(kind.upper(), f"/{key}", headers, body)
        end = time.monotonic_ns()
        status = 0 if answer is None else answer.status
        etag = md5(body) if kind == Kind.PUT else None
        if answer is not None and status == 200:
            told = (answer.header("etag") or "").strip('"')
            if kind == Kind.PUT and told != etag:
                self.recording.wrong.append(f"PUT {key}: the answer's tag {told!r} is not the content's {etag!r}")
            if kind == Kind.GET and md5(answer.body) != told:
                self.recording.wrong.append(f"GET {key}: {len(answer.body)} bytes that are not those of tag {told!r}")
            if kind in (Kind.GET, Kind.HEAD):
                etag = told
        event = Event(self.number, kind, key, start, end, status, etag, if_match, if_none_match)
        self.recording.events.append(event)
        return event

    def list(self, prefix: str, max_keys: int) -> bool:
        """Every page of a LIST, an event each."""
        bucket, _, within = prefix.partition("/")
        after, token = "", ""
        while True:
            query = f"list-type=2&max-keys={max_keys}&prefix={quote(within, safe='')}"
            query += f"&continuation-token={quote(token, safe='')}" if token else ""
            start = time.monotonic_ns()
            answer = self.caller.call("GET", f"/{bucket}?{query}")
            end = time.monotonic_ns()
            if answer is None or answer.status != 200:
                status = 0 if answer is None else answer.status
                self.recording.events.append(Event(self.number, Kind.LIST, prefix, start, end, status))
                return False
            page = xml.etree.ElementTree.fromstring(answer.body)
            listed = {
                f"{bucket}/{entry.findtext(f'{XMLNS}Key')}": str(entry.findtext(f"{XMLNS}ETag")).strip('"')
                for entry in page.iter(f"{XMLNS}Contents")
            }
            if len(listed) != sum(1 for _ in page.iter(f"{XMLNS}Contents")):
                self.recording.wrong.append(f"LIST {prefix}: a key twice on one page")
            truncated = page.findtext(f"{XMLNS}IsTruncated") == "true"
            until = max(listed, default=after) if truncated else None
            event = Event(self.number, Kind.LIST, prefix, start, end, 200, listed=listed, after=after, until=until)
            self.recording.events.append(event)
            if not truncated:
                return True
            token = str(page.findtext(f"{XMLNS}NextContinuationToken"))
            after = until or after


def work(plan: Plan, port: int) -> Recording:
    """Runs the plan's clients against a port and gives what they recorded, in the order it ended."""
    recording = Recording()
    until = time.monotonic() + plan.seconds
    threads = [
        threading.Thread(target=Client(plan, number, port, recording).run, args=(until,), name=f"client {number}")
        for number in range(plan.clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recording.events.sort(key=lambda event: event.end_ns)
    return recording

"""Line 12: small PUTs of several replicas against one, with a database that is far away.

PostgreSQL, an S3 store and the replicas run on loopback, as `tests/cluster` starts them. Between replicas and database
stands a proxy that holds what passes for half a round trip, either way, and counts the journeys. What is unfair: all of
it shares the machine, so with few cores the replicas are short of CPU before the database is short of time. The report
says how many there were.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cluster.postgres import Postgres
from cluster.replicas import KEK
from outside.clients import s3_client
from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Server, Value
from outside.store import Store

from goalbench.served import Figures, Round, ask
from taxbench.client.endpoint import Endpoint
from taxbench.client.operation import Operation
from taxbench.client.pool import WorkerPool
from taxbench.studies.bench import Content, StudyError

REPLICAS = 8
CLIENTS = 4
BUCKETS = 64
ROUND_TRIP_S = 0.005
OBJECT_BYTES = 1024
WRITING = b"BEGIN ISOLATION LEVEL READ COMMITTED"
"""How a transaction begins that writes."""
PUTS_EACH = 800
"""By each replica."""


@dataclass
class Side(asyncio.Protocol):
    """One end of a connection. What comes here goes to the other end, half a round trip later."""

    distance: Distance
    other: Side | None = None
    """The client's end has none before the database's is there."""
    transport: asyncio.Transport | None = None
    early: list[bytes] = field(default_factory=list)
    """What came before the other end was there."""
    asked: bool = False
    """Of the client's end: whether it spoke last."""
    writes: bool = False
    """Of the client's end: whether something is written on this connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.heard(data)
            self.later(self.other.say, data)

    def heard(self, _: bytes) -> None:
        """Counts what comes from the database."""
        if isinstance(self.other, ClientSide):
            self.other.asked = False

    def say(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.later(self.other.transport.close)

    def later(self, call: Callable[..., None], *what: bytes) -> None:
        self.distance.loop.call_later(self.distance.round_trip_s / 2, call, *what)


class ClientSide(Side):
    """The end that a replica has."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.distance.keep(self.distance.loop.create_task(self.reach()))

    async def reach(self) -> None:
        """Connects to the database."""
        database = Side(self.distance, other=self)
        await self.distance.loop.create_connection(lambda: database, "127.0.0.1", self.distance.upstream_port)
        self.other, early = database, self.early
        for data in early:
            self.data_received(data)

    def heard(self, data: bytes) -> None:
        self.writes |= WRITING in data
        if self.writes and not self.asked:
            self.distance.journeys += 1
        self.asked = True


@dataclass
class Distance:
    """Listens on a free port while it is entered, and passes everything on half a round trip later."""

    upstream_port: int
    round_trip_s: float = ROUND_TRIP_S
    port: int = 0
    journeys: int = 0
    """Times that a client spoke after the other side had, on connections on which something is written."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    thread: threading.Thread | None = None
    connecting: set[asyncio.Task[None]] = field(default_factory=set)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keeps a task until it has ended: the loop does not."""
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)

    def __enter__(self) -> Distance:
        started = threading.Event()

        async def serve() -> None:
            server = await self.loop.create_server(lambda: ClientSide(self), "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            async with server:
                await server.serve_forever()

        async def rest() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*left, return_exceptions=True)

        def run() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                self.loop.run_until_complete(serve())
            self.loop.run_until_complete(rest())
            self.loop.close()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        if not started.wait(10):
            raise StudyError("the proxy before the database does not listen")
        return self

    def __exit__(self, *_: object) -> None:
        def cancel() -> None:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()

        self.loop.call_soon_threadsafe(cancel)
        if self.thread is not None:
            self.thread.join(10)


@dataclass(frozen=True, slots=True)
class Speed:
    """What some replicas did together."""

    puts_s: float
    journeys_a_group: float
    puts_a_group: float


def replica(folder: Path, binary: Path, database: int, store: Store) -> Server:
    """A server over the shared catalog and store, whose log says nothing."""
    shared = store.tables()
    url = f"postgres://postgres@127.0.0.1:{database}/postgres"
    storage: dict[str, Value] = {**shared["storage"], "catalog": url}
    settings = {"DELTAWEIR_KEK": KEK, "DELTAWEIR_LOG": "warn"}
    return Server(folder, {**shared, "storage": storage}, "", settings, binary=binary)


def endpoint_of(server: Server) -> Endpoint:
    return Endpoint(server.endpoint, ACCESS_KEY_ID, SECRET_ACCESS_KEY, REGION, "sigv4", "precomputed", 120.0)


def measure(round_: Round, count: int) -> Speed:
    """A cluster of `count` replicas, filled by four clients each."""
    place = round_.place / f"cluster-{count}"
    with contextlib.ExitStack() as undo:
        postgres = Postgres()
        undo.callback(postgres.remove)
        postgres.make().start()
        distance = undo.enter_context(Distance(postgres.port))
        store = Store(place / "store")
        undo.callback(store.stop)
        store.start().client().create_bucket(Bucket="blobs")
        servers = [replica(place / f"replica-{n}", round_.binary, distance.port, store) for n in range(count)]
        for server in servers:
            undo.callback(server.kill)
            server.launch()
        for server in servers:
            server.wait_ready(60)
        s3 = s3_client(servers[0].endpoint)
        for number in range(BUCKETS):
            s3.create_bucket(Bucket=f"small-{number:02}")
        pools = [undo.enter_context(WorkerPool(CLIENTS, OBJECT_BYTES)) for _ in servers]
        works = [list(puts(round_, place, number)) for number in range(count)]

        def groups() -> int:
            return int(postgres.query("SELECT COALESCE(sum(number), 0) FROM commit_groups"))

        before, journeys = groups(), distance.journeys
        started = time.perf_counter()
        with ThreadPoolExecutor(count) as together:
            batches = list(together.map(lambda n: pools[n].run(endpoint_of(servers[n]), works[n]), range(count)))
        seconds = time.perf_counter() - started
        made, journeys = groups() - before, distance.journeys - journeys
    for sample in (sample for batch in batches for sample in batch.samples):
        if sample.failed:
            raise StudyError(f"{sample.key}: {sample.error}")
    all_puts = count * PUTS_EACH
    return Speed(all_puts / seconds, journeys / made, all_puts / made)


def puts(round_: Round, place: Path, number: int) -> Iterator[Operation]:
    """What one replica is asked: objects of their own, over all buckets."""
    rng = np.random.default_rng([round_.seed, number, 12])
    for object_, bucket in enumerate(rng.integers(0, BUCKETS, PUTS_EACH)):
        content = Content.write(place / f"content-{number}-{object_}", rng.bytes(OBJECT_BYTES))
        yield ask("put", content, f"small-{bucket:02}", f"{number}/{object_}")


def several(round_: Round) -> Figures:
    """Line 12."""
    one, all_ = measure(round_, 1), measure(round_, REPLICAS)
    yield "speed", all_.puts_s / one.puts_s
    yield "round trips", max(one.journeys_a_group, all_.journeys_a_group)

"""The lines that a running server answers: requests, parts, deltas, uploads side by side.

A round has a server of its own for each line, with the settings it has by itself unless the line says otherwise. What
is a ratio is taken within a round, so that a machine that drifts between rounds does not move it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from goalbench.seen import Seen, seen
from taxbench.admin import AdminClient
from taxbench.client.operation import Kind, Operation
from taxbench.client.pool import Batch, WorkerPool
from taxbench.servers.deltaweir import BucketSettings, Deltaweir
from taxbench.servers.target import Target
from taxbench.studies.bench import Content, StudyError, cpu_s, run_checked, settle_s, versions

PLAIN, DELTA, FAST = "plain", "delta", "fast"
BUCKETS = {
    PLAIN: BucketSettings("off", "off"),
    DELTA: BucketSettings("delta", "off"),
    FAST: BucketSettings("delta", "off", "fast"),
}
MIB = 1 << 20

Figures = Iterator[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Load:
    """How much of everything one round stores and reads."""

    small: int = 1600
    small_bytes: int = 4096
    parted_bytes: int = 64 * MIB
    part_bytes: int = 8 * MIB
    large_bytes: int = 16 * MIB
    drifting: int = 1000
    drifting_bytes: int = MIB
    clients: int = 8


@dataclass(frozen=True, slots=True)
class Timed:
    """A batch that was timed, and what it took."""

    operations: int
    payload_bytes: int
    cpu_s: float
    seen: Seen


@dataclass(frozen=True, slots=True)
class Round:
    """Where one round of one line runs, on what."""

    binary: Path
    place: Path
    load: Load
    seed: int
    timed: list[Timed] | None = None
    """Where counts of what is timed go, when somebody wants them."""

    def server(self, defer: bool = True) -> Deltaweir:
        return Deltaweir(self.binary, self.place / "server", BUCKETS, defer=defer)

    def random(self, name: str, count: int, size: int) -> list[Content]:
        rng = np.random.default_rng([self.seed, *name.encode()])
        return [Content.write(self.place / f"{name}-{n:05d}", rng.bytes(size)) for n in range(count)]


def ask(kind: Kind, content: Content, bucket: str, key: str) -> Operation:
    return replace(content.operation("put", bucket, key, kind), kind=kind)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs, and who asks it."""

    server: Target
    pool: WorkerPool
    counts: list[Timed] | None = None

    def all_well(self, operations: Sequence[Operation]) -> Batch:
        return run_checked(self.pool, self.server, list(operations))

    def timed(self, operations: Sequence[Operation]) -> tuple[Batch, float]:
        """The batch, and the server's CPU seconds while it ran."""
        process = self.server.process_ids()[0]
        # The kernel shows its counts to root alone.
        before = None if self.counts is None else seen(process)
        before_s = cpu_s(self.server)
        batch = self.all_well(operations)
        took_s = cpu_s(self.server) - before_s
        if self.counts is not None and before is not None:
            self.counts.append(Timed(len(operations), batch.payload_bytes, took_s, seen(process).since(before)))
        return batch, took_s

    def settle(self) -> None:
        settle_s(self.server, 1800.0)

    @property
    def admin(self) -> AdminClient:
        assert self.server.admin is not None
        return self.server.admin

    def stored_in(self, bucket: str) -> int:
        """Bytes that a bucket takes when nothing is left to do.

        # Errors
        `StudyError` when it takes none: something was not stored.
        """
        self.settle()
        self.admin.collect()
        total = self.admin.stats().bucket(bucket).stored.total
        if total <= 0:
            raise StudyError(f"bucket {bucket} takes no bytes")
        return total


@contextmanager
def serving(round_: Round, clients: int, object_bytes_max: int, defer: bool = True) -> Iterator[Served]:
    """A server with the three buckets and clients for it; its data is gone afterwards."""
    server = round_.server(defer)
    with beside(server, server.data_dir, round_, clients, object_bytes_max) as served:
        yield served


@contextmanager
def beside(server: Target, data: Path, round_: Round, clients: int, object_bytes_max: int) -> Iterator[Served]:
    """Any server with the same buckets and clients."""
    try:
        with server, WorkerPool(clients, object_bytes_max) as pool:
            for bucket in BUCKETS:
                server.ensure_bucket(bucket)
            yield Served(server, pool, round_.timed)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def small_requests(round_: Round) -> Figures:
    """Line 1."""
    with serving(round_, round_.load.clients, round_.load.small_bytes) as served:
        yield from requests_of(served, round_)


def requests_of(served: Served, round_: Round) -> Figures:
    """CPU ms of each kind. Content is random, so that nothing but the request costs."""
    load = round_.load
    contents = round_.random("small", load.small, load.small_bytes)
    kinds: tuple[Kind, ...] = ("put", "get", "head", "delete")
    served.all_well([ask("put", c, DELTA, f"warm-up/{c.path.name}") for c in contents[:100]])
    for kind in kinds:
        _, cpu = served.timed([ask(kind, c, DELTA, f"small/{c.path.name}") for c in contents])
        yield kind.upper(), cpu * 1000 / len(contents)


Named = list[tuple[Content, str]]
"""Contents and their keys."""


def families(round_: Round) -> tuple[Named, Named]:
    """Eight objects, and a successor of each."""
    made = [versions(round_.seed + n, "shifted", round_.load.parted_bytes, 2, round_.place / str(n)) for n in range(8)]
    old = [(content, f"family-{n}/1.0") for n, (content, _) in enumerate(made)]
    new = [(content, f"family-{n}/1.1") for n, (_, content) in enumerate(made)]
    return old, new


def put_in_parts(load: Load, contents: Named, bucket: str) -> list[Operation]:
    asked = [ask("multipart", content, bucket, key) for content, key in contents]
    return [replace(operation, part_size=load.part_bytes) for operation in asked]


def per_gigabyte(served: Served, operations: list[Operation]) -> float:
    """CPU seconds."""
    batch, cpu = served.timed(operations)
    return cpu / (batch.payload_bytes / 1e9)


def warmed_put(served: Served, load: Load, old: Named) -> float:
    """What a machine touches for the first time (its own memory, the pages of the file system) costs a third of a PUT,
    so a first turn does not count."""
    served.all_well(put_in_parts(load, [(content, f"warm-up/{key}") for content, key in old], PLAIN))
    return per_gigabyte(served, put_in_parts(load, old, PLAIN))


def parts(round_: Round) -> Figures:
    """Line 2."""
    yield from parts_of(round_, *families(round_))


def parts_of(round_: Round, old: Named, new: Named) -> Figures:
    """CPU s/GB. Nothing is put off: what an upload costs is in its own time."""
    load = round_.load
    with serving(round_, load.clients, 2 * load.parted_bytes, defer=False) as served:

        def get(contents: Named, bucket: str) -> list[Operation]:
            served.settle()
            served.admin.drop_caches()
            return [ask("get", content, bucket, key) for content, key in contents]

        yield "PUT", warmed_put(served, load, old)
        served.all_well(put_in_parts(load, old, DELTA))
        served.settle()
        yield "PUT delta", per_gigabyte(served, put_in_parts(load, new, DELTA))
        yield "GET cold", per_gigabyte(served, get(old, PLAIN))
        yield "GET delta", per_gigabyte(served, get(new, DELTA))


READ_TURNS = 4
"""Pairs of turns of line 3."""
WARM_UP_TURNS = 2
"""Of these, the first ones, which do not count."""


def reads(round_: Round) -> Figures:
    """Lines 3 and 4: `cold` and `warm` against passthrough with one client, `first byte` with four."""
    contents = versions(round_.seed, "tar", round_.load.large_bytes, 5, round_.place)
    successors = contents[1:]
    with serving(round_, 1, 2 * round_.load.large_bytes) as served:
        for bucket in (PLAIN, DELTA):
            served.all_well([ask("put", c, bucket, c.path.name) for c in contents])
        served.settle()

        def speed(bucket: str, cold: bool) -> float:
            if cold:
                served.admin.drop_caches()
            batch = served.all_well([ask("get", c, bucket, c.path.name) for c in successors])
            return batch.payload_bytes / batch.wall_s

        def ratio(cold: bool) -> float:
            """Each first as often as the other: whoever came first would pay for the buffers of client and process."""
            turns = [(DELTA, PLAIN), (PLAIN, DELTA)] * READ_TURNS
            speeds = [{bucket: speed(bucket, cold) for bucket in turn} for turn in turns]
            return float(np.median([read[DELTA] / read[PLAIN] for read in speeds[WARM_UP_TURNS:]]))

        yield "cold", ratio(cold=True)
        yield "warm", ratio(cold=False)
        with WorkerPool(4, 2 * round_.load.large_bytes) as four:
            served.admin.drop_caches()
            gets = [ask("get", c, DELTA, c.path.name) for c in successors]
            batch = run_checked(four, served.server, gets)
        yield "first byte", float(np.median([sample.ttfb_s for sample in batch.samples])) * 1000


def uploads(round_: Round) -> Figures:
    """Line 5. Nothing is put off, so that a client waits for all of the encoding."""
    for family in ("tar", "sql", "disk", "shifted", "random"):
        contents = versions(round_.seed, family, round_.load.large_bytes, 4, round_.place)
        speeds = {}
        with serving(round_, 1, 2 * round_.load.large_bytes, defer=False) as served:
            for bucket in (PLAIN, DELTA):
                puts = [ask("put", c, bucket, f"{family}/{c.path.name}") for c in contents]
                served.all_well(puts[:1])
                served.settle()
                batch = served.all_well(puts[1:])
                speeds[bucket] = batch.payload_bytes / batch.wall_s
        yield family, speeds[DELTA] / speeds[PLAIN]


def side_by_side(round_: Round) -> Figures:
    """Line 7: stored bytes once everything has settled."""
    contents = versions(round_.seed, "tar", round_.load.large_bytes, 6, round_.place)
    stored = []
    for clients in (len(contents), 1):
        with serving(round_, clients, 2 * round_.load.large_bytes) as served:
            served.all_well([ask("put", c, DELTA, f"release/{c.path.name}") for c in contents])
            stored.append(served.stored_in(DELTA))
    yield "stored", stored[0] / stored[1]


def drift(round_: Round) -> Figures:
    """Line 8: each version rewrites 16 bytes at 40 places of the one before."""
    load = round_.load
    rng = np.random.default_rng([round_.seed, 8])
    content = bytearray(rng.bytes(load.drifting_bytes))
    with serving(round_, 1, load.drifting_bytes) as served:
        for number in range(load.drifting):
            version = Content.write(round_.place / "drift", bytes(content))
            served.all_well([ask("put", version, DELTA, f"series/{number:05d}")])
            for at in rng.integers(0, load.drifting_bytes - 16, 40):
                content[int(at) : int(at) + 16] = rng.bytes(16)
        yield "stored", served.stored_in(DELTA) / (load.drifting * load.drifting_bytes)


def efforts(round_: Round) -> Figures:
    """Line 13: the same versions at both efforts, once everything has settled."""
    stored = {}
    for bucket in (FAST, DELTA):
        with serving(round_, 1, 2 * round_.load.large_bytes) as served:
            for family in ("tar", "shifted", "disk"):
                contents = versions(round_.seed, family, round_.load.large_bytes, 4, round_.place)
                served.all_well([ask("put", c, bucket, f"{family}/{c.path.name}") for c in contents])
            stored[bucket] = served.stored_in(bucket)
    yield "stored", stored[FAST] / stored[DELTA]


@dataclass(frozen=True, slots=True)
class Study:
    """What answers one line, or several, and under which names."""

    name: str
    measure: Callable[[Round], Figures]
    lines: dict[str, tuple[int, str]] | int
    """The line whose checks its figures are named after; or line and check by figure."""
    rounds_max: int = 100

    def numbers(self) -> set[int]:
        return {self.lines} if isinstance(self.lines, int) else {line for line, _ in self.lines.values()}

    def place_of(self, figure: str) -> tuple[int, str]:
        return (self.lines, figure) if isinstance(self.lines, int) else self.lines[figure]


STUDIES = (
    Study("reads", reads, {"cold": (3, "cold"), "warm": (3, "warm"), "first byte": (4, "cold")}),
    Study("uploads", uploads, 5),
    Study("six side by side", side_by_side, 7),
    Study("a drifting series", drift, 8, rounds_max=1),
    Study("efforts", efforts, 13, rounds_max=1),
)

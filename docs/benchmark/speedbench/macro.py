"""The release binary on loopback, form by form: CPU, wall time and memory of each kind of request.

A form gets a server of its own in every round, fresh data included, so that rounds are repeats of each other and their
spread is the noise. Client and server share the machine: compare runs with each other, quote none of them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from speedbench.results import Kind, Measurement
from taxbench.artifacts import synthetic
from taxbench.client.operation import Expected, Operation
from taxbench.client.pool import Batch, WorkerPool
from taxbench.processes import peak_rss_bytes
from taxbench.progress import Reporter
from taxbench.servers.deltaweir import BucketSettings, Deltaweir, find_binary
from taxbench.statistics import bootstrap
from taxbench.studies.bench import Content, cpu_s, run_checked, settle_s, versions

FORMS = {
    "raw": BucketSettings("off", "off"),
    "zstd": BucketSettings("zstd", "off"),
    "delta": BucketSettings("delta", "off"),
    "aes256": BucketSettings("off", "aes256"),
    "delta-aes256": BucketSettings("delta", "aes256"),
}
BUCKET, WARM_UP_BUCKET = "speed", "warm-up"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Load:
    """How much of everything one form stores and reads in one round."""

    large_bytes: int = 16 * MIB
    large_versions: int = 4
    small_objects: int = 400
    ranges: int = 200
    range_bytes: int = 64 << 10
    heads: int = 400
    lists: int = 20


@dataclass(frozen=True, slots=True)
class Work:
    """What one round stores: made once, so that every round stores the same."""

    large: list[Content]
    small: list[Content]

    @classmethod
    def make(cls, load: Load, seed: int, place: Path) -> Work:
        rng = np.random.default_rng([seed, 400])
        small = synthetic.small_objects(rng, 0, load.small_objects)
        return cls(
            versions(seed, "shifted", load.large_bytes, load.large_versions, place),
            [Content.write(place / f"small-{n:05d}", data) for n, data in enumerate(small)],
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """One value of one round."""

    name: str
    unit: str
    kind: Kind
    higher_is_better: bool
    value: float


def run(
    reporter: Reporter, binary: str, rounds: int, seed: int, load: Load
) -> tuple[list[Measurement], dict[str, str]]:
    """Every form in every round; the measurements, and what the server says about itself.

    # Errors
    `TargetError` when the server does not start, `StudyError` when a request fails or brings wrong bytes.
    """
    place = Path(tempfile.mkdtemp(prefix="speedbench-"))
    facts: dict[str, str] = {}
    figures: list[Figure] = []
    try:
        work = Work.make(load, seed, place / "content")
        with reporter.steps_bar("server", rounds * len(FORMS)) as bar:
            for number in range(rounds):
                for form, settings in FORMS.items():
                    reporter.step(f"round {number + 1} of {rounds}: {form}")
                    server = Deltaweir(
                        find_binary(binary), place / "server", {BUCKET: settings, WARM_UP_BUCKET: settings}
                    )
                    facts = facts or server.facts()
                    figures += round_of(form, server, work, load, seed)
                    shutil.rmtree(place / "server")
                    bar.advance(1)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return measurements(figures), facts


def measurements(figures: list[Figure]) -> list[Measurement]:
    """The values of all rounds under one name each, with the interval of their median."""
    by_name: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        by_name[figure.name].append(figure)
    found = []
    for name, same in by_name.items():
        interval = bootstrap([figure.value for figure in same])
        assert interval is not None, "a name has at least one figure"
        first = same[0]
        found.append(
            Measurement(
                name=name,
                unit=first.unit,
                kind=first.kind,
                higher_is_better=first.higher_is_better,
                interval=interval,
            )
        )
    return found


def round_of(form: str, server: Deltaweir, work: Work, load: Load, seed: int) -> Iterator[Figure]:
    """One form's requests, in an order in which every phase finds what it needs."""
    with server, WorkerPool(1, max(c.size for c in work.large)) as pool:
        server.ensure_bucket(BUCKET)
        server.ensure_bucket(WARM_UP_BUCKET)
        # Connections, threads and allocator arenas are made before anything is counted, in a domain of its own.
        run_checked(pool, server, [replace(put(c, "small"), bucket=WARM_UP_BUCKET) for c in work.small[:20]])

        yield from bulk(f"{form}/put", *timed(pool, server, [put(c, "large") for c in work.large]))
        settle_s(server)
        stored = sum(c.size for c in work.large) / max(stored_in(server), 1)
        yield Figure(f"macro/{form}/put/ratio", "x", "count", True, round(stored, 4))
        yield from bulk(f"{form}/get", *timed(pool, server, [get(c, "large") for c in work.large] * 2))
        yield from requests(f"{form}/range", *timed(pool, server, list(ranges(work.large, load, seed))))
        yield from requests(f"{form}/small_put", *timed(pool, server, [put(c, "small") for c in work.small]))
        yield from requests(f"{form}/small_get", *timed(pool, server, [get(c, "small") for c in work.small]))
        heads = [work.small[n % len(work.small)].operation("head", BUCKET, "", "head") for n in range(load.heads)]
        heads = [replace(op, key=f"small/{Path(op.content_path).name}") for op in heads]
        yield from requests(f"{form}/head", *timed(pool, server, heads))
        yield from requests(f"{form}/list", *timed(pool, server, [listing(work.small)] * load.lists))
        peak = peak_rss_bytes(server.process_ids())
        if peak is not None:
            yield Figure(f"macro/{form}/rss", "MB", "memory", False, round(peak / 1e6, 2))


def bulk(name: str, batch: Batch, server_cpu_s: float) -> Iterator[Figure]:
    """Figures of requests that move much."""
    gigabytes = batch.payload_bytes / 1e9
    yield Figure(f"macro/{name}/cpu", "s/GB", "cpu", False, server_cpu_s / gigabytes)
    yield Figure(f"macro/{name}/speed", "MB/s", "wall", True, batch.payload_bytes / 1e6 / batch.wall_s)


def requests(name: str, batch: Batch, server_cpu_s: float) -> Iterator[Figure]:
    """Figures of requests that are many."""
    count = len(batch.samples)
    yield Figure(f"macro/{name}/cpu", "ms", "cpu", False, server_cpu_s * 1000 / count)
    yield Figure(
        f"macro/{name}/latency", "ms", "wall", False, float(np.median([s.total_s for s in batch.samples])) * 1000
    )


def timed(pool: WorkerPool, server: Deltaweir, operations: list[Operation]) -> tuple[Batch, float]:
    """The batch, and the CPU seconds the server spent while it ran."""
    before_s = cpu_s(server)
    batch = run_checked(pool, server, operations)
    return batch, cpu_s(server) - before_s


def stored_in(server: Deltaweir) -> int:
    """Bytes of files below the server's blobs."""
    return sum(path.stat().st_size for root in server.blob_roots() for path in root.rglob("*") if path.is_file())


def put(content: Content, group: str) -> Operation:
    return content.operation("put", BUCKET, f"{group}/{content.path.name}", group)


def get(content: Content, group: str) -> Operation:
    return content.operation("get", BUCKET, f"{group}/{content.path.name}", group)


def ranges(large: list[Content], load: Load, seed: int) -> Iterator[Operation]:
    """Ranges at random places of all large objects, the same ones in every round."""
    rng = np.random.default_rng([seed, 64])
    for number in range(load.ranges):
        content = large[number % len(large)]
        offset = int(rng.integers(0, content.size - load.range_bytes))
        yield replace(get(content, "large"), kind="range", offset=offset, length=load.range_bytes)


def listing(small: list[Content]) -> Operation:
    expected = {f"small/{c.path.name}": Expected(c.size, c.md5) for c in small}
    return Operation(kind="list", phase="list", bucket=BUCKET, key="small/", expected_listing=expected)

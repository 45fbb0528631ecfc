"""`python -m goalbench.cloud`: which requests work makes to a cloud store, and what they cost.

The cloud is a second server of ours, passthrough, on loopback: it counts the requests at its door, as a cloud counts
them for its bill. What is unfair: background work of the first server that falls into a step counts for that step, so
each step is followed by a settling, and idle time is measured on its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from goalbench.served import ask
from taxbench.admin import AdminClient, AdminError
from taxbench.client.operation import Kind, Operation
from taxbench.client.pool import WorkerPool
from taxbench.prometheus import Scrape, parse
from taxbench.servers.deltaweir import BucketSettings, Deltaweir, find_binary
from taxbench.servers.target import TargetError
from taxbench.studies.bench import Content, StudyError, run_checked, settle_s

STORE, BUCKET = "blobs", "delta"
SMALL_BYTES, LARGE_BYTES = 4096, 32 << 20
SMALL_COUNT, LARGE_COUNT = 200, 4
WRITES = frozenset(
    {
        "PutObject",
        "CopyObject",
        "CreateMultipartUpload",
        "UploadPart",
        "CompleteMultipartUpload",
        "ListObjectsV2",
        "ListObjects",
        "ListMultipartUploads",
        "ListParts",
    }
)
"""What a cloud bills as a write; listings are billed like writes, deletions are free, all else is billed as a read."""
FREE = frozenset({"DeleteObject", "DeleteObjects", "AbortMultipartUpload"})
DOLLARS_PER_WRITE, DOLLARS_PER_READ = 5e-6, 0.4e-6
"""The list prices of AWS S3 Standard in us-east-1."""
SETTLE_S = 600.0
PROBES = 30
PROBES_AN_HOUR = 360
"""The container asks every ten seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """Requests of one kind of work, for each operation of a client (or for an hour)."""

    work: str
    writes: float
    reads: float
    deletes: float

    @property
    def dollars_per_million(self) -> float:
        return 1e6 * (self.writes * DOLLARS_PER_WRITE + self.reads * DOLLARS_PER_READ)


def billed(before: Scrape, after: Scrape) -> tuple[float, float, float]:
    """Writes, reads and deletions at the store's door between two looks."""
    name = "deltaweir_http_requests_total"
    earlier, counts = before.by_label(name, "op"), after.by_label(name, "op")
    made = {op: count - earlier.get(op, 0.0) for op, count in counts.items()}
    writes = sum(count for op, count in made.items() if op in WRITES)
    deletes = sum(count for op, count in made.items() if op in FREE)
    return writes, sum(made.values()) - writes - deletes, deletes


def counted(store: AdminClient) -> Scrape:
    return parse(store.metrics())


def cloud_of(store: Deltaweir) -> str:
    """The configuration of a server whose blobs go to `store`."""
    return "\n".join(
        [
            "[backends.cloud]",
            'type = "s3"',
            f'endpoint = "{store.endpoint.url}"',
            f'bucket = "{STORE}"',
            f'access_key_id = "{store.endpoint.access_key_id}"',
            f'secret_access_key = "{store.endpoint.secret_access_key}"',
            '[buckets."delta"]',
            'backend = "cloud"',
            'compression = "delta"',
        ]
    )


def contents(place: Path, name: str, count: int, size: int, seed: int) -> list[Content]:
    rng = np.random.default_rng([seed, size])
    first = bytearray(rng.bytes(size))
    found = []
    for number in range(count):
        found.append(Content.write(place / f"{name}-{number:04d}", bytes(first)))
        for at in rng.integers(0, size - 64, 64):
            first[int(at) : int(at) + 32] = rng.bytes(32)
    return found


def rows(store: Deltaweir, server: Deltaweir, place: Path, idle_s: float) -> Iterator[Row]:
    """Small objects, then large ones, then whether it is ready, then nothing."""
    assert store.admin is not None and server.admin is not None
    with WorkerPool(4, LARGE_BYTES) as pool:
        for label, count, size in (("4 KiB", SMALL_COUNT, SMALL_BYTES), ("32 MiB", LARGE_COUNT, LARGE_BYTES)):
            old = contents(place, f"old-{size}", count, size, 1)
            new = contents(place, f"new-{size}", count, size, 2)
            steps: list[tuple[str, Kind, list[Content]]] = [
                ("PUT", "put", old),
                ("GET, cold", "get", old),
                ("GET, warm", "get", old),
                ("overwrite", "put", new),
                ("DELETE", "delete", new),
            ]
            for work, kind, those in steps:
                if work == "GET, cold":
                    server.admin.drop_caches()
                asked = [ask(kind, content, BUCKET, f"{label}/{number}") for number, content in enumerate(those)]
                yield step(f"{work} of {label}", store.admin, server, pool, asked)
    before = counted(store.admin)
    for _ in range(PROBES):
        server.admin.ready()
    writes, reads, deletes = (count * PROBES_AN_HOUR / PROBES for count in billed(before, counted(store.admin)))
    yield Row("an hour of /readyz, every 10 s", writes, reads, deletes)
    before = counted(store.admin)
    time.sleep(idle_s)
    writes, reads, deletes = (count * 3600 / idle_s for count in billed(before, counted(store.admin)))
    yield Row("an idle hour", writes, reads, deletes)


def step(work: str, store: AdminClient, server: Deltaweir, pool: WorkerPool, asked: list[Operation]) -> Row:
    before = counted(store)
    run_checked(pool, server, asked)
    settle_s(server, SETTLE_S)
    writes, reads, deletes = (count / len(asked) for count in billed(before, counted(store)))
    return Row(work, writes, reads, deletes)


def render(found: list[Row]) -> str:
    lines = ["| work | writes | reads | deletions | $ per million |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {row.work} | {row.writes:.2f} | {row.reads:.2f} | {row.deletes:.2f} | {row.dollars_per_million:.2f} |"
        for row in found
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="goalbench.cloud", description=__doc__)
    parser.add_argument("--binary", default="", help="the server (default: the release build)")
    parser.add_argument("--idle-s", type=float, default=120.0, help="how long an idle server is watched")
    parser.add_argument("--place", type=Path, help="where stores are made (default: the system's temporary directory)")
    options = parser.parse_args(arguments)
    try:
        binary = find_binary(options.binary)
        with tempfile.TemporaryDirectory(prefix="goalbench-", dir=options.place) as scratch:
            place = Path(scratch)
            store = Deltaweir(binary, place / "store", {STORE: BucketSettings("off", "off")})
            with store:
                store.ensure_bucket(STORE)
                server = Deltaweir(binary, place / "server", {}, extra_configuration=cloud_of(store))
                with server:
                    server.ensure_bucket(BUCKET)
                    print(render(list(rows(store, server, place, options.idle_s))), end="")
    except (TargetError, AdminError, StudyError, OSError) as error:
        print(f"goalbench.cloud: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

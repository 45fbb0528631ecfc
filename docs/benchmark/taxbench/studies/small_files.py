"""Many small files: 3,400 objects of 1 to 64 KiB, one request at a time, every latency kept in a histogram.

SnapshotCM's check-out of 3,400 files took 270 s with Nagle's algorithm and 24 s without; the 40 and 200 ms windows are
watched for exactly that. Unfair to servers that make every object durable, and meant to be: that is the price shown.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from taxbench.artifacts import synthetic
from taxbench.bundle import Bundle, write_json
from taxbench.client.pool import Batch, WorkerPool
from taxbench.records import SCHEMA_VERSION, Strict
from taxbench.servers.target import Target
from taxbench.statistics import Quantiles, delayed_ack_share, quantiles
from taxbench.studies.bench import Content, StudyBench, cpu_s, run_checked

BIN_EDGES_MS = [round(0.01 * 10 ** (step / 12), 5) for step in range(61)]
"""Twelve bins per decade from 10 µs to 1 s; slower requests are counted in the last bin."""
CLIENT_FIRST_REQUESTS = 1


class SmallFilesRow(Strict):
    """One kind of request against one server."""

    server: str
    kind: str
    requests: int
    wall_s: float
    requests_s: float
    latency_ms: Quantiles
    histogram: list[int] = Field(description="counts per bin of `bin_edges_ms`")
    server_cpu_ms_per_request: float
    delayed_ack_share: float | None = Field(description="share of requests in a delayed-ACK window, when suspicious")


class SmallFiles(Strict):
    """`studies/small_files.json`."""

    schema_version: int = SCHEMA_VERSION
    bin_edges_ms: list[float]
    rows: list[SmallFilesRow]


def run(bench: StudyBench, targets: dict[str, tuple[Target, str]], bundle: Bundle, place: Path) -> None:
    """PUT then GET of every object on one connection. `targets` maps a name to (target, bucket)."""
    rng = np.random.default_rng([bench.seed, 3400])
    generated = synthetic.small_objects(rng, 0, bench.profile.small_objects)
    contents = [Content.write(place / "data" / f"{n:05d}", data) for n, data in enumerate(generated)]
    rows: list[SmallFilesRow] = []
    for name, (target, bucket) in targets.items():
        with target, WorkerPool(1, 1 << 20) as pool:
            target.ensure_bucket(bucket)
            for kind in ("put", "get"):
                operations = [c.operation(kind, bucket, f"small/{c.path.name}", "small") for c in contents]
                before_s = cpu_s(target)
                batch = run_checked(pool, target, operations)
                rows.append(row(name, kind, batch, cpu_s(target) - before_s))
    write_json(bundle.root / "studies" / "small_files.json", SmallFiles(bin_edges_ms=BIN_EDGES_MS, rows=rows))


def row(server: str, kind: str, batch: Batch, server_cpu_s: float) -> SmallFilesRow:
    """The table row of one batch."""
    seconds = [s.total_s for s in batch.samples]
    found = quantiles(seconds)
    assert found is not None, "a batch has at least one sample"
    suspicious = delayed_ack_share(seconds[CLIENT_FIRST_REQUESTS:])
    clipped = np.clip(np.asarray(seconds) * 1000, BIN_EDGES_MS[0], BIN_EDGES_MS[-1])
    counts, _ = np.histogram(clipped, bins=BIN_EDGES_MS)
    return SmallFilesRow(
        server=server,
        kind=kind,
        requests=len(seconds),
        wall_s=round(batch.wall_s, 4),
        requests_s=round(len(seconds) / batch.wall_s, 2),
        latency_ms=found,
        histogram=[int(c) for c in counts],
        server_cpu_ms_per_request=round(server_cpu_s * 1000 / len(seconds), 4),
        delayed_ack_share=suspicious[0] if suspicious else None,
    )

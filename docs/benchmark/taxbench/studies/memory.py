"""Memory by object size: the server's peak resident memory while one object of a size goes in and comes out.

The promise under test is that memory does not grow with object size. The kernel's high-water mark is reset before each
phase, so the peak is that phase's own. Unfair to caches: what a cache keeps between phases is counted as well.
"""

from __future__ import annotations

from pathlib import Path

from taxbench.bundle import Bundle, write_json
from taxbench.client.pool import WorkerPool
from taxbench.processes import peak_rss_bytes, reset_peak_rss
from taxbench.records import SCHEMA_VERSION, Strict
from taxbench.studies.bench import StudyBench, run_checked, versions

MODES: dict[str, tuple[str, str, str]] = {
    "passthrough": ("off", "off", "auto"),
    "compression_encryption": ("delta", "aes256", "auto"),
}
FAMILY = "shifted"


class MemoryRow(Strict):
    """Peak resident memory of the server process while one object was moved."""

    mode: str
    operation: str
    object_bytes: int
    rss_max_bytes: int


class Memory(Strict):
    """`studies/memory.json`."""

    schema_version: int = SCHEMA_VERSION
    rows: list[MemoryRow]


def run(bench: StudyBench, bundle: Bundle, place: Path) -> None:
    """Every size in a fresh server: PUT of a first version, PUT of the next, GET."""
    rows: list[MemoryRow] = []
    with WorkerPool(1, max(bench.profile.rss_sizes) * 2) as pool:
        for size in bench.profile.rss_sizes:
            pair = versions(bench.seed + size, FAMILY, size, 2, place / "data")
            for mode, settings in MODES.items():
                bucket = "bench-memory"
                with bench.make_server(place / f"{mode}-{size}", {bucket: settings}) as target:
                    target.ensure_bucket(bucket)
                    steps = (
                        ("PUT, first version", pair[0].operation("put", bucket, "app-1.0.0", "memory")),
                        ("PUT, next version", pair[1].operation("put", bucket, "app-1.0.1", "memory")),
                        ("GET, next version", pair[1].operation("get", bucket, "app-1.0.1", "memory")),
                    )
                    for name, operation in steps:
                        reset_peak_rss(target.process_ids())
                        run_checked(pool, target, [operation])
                        peak = peak_rss_bytes(target.process_ids())
                        if peak is not None:
                            rows.append(
                                MemoryRow(mode=mode, operation=name, object_bytes=operation.size, rss_max_bytes=peak)
                            )
                    pool.disconnect()
            for content in pair:
                content.path.unlink()
    write_json(bundle.root / "studies" / "memory.json", Memory(rows=rows))

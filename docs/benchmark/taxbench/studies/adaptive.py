"""The adaptive level: uploads at 10, 100, 1000 and 10000 Mbit/s, the level the controller chose, and the best fixed
one.

The client paces its upload, so a slow client is what the server sees. It repeats the question EACopy asked (10.1 GB
sent as 2.1 GB at mean level 8.2). Unfair to `auto` on short uploads: a controller needs a few segments to notice
anything.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from pydantic import Field

from taxbench import prometheus
from taxbench.admin import AdminError, fetch_text
from taxbench.bundle import Bundle, write_json
from taxbench.client.pool import WorkerPool
from taxbench.records import SCHEMA_VERSION, Strict
from taxbench.servers.target import Target
from taxbench.studies.bench import Content, StudyBench, cpu_s, run_checked, settle_s, stored_bytes, versions

FIXED = ("fast", "balanced", "high", "max")
FAMILY = "shifted"
EFFORT_GAUGE = "deltaweir_effort_level"
SAMPLE_EVERY_S = 0.02
EQUAL_TIME = 1.05
"""Levels within five percent of the fastest are equally fast; then the one that stores less is the better."""
BYTES_MIN = 512 << 10


class AdaptiveRow(Strict):
    """One upload at one bandwidth and level."""

    mbit_s: int
    level: str
    logical_bytes: int
    stored_bytes: int
    time_s: float
    settle_s: float
    server_cpu_s: float
    chosen_level_mean: float | None = Field(default=None, description="mean of the effort gauge during the upload")


class AdaptiveVerdict(Strict):
    """`auto` against the best fixed level at one bandwidth. 1.0 is equal; above 1.0 `auto` is worse."""

    mbit_s: int
    best_fixed: str
    time_ratio: float
    stored_ratio: float


class Adaptive(Strict):
    """`studies/adaptive.json`."""

    schema_version: int = SCHEMA_VERSION
    rows: list[AdaptiveRow]
    verdicts: list[AdaptiveVerdict]


class _EffortWatch:
    """Reads the effort gauge while an upload runs."""

    def __init__(self, target: Target) -> None:
        self._url, self._token = target.metrics_url, target.metrics_token
        self._seen: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> _EffortWatch:
        if self._url:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    @property
    def mean(self) -> float | None:
        return sum(self._seen) / len(self._seen) if self._seen else None

    def _loop(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY_S):
            with contextlib.suppress(AdminError):
                scrape = prometheus.parse(fetch_text(self._url, self._token))
                if scrape.has(EFFORT_GAUGE):
                    self._seen.append(scrape.total(EFFORT_GAUGE))


def run(bench: StudyBench, bundle: Bundle, place: Path) -> None:
    """Every bandwidth, every level: store a base at full speed, then its next version at the bandwidth."""
    rows: list[AdaptiveRow] = []
    levels = ("auto", *FIXED)
    buckets = {f"bench-adaptive-{level}": ("delta", "off", level) for level in levels}
    with bench.make_server(place / "server", buckets) as target, WorkerPool(1, 1 << 20) as pool:
        for mbit_s in bench.profile.shaped_mbit_s:
            rate = mbit_s * 1e6 / 8
            size = int(min(max(rate * bench.profile.shaped_seconds, BYTES_MIN), bench.profile.shaped_bytes_max))
            pair = versions(bench.seed + mbit_s, FAMILY, size, 2, place / f"data-{mbit_s}")
            for level in levels:
                target.ensure_bucket(f"bench-adaptive-{level}")
                rows.append(_one(pool, target, pair, level, mbit_s))
    write_json(bundle.root / "studies" / "adaptive.json", Adaptive(rows=rows, verdicts=verdicts(rows)))


def _one(pool: WorkerPool, target: Target, pair: list[Content], level: str, mbit_s: int) -> AdaptiveRow:
    bucket, (base, later) = f"bench-adaptive-{level}", pair
    run_checked(pool, target, [base.operation("put", bucket, f"{mbit_s}/app-1.0.0", "adaptive")])
    settle_s(target)
    before_s = cpu_s(target)
    paced = later.operation("put", bucket, f"{mbit_s}/app-1.0.1", "adaptive", pace_bytes_per_s=mbit_s * 1e6 / 8)
    with _EffortWatch(target) as watch:
        batch = run_checked(pool, target, [paced])
    waited_s = settle_s(target)
    used_s = cpu_s(target) - before_s
    stored = stored_bytes(pool, target, [later.operation("head", bucket, f"{mbit_s}/app-1.0.1", "adaptive")])
    return AdaptiveRow(
        mbit_s=mbit_s,
        level=level,
        logical_bytes=later.size,
        stored_bytes=later.size if stored is None else stored,
        time_s=round(batch.wall_s, 4),
        settle_s=round(waited_s, 4),
        server_cpu_s=round(used_s, 3),
        chosen_level_mean=watch.mean,
    )


def verdicts(rows: list[AdaptiveRow]) -> list[AdaptiveVerdict]:
    """`auto` against the best fixed level, for each bandwidth that has both."""
    found = []
    for mbit_s in sorted({row.mbit_s for row in rows}):
        fixed = [row for row in rows if row.mbit_s == mbit_s and row.level != "auto"]
        auto = [row for row in rows if row.mbit_s == mbit_s and row.level == "auto"]
        if not fixed or not auto:
            continue
        fastest_s = min(row.time_s for row in fixed)
        best = min((row for row in fixed if row.time_s <= fastest_s * EQUAL_TIME), key=lambda row: row.stored_bytes)
        found.append(
            AdaptiveVerdict(
                mbit_s=mbit_s,
                best_fixed=best.level,
                time_ratio=round(auto[0].time_s / best.time_s, 4),
                stored_ratio=round(auto[0].stored_bytes / max(best.stored_bytes, 1), 4),
            )
        )
    return found

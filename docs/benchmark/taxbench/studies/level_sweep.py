"""The level sweep: what each level costs in throughput, what it saves in bytes, and the link speed below which it pays.

It repeats the shape of an rsync study (29.4 GB, no compression 284 MB/s, levels 1, 6 and 9 at 61, 35 and 11 MB/s, all
for about half the bytes). Unfair to `max`: it is meant for the background, not for the request path it is timed on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from taxbench.bundle import Bundle, write_json
from taxbench.client.pool import WorkerPool
from taxbench.records import SCHEMA_VERSION, Strict
from taxbench.report.numbers import significant
from taxbench.statistics import Interval, bootstrap
from taxbench.studies.bench import StudyBench, cpu_s, run_checked, settle_s, stored_bytes, versions

LEVELS: dict[str, tuple[str, str, str]] = {
    "off": ("off", "off", "auto"),
    "zstd": ("zstd", "off", "balanced"),
    "fast": ("delta", "off", "fast"),
    "balanced": ("delta", "off", "balanced"),
    "high": ("delta", "off", "high"),
    "max": ("delta", "off", "max"),
    "auto": ("delta", "off", "auto"),
}
FAMILIES = ("tar", "sql", "shifted")
VERSIONS = 3
REPEATS = 3
LINK_MIN_BYTES_S, LINK_MAX_BYTES_S = 1e4, 1e11
STEPS_PER_DECADE = 40


@dataclass(frozen=True, slots=True)
class Measured:
    """One level as it was measured: one time per repeat."""

    logical_bytes: int
    transfer_bytes: int
    times_s: list[float]
    settle_s: float
    server_cpu_s: float


class LevelRow(Strict):
    """One level. `transfer_bytes` is what reaches the store; MB are decimal."""

    level: str
    logical_bytes: int
    transfer_bytes: int
    throughput_mb_s: Interval
    time_s: Interval
    settle_s: float
    server_cpu_s: float
    speed_up: float = Field(description="time of `off` divided by this time")
    reduction: float = Field(description="logical / transferred")
    pays_below_mbit_s: float | None = Field(description="faster than `off` on links below this; absent: on none")
    best_from_mbit_s: float | None = Field(description="the fastest level on links from this speed; absent: never is")
    best_to_mbit_s: float | None

    @property
    def best_links(self) -> str:
        """The links this level is the best for, in words."""
        if self.best_from_mbit_s is None or self.best_to_mbit_s is None:
            return "–"
        if self.best_from_mbit_s <= LINK_MIN_BYTES_S * 8 / 1e6:
            return f"below {significant(self.best_to_mbit_s)} Mbit/s"
        if self.best_to_mbit_s >= 0.9 * LINK_MAX_BYTES_S * 8 / 1e6:
            return f"above {significant(self.best_from_mbit_s)} Mbit/s"
        return f"{significant(self.best_from_mbit_s)} – {significant(self.best_to_mbit_s)} Mbit/s"


class LevelSweep(Strict):
    """`studies/level_sweep.json`."""

    schema_version: int = SCHEMA_VERSION
    families: list[str]
    rows: list[LevelRow]


def transfer_time_s(logical_bytes: float, stored_bytes: float, throughput_bytes_s: float, link_bytes_s: float) -> float:
    """Encoding and sending overlap, so the slower of the two sets the time."""
    return max(logical_bytes / throughput_bytes_s, stored_bytes / link_bytes_s)


def pays_below(logical_bytes: float, stored_bytes: float, throughput_bytes_s: float) -> float | None:
    """The link speed in bytes per second below which a level beats sending everything; `None` when it saves nothing.

    On a link slower than the level's own throughput, sending fewer bytes wins; on a faster one the level is in the way.
    """
    return throughput_bytes_s if stored_bytes < logical_bytes else None


def best_ranges(levels: dict[str, tuple[float, float, float]]) -> dict[str, tuple[float, float]]:
    """For each level that is ever the fastest: the link speeds (bytes per second) between which it is.

    `levels` maps a name to (logical bytes, stored bytes, throughput in bytes per second). Ties go to fewer bytes.
    """
    first, last = (round(math.log10(bound) * STEPS_PER_DECADE) for bound in (LINK_MIN_BYTES_S, LINK_MAX_BYTES_S))
    speeds = [10 ** (step / STEPS_PER_DECADE) for step in range(first, last + 1)]
    ranges: dict[str, tuple[float, float]] = {}
    for speed in speeds:
        times = {name: (transfer_time_s(*level, speed), level[1]) for name, level in levels.items()}
        best = min(times, key=lambda name: (round(times[name][0], 12), times[name][1]))
        low, _ = ranges.get(best, (speed, speed))
        ranges[best] = (low, speed)
    return ranges


def run(bench: StudyBench, bundle: Bundle, place: Path) -> None:
    """Uploads the same similar data at every level, each into a fresh server, a few times while its budget lasts."""
    size = max(256 << 10, bench.profile.study_bytes // len(FAMILIES))
    families = {name: versions(bench.seed, name, size, VERSIONS, place / "data") for name in FAMILIES}
    repeats = REPEATS if bench.profile.trials > 1 else 1
    measured: dict[str, Measured] = {}
    with WorkerPool(1, 1 << 20) as pool:
        for level, settings in LEVELS.items():
            times: list[float] = []
            transfer, waited_s, used_s = 0, 0.0, 0.0
            while len(times) < repeats and (not times or sum(times) < bench.profile.level_budget_s):
                bucket = "bench-level"
                with bench.make_server(place / f"{level}-{len(times)}", {bucket: settings}) as target:
                    target.ensure_bucket(bucket)
                    keyed = [(f"{f}/{f}-1.{n}.0", c) for f, cs in families.items() for n, c in enumerate(cs)]
                    before_s = cpu_s(target)
                    batch = run_checked(pool, target, [c.operation("put", bucket, key, "level") for key, c in keyed])
                    times.append(batch.wall_s)
                    waited_s = max(waited_s, settle_s(target))
                    used_s = cpu_s(target) - before_s
                    found = stored_bytes(pool, target, [c.operation("head", bucket, key, "level") for key, c in keyed])
                    transfer = found if found is not None else sum(c.size for _, c in keyed)
                    pool.disconnect()
            logical = sum(c.size for cs in families.values() for c in cs)
            measured[level] = Measured(logical, transfer, times, waited_s, used_s)
    write_json(bundle.root / "studies" / "level_sweep.json", LevelSweep(families=list(FAMILIES), rows=rows(measured)))


def rows(measured: dict[str, Measured]) -> list[LevelRow]:
    """The table. Pure, so that it is tested against arithmetic."""
    medians = {level: sorted(m.times_s)[len(m.times_s) // 2] for level, m in measured.items()}
    ranges = best_ranges(
        {
            level: (float(m.logical_bytes), float(m.transfer_bytes), m.logical_bytes / medians[level])
            for level, m in measured.items()
            if level != "auto"
        }
    )
    table = []
    for level, m in measured.items():
        logical, transfer, times = m.logical_bytes, m.transfer_bytes, m.times_s
        throughput, time_s = bootstrap([logical / 1e6 / t for t in times]), bootstrap(times)
        assert throughput is not None and time_s is not None, "every level was timed at least once"
        paying = None if level == "off" else pays_below(logical, transfer, logical / medians[level])
        low, high = ranges.get(level, (math.nan, math.nan))
        table.append(
            LevelRow(
                level=level,
                logical_bytes=logical,
                transfer_bytes=transfer,
                throughput_mb_s=throughput,
                time_s=time_s,
                settle_s=round(m.settle_s, 3),
                server_cpu_s=round(m.server_cpu_s, 3),
                speed_up=medians["off"] / medians[level],
                reduction=logical / max(transfer, 1),
                pays_below_mbit_s=None if paying is None else paying * 8 / 1e6,
                best_from_mbit_s=None if math.isnan(low) else low * 8 / 1e6,
                best_to_mbit_s=None if math.isnan(high) else high * 8 / 1e6,
            )
        )
    return table

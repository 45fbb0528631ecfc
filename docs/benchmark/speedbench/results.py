"""What a run writes: measurements with intervals, and the machine they are true for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from taxbench.records import MachineFacts, Noise, Strict
from taxbench.statistics import Interval

SCHEMA_VERSION = 1

Kind = Literal["cpu", "wall", "memory", "count"]
"""What moves a number besides the code: nothing (`count`), caches and clock rates (`cpu`), the allocator (`memory`), or
everything that goes on in the machine (`wall`)."""


class Measurement(Strict):
    """One number and how sure it is. `interval.values` holds one value per sample of criterion or round."""

    name: str
    unit: str
    kind: Kind
    higher_is_better: bool
    interval: Interval


class Results(Strict):
    """`results/speed/results.json`, and the committed baseline."""

    schema_version: int = SCHEMA_VERSION
    commit: str = Field(description="the commit that was built, with + when files differed from it")
    server: dict[str, str] = Field(description="what the macro bench drove")
    machine: MachineFacts
    noise: Noise
    runs: int = Field(default=1, description="whole runs that were merged: their spread is in the intervals")
    measurements: list[Measurement]

    @classmethod
    def read(cls, path: Path) -> Results:
        """# Errors
        `ValueError` when the file is not what this version writes; `OSError` when there is none.
        """
        return cls.model_validate_json(path.read_text())

    def named(self) -> dict[str, Measurement]:
        return {measurement.name: measurement for measurement in self.measurements}


def merge(runs: Sequence[Results]) -> Results:
    """Several runs as one: the median of medians, and an interval that holds every run's own.

    Two runs of the same build a few minutes apart differ by more than either's interval says; a baseline made of both
    knows by how much. A measurement that one run lacks is dropped.
    """
    first = runs[0]
    merged = []
    for measurement in first.measurements:
        found = [run.named().get(measurement.name) for run in runs]
        intervals = [same.interval for same in found if same is not None]
        if len(intervals) == len(runs):
            merged.append(measurement.model_copy(update={"interval": _hull(intervals)}))
    noise = Noise(
        steal_fraction=max(run.noise.steal_fraction for run in runs),
        foreign_fraction=max(run.noise.foreign_fraction for run in runs),
        load_before=first.noise.load_before,
        swap_in_pages=sum(run.noise.swap_in_pages for run in runs),
    )
    total = sum(run.runs for run in runs)
    return first.model_copy(update={"runs": total, "noise": noise, "measurements": merged})


def _hull(intervals: Sequence[Interval]) -> Interval:
    medians = sorted(interval.median for interval in intervals)
    middle = len(medians) // 2
    median = medians[middle] if len(medians) % 2 else (medians[middle - 1] + medians[middle]) / 2
    lows = [interval.median if interval.low is None else interval.low for interval in intervals]
    highs = [interval.median if interval.high is None else interval.high for interval in intervals]
    return Interval(median=median, low=min(lows), high=max(highs), values=[v for i in intervals for v in i.values])

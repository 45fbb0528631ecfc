"""Medians, bootstrap intervals, quantiles, and one detector: what turns raw samples into statements.

Everything here is a pure function of its arguments; randomness comes from a fixed seed, so the same files give the same
report.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

RESAMPLES = 10_000
CONFIDENCE = 0.95
BOOTSTRAP_SEED = 95
P99_SAMPLES_MIN = 100
DELAYED_ACK_WINDOWS_MS = ((38.0, 46.0), (195.0, 215.0))
"""Linux delays an ACK by 40 ms and, once it is in the slow mode, by up to 200 ms."""
DELAYED_ACK_SHARE_MIN = 0.01
DELAYED_ACK_CONTRAST_MIN = 5.0


class Interval(BaseModel):
    """A median over trials with its 95 % bootstrap interval. Without two trials there is no interval."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    median: float
    low: float | None = None
    high: float | None = None
    values: list[float] = Field(default_factory=list, description="one value per trial, in trial order")

    @property
    def n(self) -> int:
        return len(self.values)

    def excludes(self, value: float) -> bool:
        """Whether the whole interval lies on one side of a value. Never without an interval."""
        return self.low is not None and self.high is not None and (self.low > value or self.high < value)


class Quantiles(BaseModel):
    """Latency quantiles in milliseconds.

    `p99` is absent below a hundred samples: it would be the maximum in disguise.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    samples: int
    p50: float
    p90: float
    p99: float | None
    max: float


def bootstrap(values: Sequence[float], seed: int = BOOTSTRAP_SEED) -> Interval | None:
    """The median of per-trial values and its percentile-bootstrap interval; `None` without values.

    With few trials the interval can be no wider than the range of the values: it says how repeatable the run was, not
    how far the truth may be.
    """
    kept = [float(v) for v in values if np.isfinite(v)]
    if not kept:
        return None
    data = np.asarray(kept)
    median = float(np.median(data))
    if len(kept) < 2:
        return Interval(median=median, values=kept)
    rng = np.random.default_rng(seed)
    medians = np.median(data[rng.integers(0, len(data), (RESAMPLES, len(data)))], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(median=median, low=float(low), high=float(high), values=kept)


def paired_ratio(numerator: dict[int, float], denominator: dict[int, float]) -> Interval | None:
    """Ratios within each trial, then their median and interval: what drifts between trials cancels."""
    trials = sorted(numerator.keys() & denominator.keys())
    return bootstrap([numerator[t] / denominator[t] for t in trials if denominator[t] > 0])


def quantiles(seconds: Sequence[float]) -> Quantiles | None:
    """Quantiles of latencies given in seconds; `None` without samples."""
    if not seconds:
        return None
    ms = np.asarray(seconds) * 1000
    p50, p90, p99 = np.quantile(ms, [0.5, 0.9, 0.99])
    enough = len(ms) >= P99_SAMPLES_MIN
    return Quantiles(
        samples=len(ms), p50=float(p50), p90=float(p90), p99=float(p99) if enough else None, max=float(ms.max())
    )


def ecdf(values: Sequence[float], points_max: int = 400) -> tuple[list[float], list[float]]:
    """The empirical distribution as (value, fraction at or below it), thinned to at most `points_max` points.

    The smallest and the largest value are always kept.
    """
    if not values:
        return [], []
    data = np.sort(np.asarray(values, dtype=float))
    picks = np.unique(np.linspace(0, len(data) - 1, min(points_max, len(data))).round().astype(int))
    return [float(data[i]) for i in picks], [float((i + 1) / len(data)) for i in picks]


def delayed_ack_share(seconds: Sequence[float]) -> tuple[float, float] | None:
    """(share of samples in a delayed-ACK window, how much denser than around it) when that is suspicious, else `None`.

    A server that writes a small answer in two pieces under Nagle's algorithm waits for the client's delayed ACK: a bump
    at 40 or 200 ms that no disk or processor explains.
    """
    if len(seconds) < P99_SAMPLES_MIN:
        return None
    ms = np.asarray(seconds) * 1000
    for low, high in DELAYED_ACK_WINDOWS_MS:
        width = high - low
        inside = float(np.mean((ms >= low) & (ms < high)))
        around = float(np.mean(((ms >= low - width) & (ms < low)) | ((ms >= high) & (ms < high + width)))) / 2
        contrast = inside / max(around, 1 / len(ms))
        if inside >= DELAYED_ACK_SHARE_MIN and contrast >= DELAYED_ACK_CONTRAST_MIN:
            return inside, contrast
    return None

"""Statistics against known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from taxbench.commands.compare import judge
from taxbench.statistics import (
    P99_SAMPLES_MIN,
    Interval,
    bootstrap,
    delayed_ack_share,
    ecdf,
    paired_ratio,
    quantiles,
)
from taxbench.studies.adaptive import AdaptiveRow, verdicts
from taxbench.studies.level_sweep import Measured, best_ranges, rows, transfer_time_s
from taxbench.summarize import CPU_USD_PER_HOUR, RETENTION_MONTHS, storage_price


def test_the_median_and_its_interval_match_the_exact_bootstrap_of_three_values() -> None:
    # Of the 27 resamples of (1, 2, 3), the median is 1 in 7, 2 in 13 and 3 in 7: far more than 2.5 % at either end.
    interval = bootstrap([3.0, 1.0, 2.0])
    assert interval is not None
    assert (interval.median, interval.low, interval.high) == (2.0, 1.0, 3.0)


def test_a_bootstrap_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        interval = bootstrap(rng.normal(10, 1, 25))
        assert interval is not None and interval.low is not None and interval.high is not None
        covered += interval.low <= 10 <= interval.high
    assert 0.88 <= covered / 200 <= 1.0


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert bootstrap([5.0] * 4) == Interval(median=5.0, low=5.0, high=5.0, values=[5.0] * 4)


def test_one_trial_has_a_value_and_no_interval() -> None:
    interval = bootstrap([4.0])
    assert interval is not None and interval.median == 4.0 and interval.low is None
    assert not interval.excludes(1.0)


def test_nothing_measured_gives_nothing_and_infinities_are_not_measurements() -> None:
    assert bootstrap([]) is None
    assert bootstrap([math.inf, math.nan]) is None


def test_the_same_values_give_the_same_interval_every_time() -> None:
    assert bootstrap([1.0, 5.0, 2.0, 8.0]) == bootstrap([1.0, 5.0, 2.0, 8.0])


def test_paired_ratios_cancel_what_drifts_between_trials() -> None:
    slow_machine = {1: 100.0, 2: 50.0, 3: 10.0}
    interval = paired_ratio({t: v * 0.8 for t, v in slow_machine.items()}, slow_machine)
    assert interval is not None and interval.low is not None
    assert interval.median == pytest.approx(0.8) and interval.low == pytest.approx(0.8)


def test_trials_without_a_partner_are_left_out_of_ratios() -> None:
    interval = paired_ratio({1: 2.0, 2: 9.0}, {1: 4.0, 3: 1.0})
    assert interval is not None and interval.values == [0.5]
    assert paired_ratio({1: 1.0}, {2: 1.0}) is None


def test_p99_needs_a_hundred_samples() -> None:
    few, enough = quantiles([0.001] * (P99_SAMPLES_MIN - 1)), quantiles([0.001] * P99_SAMPLES_MIN)
    assert few is not None and few.p99 is None
    assert enough is not None and enough.p99 == pytest.approx(1.0)


def test_quantiles_are_those_of_a_known_sequence() -> None:
    found = quantiles([n / 1000 for n in range(101)])
    assert found is not None
    assert (found.p50, found.p90, found.p99, found.max) == pytest.approx((50.0, 90.0, 99.0, 100.0))


def test_an_ecdf_rises_to_one_and_keeps_its_ends_when_thinned() -> None:
    values, fractions = ecdf(list(range(10_000)), points_max=50)
    assert len(values) <= 50
    assert (values[0], values[-1], fractions[-1]) == (0.0, 9999.0, 1.0)
    assert fractions == sorted(fractions)
    assert ecdf([]) == ([], [])


def test_a_bump_at_forty_milliseconds_is_seen_and_a_smooth_tail_is_not() -> None:
    rng = np.random.default_rng(2)
    smooth = list(rng.lognormal(math.log(0.002), 1.2, 3000))
    assert delayed_ack_share(smooth) is None
    bumped = delayed_ack_share(smooth + [0.0405] * 90)
    assert bumped is not None and bumped[0] > 0.025
    slow = delayed_ack_share(smooth + [0.203] * 90)
    assert slow is not None
    assert delayed_ack_share([0.0405] * 50) is None, "fifty samples prove nothing"


def test_overlapping_encoding_and_sending_take_as_long_as_the_slower() -> None:
    assert transfer_time_s(100, 50, 10, 1) == 50
    assert transfer_time_s(100, 50, 10, 100) == 10


def test_the_best_level_changes_from_small_to_fast_as_links_get_faster() -> None:
    levels = {"off": (1000.0, 1000.0, 1e9), "fast": (1000.0, 500.0, 1e8), "max": (1000.0, 250.0, 1e6)}
    ranges = best_ranges(levels)
    assert ranges["max"][1] < ranges["fast"][1] < ranges["off"][1]
    # `max` is limited by its own 1 MB/s from a link of 0.25 MB/s on; `fast` overtakes it at 0.5 MB/s.
    assert ranges["max"][1] == pytest.approx(0.5e6, rel=0.1)
    assert ranges["fast"][1] == pytest.approx(1e8, rel=0.1)


def test_the_level_table_computes_what_the_rsync_study_tabulates() -> None:
    table = rows(
        {
            "off": Measured(1000_000, 1000_000, [0.01], 0.0, 0.001),
            "fast": Measured(1000_000, 500_000, [0.02, 0.021, 0.019], 0.5, 0.02),
        }
    )
    fast = next(row for row in table if row.level == "fast")
    assert fast.reduction == 2.0 and fast.speed_up == 0.5
    assert fast.pays_below_mbit_s == pytest.approx(400)  # its own throughput: 50 MB/s
    assert next(row for row in table if row.level == "off").pays_below_mbit_s is None


def test_auto_is_compared_with_the_smallest_of_the_fastest_levels() -> None:
    def row(level: str, time_s: float, stored: int) -> AdaptiveRow:
        return AdaptiveRow(
            mbit_s=10, level=level, logical_bytes=1000, stored_bytes=stored, time_s=time_s, settle_s=0, server_cpu_s=0
        )

    found = verdicts([row("auto", 1.02, 300), row("fast", 1.0, 400), row("high", 1.03, 200), row("max", 2.0, 100)])
    assert len(found) == 1
    assert found[0].best_fixed == "high"
    assert found[0].time_ratio == pytest.approx(1.02 / 1.03, abs=1e-3) and found[0].stored_ratio == 1.5


def test_the_break_even_price_pays_exactly_for_the_cpu() -> None:
    price = storage_price(36.0, 0.25)
    assert price is not None
    assert price * 0.75 * RETENTION_MONTHS == pytest.approx(36.0 / 3600 * CPU_USD_PER_HOUR)
    assert storage_price(1.0, 1.0) is None


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ((100, 99, 101), (104, 103, 105), "same"),
        ((100, 99, 101), (80, 78, 82), "worse"),
        ((100, 99, 101), (120, 118, 122), "better"),
        ((100, 80, 120), (85, 70, 100), "unsure"),
        ((100, None, None), (50, None, None), "unsure"),
    ],
)
def test_a_verdict_needs_a_difference_and_intervals_that_do_not_overlap(
    a: tuple[float, float, float], b: tuple[float, float, float], verdict: str
) -> None:
    first, second = (Interval(median=m, low=low, high=high) for m, low, high in (a, b))
    assert judge(first, second, 0.05, higher_is_better=True) == verdict
    mirrored = {"worse": "better", "better": "worse"}.get(verdict, verdict)
    assert judge(first, second, 0.05, higher_is_better=False) == mirrored


def test_an_interval_refuses_keys_it_does_not_know() -> None:
    with pytest.raises(ValidationError):
        Interval.model_validate({"median": 1, "mean": 1})

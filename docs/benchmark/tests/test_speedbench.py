"""speedbench: what criterion wrote is read back, a regression is seen, and noise is not taken for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speedbench import __main__ as program
from speedbench import macro, micro, verdict
from speedbench.results import Kind, Measurement, Results, merge
from taxbench.bundle import write_json
from taxbench.records import MachineFacts, Noise
from taxbench.statistics import Interval

QUIET = Noise(steal_fraction=0.0, foreign_fraction=0.01, load_before=0.1)
BUSY = Noise(steal_fraction=0.0, foreign_fraction=0.6, load_before=3.0)


def measurement(
    name: str, median: float, spread: float = 0.01, kind: Kind = "cpu", higher_is_better: bool = False
) -> Measurement:
    values = [median * (1 - spread), median, median * (1 + spread)]
    interval = Interval(median=median, low=values[0], high=values[2], values=values)
    return Measurement(name=name, unit="ns", kind=kind, higher_is_better=higher_is_better, interval=interval)


def results(*measurements: Measurement, noise: Noise = QUIET, cpu: str = "One CPU") -> Results:
    machine = MachineFacts(cpu_model=cpu, cpu_count=2, memory_bytes=1 << 30, kernel="6", os="linux")
    return Results(commit="abc", server={}, machine=machine, noise=noise, measurements=list(measurements))


def verdicts(before: Results, now: Results) -> dict[str, str]:
    comparison = verdict.compare(before, now)
    return {change.what.partition(" ")[0]: change.verdict for change in comparison.changes}


def test_a_change_beyond_threshold_and_intervals_is_judged_by_its_direction() -> None:
    before = results(
        measurement("slower", 100),
        measurement("faster", 100),
        measurement("same", 100),
        measurement("throughput", 100, higher_is_better=True),
    )
    now = results(
        measurement("slower", 130),
        measurement("faster", 70),
        measurement("same", 108),
        measurement("throughput", 60, higher_is_better=True),
    )
    assert verdicts(before, now) == {"slower": "worse", "faster": "better", "same": "same", "throughput": "worse"}
    assert verdict.compare(before, now).regressed
    assert not verdict.compare(before, before).regressed


def test_a_large_change_within_the_noise_is_unsure() -> None:
    before = results(measurement("shaky", 100, spread=0.4))
    now = results(measurement("shaky", 140, spread=0.4))
    assert verdicts(before, now) == {"shaky": "unsure"}
    assert not verdict.compare(before, now).regressed


def test_wall_time_may_move_more_than_cpu_time_and_counts_hardly_at_all() -> None:
    kinds: tuple[Kind, ...] = ("wall", "cpu", "memory", "count")
    before = results(*(measurement(kind, 100, 0.001, kind) for kind in kinds))
    now = results(*(measurement(kind, 112, 0.001, kind) for kind in kinds))
    assert verdicts(before, now) == {"wall": "same", "cpu": "worse", "memory": "same", "count": "worse"}


@pytest.mark.parametrize("now_noise,now_cpu", [(BUSY, "One CPU"), (QUIET, "Another CPU")])
def test_speeds_of_a_busy_or_another_machine_are_not_judged_but_counts_are(now_noise: Noise, now_cpu: str) -> None:
    before = results(measurement("speed", 100), measurement("ratio", 2, 0.0, "count", True))
    now = results(measurement("speed", 300), measurement("ratio", 1, 0.0, "count", True), noise=now_noise, cpu=now_cpu)
    assert verdicts(before, now) == {"speed": "unsure", "ratio": "worse"}


def test_a_baseline_of_two_runs_knows_how_far_apart_they_were() -> None:
    merged = merge([results(measurement("a", 100)), results(measurement("a", 120), measurement("b", 1))])
    assert [m.name for m in merged.measurements] == ["a"]
    interval = merged.measurements[0].interval
    assert (interval.median, interval.low, interval.high) == (110, 99, pytest.approx(121.2))
    assert merged.runs == 2
    assert verdicts(merged, results(measurement("a", 122))) == {"a": "unsure"}
    assert verdicts(merged, results(measurement("a", 130))) == {"a": "worse"}
    assert not verdict.quiet(merge([results(), results(noise=BUSY)]).noise)


def test_what_the_baseline_has_and_the_run_has_not_is_named() -> None:
    before = results(measurement("kept", 1), measurement("gone", 1))
    assert verdict.missing(before, results(measurement("kept", 1), measurement("new", 1))) == ["gone"]


def test_criterions_estimates_are_read_with_their_interval(tmp_path: Path) -> None:
    place = tmp_path / "codec" / "encode_balanced" / "new"
    place.mkdir(parents=True)
    (place / "benchmark.json").write_text(json.dumps({"full_id": "codec/encode/balanced"}))
    bounds = {"confidence_level": 0.95, "lower_bound": 9.5, "upper_bound": 11.0}
    (place / "estimates.json").write_text(
        json.dumps({"median": {"point_estimate": 10.0, "confidence_interval": bounds}})
    )
    (place / "sample.json").write_text(json.dumps({"times": [100.0, 210.0], "iters": [10.0, 20.0]}))
    [found] = micro.read(tmp_path)
    assert (found.name, found.unit, found.kind) == ("micro/codec/encode/balanced", "ns", "cpu")
    assert (found.interval.median, found.interval.low, found.interval.high) == (10.0, 9.5, 11.0)
    assert found.interval.values == [10.0, 10.5]


def test_values_of_all_rounds_stand_under_one_name() -> None:
    figures = [macro.Figure("macro/raw/put/cpu", "s/GB", "cpu", False, value) for value in (1.0, 2.0, 3.0)]
    [found] = macro.measurements(figures)
    assert (found.interval.median, found.interval.values) == (2.0, [1.0, 2.0, 3.0])


def test_the_command_ends_with_1_on_a_regression_and_2_without_a_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline, now = tmp_path / "baseline.json", tmp_path / "results.json"
    write_json(now, results(measurement("micro/x", 150)))
    command = ["compare", str(now), "--baseline", str(baseline)]
    assert program.main(command) == 2
    assert "make bench-baseline" in capsys.readouterr().err
    write_json(baseline, results(measurement("micro/x", 100)))
    assert program.main(command) == 1
    assert "REGRESSION: 1 numbers are worse" in capsys.readouterr().out
    assert program.main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["changes"][0]["ratio"] == 1.5
    write_json(now, results(measurement("micro/x", 101)))
    assert program.main(command) == 0
    baseline.write_text("{}")
    assert program.main(command) == 2

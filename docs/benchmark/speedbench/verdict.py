"""Results against a baseline: ratios, and whether they mean anything."""

from __future__ import annotations

from speedbench.results import Kind, Measurement, Results
from taxbench.commands.compare import Change, Comparison, Verdict, judge
from taxbench.guards import FOREIGN_FRACTION_MAX, STEAL_FRACTION_MAX
from taxbench.records import Noise

THRESHOLDS: dict[Kind, float] = {"count": 0.02, "cpu": 0.10, "memory": 0.15, "wall": 0.25}
"""Smallest change that counts, by what moves a number besides the code."""


def compare(baseline: Results, results: Results) -> Comparison:
    """Every number both have.

    A change counts when it is larger than the threshold of its kind and the intervals do not overlap. Counts are judged
    on any machine; everything else only on the baseline's kind of machine, and while that was quiet: else it is shown
    with `unsure`.
    """
    same = _same_machine(baseline, results)
    steady = same and quiet(baseline.noise) and quiet(results.noise)
    now = results.named()
    changes = [_change(before, now[before.name], steady) for before in baseline.measurements if before.name in now]
    return Comparison(a=baseline.commit, b=results.commit, same_machine=same, changes=changes)


def missing(baseline: Results, results: Results) -> list[str]:
    """What the baseline has and the results do not: a bench that was renamed, or did not run."""
    return sorted(baseline.named().keys() - results.named().keys())


def quiet(noise: Noise) -> bool:
    """Whether the machine had little else to do: the limits of a publishable run."""
    return noise.steal_fraction <= STEAL_FRACTION_MAX and noise.foreign_fraction <= FOREIGN_FRACTION_MAX


def _same_machine(a: Results, b: Results) -> bool:
    return (a.machine.cpu_model, a.machine.cpu_count) == (b.machine.cpu_model, b.machine.cpu_count)


def _change(before: Measurement, now: Measurement, steady: bool) -> Change:
    a, b = before.interval, now.interval
    verdict: Verdict = judge(a, b, THRESHOLDS[before.kind], before.higher_is_better)
    if before.kind != "count" and not steady and verdict != "same":
        verdict = "unsure"
    name = f"{before.name} [{before.unit}]"
    return Change(what=name, a=a.median, b=b.median, ratio=b.median / a.median if a.median else 1.0, verdict=verdict)

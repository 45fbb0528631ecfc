"""The two tables, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from goalbench.goals import GOALS, Report, Size, of_line, verdict
from taxbench.report.numbers import significant
from taxbench.statistics import Interval


def render(report: Report) -> str:
    """Goals, then growth where more than one size was measured."""
    lines = list(goals(report))
    if report.growth:
        lines += ["", *growth(report.growth)]
    return "\n".join(lines) + "\n"


def goals(report: Report) -> Iterator[str]:
    """A row for each number of each line, measured or not."""
    yield "| # | work | | now | goal | |"
    yield "|---:|---|---|---:|---:|---|"
    for goal in GOALS:
        for check, found in of_line(report.found, goal):
            unit = f" {check.unit}" if check.unit else ""
            said = verdict(check, found)
            if found is None or found.interval is None:
                why = found.why_not if found is not None else "not asked for"
                now, said_in_full = "–", f"{said}: {why}"
            else:
                now, said_in_full = shown(found.interval) + unit, said
            yield f"| {goal.number} | {goal.work} | {check.name} | {now} | {check.goal} | {said_in_full} |"


def growth(sizes: Sequence[Size]) -> Iterator[str]:
    """A row for each figure; the exponent says how it grows: 0 not at all, 1 as the objects do."""
    ordered = sorted(sizes, key=lambda size: size.objects)
    names = list(ordered[0].figures)
    yield f"| objects | {' | '.join(f'{size.objects:,}' for size in ordered)} | exponent |"
    yield f"|---|{'---:|' * (len(ordered) + 1)}"
    for name in names:
        found = [size.figures.get(name) for size in ordered]
        cells = " | ".join("–" if interval is None else shown(interval) for interval in found)
        points = [(s.objects, i.median) for s, i in zip(ordered, found, strict=True) if i is not None]
        fitted = exponent(points)
        yield f"| {name} | {cells} | {'–' if fitted is None else f'{fitted:.2f}'} |"


def exponent(points: Sequence[tuple[int, float]]) -> float | None:
    """The slope of the line through the points where both axes are logarithmic; `None` when there is no such line."""
    kept = [(objects, value) for objects, value in points if objects > 0 and value > 0]
    if len({objects for objects, _ in kept}) < 2:
        return None
    slope, _ = np.polyfit(np.log([o for o, _ in kept]), np.log([v for _, v in kept]), 1)
    return float(slope)


def shown(interval: Interval) -> str:
    """A median, with its interval where there is one."""
    if interval.low is None or interval.high is None:
        return significant(interval.median)
    return f"{significant(interval.median)} [{significant(interval.low)}, {significant(interval.high)}]"

"""`compare A B`: did B get worse than A? A verdict with an exit code."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from taxbench import summarize
from taxbench.bundle import opened
from taxbench.commands import flags
from taxbench.names import DIRECT, PASSTHROUGH, mode_title
from taxbench.progress import Reporter
from taxbench.records import Strict
from taxbench.report.numbers import significant
from taxbench.runner import UsageError
from taxbench.statistics import Interval
from taxbench.summary import PhaseSummary, Summary

DEFAULT_THRESHOLD = 0.05
PHASES = ("put", "put_base", "put_delta", "cold_get", "warm_get", "range_get", "multipart_put", "overwrite", "mixed")

Verdict = Literal["better", "same", "worse", "unsure"]


class Change(Strict):
    """One number in both runs. `ratio` is B over A."""

    what: str
    a: float
    b: float
    ratio: float
    verdict: Verdict


class Comparison(Strict):
    """`compare --json`."""

    a: str
    b: str
    same_machine: bool
    changes: list[Change]

    @property
    def regressed(self) -> bool:
        return any(change.verdict == "worse" for change in self.changes)


def add(commands: Any) -> None:
    parser = commands.add_parser("compare", help="compare two bundles; exit code 1 when the second is worse")
    parser.add_argument("a", type=Path, help="the baseline: results directory or archive")
    parser.add_argument("b", type=Path, help="the candidate")
    parser.add_argument("--threshold", type=float, default=DEFAULT_THRESHOLD, help="smallest change that counts (0.05)")
    parser.add_argument("--ignore-artifacts", action="store_true", help="compare runs over different artifacts")
    flags.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    summaries = []
    with Reporter(options.json).steps_bar("reading", 2) as bar:
        for path in (options.a, options.b):
            with opened(path) as bundle:
                summaries.append(summarize.summarize(bundle))
            bar.advance(1)
    a, b = summaries
    for summary, path in ((a, options.a), (b, options.b)):
        if summary.fatal:
            raise UsageError(f"{path} has fatal findings: its numbers may not be used")
    if a.artifacts_digest != b.artifacts_digest and not options.ignore_artifacts:
        raise UsageError("the runs stored different artifacts; --ignore-artifacts compares them all the same")
    comparison = compare(a, b, options.threshold)
    if options.json:
        print(comparison.model_dump_json())
    else:
        print_comparison(comparison)
    return 1 if comparison.regressed else 0


def compare(a: Summary, b: Summary, threshold: float) -> Comparison:
    """Every number both runs have. On one machine absolute speeds are compared, on two only ratios to a reference."""
    same = a.environment.machine.cpu_model == b.environment.machine.cpu_model
    same = same and a.environment.machine.cpu_count == b.environment.machine.cpu_count
    return Comparison(a=a.run_id, b=b.run_id, same_machine=same, changes=list(_changes(a, b, same, threshold)))


def judge(a: Interval, b: Interval, threshold: float, higher_is_better: bool) -> Verdict:
    """Worse or better when the medians differ by more than the threshold and the intervals do not overlap.

    A large difference within overlapping intervals, or without intervals, is `unsure`: more trials would tell.
    """
    change = b.median / a.median - 1 if a.median else 0.0
    if abs(change) <= threshold:
        return "same"
    bounds = (a.low, a.high, b.low, b.high)
    if any(bound is None for bound in bounds):
        return "unsure"
    assert a.low is not None and a.high is not None and b.low is not None and b.high is not None
    if b.low <= a.high and a.low <= b.high:
        return "unsure"
    return "better" if (change > 0) == higher_is_better else "worse"


def _changes(a: Summary, b: Summary, same_machine: bool, threshold: float) -> Iterator[Change]:
    for cell in a.cells:
        other = b.cell(cell.mode, cell.concurrency)
        if other is None:
            continue
        place = f"{mode_title(cell.mode)} c{cell.concurrency}"
        for name in PHASES:
            if name in cell.phases and name in other.phases:
                first, second = cell.phases[name], other.phases[name]
                yield from _pair(
                    f"{place} {name} speed", *_speeds(first, second, cell.mode, same_machine), threshold, True
                )
                if same_machine:
                    yield from _pair(
                        f"{place} {name} CPU s/GB", first.cpu_s_per_gb, second.cpu_s_per_gb, threshold, False
                    )
        if cell.storage and other.storage:
            yield from _pair(f"{place} stored", cell.storage.stored_ratio, other.storage.stored_ratio, threshold, False)
        yield from _pair(f"{place} RSS max", cell.rss_max_bytes, other.rss_max_bytes, max(threshold, 0.1), False)


def _speeds(a: PhaseSummary, b: PhaseSummary, mode: str, same_machine: bool) -> tuple[Interval | None, Interval | None]:
    if same_machine:
        return a.throughput_mb_s or a.requests_s, b.throughput_mb_s or b.requests_s
    if mode in (PASSTHROUGH, DIRECT):
        return a.to_direct, b.to_direct
    return a.to_passthrough, b.to_passthrough


def _pair(what: str, a: Interval | None, b: Interval | None, threshold: float, higher: bool) -> Iterator[Change]:
    if a is not None and b is not None and a.median > 0:
        verdict = judge(a, b, threshold, higher)
        yield Change(what=what, a=a.median, b=b.median, ratio=b.median / a.median, verdict=verdict)


def print_comparison(comparison: Comparison) -> None:
    table = Table(title=f"{comparison.b} against {comparison.a}", caption=_caption(comparison))
    for column in ("what", "A", "B", "B/A", "verdict"):
        table.add_column(column, justify="left" if column in ("what", "verdict") else "right")
    colours = {"better": "green", "worse": "bold red", "unsure": "yellow", "same": "dim"}
    for change in comparison.changes:
        style = colours[change.verdict]
        table.add_row(
            change.what,
            significant(change.a),
            significant(change.b),
            f"{change.ratio:.3f}",
            f"[{style}]{change.verdict}[/]",
        )
    Console().print(table)
    worse = sum(change.verdict == "worse" for change in comparison.changes)
    print(f"REGRESSION: {worse} numbers are worse" if worse else "no regression")


def _caption(comparison: Comparison) -> str:
    return "same machine: absolute values" if comparison.same_machine else "different machines: ratios only"

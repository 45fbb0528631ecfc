"""`report.md`: the same statements as the page, for terminals, pull requests and diffs."""

from __future__ import annotations

from collections.abc import Iterator

from taxbench.names import mode_title
from taxbench.report.bottom_line import bottom_line
from taxbench.report.numbers import DASH, significant, size, with_interval
from taxbench.summary import Headline, Summary

SEVERITY_WORDS = {"fatal": "FATAL", "unpublishable": "UNPUBLISHABLE", "label": "Label", "note": "Note"}


def render(summary: Summary) -> str:
    """The whole report as Markdown."""
    return "\n".join(_lines(summary)) + "\n"


def headline_table(rows: list[Headline]) -> list[str]:
    """The tax table: ratios to passthrough with 95 % intervals."""
    lines = [
        "| mode | PUT | cold GET | warm GET | stored | PUT CPU s/GB | GET CPU s/GB | RSS max |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [
            with_interval(row.put_to_passthrough, "×"),
            with_interval(row.cold_get_to_passthrough, "×"),
            with_interval(row.warm_get_to_passthrough, "×"),
            with_interval(row.stored_ratio, "×"),
            with_interval(row.put_cpu_s_per_gb),
            with_interval(row.get_cpu_s_per_gb),
            size(row.rss_max_bytes.median) if row.rss_max_bytes else DASH,
        ]
        if row.mode == "passthrough":
            cells[:3] = ["1"] * 3
        lines.append(f"| {mode_title(row.mode)} | {' | '.join(cells)} |")
    return lines


def _lines(summary: Summary) -> Iterator[str]:
    environment = summary.environment
    yield f"# Compression and encryption tax: {summary.run_id}"
    yield ""
    if summary.fatal:
        yield "**FATAL findings: these numbers may not be used.**\n"
    elif not summary.publishable:
        yield "**UNPUBLISHABLE: the machine was not quiet.**\n"
    yield (
        f"{environment.started_at}, profile {environment.profile}, {environment.trials} trials, seed "
        f"{environment.seed}; "
        f"{summary.artifacts} artifacts, {size(summary.logical_bytes)} logical. "
        f"{environment.machine.cpu_model}, {environment.machine.cpu_count} CPUs, "
        f"{size(environment.machine.memory_bytes)}, "
        f"kernel {environment.machine.kernel}."
    )
    yield ""
    if conclusion := bottom_line(summary):
        yield f"**Bottom line.** {conclusion}"
        yield ""
    for row in summary.headline:
        if row.verdict:
            yield f"- {row.verdict}"
    yield ""
    yield "Speeds relative to passthrough, median of trials with 95 % intervals; stored relative to logical bytes."
    yield ""
    yield from headline_table(summary.headline)
    yield ""
    yield "## Findings"
    yield ""
    for finding in summary.findings:
        place = f" ({finding.where})" if finding.where else ""
        yield f"- **{SEVERITY_WORDS[finding.severity]}** `{finding.code}`{place}: {finding.message}"
    if not summary.findings:
        yield "None."
    yield ""
    yield "## Phases"
    for cell in summary.cells:
        yield ""
        yield f"### {mode_title(cell.mode)}, concurrency {cell.concurrency}"
        yield ""
        yield "| phase | n | MB/s | requests/s | p50 ms | p90 ms | p99 ms | TTFB p50 ms | CPU s/GB | CPU ms/request |"
        yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
        for phase in cell.phases.values():
            if phase.skipped:
                yield f"| {phase.phase} | | {phase.skipped} | | | | | | | |"
                continue
            latency, ttfb = phase.latency_ms, phase.ttfb_ms
            p99 = DASH if latency is None or latency.p99 is None else significant(latency.p99)
            yield (
                f"| {phase.phase} | {phase.operations} | {with_interval(phase.throughput_mb_s)} | "
                f"{with_interval(phase.requests_s)} | {significant(latency.p50) if latency else DASH} | "
                f"{significant(latency.p90) if latency else DASH} | {p99} | "
                f"{significant(ttfb.p50) if ttfb else DASH} | "
                f"{with_interval(phase.cpu_s_per_gb)} | {with_interval(phase.cpu_ms_per_request)} |"
            )
        if cell.storage and cell.storage.stored_bytes is not None:
            counts = "; ".join(
                f"{name} {size(value)}" for name, value in cell.storage.counts.items() if value is not None
            )
            yield ""
            if cell.storage.deferred_share is not None:
                before, after = (
                    with_interval(ratio, "×") for ratio in (cell.storage.unsettled_ratio, cell.storage.stored_ratio)
                )
                yield f"Uploads deferred: {with_interval(cell.storage.deferred_share, '×')}."
                yield f"Stored {before} at the end of PUT, {after} after {with_interval(cell.settle_s)} s of settling."
                yield ""
            yield (
                f"Stored {size(cell.storage.stored_bytes)} of {size(cell.storage.logical_bytes)}. Counted by: {counts}."
            )
    if summary.break_even:
        yield ""
        yield "## Break-even against passthrough"
        yield ""
        yield "| mode | faster uploads on links below | cheaper above |"
        yield "|---|---:|---:|"
        for even in summary.break_even:
            link = DASH if even.link_mbit_s is None else f"{significant(even.link_mbit_s)} Mbit/s"
            price = DASH if even.usd_per_gb_month is None else f"{significant(even.usd_per_gb_month)} $/GB-month"
            yield f"| {mode_title(even.mode)} | {link} | {price} |"
    yield ""
    yield "## To repeat it"
    yield ""
    yield f"    {' '.join(environment.command)}"

"""How fast: throughput, scaling, and latency."""

from __future__ import annotations

from collections.abc import Iterator

from taxbench.client.operation import Sample
from taxbench.names import PASSTHROUGH, mode_title
from taxbench.report.figure import (
    Chart,
    axis_title,
    bars,
    chart_of,
    colour,
    figure_of,
    line_at,
    whiskers,
)
from taxbench.statistics import ecdf
from taxbench.summary import CellSummary, PhaseSummary, Summary

SPEED_PHASES = ("put_base", "put_delta", "cold_get", "warm_get", "range_get", "multipart_put", "overwrite", "mixed")
PHASE_TITLES = {
    "put": "PUT",
    "put_base": "PUT, first versions",
    "put_delta": "PUT, later versions",
    "cold_get": "cold GET",
    "warm_get": "warm GET",
    "range_get": "range GET",
    "multipart_put": "multipart PUT",
}


def relative_speed(cells: list[CellSummary]) -> Chart | None:
    """Throughput of each phase relative to passthrough."""
    traces = []
    for cell in (c for c in cells if c.mode != PASSTHROUGH):
        points = [(p, s.to_passthrough) for p, s in _speeds(cell) if s.to_passthrough is not None]
        if points:
            traces.append(bars(cell.mode, [(PHASE_TITLES.get(p, p), i) for p, i in points], "×"))
    figure = figure_of(traces, y={"title": "speed relative to passthrough", "type": "log"}, barmode="group")
    figure["layout"]["shapes"] = [line_at(1.0)]
    caption = (
        "1 is passthrough. Bars below 1 are the tax; whiskers are 95 % intervals over trials, paired with passthrough."
    )
    return chart_of("relative-speed", "speed", "What each mode costs, by phase", caption, figure, height=420, wide=True)


def throughput(cells: list[CellSummary]) -> Chart | None:
    """Absolute throughput by phase and mode."""
    traces = []
    for cell in cells:
        points = [
            (PHASE_TITLES.get(p, p), s.throughput_mb_s) for p, s in _speeds(cell) if s.throughput_mb_s is not None
        ]
        if points:
            traces.append(bars(cell.mode, [(p, i) for p, i in points if i is not None], " MB/s"))
    figure = figure_of(traces, y={"title": "MB/s", "type": "log"}, barmode="group")
    caption = (
        "Logical bytes over wall time, logarithmic. On a single machine client and server share cores: "
        "compare, do not quote."
    )
    return chart_of("throughput", "speed", "Throughput by phase and mode", caption, figure, height=420, wide=True)


def concurrency_scaling(summary: Summary) -> Chart | None:
    """PUT throughput against concurrency."""
    traces = []
    for mode in _modes(summary):
        points = [
            (c.concurrency, c.phases["put"].throughput_mb_s)
            for c in summary.cells
            if c.mode == mode and "put" in c.phases
        ]
        known = [(n, i) for n, i in points if i is not None]
        if known:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": mode_title(mode),
                    "x": [n for n, _ in known],
                    "y": [i.median for _, i in known],
                    "error_y": whiskers([i for _, i in known]),
                    "line": {"color": colour(mode)},
                    "marker": {"size": 8},
                }
            )
    levels = sorted({c.concurrency for c in summary.cells})
    axis = {"title": "concurrent connections", "type": "log", "tickvals": levels, "ticktext": [str(n) for n in levels]}
    figure = figure_of(traces, x=axis, y={"title": "PUT MB/s", "rangemode": "tozero"})
    caption = (
        "One connection per worker process. A line that stays flat has met a limit; the CPU chart says "
        "whether it is the processor."
    )
    return chart_of("put-concurrency", "speed", "PUT against concurrency", caption, figure, wide=True)


def latency_distribution(samples: dict[str, list[Sample]], what: str) -> Chart | None:
    """ECDFs of time to first byte, or of whole operations, for cold GET, warm GET and PUT."""
    panels = {"ttfb": ("cold_get", "warm_get"), "latency": ("put", "warm_get")}[what]
    traces = []
    for column, panel in enumerate(panels, start=1):
        phases = ("put_base", "put_delta") if panel == "put" else (panel,)
        for mode, rows in samples.items():
            picked = [s for s in rows if s.phase in phases and not s.failed]
            values, fractions = ecdf([(s.ttfb_s if what == "ttfb" else s.total_s) * 1000 for s in picked])
            if values:
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "lines",
                        "name": mode_title(mode),
                        "legendgroup": mode,
                        "showlegend": column == 1,
                        "x": values,
                        "y": fractions,
                        "xaxis": "x" if column == 1 else f"x{column}",
                        "yaxis": "y" if column == 1 else f"y{column}",
                        "line": {"color": colour(mode), "shape": "hv", "width": 2},
                    }
                )
    unit = "time to first byte, ms" if what == "ttfb" else "time to last byte, ms"
    figure = figure_of(traces, y={"title": "fraction of requests"})
    layout = figure["layout"]
    layout["grid"] = {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.14}
    for column, panel in enumerate(panels, start=1):
        suffix = "" if column == 1 else str(column)
        heading = axis_title(f"{PHASE_TITLES[panel]}: {unit}")
        layout[f"xaxis{suffix}"] = {**layout.get(f"xaxis{suffix}", {}), "type": "log", "title": heading}
        layout[f"yaxis{suffix}"] = {**layout["yaxis"], "range": [0, 1.02]}
    title = "Time to first byte" if what == "ttfb" else "Latency of whole operations"
    caption = "The fraction of requests answered within a time. Objects of all sizes together; further left is better."
    return chart_of(f"ecdf-{what}", "speed", title, caption, figure, wide=True)


def _speeds(cell: CellSummary) -> Iterator[tuple[str, PhaseSummary]]:
    for phase in SPEED_PHASES:
        if phase in cell.phases and not cell.phases[phase].skipped:
            yield phase, cell.phases[phase]


def _modes(summary: Summary) -> list[str]:
    return list(dict.fromkeys(c.mode for c in summary.cells))

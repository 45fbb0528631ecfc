"""At what cost: processor, memory, the run over time, and where each mode begins to pay."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from taxbench.names import COMPRESSING_MODES, PASSTHROUGH, mode_title
from taxbench.records import Timeseries
from taxbench.report.figure import (
    AXIS,
    Chart,
    axis_title,
    bars,
    chart_of,
    colour,
    figure_of,
    upright,
)
from taxbench.report.speed_charts import PHASE_TITLES
from taxbench.studies.memory import Memory
from taxbench.summarize import CPU_USD_PER_HOUR, RETENTION_MONTHS
from taxbench.summary import CellSummary, Summary


def cpu_per_gb(cells: list[CellSummary]) -> Chart | None:
    """CPU seconds of the server per logical gigabyte."""
    traces = []
    for cell in cells:
        points = [
            (PHASE_TITLES[p], cell.phases[p].cpu_s_per_gb)
            for p in ("put", "cold_get", "warm_get")
            if p in cell.phases and cell.phases[p].cpu_s_per_gb is not None
        ]
        if points:
            traces.append(bars(cell.mode, [(p, i) for p, i in points if i is not None], " s/GB"))
    figure = figure_of(traces, y={"title": "CPU seconds per logical GB", "rangemode": "tozero"}, barmode="group")
    caption = (
        "User and system time of the server process. It is steadier than wall time. PUT includes what was "
        "done in the background."
    )
    return chart_of("cpu", "cost", "CPU seconds per gigabyte", caption, figure, wide=True)


def memory(study: Memory | None) -> Chart | None:
    """Peak resident memory against object size."""
    traces = []
    for index, (mode, operation) in enumerate(sorted({(r.mode, r.operation) for r in study.rows}) if study else []):
        assert study is not None
        rows = sorted(
            (r for r in study.rows if r.mode == mode and r.operation == operation), key=lambda r: r.object_bytes
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{mode_title(mode)}: {operation}",
                "x": [r.object_bytes / 1e6 for r in rows],
                "y": [r.rss_max_bytes / 1e6 for r in rows],
                "line": {"color": colour(mode), "dash": ("solid", "dash", "dot")[index % 3]},
                "marker": {"size": 7},
            }
        )
    figure = figure_of(
        traces, x={"title": "object size, MB", "type": "log"}, y={"title": "peak RSS, MB", "rangemode": "tozero"}
    )
    caption = "The kernel's high-water mark, reset before each request. Bounded memory is a line that stops climbing."
    return chart_of("memory", "cost", "Memory against object size", caption, figure, height=420, wide=True)


def timeline(series: Timeseries) -> Chart | None:
    """CPU and memory of the server over the whole run, with a band for each mode."""
    points = [p for p in series.samples if p.server_cpu_s is not None]
    if len(points) < 2:
        return None
    zero = points[0].t_s
    x: list[float] = []
    cores: list[float | None] = []
    rss: list[float | None] = []
    for earlier, later in itertools.pairwise(points):
        assert earlier.server_cpu_s is not None and later.server_cpu_s is not None
        used, passed = later.server_cpu_s - earlier.server_cpu_s, later.t_s - earlier.t_s
        x.append(round(later.t_s - zero, 3))
        # A new process starts from zero, and between two cells there is none: both are gaps, not values.
        whole = used >= 0 and 0 < passed < 5 * max(series.interval_s, 0.05)
        cores.append(round(used / passed, 3) if whole else None)
        rss.append(round((later.server_rss_bytes or 0) / 1e6, 1) if whole else None)
    line = {"width": 1.3}
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "CPU cores used",
            "x": x,
            "y": cores,
            "line": {**line, "color": "#c23b3b"},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "resident memory",
            "x": x,
            "y": rss,
            "yaxis": "y2",
            "line": {**line, "color": "#2f6fdb"},
        },
    ]
    figure = figure_of(traces, x={"title": "seconds since the first sample"}, y={"title": "cores", "domain": [0, 0.45]})
    layout = figure["layout"]
    layout["yaxis2"] = {**AXIS, "title": axis_title("RSS, MB"), "domain": [0.55, 1], "rangemode": "tozero"}
    layout["yaxis"]["rangemode"] = "tozero"
    bands = list(_bands(series, zero))
    layout["shapes"] = [
        {
            "type": "rect",
            "layer": "below",
            "xref": "x",
            "yref": "paper",
            "x0": begin,
            "x1": end,
            "y0": 0,
            "y1": 1,
            "fillcolor": colour(mode),
            "opacity": 0.13,
            "line": {"width": 0},
        }
        for mode, begin, end in bands
    ]
    for mode in dict.fromkeys(mode for mode, _, _ in bands):
        square = {"symbol": "square", "size": 11, "color": colour(mode), "opacity": 0.5}
        traces.append(
            {"type": "scatter", "mode": "markers", "name": mode_title(mode), "x": [None], "y": [None], "marker": square}
        )
    caption = "Samples over the whole run; the bands are the modes, in the shuffled order in which they ran."
    return chart_of("timeline", "cost", "The run as the server saw it", caption, figure, height=460, wide=True)


def _bands(series: Timeseries, zero: float) -> Iterator[tuple[str, float, float]]:
    """(mode, begin, end) of every cell, from its first to its last marker."""
    cells: dict[tuple[int, str, int], list[float]] = {}
    for marker in series.markers:
        cells.setdefault((marker.trial, marker.mode, marker.concurrency), []).append(marker.t_s)
    for (_, mode, _), moments in cells.items():
        yield mode, min(moments) - zero, max(moments) - zero


def link_break_even(summary: Summary) -> Chart | None:
    """Seconds to upload one gigabyte against the speed of the link behind the proxy."""
    speeds = np.logspace(0, 5, 121)
    traces = []
    for mode, put_mb_s, ratio in _reductions(summary):
        seconds = [max(1000 / put_mb_s, ratio * 8000 / mbit) for mbit in speeds]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": mode_title(mode),
                "x": [round(float(s), 3) for s in speeds],
                "y": seconds,
                "line": {"color": colour(mode), "width": 2.5},
            }
        )
    figure = figure_of(
        traces,
        x={"title": "link between proxy and store, Mbit/s", "type": "log"},
        y={"title": "seconds per logical GB", "type": "log"},
    )
    figure["layout"]["shapes"] = [
        upright(row.link_mbit_s, colour(row.mode)) for row in summary.break_even if row.link_mbit_s is not None
    ]
    caption = (
        "Encoding and sending overlap, so the slower sets the time. Left of its dotted line a reducing mode uploads "
        "faster than passthrough, because fewer bytes cross the link."
    )
    return chart_of("break-even-link", "break-even", "At which link speed it pays", caption, figure, height=420)


def price_break_even(summary: Summary) -> Chart | None:
    """Cost of a stored terabyte over a year against the price per GB and month."""
    prices = np.logspace(-3.3, -0.5, 57)
    extra = {row.mode: row.extra_cpu_s_per_gb for row in summary.break_even}
    traces = []
    for mode, _, ratio in _reductions(summary):
        cpu = extra.get(mode, 0.0) / 3600 * CPU_USD_PER_HOUR * 1000
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": mode_title(mode),
                "x": [round(float(p), 6) for p in prices],
                "y": [cpu + 1000 * ratio * float(p) * RETENTION_MONTHS for p in prices],
                "line": {"color": colour(mode), "width": 2.5},
            }
        )
    figure = figure_of(
        traces,
        x={"title": "price of storage, $ per GB and month", "type": "log"},
        y={"title": f"$ per logical TB kept {RETENTION_MONTHS:.0f} months", "type": "log"},
    )
    caption = (
        f"Storage for a year plus the extra CPU of writing it once, a core at ${CPU_USD_PER_HOUR:.2f} per hour. "
        "Requests and egress are left out; they are the same or fewer."
    )
    return chart_of("break-even-price", "break-even", "At which price it pays", caption, figure, height=420)


def _reductions(summary: Summary) -> list[tuple[str, float, float]]:
    """(mode, PUT MB/s, stored ratio) of passthrough and the reducing modes."""
    found = []
    for row in summary.headline:
        if row.put is None or (row.mode != PASSTHROUGH and row.mode not in COMPRESSING_MODES):
            continue
        ratio = row.stored_ratio.median if row.stored_ratio and row.mode != PASSTHROUGH else 1.0
        found.append((row.mode, row.put.median, ratio))
    return found

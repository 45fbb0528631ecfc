"""The charts of the page, as Plotly figures in plain JSON. One function per chart; each says how it is read.

Only SVG trace types are used, so that a page prints, scales, and can be checked for marks in a browser without a GPU.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taxbench.bundle import Bundle
from taxbench.client.operation import Sample
from taxbench.names import COMPRESSING_MODES, COMPRESSION, DIRECT, MODES, PASSTHROUGH, mode_title
from taxbench.records import Timeseries
from taxbench.report.numbers import size
from taxbench.statistics import Interval, ecdf
from taxbench.studies.adaptive import Adaptive
from taxbench.studies.codec_table import CodecTable
from taxbench.studies.level_sweep import LevelSweep
from taxbench.studies.memory import Memory
from taxbench.studies.small_files import SmallFiles
from taxbench.summarize import CPU_USD_PER_HOUR, RETENTION_MONTHS
from taxbench.summary import CellSummary, PhaseSummary, Summary

Figure = dict[str, Any]

PALETTE: dict[str, str] = {
    DIRECT: "#7b8794",
    PASSTHROUGH: "#2f6fdb",
    COMPRESSION: "#12936f",
    "encryption": "#d2691e",
    "compression_encryption": "#8257e5",
    "versitygw": "#b08900",
    "direct_sync": "#c2417c",
}
OTHERS = ("#3aa6b9", "#6b7f2a", "#a0522d", "#5b5f97")
SEQUENCE = (
    "#2f6fdb",
    "#12936f",
    "#d2691e",
    "#8257e5",
    "#b08900",
    "#c2417c",
    "#3aa6b9",
    "#6b7f2a",
    "#7b8794",
    "#a0522d",
)
GROWTH, LOSS = "#12936f", "#c23b3b"
LABEL_PLACES = ("top center", "bottom center", "top right", "bottom left")
RATIO_FLOOR = 1e-4
"""What a logarithmic axis shows for a duplicate, which adds nothing."""

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


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart with its place on the page."""

    id: str
    section: str
    title: str
    caption: str
    figure: Figure
    height: int = 380
    wide: bool = False


def colour(mode: str) -> str:
    """A mode's colour, the same in every chart of every report."""
    return PALETTE.get(mode) or OTHERS[zlib.crc32(mode.encode()) % len(OTHERS)]


def all_charts(bundle: Bundle, summary: Summary) -> list[Chart]:
    """Every chart the bundle has data for, in page order."""
    cells = _first_cells(summary)
    samples = {cell.mode: bundle.samples(cell.mode, cell.concurrency) for cell in cells}
    makers: list[Callable[[], Chart | None]] = [
        lambda: relative_speed(cells),
        lambda: throughput(cells),
        lambda: concurrency_scaling(summary),
        lambda: latency_distribution(samples, "ttfb"),
        lambda: latency_distribution(samples, "latency"),
        lambda: waterfall(cells),
        lambda: families(cells),
        lambda: base_drift(cells),
        lambda: negative_controls(cells),
        lambda: cpu_per_gb(cells),
        lambda: memory(_study(bundle, "memory", Memory)),
        lambda: timeline(bundle.timeseries()),
        lambda: link_break_even(summary),
        lambda: price_break_even(summary),
        lambda: level_sweep(_study(bundle, "level_sweep", LevelSweep)),
        lambda: level_links(_study(bundle, "level_sweep", LevelSweep)),
        lambda: adaptive(_study(bundle, "adaptive", Adaptive)),
        lambda: codecs(_study(bundle, "codec_table", CodecTable)),
        lambda: small_files(_study(bundle, "small_files", SmallFiles)),
    ]
    return [chart for make in makers if (chart := make()) is not None]


# Speed


def relative_speed(cells: list[CellSummary]) -> Chart | None:
    """Throughput of each phase relative to passthrough."""
    traces = []
    for cell in (c for c in cells if c.mode != PASSTHROUGH):
        points = [(p, s.to_passthrough) for p, s in _speeds(cell) if s.to_passthrough is not None]
        if points:
            traces.append(_bars(cell.mode, [(PHASE_TITLES.get(p, p), i) for p, i in points], "×"))
    figure = _figure(traces, y={"title": "speed relative to passthrough", "type": "log"}, barmode="group")
    figure["layout"]["shapes"] = [_line_at(1.0)]
    caption = (
        "1 is passthrough. Bars below 1 are the tax; whiskers are 95 % intervals over trials, paired with passthrough."
    )
    return _chart("relative-speed", "speed", "What each mode costs, by phase", caption, figure, height=420, wide=True)


def throughput(cells: list[CellSummary]) -> Chart | None:
    """Absolute throughput by phase and mode."""
    traces = []
    for cell in cells:
        points = [
            (PHASE_TITLES.get(p, p), s.throughput_mb_s) for p, s in _speeds(cell) if s.throughput_mb_s is not None
        ]
        if points:
            traces.append(_bars(cell.mode, [(p, i) for p, i in points if i is not None], " MB/s"))
    figure = _figure(traces, y={"title": "MB/s", "type": "log"}, barmode="group")
    caption = (
        "Logical bytes over wall time, logarithmic. On a single machine client and server share cores: "
        "compare, do not quote."
    )
    return _chart("throughput", "speed", "Throughput by phase and mode", caption, figure, height=420, wide=True)


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
                    "error_y": _whiskers([i for _, i in known]),
                    "line": {"color": colour(mode)},
                    "marker": {"size": 8},
                }
            )
    levels = sorted({c.concurrency for c in summary.cells})
    axis = {"title": "concurrent connections", "type": "log", "tickvals": levels, "ticktext": [str(n) for n in levels]}
    figure = _figure(traces, x=axis, y={"title": "PUT MB/s", "rangemode": "tozero"})
    caption = (
        "One connection per worker process. A line that stays flat has met a limit; the CPU chart says "
        "whether it is the processor."
    )
    return _chart("put-concurrency", "speed", "PUT against concurrency", caption, figure, wide=True)


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
    figure = _figure(traces, y={"title": "fraction of requests"})
    layout = figure["layout"]
    layout["grid"] = {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.14}
    for column, panel in enumerate(panels, start=1):
        suffix = "" if column == 1 else str(column)
        heading = _title(f"{PHASE_TITLES[panel]}: {unit}")
        layout[f"xaxis{suffix}"] = {**layout.get(f"xaxis{suffix}", {}), "type": "log", "title": heading}
        layout[f"yaxis{suffix}"] = {**layout["yaxis"], "range": [0, 1.02]}
    title = "Time to first byte" if what == "ttfb" else "Latency of whole operations"
    caption = "The fraction of requests answered within a time. Objects of all sizes together; further left is better."
    return _chart(f"ecdf-{what}", "speed", title, caption, figure, wide=True)


# Storage


def waterfall(cells: list[CellSummary]) -> Chart | None:
    """Where the bytes went, from logical to stored."""
    traces: list[Figure] = []
    for number, cell in enumerate(c for c in cells if c.mode in COMPRESSING_MODES and c.storage):
        storage = cell.storage
        assert storage is not None
        if storage.stored_bytes is None or storage.overhead_bytes is None:
            continue
        saved = storage.saved_bytes
        steps = [
            ("logical", "absolute", storage.logical_bytes),
            ("dedup", "relative", -saved.get("dedup", 0)),
            ("zstd", "relative", -saved.get("zstd", 0)),
            ("delta", "relative", -saved.get("delta", 0)),
            ("overhead", "relative", storage.overhead_bytes),
            ("stored", "total", storage.stored_bytes),
        ]
        traces.append(
            {
                "type": "waterfall",
                "name": mode_title(cell.mode),
                "showlegend": False,
                "x": [name for name, _, _ in steps],
                "measure": [measure for _, measure, _ in steps],
                "y": [value / 1e6 for _, _, value in steps],
                "text": [size(value) for _, _, value in steps],
                "textposition": "outside",
                "xaxis": "x" if number == 0 else "x2",
                "yaxis": "y" if number == 0 else "y2",
                "decreasing": {"marker": {"color": GROWTH}},
                "increasing": {"marker": {"color": LOSS}},
                "totals": {"marker": {"color": colour(cell.mode)}},
                "connector": {"line": {"color": "rgba(128,128,128,0.5)", "width": 1}},
                "cliponaxis": False,
            }
        )
    figure = _figure(traces, x={"title": traces[0]["name"] if traces else ""}, y={"title": "MB", "rangemode": "tozero"})
    if len(traces) > 1:
        figure["layout"]["grid"] = {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.12}
        figure["layout"]["xaxis2"] = _axis({"title": traces[1]["name"]})
        figure["layout"]["yaxis2"] = dict(figure["layout"]["yaxis"])
    figure["layout"]["margin"]["t"] = 28
    caption = (
        "Logical bytes, what each stage removed, what headers, manifests and tags added, and what is stored. "
        "An object counts for the one stage that stored it."
    )
    return _chart("waterfall", "storage", "From logical to stored", caption, figure, wide=True)


def families(cells: list[CellSummary]) -> Chart | None:
    """Stored fraction by family of data."""
    traces = []
    for cell in cells:
        points = [
            (f.family, f.stored_bytes / f.logical_bytes)
            for f in (cell.storage.families if cell.storage else [])
            if f.stored_bytes is not None and f.logical_bytes
        ]
        if points:
            traces.append(
                {
                    "type": "bar",
                    "name": mode_title(cell.mode),
                    "x": [name for name, _ in points],
                    "y": [max(ratio, RATIO_FLOOR) for _, ratio in points],
                    "marker": {"color": colour(cell.mode)},
                    "hovertemplate": "%{x}: %{y:.4f}×",
                }
            )
    figure = _figure(traces, y={"title": "stored / logical", "type": "log"}, barmode="group")
    figure["layout"]["shapes"] = [_line_at(1.0)]
    caption = (
        "Stored bytes over logical bytes by kind of data, all versions together, logarithmic. Real data lies "
        "between these."
    )
    return _chart("families", "storage", "Reduction by kind of data", caption, figure, wide=True)


def base_drift(cells: list[CellSummary]) -> Chart | None:
    """Stored fraction of each version against its position in the family."""
    cell = next((c for c in cells if c.mode in COMPRESSING_MODES and c.storage), None)
    traces = []
    for index, family in enumerate(cell.storage.families if cell and cell.storage else []):
        if len(family.by_version) > 1 and family.expectation != "small":
            ordered = sorted(family.by_version)
            tint = SEQUENCE[index % len(SEQUENCE)]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": family.family,
                    "x": [order + 1 for order, _ in ordered],
                    "y": [max(ratio, RATIO_FLOOR) for _, ratio in ordered],
                    "line": {"color": tint},
                    "marker": {"size": 7, "color": tint},
                }
            )
    figure = _figure(traces, x={"title": "version number", "dtick": 1}, y={"title": "stored / logical", "type": "log"})
    caption = (
        "What each version added to the store. The first version is compressed alone; a line that climbs afterwards "
        "shows later versions drifting away from the base they were stored against."
    )
    return _chart("base-drift", "storage", "Ratio against version number", caption, figure, height=420)


def negative_controls(cells: list[CellSummary]) -> Chart | None:
    """Growth of data that nobody can shrink."""
    traces = []
    for cell in (c for c in cells if c.mode in MODES):
        points = [
            (f.family, (f.stored_bytes / f.logical_bytes - 1) * 100)
            for f in (cell.storage.families if cell.storage else [])
            if f.expectation == "incompressible" and f.stored_bytes is not None and f.logical_bytes
        ]
        if points:
            traces.append(
                {
                    "type": "bar",
                    "name": mode_title(cell.mode),
                    "x": [name for name, _ in points],
                    "y": [growth for _, growth in points],
                    "marker": {"color": colour(cell.mode)},
                }
            )
    figure = _figure(traces, y={"title": "growth, %", "zeroline": True}, barmode="group")
    caption = (
        "How much larger incompressible data becomes. Above +1 % is a fatal finding; nothing may be spent on "
        "what cannot shrink."
    )
    return _chart("negative-controls", "storage", "Negative controls", caption, figure)


# Cost


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
            traces.append(_bars(cell.mode, [(p, i) for p, i in points if i is not None], " s/GB"))
    figure = _figure(traces, y={"title": "CPU seconds per logical GB", "rangemode": "tozero"}, barmode="group")
    caption = (
        "User and system time of the server process. It is steadier than wall time. PUT includes what was "
        "done in the background."
    )
    return _chart("cpu", "cost", "CPU seconds per gigabyte", caption, figure, wide=True)


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
    figure = _figure(
        traces, x={"title": "object size, MB", "type": "log"}, y={"title": "peak RSS, MB", "rangemode": "tozero"}
    )
    caption = "The kernel's high-water mark, reset before each request. Bounded memory is a line that stops climbing."
    return _chart("memory", "cost", "Memory against object size", caption, figure, height=420, wide=True)


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
    figure = _figure(traces, x={"title": "seconds since the first sample"}, y={"title": "cores", "domain": [0, 0.45]})
    layout = figure["layout"]
    layout["yaxis2"] = {**_AXIS, "title": _title("RSS, MB"), "domain": [0.55, 1], "rangemode": "tozero"}
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
    return _chart("timeline", "cost", "The run as the server saw it", caption, figure, height=460, wide=True)


def _bands(series: Timeseries, zero: float) -> Iterator[tuple[str, float, float]]:
    """(mode, begin, end) of every cell, from its first to its last marker."""
    cells: dict[tuple[int, str, int], list[float]] = {}
    for marker in series.markers:
        cells.setdefault((marker.trial, marker.mode, marker.concurrency), []).append(marker.t_s)
    for (_, mode, _), moments in cells.items():
        yield mode, min(moments) - zero, max(moments) - zero


# Break-even


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
    figure = _figure(
        traces,
        x={"title": "link between proxy and store, Mbit/s", "type": "log"},
        y={"title": "seconds per logical GB", "type": "log"},
    )
    figure["layout"]["shapes"] = [
        _upright(row.link_mbit_s, colour(row.mode)) for row in summary.break_even if row.link_mbit_s is not None
    ]
    caption = (
        "Encoding and sending overlap, so the slower sets the time. Left of its dotted line a reducing mode uploads "
        "faster than passthrough, because fewer bytes cross the link."
    )
    return _chart("break-even-link", "break-even", "At which link speed it pays", caption, figure, height=420)


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
    figure = _figure(
        traces,
        x={"title": "price of storage, $ per GB and month", "type": "log"},
        y={"title": f"$ per logical TB kept {RETENTION_MONTHS:.0f} months", "type": "log"},
    )
    caption = (
        f"Storage for a year plus the extra CPU of writing it once, a core at ${CPU_USD_PER_HOUR:.2f} per hour. "
        "Requests and egress are left out; they are the same or fewer."
    )
    return _chart("break-even-price", "break-even", "At which price it pays", caption, figure, height=420)


def _reductions(summary: Summary) -> list[tuple[str, float, float]]:
    """(mode, PUT MB/s, stored ratio) of passthrough and the reducing modes."""
    found = []
    for row in summary.headline:
        if row.put is None or (row.mode != PASSTHROUGH and row.mode not in COMPRESSING_MODES):
            continue
        ratio = row.stored_ratio.median if row.stored_ratio and row.mode != PASSTHROUGH else 1.0
        found.append((row.mode, row.put.median, ratio))
    return found


# Studies


def level_sweep(study: LevelSweep | None) -> Chart | None:
    """Throughput against reduction for each level."""
    traces = []
    for index, row in enumerate(study.rows if study else []):
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": row.level,
                "x": [row.throughput_mb_s.median],
                "y": [row.reduction],
                "error_x": _whiskers([row.throughput_mb_s]),
                "text": [row.level],
                "textposition": LABEL_PLACES[index % len(LABEL_PLACES)],
                "showlegend": False,
                "marker": {"size": 13, "color": SEQUENCE[index % len(SEQUENCE)]},
                "cliponaxis": False,
            }
        )
    figure = _figure(
        traces, x={"title": "PUT MB/s", "type": "log"}, y={"title": "logical / transferred", "type": "log"}
    )
    caption = (
        "Each level on the same similar data, in a fresh server. Up and to the right is better; “off” is the floor."
    )
    return _chart("level-sweep", "studies", "Level sweep: speed against reduction", caption, figure)


def level_links(study: LevelSweep | None) -> Chart | None:
    """Upload time against link speed for each level."""
    speeds = np.logspace(0, 5, 101)
    traces = []
    for index, row in enumerate(r for r in (study.rows if study else []) if r.level != "auto"):
        per_mb = row.transfer_bytes / row.logical_bytes
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": row.level,
                "x": [round(float(s), 3) for s in speeds],
                "y": [max(1000 / row.throughput_mb_s.median, per_mb * 8000 / float(s)) for s in speeds],
                "line": {"color": SEQUENCE[index % len(SEQUENCE)], "width": 2},
            }
        )
    figure = _figure(
        traces, x={"title": "link, Mbit/s", "type": "log"}, y={"title": "seconds per logical GB", "type": "log"}
    )
    caption = (
        "The lowest line at a link speed is the level to choose for it. Where a line turns flat, its own "
        "speed is the limit."
    )
    return _chart("level-links", "studies", "Which level for which link", caption, figure)


def adaptive(study: Adaptive | None) -> Chart | None:
    """`auto` against fixed levels at each bandwidth."""
    traces = []
    for index, level in enumerate(dict.fromkeys(r.level for r in study.rows) if study else []):
        assert study is not None
        rows = [r for r in study.rows if r.level == level]
        common: Figure = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": level,
            "legendgroup": level,
            "x": [r.mbit_s for r in rows],
            "line": {"color": SEQUENCE[index % len(SEQUENCE)], "width": 3.5 if level == "auto" else 1.5},
            "marker": {"size": 9 if level == "auto" else 6},
        }
        traces.append({**common, "y": [r.logical_bytes * 8 / 1e6 / r.time_s for r in rows]})
        stored = [r.stored_bytes / r.logical_bytes for r in rows]
        traces.append({**common, "y": stored, "xaxis": "x2", "yaxis": "y2", "showlegend": False})
    ticks = sorted({r.mbit_s for r in study.rows}) if study else []
    x = {"title": "client's link, Mbit/s", "type": "log", "tickvals": ticks, "ticktext": [f"{t:,}" for t in ticks]}
    figure = _figure(traces, x=x, y={"title": "achieved Mbit/s", "type": "log"})
    layout = figure["layout"]
    layout["grid"] = {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.16}
    layout["xaxis2"] = dict(layout["xaxis"])
    layout["yaxis2"] = {**_AXIS, "title": _title("stored / logical"), "type": "log"}
    caption = (
        "Uploads paced by the client. “auto” (thick) should be as fast as the fastest level and, on slow "
        "links, as small as the smallest."
    )
    return _chart("adaptive", "studies", "Adaptive level at shaped bandwidth", caption, figure, wide=True)


def codecs(study: CodecTable | None) -> Chart | None:
    """Ratio against encoding speed of every codec, geometric mean over the pairs."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in study.rows if study else []:
        groups.setdefault((row.codec, row.level), []).append((row.encode_mb_s.median, row.ratio))
    traces = []
    names = list(dict.fromkeys(codec for codec, _ in groups))
    for codec in names:
        members = [(level, pairs) for (name, level), pairs in groups.items() if name == codec]
        tint = SEQUENCE[names.index(codec) % len(SEQUENCE)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers+text",
                "name": codec,
                "x": [_geometric([speed for speed, _ in pairs]) for _, pairs in members],
                "y": [_geometric([ratio for _, ratio in pairs]) for _, pairs in members],
                "text": [level for level, _ in members],
                "textposition": [LABEL_PLACES[n % len(LABEL_PLACES)] for n in range(len(members))],
                "textfont": {"size": 10},
                "line": {"color": tint, "dash": "dot", "width": 1},
                "marker": {"size": 11, "color": tint},
                "cliponaxis": False,
            }
        )
    figure = _figure(
        traces, x={"title": "encode MB/s per core", "type": "log"}, y={"title": "target / delta", "type": "log"}
    )
    caption = (
        "Each codec run as a command; geometric mean over the pairs of data. Up and to the right is better. "
        "Labels are levels."
    )
    return _chart("codecs", "studies", "Codec table: ratio against speed", caption, figure, height=460, wide=True)


def small_files(study: SmallFiles | None) -> Chart | None:
    """Latency histograms of small requests, with the delayed-ACK windows marked."""
    if study is None:
        return None
    edges = study.bin_edges_ms
    middles = [round((low * high) ** 0.5, 4) for low, high in itertools.pairwise(edges)]
    traces = []
    for column, kind in enumerate(("put", "get"), start=1):
        for row in (r for r in study.rows if r.kind == kind):
            share = [count / row.requests for count in row.histogram]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": mode_title(row.server),
                    "legendgroup": row.server,
                    "showlegend": column == 1,
                    "x": middles,
                    "y": share,
                    "xaxis": "x" if column == 1 else "x2",
                    "yaxis": "y" if column == 1 else "y2",
                    "line": {"color": colour(row.server), "shape": "hvh", "width": 2},
                }
            )
    figure = _figure(traces, y={"title": "share of requests", "rangemode": "tozero"})
    layout = figure["layout"]
    layout["grid"] = {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.12}
    for suffix, kind in (("", "PUT"), ("2", "GET")):
        title = _title(f"{kind}, ms (one connection)")
        layout[f"xaxis{suffix}"] = {**_AXIS, "type": "log", "title": title}
        layout[f"yaxis{suffix}"] = {**layout["yaxis"]}
    layout["shapes"] = [
        {
            "type": "rect",
            "layer": "below",
            "xref": xref,
            "yref": f"{yref} domain",
            "x0": low,
            "x1": high,
            "y0": 0,
            "y1": 1,
            "fillcolor": LOSS,
            "opacity": 0.14,
            "line": {"width": 0},
        }
        for xref, yref in (("x", "y"), ("x2", "y2"))
        for low, high in ((38.0, 46.0), (195.0, 215.0))
    ]
    caption = (
        "Thousands of 1 to 64 KiB objects, one at a time. A bump in a red band is Nagle's algorithm against "
        "a delayed ACK."
    )
    return _chart("small-files", "studies", "Many small files: latency", caption, figure, wide=True)


# Pieces

_AXIS: dict[str, Any] = {
    "gridcolor": "rgba(128,128,128,0.22)",
    "zerolinecolor": "rgba(128,128,128,0.5)",
    "automargin": True,
}


def _chart(
    id: str, section: str, title: str, caption: str, figure: Figure, height: int = 380, wide: bool = False
) -> Chart | None:
    """The chart, or nothing when there is no data to draw: an empty frame says less than none."""
    if not figure["data"]:
        return None
    return Chart(id, section, title, caption, _ticked(figure), height, wide)


def _figure(
    traces: list[Figure], x: dict[str, Any] | None = None, y: dict[str, Any] | None = None, barmode: str = ""
) -> Figure:
    layout: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 64, "r": 18, "t": 14, "b": 52 if x and x.get("title") else 30},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
        "xaxis": _axis(x or {}),
        "yaxis": _axis(y or {}),
    }
    if barmode:
        layout["barmode"], layout["bargap"] = barmode, 0.22
    return {"data": traces, "layout": layout}


def log_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Ticks at 1, 2 and 5 of every decade the values span (decades alone when there are many), written out in full."""
    known = [float(v) for v in values if isinstance(v, (int, float)) and v > 0]
    if not known:
        return {}
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    steps = (1, 2, 5) if high - low <= 2 else (1, 3) if high - low <= 4 else (1,)
    if high - low <= 1 and max(known) / min(known) < 3:
        steps = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)  # type: ignore[assignment]
    ticks = [step * 10.0**decade for decade in range(low, high + 1) for step in steps]
    return {"tickvals": ticks, "ticktext": [_tick_text(tick) for tick in ticks]}


def _tick_text(tick: float) -> str:
    return f"{tick:,.0f}".replace(",", "\u202f") if tick >= 10 else f"{tick:.6f}".rstrip("0").rstrip(".")


def _ticked(figure: Figure) -> Figure:
    """Gives every logarithmic axis without ticks of its own those that fit its data."""
    layout = figure["layout"]
    for name in [key for key in layout if key.startswith(("xaxis", "yaxis"))]:
        axis = layout[name]
        if axis.get("type") == "log" and "tickvals" not in axis:
            letter, short = name[0], name.replace("axis", "")
            values: list[float] = []
            for trace in figure["data"]:
                if trace.get(f"{letter}axis", letter) == short:
                    values += [v for v in trace[letter] if v is not None and not isinstance(v, str)]
            ticks = log_ticks(values)
            shown = [t for t in ticks.get("tickvals", []) if min(values) * 0.9 <= t <= max(values) * 1.1]
            # Values close together have no round ticks between them: they read better on a linear axis.
            axis.update(ticks if len(shown) >= 2 else {"type": "linear"})
    return figure


def _axis(settings: dict[str, Any]) -> dict[str, Any]:
    title = settings.pop("title", "")
    return {**_AXIS, **settings, "title": _title(title)}


def _title(text: str) -> dict[str, Any]:
    return {"text": text, "standoff": 8, "font": {"size": 12}}


def _bars(mode: str, points: list[tuple[str, Interval]], unit: str) -> Figure:
    return {
        "type": "bar",
        "name": mode_title(mode),
        "x": [name for name, _ in points],
        "y": [interval.median for _, interval in points],
        "error_y": _whiskers([interval for _, interval in points]),
        "marker": {"color": colour(mode)},
        "hovertemplate": "%{x}: %{y:.3~f}" + unit + f"<extra>{mode_title(mode)}</extra>",
    }


def _whiskers(intervals: list[Interval]) -> dict[str, Any]:
    above = [(i.high - i.median) if i.high is not None else 0.0 for i in intervals]
    below = [(i.median - i.low) if i.low is not None else 0.0 for i in intervals]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2, "width": 3}


def _line_at(value: float) -> dict[str, Any]:
    line = {"color": "rgba(128,128,128,0.9)", "width": 1, "dash": "dash"}
    return {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": line}


def _upright(value: float, tint: str) -> dict[str, Any]:
    line = {"color": tint, "width": 1.2, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": value, "x1": value, "y0": 0, "y1": 1, "line": line}


def _speeds(cell: CellSummary) -> Iterator[tuple[str, PhaseSummary]]:
    for phase in SPEED_PHASES:
        if phase in cell.phases and not cell.phases[phase].skipped:
            yield phase, cell.phases[phase]


def _modes(summary: Summary) -> list[str]:
    return list(dict.fromkeys(c.mode for c in summary.cells))


def _first_cells(summary: Summary) -> list[CellSummary]:
    """Each mode at its lowest concurrency, in report order."""
    found: dict[str, CellSummary] = {}
    for cell in summary.cells:
        if cell.mode not in found or cell.concurrency < found[cell.mode].concurrency:
            found[cell.mode] = cell
    return list(found.values())


def _geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-9)))))


def _study(bundle: Bundle, name: str, kind: type[Any]) -> Any:
    found = bundle.study(name)
    return None if found is None else kind.model_validate(found)

"""What the extra studies found."""

from __future__ import annotations

import itertools

import numpy as np

from taxbench.names import mode_title
from taxbench.report.figure import (
    AXIS,
    LABEL_PLACES,
    LOSS,
    SEQUENCE,
    Chart,
    Figure,
    axis_title,
    chart_of,
    colour,
    figure_of,
    geometric_mean,
    whiskers,
)
from taxbench.studies.adaptive import Adaptive
from taxbench.studies.codec_table import CodecTable
from taxbench.studies.level_sweep import LevelSweep
from taxbench.studies.small_files import SmallFiles


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
                "error_x": whiskers([row.throughput_mb_s]),
                "text": [row.level],
                "textposition": LABEL_PLACES[index % len(LABEL_PLACES)],
                "showlegend": False,
                "marker": {"size": 13, "color": SEQUENCE[index % len(SEQUENCE)]},
                "cliponaxis": False,
            }
        )
    figure = figure_of(
        traces, x={"title": "PUT MB/s", "type": "log"}, y={"title": "logical / transferred", "type": "log"}
    )
    caption = (
        "Each level on the same similar data, in a fresh server. Up and to the right is better; “off” is the floor."
    )
    return chart_of("level-sweep", "studies", "Level sweep: speed against reduction", caption, figure)


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
    figure = figure_of(
        traces, x={"title": "link, Mbit/s", "type": "log"}, y={"title": "seconds per logical GB", "type": "log"}
    )
    caption = (
        "The lowest line at a link speed is the level to choose for it. Where a line turns flat, its own "
        "speed is the limit."
    )
    return chart_of("level-links", "studies", "Which level for which link", caption, figure)


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
    figure = figure_of(traces, x=x, y={"title": "achieved Mbit/s", "type": "log"})
    layout = figure["layout"]
    layout["grid"] = {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.16}
    layout["xaxis2"] = dict(layout["xaxis"])
    layout["yaxis2"] = {**AXIS, "title": axis_title("stored / logical"), "type": "log"}
    caption = (
        "Uploads paced by the client. “auto” (thick) should be as fast as the fastest level and, on slow "
        "links, as small as the smallest."
    )
    return chart_of("adaptive", "studies", "Adaptive level at shaped bandwidth", caption, figure, wide=True)


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
                "x": [geometric_mean([speed for speed, _ in pairs]) for _, pairs in members],
                "y": [geometric_mean([ratio for _, ratio in pairs]) for _, pairs in members],
                "text": [level for level, _ in members],
                "textposition": [LABEL_PLACES[n % len(LABEL_PLACES)] for n in range(len(members))],
                "textfont": {"size": 10},
                "line": {"color": tint, "dash": "dot", "width": 1},
                "marker": {"size": 11, "color": tint},
                "cliponaxis": False,
            }
        )
    figure = figure_of(
        traces, x={"title": "encode MB/s per core", "type": "log"}, y={"title": "target / delta", "type": "log"}
    )
    caption = (
        "Each codec run as a command; geometric mean over the pairs of data. Up and to the right is better. "
        "Labels are levels."
    )
    return chart_of("codecs", "studies", "Codec table: ratio against speed", caption, figure, height=460, wide=True)


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
    figure = figure_of(traces, y={"title": "share of requests", "rangemode": "tozero"})
    layout = figure["layout"]
    layout["grid"] = {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.12}
    for suffix, kind in (("", "PUT"), ("2", "GET")):
        title = axis_title(f"{kind}, ms (one connection)")
        layout[f"xaxis{suffix}"] = {**AXIS, "type": "log", "title": title}
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
    return chart_of("small-files", "studies", "Many small files: latency", caption, figure, wide=True)

"""The pieces charts are made of: figures in plain JSON, axes with ticks written out, and one colour per mode.

Only SVG trace types are used, so that a page prints, scales, and can be checked for marks in a browser without a GPU.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taxbench.names import COMPRESSION, DIRECT, PASSTHROUGH, mode_title
from taxbench.statistics import Interval

Figure = dict[str, Any]
PALETTE: dict[str, str] = {
    DIRECT: "#7b8794",
    PASSTHROUGH: "#2f6fdb",
    COMPRESSION: "#12936f",
    "encryption": "#d2691e",
    "compression_encryption": "#8257e5",
    "versitygw": "#b08900",
    "rclone": "#3f79ad",
    "minio": "#a3195b",
    "s3proxy": "#5b7083",
    "direct_sync": "#c2417c",
}
OTHERS = ("#3aa6b9", "#6b7f2a", "#a0522d", "#5b5f97")
SEQUENCE = (
    "#2f6fdb", "#12936f", "#d2691e", "#8257e5", "#b08900", "#c2417c", "#3aa6b9", "#6b7f2a", "#7b8794", "#a0522d",
    "#1f3a93", "#e08283", "#00695c",
)  # fmt: skip
GROWTH, LOSS = "#12936f", "#c23b3b"
LABEL_PLACES = ("top center", "bottom center", "top right", "bottom left")
AXIS: dict[str, Any] = {
    "gridcolor": "rgba(128,128,128,0.22)",
    "zerolinecolor": "rgba(128,128,128,0.5)",
    "automargin": True,
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


def chart_of(
    id: str, section: str, title: str, caption: str, figure: Figure, height: int = 380, wide: bool = False
) -> Chart | None:
    """The chart, or nothing when there is no data to draw: an empty frame says less than none."""
    if not figure["data"]:
        return None
    return Chart(id, section, title, caption, _ticked(figure), height, wide)


def figure_of(
    traces: list[Figure], x: dict[str, Any] | None = None, y: dict[str, Any] | None = None, barmode: str = ""
) -> Figure:
    layout: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 64, "r": 18, "t": 14, "b": 52 if x and x.get("title") else 30},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
        "xaxis": axis_of(x or {}),
        "yaxis": axis_of(y or {}),
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


def axis_of(settings: dict[str, Any]) -> dict[str, Any]:
    title = settings.pop("title", "")
    return {**AXIS, **settings, "title": axis_title(title)}


def axis_title(text: str) -> dict[str, Any]:
    return {"text": text, "standoff": 8, "font": {"size": 12}}


def bars(mode: str, points: list[tuple[str, Interval]], unit: str) -> Figure:
    return {
        "type": "bar",
        "name": mode_title(mode),
        "x": [name for name, _ in points],
        "y": [interval.median for _, interval in points],
        "error_y": whiskers([interval for _, interval in points]),
        "marker": {"color": colour(mode)},
        "hovertemplate": "%{x}: %{y:.3~f}" + unit + f"<extra>{mode_title(mode)}</extra>",
    }


def whiskers(intervals: list[Interval]) -> dict[str, Any]:
    above = [(i.high - i.median) if i.high is not None else 0.0 for i in intervals]
    below = [(i.median - i.low) if i.low is not None else 0.0 for i in intervals]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2, "width": 3}


def line_at(value: float) -> dict[str, Any]:
    line = {"color": "rgba(128,128,128,0.9)", "width": 1, "dash": "dash"}
    return {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": line}


def upright(value: float, tint: str) -> dict[str, Any]:
    line = {"color": tint, "width": 1.2, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": value, "x1": value, "y0": 0, "y1": 1, "line": line}


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-9)))))

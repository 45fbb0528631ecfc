"""How small: from logical to stored bytes, by kind of data and by version."""

from __future__ import annotations

from taxbench.names import COMPRESSING_MODES, MODES, mode_title
from taxbench.report.figure import (
    GROWTH,
    LOSS,
    SEQUENCE,
    Chart,
    Figure,
    axis_of,
    chart_of,
    colour,
    figure_of,
    line_at,
)
from taxbench.report.numbers import size
from taxbench.summary import CellSummary

RATIO_FLOOR = 1e-4
"""What a logarithmic axis shows for a duplicate, which adds nothing."""


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
    figure = figure_of(
        traces, x={"title": traces[0]["name"] if traces else ""}, y={"title": "MB", "rangemode": "tozero"}
    )
    if len(traces) > 1:
        figure["layout"]["grid"] = {"rows": 1, "columns": 2, "pattern": "independent", "xgap": 0.12}
        figure["layout"]["xaxis2"] = axis_of({"title": traces[1]["name"]})
        figure["layout"]["yaxis2"] = dict(figure["layout"]["yaxis"])
    figure["layout"]["margin"]["t"] = 28
    caption = (
        "Logical bytes, what each stage removed, what headers, manifests and tags added, and what is stored. "
        "An object counts for the one stage that stored it."
    )
    return chart_of("waterfall", "storage", "From logical to stored", caption, figure, wide=True)


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
    figure = figure_of(traces, y={"title": "stored / logical", "type": "log"}, barmode="group")
    figure["layout"]["shapes"] = [line_at(1.0)]
    caption = (
        "Stored bytes over logical bytes by kind of data, all versions together, logarithmic. Real data lies "
        "between these."
    )
    return chart_of("families", "storage", "Reduction by kind of data", caption, figure, wide=True)


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
    figure = figure_of(
        traces, x={"title": "version number", "dtick": 1}, y={"title": "stored / logical", "type": "log"}
    )
    caption = (
        "What each version added to the store. The first version is compressed alone; a line that climbs afterwards "
        "shows later versions drifting away from the base they were stored against."
    )
    return chart_of("base-drift", "storage", "Ratio against version number", caption, figure, height=420)


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
    figure = figure_of(traces, y={"title": "growth, %", "zeroline": True}, barmode="group")
    caption = (
        "How much larger incompressible data becomes. Above +1 % is a fatal finding; nothing may be spent on "
        "what cannot shrink."
    )
    return chart_of("negative-controls", "storage", "Negative controls", caption, figure)

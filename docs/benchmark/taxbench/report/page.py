"""`report.html`: one self-contained page. No request leaves it; script, style and data are in the file."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from taxbench.bundle import Bundle
from taxbench.names import MODES, PASSTHROUGH, mode_title
from taxbench.report import numbers
from taxbench.report.bottom_line import bottom_line
from taxbench.report.charts import all_charts
from taxbench.report.figure import Chart, colour
from taxbench.statistics import Interval
from taxbench.studies.adaptive import Adaptive
from taxbench.studies.codec_table import CodecTable
from taxbench.studies.level_sweep import LevelSweep
from taxbench.studies.small_files import SmallFiles
from taxbench.summary import Headline, Summary

HERE = Path(__file__).parent
SECTIONS = (
    ("speed", "Speed", "Will uploads keep up? Will downloads feel fine?"),
    ("storage", "Storage", "Will it shrink enough to matter?"),
    ("cost", "Cost", "Will it fit this instance?"),
    ("break-even", "Break-even", "At which link speed and price does each mode win?"),
    ("studies", "Studies", "Levels, codecs, and small files."),
)


@dataclass(frozen=True, slots=True)
class TaxCell:
    """One cell of the headline table: what to read first, what stands below it, and how long its bar is."""

    value: str
    interval: str = ""
    absolute: str = ""
    bar: float = 0.0
    tone: str = ""


def render(bundle: Bundle, summary: Summary) -> str:
    """The page as text."""
    charts = all_charts(bundle, summary)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["size"] = numbers.size
    environment.filters["sig"] = numbers.significant
    environment.filters["interval"] = numbers.with_interval
    environment.filters["mode"] = mode_title
    template = environment.get_template("page.html.j2")
    return template.render(
        summary=summary,
        environment=summary.environment,
        rows=[(row, colour(row.mode), tax_cells(row)) for row in summary.headline],
        sections=[(id, title, question, [c for c in charts if c.section == id]) for id, title, question in SECTIONS],
        figures=_safe_json({chart.id: chart.figure for chart in charts}),
        style=(HERE / "page.css").read_text(),
        script=(HERE / "page.js").read_text(),
        plotly=_plotly(),
        level_sweep=_study(bundle, "level_sweep", LevelSweep),
        adaptive=_study(bundle, "adaptive", Adaptive),
        codec_table=_study(bundle, "codec_table", CodecTable),
        small_files=_study(bundle, "small_files", SmallFiles),
        durability=durability(summary),
        bottom_line=bottom_line(summary),
        verdicts=[row.verdict for row in summary.headline if row.verdict],
        single_machine=any(f.code == "single-machine" for f in summary.findings),
    )


def charts_of(bundle: Bundle, summary: Summary) -> list[Chart]:
    """The charts a page of this bundle shows."""
    return all_charts(bundle, summary)


def durability(summary: Summary) -> list[tuple[str, list[str]]]:
    """What the servers promise when they answer a PUT, and which modes have that promise, in the table's order."""
    found: dict[str, list[str]] = {}
    for row in summary.headline:
        promise = summary.environment.servers.get(row.mode, {}).get("durable", "")
        if promise:
            found.setdefault(promise, []).append(mode_title(row.mode))
    return list(found.items())


def tax_cells(row: Headline) -> list[TaxCell]:
    """The cells of one row: three speeds, stored, two CPU costs, memory."""
    speeds = [
        _speed(row.put_to_passthrough, row.put, row.mode),
        _speed(row.cold_get_to_passthrough, row.cold_get, row.mode),
        _speed(row.warm_get_to_passthrough, row.warm_get, row.mode),
    ]
    stored = TaxCell(numbers.DASH)
    if row.stored_ratio is not None:
        tone = "good" if row.stored_ratio.median < 0.9 else ""
        stored = TaxCell(
            numbers.times(row.stored_ratio.median),
            _interval(row.stored_ratio),
            "",
            min(row.stored_ratio.median, 1.25),
            tone,
        )
    return [*speeds, stored, _plain(row.put_cpu_s_per_gb), _plain(row.get_cpu_s_per_gb), _memory(row.rss_max_bytes)]


def _speed(ratio: Interval | None, absolute: Interval | None, mode: str) -> TaxCell:
    shown = "" if absolute is None else f"{numbers.significant(absolute.median)} MB/s"
    if mode == PASSTHROUGH and absolute is not None:
        return TaxCell("1×", "the reference", shown, 1.0)
    if ratio is None:
        return TaxCell(numbers.DASH, "", shown)
    judged = mode in MODES  # what stands beside us is a reference, not a success or a failure
    tone = "" if not judged else "good" if ratio.median >= 0.95 else "bad" if ratio.median < 0.5 else ""
    return TaxCell(numbers.times(ratio.median), _interval(ratio), shown, min(ratio.median, 1.25), tone)


def _plain(interval: Interval | None) -> TaxCell:
    return (
        TaxCell(numbers.DASH)
        if interval is None
        else TaxCell(numbers.significant(interval.median), _interval(interval))
    )


def _memory(interval: Interval | None) -> TaxCell:
    if interval is None:
        return TaxCell(numbers.DASH)
    bounds = "one trial" if interval.low is None else f"{numbers.size(interval.low)} – {numbers.size(interval.high)}"
    return TaxCell(numbers.size(interval.median), bounds)


def _interval(interval: Interval) -> str:
    return numbers.bounds(interval)


def _safe_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@functools.cache
def _plotly() -> str:
    script: str = get_plotlyjs()
    return script.replace("</script", "<\\/script")


def _study(bundle: Bundle, name: str, kind: type[Any]) -> Any:
    found = bundle.study(name)
    return None if found is None else kind.model_validate(found)

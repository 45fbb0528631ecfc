"""Which charts a page shows, in page order. One function per chart; each says how it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taxbench.bundle import Bundle
from taxbench.report import cost_charts, speed_charts, storage_charts, study_charts
from taxbench.report.figure import Chart
from taxbench.studies.adaptive import Adaptive
from taxbench.studies.codec_table import CodecTable
from taxbench.studies.level_sweep import LevelSweep
from taxbench.studies.memory import Memory
from taxbench.studies.small_files import SmallFiles
from taxbench.summary import CellSummary, Summary


def all_charts(bundle: Bundle, summary: Summary) -> list[Chart]:
    """Every chart the bundle has data for, in page order."""
    cells = _first_cells(summary)
    samples = {cell.mode: bundle.samples(cell.mode, cell.concurrency) for cell in cells}
    makers: list[Callable[[], Chart | None]] = [
        lambda: speed_charts.relative_speed(cells),
        lambda: speed_charts.throughput(cells),
        lambda: speed_charts.concurrency_scaling(summary),
        lambda: speed_charts.latency_distribution(samples, "ttfb"),
        lambda: speed_charts.latency_distribution(samples, "latency"),
        lambda: storage_charts.waterfall(cells),
        lambda: storage_charts.families(cells),
        lambda: storage_charts.base_drift(cells),
        lambda: storage_charts.negative_controls(cells),
        lambda: cost_charts.cpu_per_gb(cells),
        lambda: cost_charts.memory(_study(bundle, "memory", Memory)),
        lambda: cost_charts.timeline(bundle.timeseries()),
        lambda: cost_charts.link_break_even(summary),
        lambda: cost_charts.price_break_even(summary),
        lambda: study_charts.level_sweep(_study(bundle, "level_sweep", LevelSweep)),
        lambda: study_charts.level_links(_study(bundle, "level_sweep", LevelSweep)),
        lambda: study_charts.adaptive(_study(bundle, "adaptive", Adaptive)),
        lambda: study_charts.codecs(_study(bundle, "codec_table", CodecTable)),
        lambda: study_charts.small_files(_study(bundle, "small_files", SmallFiles)),
    ]
    return [chart for make in makers if (chart := make()) is not None]


def _first_cells(summary: Summary) -> list[CellSummary]:
    """Each mode at its lowest concurrency, in report order."""
    found: dict[str, CellSummary] = {}
    for cell in summary.cells:
        if cell.mode not in found or cell.concurrency < found[cell.mode].concurrency:
            found[cell.mode] = cell
    return list(found.values())


def _study(bundle: Bundle, name: str, kind: type[Any]) -> Any:
    found = bundle.study(name)
    return None if found is None else kind.model_validate(found)

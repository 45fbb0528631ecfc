"""`grafana-parity.md` names each figure of the report once, and panels and metrics that there are."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taxbench import summarize
from taxbench.bundle import opened
from taxbench.report import markdown, page

BENCHMARK = Path(__file__).resolve().parents[1]
DASHBOARDS = BENCHMARK.parents[1] / "grafana" / "dashboards"
PAGE = BENCHMARK / "grafana-parity.md"
RUN = BENCHMARK / "runs" / "tax-20261122-124723.tgz"
"""A kept run with every mode and every study."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the page."""

    figure: str
    panel: str
    metrics: frozenset[str]
    difference: str


def rows(section: str) -> list[Row]:
    """The rows of a section's table."""
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(c[0].strip("`"), c[1], frozenset(re.findall(r"`([^`]+)`", c[2])), c[3]) for c in cells]


def panels() -> dict[str, list[str]]:
    """The queries of each panel, by `board: title`. A title that a board has twice keeps both panels' queries."""
    found: dict[str, list[str]] = {}

    def walk(board: str, parts: list[dict[str, Any]]) -> None:
        for part in parts:
            walk(board, part.get("panels", []))
            if part["type"] != "row":
                queries = found.setdefault(f"{board}: {part['title']}", [])
                queries += [target["expr"] for target in part["targets"]]

    for path in DASHBOARDS.glob("*.json"):
        walk(path.stem.removeprefix("deltaweir-"), json.loads(path.read_text())["panels"])
    return found


def test_every_column_of_the_tax_table_has_a_row() -> None:
    columns = [cell.strip() for cell in markdown.headline_table([])[0].strip("|").split("|")]
    assert [row.figure for row in rows("The tax table")] == columns[1:]


def test_every_chart_of_a_whole_report_has_a_row() -> None:
    with opened(RUN) as bundle:
        drawn = [chart.id for chart in page.charts_of(bundle, summarize.summarize(bundle))]
    assert len(drawn) >= 19
    assert [row.figure for row in rows("Charts")] == drawn


@pytest.mark.parametrize("row", rows("The tax table") + rows("Charts"), ids=lambda row: row.figure)
def test_a_row_names_a_panel_that_asks_for_its_metrics(row: Row) -> None:
    assert row.difference, "say what is different, or why there is no panel"
    if row.panel == "none":
        assert not row.metrics
        return
    queries = panels().get(row.panel)
    assert queries, f"there is no panel {row.panel!r}"
    assert row.metrics, "name the metrics"
    missing = {metric for metric in row.metrics if not any(re.search(rf"\b{metric}\b", query) for query in queries)}
    assert not missing, f"{row.panel} does not ask for these"

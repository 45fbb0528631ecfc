"""Every dashboard is one that the model of Grafana's release takes whole; the model is seen to refuse what is wrong."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

from observability import grafana_model
from observability.model import boards, read_yaml
from outside.server import ROOT

OF_DATASOURCE = {
    ".templating.list[].definition",  # a query as Grafana shows it in the list of variables
    ".annotations.list[].titleFormat",
    ".annotations.list[].textFormat",
    ".annotations.list[].step",
}
"""Keys that the Prometheus data source reads and the model of dashboards leaves to it."""
BOARDS = pytest.mark.parametrize("board", boards().values(), ids=lambda board: str(board["uid"]))


def a_chart(board: dict[str, Any]) -> dict[str, Any]:
    """The first chart over time of a dashboard."""
    chart: dict[str, Any] = next(panel for panel in board["panels"] if panel["type"] == "timeseries")
    return chart


def custom(board: dict[str, Any]) -> dict[str, Any]:
    """What its kind of panel adds to the fields of that chart."""
    found: dict[str, Any] = a_chart(board)["fieldConfig"]["defaults"]["custom"]
    return found


@BOARDS
def test_grafana_knows_every_key_of_a_dashboard(board: dict[str, Any]) -> None:
    assert set(grafana_model.unknown(board)) <= OF_DATASOURCE


@BOARDS
def test_every_value_of_a_dashboard_is_of_the_type_grafana_wants(board: dict[str, Any]) -> None:
    assert grafana_model.misfits(board) == []


@BOARDS
def test_every_panel_is_of_a_kind_and_in_a_unit_that_grafana_has(board: dict[str, Any]) -> None:
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len(panels) >= 5
    assert {panel["type"] for panel in panels if not grafana_model.knows(panel["type"])} == set()
    assert {panel["fieldConfig"]["defaults"]["unit"] for panel in panels} <= grafana_model.UNITS


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (".titel", lambda board: board.update(titel="t")),
        (".panels[].legend", lambda board: a_chart(board).update(legend={})),
        (".panels[].options.legend.show", lambda board: a_chart(board)["options"]["legend"].update(show=True)),
        (".panels[].targets[].query", lambda board: a_chart(board)["targets"][0].update(query="up")),
        (".panels[].fieldConfig.defaults.custom.fill", lambda board: custom(board).update(fill=1)),
    ],
)  # fmt: skip
def test_a_key_that_grafana_does_not_know_is_seen(key: str, change: Callable[[dict[str, Any]], None]) -> None:
    board = copy.deepcopy(boards()["deltaweir-overview.json"])
    change(board)
    assert set(grafana_model.unknown(board)) - OF_DATASOURCE == {key}


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("schema_version", lambda board: board.update(schemaVersion="39")),
        ("hide", lambda board: board["templating"]["list"][0].update(hide=7)),
        ("w", lambda board: a_chart(board)["gridPos"].update(w=True)),
        ("stacking", lambda board: custom(board)["stacking"].update(mode="stacked")),
        ("tooltip", lambda board: a_chart(board)["options"]["tooltip"].update(mode="all")),
        ("format", lambda board: a_chart(board)["targets"][0].update(format="timeseries")),
    ],
)
def test_a_value_of_another_type_is_seen(path: str, change: Callable[[dict[str, Any]], None]) -> None:
    board = copy.deepcopy(boards()["deltaweir-overview.json"])
    change(board)
    assert any(path in misfit for misfit in grafana_model.misfits(board))


def test_the_model_is_that_of_the_grafana_which_compose_starts() -> None:
    image = read_yaml(ROOT / "docker" / "compose.yaml")["services"]["grafana"]["image"]
    found = re.search(r"grafana:(\d+\.\d+)\.\d+", image)
    assert found, image
    assert version("grafana-foundation-sdk").partition("!")[2].startswith(f"{found[1]}.")

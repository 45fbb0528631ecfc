"""Table of metrics, reference page and dashboards agree; the JSON is what its generator writes and Grafana loads."""

from __future__ import annotations

import re
from typing import Any

import pytest

from boards.__main__ import files, stale
from boards.unused import UNUSED
from observability.model import (
    GRAFANA,
    annotation_queries,
    boards,
    filled,
    metric_of,
    metrics,
    mistakes,
    panel_queries,
    read_yaml,
    rules,
)
from observability.promql import names

TITLES = {
    "deltaweir: overview",
    "deltaweir: compression tax",
    "deltaweir: encryption and integrity",
    "deltaweir: backend and cost",
    "deltaweir: runtime",
    "deltaweir: benchmark",
}
PANELS = [
    pytest.param(board, panel, id=f"{board['uid']}-{panel['title']}")
    for board in boards().values()
    for panel in board["panels"]
    if panel["type"] != "row"
]


def test_the_dashboards_are_what_the_generator_writes() -> None:
    assert stale() == [], "write them anew: PYTHONPATH=grafana python -m boards"
    assert set(files()) == set(boards())


def test_the_six_dashboards_are_there_under_ids_of_their_own() -> None:
    assert {board["title"] for board in boards().values()} == TITLES
    assert all(name == f"{board['uid']}.json" for name, board in boards().items())


def test_no_query_names_a_metric_or_label_that_does_not_exist() -> None:
    known = metrics()
    queries = [*panel_queries(), *annotation_queries()]
    assert len(queries) > 100
    assert [wrong for query in queries for wrong in mistakes(query.expr, names(query.expr), known)] == []


def test_every_metric_is_in_a_panel_or_listed_as_unused() -> None:
    known = metrics()
    shown = {
        of[0].name
        for query in panel_queries()
        for series in names(query.expr).metrics
        if (of := metric_of(series, known)) is not None
    }
    assert known.keys() - shown - UNUSED.keys() == set()
    assert UNUSED.keys() & shown == set(), "listed as unused, but shown"
    assert UNUSED.keys() <= known.keys(), "listed as unused, but gone"


def test_every_query_selects_the_chosen_instances() -> None:
    for board in boards().values():
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                for selector in names(filled(target["expr"], board)).selectors:
                    assert {"job", "instance"} <= set(selector.labels), target["expr"]
                    assert selector.text.count('job=~"') == 1, target["expr"]


def test_no_query_and_no_rule_names_a_job() -> None:
    written = [
        target["expr"]
        for board in boards().values()
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]
    written += [rule["expr"] for rule in rules()]
    assert [expr for expr in written if re.search(r'job\s*(=~?|!=|!~)\s*"(?!\$job")', expr)] == []


def test_what_replicas_read_from_one_catalog_is_not_added_up_over_them() -> None:
    """The reference says which gauges come from the catalog; of each bucket, one replica's figure counts."""
    shared = {"deltaweir_deferred_blobs", "deltaweir_deferred_bytes", "deltaweir_multipart_inflight"}
    shared |= {name for name in metrics() if name.startswith("deltaweir_bucket_")}
    seen = 0
    for expr in [*(query.expr for query in panel_queries()), *(rule["expr"] for rule in rules())]:
        for name in shared:
            for found in re.finditer(rf"\b{name}\b", expr):
                aggregation = re.findall(r"(\w+)\s*(?:by \([^)]*\))?\s*\(\s*$", expr[: found.start()])
                assert aggregation == ["max"], expr
                seen += 1
    assert seen >= 20


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_panel_says_what_it_shows(board: dict[str, Any], panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert len(panel["description"]) > 15
    assert panel["description"].endswith((".", ").")), panel["description"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"]
    assert board["templating"]["list"][0]["type"] == "datasource"


@pytest.mark.parametrize("board", boards().values(), ids=lambda board: str(board["uid"]))
def test_panels_do_not_overlap_and_ids_are_unique(board: dict[str, Any]) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        cells |= taken
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def test_savings_are_shown_in_money_by_a_price_the_reader_types() -> None:
    overview = boards()["deltaweir-overview.json"]
    (price,) = (variable for variable in overview["templating"]["list"] if variable["name"] == "price")
    assert price["type"] == "textbox"
    assert float(price["query"]) > 0
    (saved,) = (panel for panel in overview["panels"] if panel["title"] == "Saved a month")
    assert "$price" in saved["targets"][0]["expr"]
    assert saved["fieldConfig"]["defaults"]["unit"].startswith("currency")


def test_the_benchmark_has_annotations_of_run_and_phase() -> None:
    annotations = boards()["deltaweir-benchmark.json"]["annotations"]["list"]
    tags = [annotation["target"]["tags"] for annotation in annotations if "target" in annotation]
    assert tags == [["taxbench", "run"], ["taxbench", "phase"]]


def test_provisioning_loads_the_folder_and_the_source_that_the_dashboards_ask_for() -> None:
    (provider,) = read_yaml(GRAFANA / "provisioning" / "dashboards" / "deltaweir.yml")["providers"]
    assert (provider["type"], provider["options"]["path"]) == ("file", "/var/lib/grafana/dashboards")
    datasources = read_yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")
    assert datasources["apiVersion"] == 1
    (source,) = datasources["datasources"]
    assert (source["type"], source["access"], source["isDefault"]) == ("prometheus", "proxy", True)
    assert source["url"] == "${PROMETHEUS_URL}"
    (job,) = read_yaml(GRAFANA / "prometheus.yml")["scrape_configs"]
    assert job["job_name"] == "deltaweir"

"""A real Prometheus over a real server under load: every panel draws, every alert evaluates, no selector is empty."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from observability.load import Load, tables
from observability.model import RATE_INTERVAL_S, RULES, alerts, annotation_queries, panel_queries, recorded
from observability.prometheus import Prometheus
from observability.promql import names
from outside.server import Server, until
from outside.store import Store

LOAD_S = 20
FIRING = {"DeltaweirIntegrityFailure", "DeltaweirAeadFailure"}
"""Alerts that need no time: the load met damage on purpose."""


@dataclass
class Live:
    """What was recorded, and when."""

    prometheus: Prometheus
    begin: float
    end: float


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A recording of a server under load; Prometheus still answers."""
    folder = tmp_path_factory.mktemp("live")
    store = Store(folder / "store").start()
    store.client().create_bucket(Bucket="blobs")
    server = Server(folder / "server", tables(store))
    prometheus = Prometheus(folder / "prometheus", server.admin_port, RULES)
    try:
        server.start()
        prometheus.start()
        until(lambda: prometheus.api("query", query="deltaweir_build_info")["result"], 30, "the first scrape")
        begin = time.time()
        load = Load(server, store)
        load.for_seconds(LOAD_S)
        until(lambda: prometheus.firing() >= FIRING, 30, f"{FIRING} fire")
        # Two scrapes and the gauges of every ten seconds are still to come.
        until(lambda: prometheus.has_data("deltaweir_multipart_inflight > 0", begin, time.time()), 30, "the gauges")
        yield Live(prometheus, begin + RATE_INTERVAL_S, time.time())
        assert "panicked" not in server.log.read_text()
    finally:
        prometheus.stop()
        server.kill()
        store.stop()


def test_every_query_of_every_panel_returns_data(live: Live) -> None:
    empty = [str(query) for query in panel_queries() if not live.prometheus.has_data(query.expr, live.begin, live.end)]
    assert empty == []


def test_the_check_for_data_sees_what_is_missing_and_what_is_no_number(live: Live) -> None:
    for expr in ("deltaweir_unheard_of", "vector(0) / 0", 'deltaweir_http_requests_total{op="None"}'):
        assert not live.prometheus.has_data(expr, live.begin, live.end), expr
    assert live.prometheus.has_data("deltaweir_build_info", live.begin, live.end)


def test_annotations_evaluate(live: Live) -> None:
    queries = list(annotation_queries())
    assert queries
    for query in queries:
        live.prometheus.evaluates(query.expr)


def test_prometheus_takes_every_rule_and_evaluates_it(live: Live) -> None:
    taken = [rule for group in live.prometheus.api("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in taken} == {alert.name for alert in alerts()} | recorded().keys()
    assert {rule["name"]: rule.get("lastError") for rule in taken if rule["health"] != "ok"} == {}
    for name in recorded():
        assert live.prometheus.has_data(name, live.begin, live.end), f"{name} records nothing"
    for alert in alerts():
        live.prometheus.evaluates(alert.expr)


def test_every_selector_of_every_query_and_alert_finds_series(live: Live) -> None:
    """A label's value that never occurs would make an alert silent for ever; this is where it shows."""
    exprs = [query.expr for query in panel_queries()] + [alert.expr for alert in alerts()]
    selectors = sorted({selector.text for expr in exprs for selector in names(expr).selectors})
    assert len(selectors) > 60
    assert [text for text in selectors if not live.prometheus.has_data(text, live.begin, live.end)] == []


def test_what_was_damaged_on_purpose_fires_and_a_healthy_server_is_not_called_down(live: Live) -> None:
    firing = live.prometheus.firing()
    assert firing >= FIRING
    assert "DeltaweirDown" not in firing


def test_scrapes_are_answered_under_load(live: Live) -> None:
    """One may be late on a busy machine; a server that blocks while it encodes would miss most."""
    span_s = int(live.end - live.begin)
    expr = f'avg_over_time(up{{job="deltaweir"}}[{span_s}s]) > 0.8'
    assert live.prometheus.api("query", query=expr, time=live.end)["result"]

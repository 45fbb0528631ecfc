"""The files under test, read: the reference page of metrics, the dashboards, the alert rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from observability.promql import Names
from outside.server import ROOT

GRAFANA = ROOT / "grafana"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
RULES = GRAFANA / "alerts" / "deltaweir.rules.yml"
RULE_TESTS = GRAFANA / "alerts" / "deltaweir.rules.test.yml"

ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<kind>\w+) \| (?P<unit>\w+) \| (?P<labels>[^|]*) \| .* \|$", re.MULTILINE)
OF_PROMETHEUS = {"up": ("job", "instance")}
"""What Prometheus itself adds."""
TARGET_LABELS = {"job", "instance"}
"""What it adds to every series."""
ONLY_JOB = "deltaweir"
"""The job of grafana/prometheus.yml and of the recordings that tests make."""
RATE_INTERVAL_S = 10
RANGE_S = 60


@dataclass(frozen=True)
class Metric:
    """A row of the reference page, which a test of the crate compares with the table in the code."""

    name: str
    kind: str
    labels: frozenset[str]


def metrics() -> dict[str, Metric]:
    """The reference page."""
    found = {
        row["name"]: Metric(row["name"], row["kind"], frozenset(re.findall(r"`(\w+)`", row["labels"])))
        for row in ROW.finditer(REFERENCE.read_text())
    }
    assert len(found) > 50, "the reference page could not be read"
    return found


def metric_of(series: str, known: dict[str, Metric]) -> tuple[Metric, frozenset[str]] | None:
    """Which metric a series belongs to, and the labels it has; `None` when there is none."""
    if (metric := known.get(series)) is not None and metric.kind != "histogram":
        return metric, metric.labels
    for suffix, more in (("_bucket", {"le"}), ("_sum", set[str]()), ("_count", set[str]())):
        metric = known.get(series.removesuffix(suffix))
        if series.endswith(suffix) and metric is not None and metric.kind == "histogram":
            return metric, metric.labels | more
    return None


def mistakes(expr: str, found: Names, known: dict[str, Metric]) -> list[str]:
    """Names in an expression that do not exist."""
    wrong: list[str] = []
    labels: set[str] = set(TARGET_LABELS)
    for selector in found.selectors:
        if selector.metric in OF_PROMETHEUS:
            continue
        of = metric_of(selector.metric, known)
        if of is None:
            wrong.append(f"{selector.metric} is not in {REFERENCE.name}: {expr}")
            continue
        labels |= of[1]
        wrong += [f"{selector.text} has no label {n}" for n in selector.labels if n not in of[1] | TARGET_LABELS]
    wrong += [f"no series of {expr} has the label {name}" for name in found.grouping - labels]
    return wrong


@dataclass(frozen=True)
class PanelQuery:
    """One query of a panel, variables filled in."""

    board: str
    panel: str
    kind: str
    expr: str

    def __str__(self) -> str:
        return f"{self.board} / {self.panel}: {self.expr}"


def boards() -> dict[str, dict[str, Any]]:
    """The committed dashboards by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}


def filled(expr: str, board: dict[str, Any]) -> str:
    """An expression as Grafana sends it, with every variable at what it stands on at first."""
    values = {"__rate_interval": f"{RATE_INTERVAL_S}s", "__range": f"{RANGE_S}s"}
    for variable in board["templating"]["list"]:
        if variable["type"] == "textbox":
            values[variable["name"]] = variable["query"]
        elif variable["type"] == "query":
            # Where nothing stands for all values, Grafana names each: here there is one.
            values[variable["name"]] = variable.get("allValue", ONLY_JOB)
    text = re.sub(r"\$(\w+)", lambda found: values.get(found[1], found[0]), expr)
    assert "$" not in text, f"{expr}: a variable the dashboard does not have"
    return text


def panel_queries() -> Iterator[PanelQuery]:
    """Every query of every panel, and of annotations that Prometheus answers."""
    for board in boards().values():
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield PanelQuery(board["title"], panel["title"], panel["type"], filled(target["expr"], board))


def annotation_queries() -> Iterator[PanelQuery]:
    """Every annotation that Prometheus answers."""
    for board in boards().values():
        for annotation in board["annotations"]["list"]:
            if "expr" in annotation:
                yield PanelQuery(board["title"], annotation["name"], "annotation", filled(annotation["expr"], board))


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


def rules() -> list[dict[str, Any]]:
    """Every rule: those that record a figure, and the alerts."""
    return [rule for group in read_yaml(RULES)["groups"] for rule in group["rules"]]


def recorded() -> dict[str, str]:
    """The expressions of the rules that record a figure, by its name."""
    return {rule["record"]: rule["expr"].strip() for rule in rules() if "record" in rule}


def alerts() -> list[Alert]:
    """The alerts."""
    return [
        Alert(rule["alert"], rule["expr"].strip(), rule["labels"], rule["annotations"])
        for rule in rules()
        if "alert" in rule
    ]


def read_yaml(path: Path) -> Any:
    """A YAML file."""
    return yaml.safe_load(path.read_text())

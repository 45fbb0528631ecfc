"""What a dashboard is made of: queries, panels, rows, and the JSON that Grafana reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
Kind = Literal["timeseries", "stat", "bargauge", "heatmap"]

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
"""Width of Grafana's grid."""
SCHEMA_VERSION = 39
"""Of the dashboard model, as Grafana 11 writes it."""
MONEY_UNIT = "currencyUSD"


@dataclass(frozen=True)
class Query:
    """One PromQL expression and what its lines are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One chart or figure. `unit` is Grafana's name for it; `description` says what to read from it."""

    title: str
    queries: Sequence[Query]
    unit: str
    description: str
    kind: Kind = "timeseries"
    width: int = 8
    stacked: bool = False
    decimals: int | None = None
    max: float | None = None

    @property
    def height(self) -> int:
        """Figures are half as tall as charts."""
        return 4 if self.kind == "stat" else 8

    def json(self, number: int, x: int, y: int) -> Json:
        """The panel at a place of the grid."""
        defaults: Json = {"unit": self.unit}
        if self.decimals is not None:
            defaults["decimals"] = self.decimals
        if self.max is not None:
            defaults["max"] = self.max
        if self.kind == "timeseries":
            defaults["min"] = 0
            defaults["custom"] = {
                "fillOpacity": 30 if self.stacked else 8,
                "lineWidth": 1,
                "showPoints": "never",
                "stacking": {"mode": "normal" if self.stacked else "none"},
            }
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": OPTIONS[self.kind] | ({"yAxis": {"unit": self.unit}} if self.kind == "heatmap" else {}),
            "targets": [
                {
                    "refId": chr(ord("A") + index),
                    "datasource": SOURCE,
                    "expr": query.expr,
                    "legendFormat": query.legend or "__auto",
                    "format": "heatmap" if self.kind == "heatmap" else "time_series",
                    "instant": self.kind in ("stat", "bargauge"),
                    "range": self.kind not in ("stat", "bargauge"),
                }
                for index, query in enumerate(self.queries)
            ],
        }


OPTIONS: dict[Kind, Json] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    "bargauge": {
        "displayMode": "gradient",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    "heatmap": {"calculate": False, "cellGap": 1, "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64}},
}


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[Json] = ()
    annotations: Sequence[Json] = ()
    span: str = "now-6h"
    tags: Sequence[str] = field(default=("deltaweir",))

    def json(self) -> Json:
        """The model that Grafana's provisioning loads."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": list(self.tags),
            "schemaVersion": SCHEMA_VERSION,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": self.span, "to": "now"},
            "timezone": "utc",
            "links": [
                {
                    "title": "deltaweir",
                    "type": "dashboards",
                    "tags": ["deltaweir"],
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                }
            ],
            "templating": {"list": [DATASOURCE, JOB, INSTANCE, *self.variables]},
            "annotations": {"list": [RESTARTS, *self.annotations]},
            "panels": list(self._placed()),
        }

    def _placed(self) -> Sequence[Json]:
        """Rows from the top, panels from the left."""
        placed: list[Json] = []
        y = 0
        for row in self.rows:
            heading = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
            placed.append({"id": len(placed) + 1, "type": "row", "title": row.title, "collapsed": False,
                           "gridPos": heading, "panels": []})  # fmt: skip
            y += 1
            x = tallest = 0
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y, tallest = 0, y + tallest, 0
                placed.append(panel.json(len(placed) + 1, x, y))
                x, tallest = x + panel.width, max(tallest, panel.height)
            y += tallest
        return placed


DATASOURCE: Json = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "current": {},
    "hide": 0,
}


def _several(name: str, label: str, query: str, **more: str) -> Json:
    """A variable of which the reader chooses any number of values, at first all."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        **more,
        "current": {"text": "All", "value": "$__all"},
        "hide": 0,
    }


# Without a value for all of them, Grafana names each: no other job's process is drawn.
JOB = _several("job", "Job", "label_values(deltaweir_build_info, job)")
INSTANCE = _several("instance", "Instance", 'label_values(deltaweir_build_info{job=~"$job"}, instance)', allValue=".*")
RESTARTS: Json = {
    "name": "Restarts",
    "datasource": SOURCE,
    "enable": True,
    "iconColor": "orange",
    "expr": 'changes(process_start_time_seconds{job=~"$job", instance=~"$instance"}[$__rate_interval]) > 0',
    "titleFormat": "restarted",
    "textFormat": "{{instance}}",
    "step": "30s",
}


def textbox(name: str, label: str, value: str) -> Json:
    """A variable that the reader types in."""
    return {
        "name": name,
        "label": label,
        "type": "textbox",
        "query": value,
        "current": {"text": value, "value": value},
        "hide": 0,
    }


PRICE = textbox("price", "Storage price, $ per TB and month", "23")


def select(metric: str, **labels: str) -> str:
    """A selector of the chosen jobs and instances. A label's value may begin with `~`, `!` or `!~`, as "
    "PromQL's operators do."""
    matchers = ['job=~"$job"', 'instance=~"$instance"']
    for name, value in labels.items():
        operator = next(prefix for prefix in ("!~", "!", "~", "") if value.startswith(prefix))
        sign = {"": "=", "!": "!=", "~": "=~", "!~": "!~"}[operator]
        matchers.append(f'{name.rstrip("_")}{sign}"{value[len(operator) :]}"')
    return f"{metric}{{{', '.join(matchers)}}}"


def total(metric: str, by: str = "", **labels: str) -> str:
    """A gauge, added up over instances, by some labels."""
    return f"sum{_by(by)} ({select(metric, **labels)})"


def catalog(metric: str, own: str = "", by: str = "", **labels: str) -> str:
    """A gauge that every replica reads from the catalog they share: one of them for each of its own labels, then added
    up by some. A job is one deployment."""
    each = f"job, {own}" if own else "job"
    return f"sum{_by(by)} (max by ({each}) ({select(metric, **labels)}))"


def rate(metric: str, by: str = "", **labels: str) -> str:
    """A counter's growth per second, added up over instances, by some labels."""
    return f"sum{_by(by)} (rate({select(metric, **labels)}[$__rate_interval]))"


def increase(metric: str, by: str = "", **labels: str) -> str:
    """A counter's growth over the time shown."""
    return f"sum{_by(by)} (increase({select(metric, **labels)}[$__range]))"


def quantile(q: float, histogram: str, by: str = "", **labels: str) -> str:
    """A quantile of a histogram's recent observations."""
    grouped = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {rate(histogram + '_bucket', grouped, **labels)})"


def mean(histogram: str, by: str = "", **labels: str) -> str:
    """The mean of a histogram's recent observations."""
    return f"{rate(histogram + '_sum', by, **labels)} / {rate(histogram + '_count', by, **labels)}"


def buckets(histogram: str, **labels: str) -> str:
    """A histogram's recent observations by bucket, for a heatmap."""
    return rate(histogram + "_bucket", "le", **labels)


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""

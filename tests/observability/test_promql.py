"""The reader of names is as strict as the checks that rest on it."""

from __future__ import annotations

import pytest

from observability.model import metrics, mistakes
from observability.promql import PromqlError, names


def test_metrics_matchers_and_groupings_are_found() -> None:
    found = names('sum by (op, le) (rate(a_total{op="x", code!~"5.."}[5m] offset 1h)) / ignoring (le) b_seconds > 1e9')
    assert [(s.metric, s.labels, s.text) for s in found.selectors] == [
        ("a_total", ("op", "code"), 'a_total{op="x", code!~"5.."}'),
        ("b_seconds", (), "b_seconds"),
    ]
    assert found.grouping == {"op", "le"}


def test_strings_do_not_hide_names() -> None:
    assert names('a{x="sum(b)"} or c').metrics == {"a", "c"}


@pytest.mark.parametrize(
    "expr",
    [
        '{j="x"}',
        "quantil(0.9, a)",
        "sum a",
        "a{b}",
        'a{b="c" d="e"}',
        "a # comment",
        "by b",
        'a{b="c"',
        "sum by (1) (a)",
    ],
)
def test_what_is_not_understood_is_an_error(expr: str) -> None:
    with pytest.raises(PromqlError):
        names(expr)


@pytest.mark.parametrize(
    ("expr", "count"),
    [
        ('rate(deltaweir_http_requests_total{op="x", instance=~".*"}[5m])', 0),
        ("histogram_quantile(0.9, sum by (le, op) (rate(deltaweir_http_request_seconds_bucket[5m])))", 0),
        ("deltaweir_unheard_of_total", 1),
        ("deltaweir_http_request_seconds", 1),
        ("deltaweir_http_requests_total_bucket", 1),
        ('deltaweir_http_requests_total{bucket="b"}', 1),
        ("sum by (form) (deltaweir_http_requests_total)", 1),
        ("sum by (le) (deltaweir_http_request_seconds_sum)", 1),
    ],
)
def test_names_that_do_not_exist_are_found(expr: str, count: int) -> None:
    assert len(mistakes(expr, names(expr), metrics())) == count

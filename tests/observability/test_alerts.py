"""Every alert fires and stays silent where it should, names what exists, and has a page."""

from __future__ import annotations

import re
import subprocess

from observability.model import GRAFANA, RULE_TESTS, RULES, alerts, metrics, mistakes, read_yaml, recorded, rules
from observability.promql import names
from outside.server import ROOT

RUNBOOKS = ROOT / "docs" / "guide" / "runbooks"


def promtool(*arguments: str) -> str:
    """Runs promtool, which must agree."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_rules_and_configuration() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(RULES))
    promtool("check", "config", str(GRAFANA / "prometheus.yml"))


def test_the_cases_of_the_rules_hold() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(RULE_TESTS))


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    cases = [case for test in read_yaml(RULE_TESTS)["tests"] for case in test.get("alert_rule_test", ())]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    silent = {case["alertname"] for case in cases if not case["exp_alerts"]}
    known = {alert.name for alert in alerts()}
    assert (fires, silent) == (known, known)


def test_no_alert_names_a_metric_or_label_that_does_not_exist() -> None:
    known = metrics()
    exprs = [alert.expr for alert in alerts()] + list(recorded().values())
    # A figure that another rule records is known by its name.
    plain = [re.sub(r"\bjob:\w+:\w+", "vector(1)", expr) for expr in exprs]
    assert [wrong for expr in plain for wrong in mistakes(expr, names(expr), known)] == []


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == {alert.name for alert in alerts()}
    for alert in alerts():
        place = "{{ with $externalLabels.docs }}{{ . }}{{ else }}docs{{ end }}"
        assert alert.annotations["runbook_url"] == f"{place}/guide/runbooks/{alert.name}.md"
        assert alert.annotations["summary"]
        assert alert.labels["severity"] in ("warning", "critical")
        page = (RUNBOOKS / f"{alert.name}.md").read_text()
        assert page.startswith(f"# {alert.name}\n")
        assert "**Look.**" in page
        assert "**Do.**" in page


def test_the_index_of_the_pages_is_complete_and_their_links_lead_somewhere() -> None:
    index = (RUNBOOKS / "README.md").read_text()
    for alert in alerts():
        assert f"[{alert.name}]({alert.name}.md)" in index
    for page in RUNBOOKS.glob("*.md"):
        for target in re.findall(r"\]\((\w+\.md)\)", page.read_text()):
            assert (RUNBOOKS / target).exists(), f"{page.name} links to {target}"

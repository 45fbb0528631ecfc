"""The command line: every flag says what it does, the first command's list is the package's, and exit codes."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hcloud import TOKEN, FakeCloud

from taxbench import summarize
from taxbench.bundle import opened
from taxbench.cli import main, parser
from taxbench.commands import flags
from taxbench.report import markdown
from taxbench.report.bottom_line import bottom_line
from taxbench.statistics import Interval
from taxbench.summary import Finding, Summary

BENCHMARK = Path(__file__).resolve().parents[1]
RUN = BENCHMARK / "runs" / "tax-20261122-124723.tgz"
SAMPLE = BENCHMARK / "sample-report.md"


@pytest.fixture(scope="module")
def summary() -> Summary:
    """A kept run."""
    with opened(RUN) as bundle:
        return summarize.summarize(bundle)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """The cloud's API, and a token that it takes."""
    fake = FakeCloud()
    monkeypatch.setenv("HCLOUD_TOKEN", TOKEN)
    monkeypatch.setenv("HCLOUD_ENDPOINT", fake.endpoint)
    yield fake
    fake.close()


def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command's own parser."""
    (below,) = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    found: dict[str, argparse.ArgumentParser] = dict(below.choices)
    assert len(found) >= 11
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_flag_says_what_it_does(name: str) -> None:
    silent = [action.option_strings or [action.dest] for action in commands()[name]._actions if not action.help]
    assert silent == []


def test_the_first_command_installs_what_the_package_depends_on() -> None:
    lines = (BENCHMARK / "requirements.txt").read_text().splitlines()
    listed = [line for line in lines if line and not line.startswith(("#", "-c "))]
    project = tomllib.loads((BENCHMARK / "pyproject.toml").read_text())["project"]
    assert listed == project["dependencies"]
    assert "-c constraints.txt" in lines
    assert "pip install -r docs/benchmark/requirements.txt" in (BENCHMARK / "README.md").read_text().split("```")[1]


def test_results_lie_where_the_repository_ignores_them() -> None:
    assert flags.RESULTS == BENCHMARK / "results"
    asked = subprocess.run(["git", "check-ignore", "-q", str(flags.RESULTS / "a-run")], cwd=BENCHMARK, check=False)
    assert asked.returncode == 0


def test_failures_are_allowed_where_that_is_asked_for_and_nothing_else_is(summary: Summary) -> None:
    def code(*codes: str, allow: bool) -> int:
        findings = [Finding(severity="fatal", code=one, where="", message="") for one in codes]
        broken = summary.model_copy(update={"findings": findings})
        return flags.exit_code(argparse.Namespace(allow_failures=allow), broken)

    assert code(allow=False) == 0
    assert (code("failed-operations", allow=False), code("failed-operations", allow=True)) == (1, 0)
    assert (code("byte-mismatch", allow=True), code("byte-mismatch", "failed-operations", allow=True)) == (1, 1)


def test_the_bottom_line_is_made_of_the_numbers(summary: Summary) -> None:
    told = bottom_line(summary)
    by_mode = {row.mode: row for row in summary.headline}
    stored, put = by_mode["compression"].stored_ratio, by_mode["compression"].put_to_passthrough
    assert stored is not None
    assert put is not None
    assert f"{stored.median * 100:.0f} % of this data's bytes are stored" in told
    assert f"uploads at {put.median:.2f}×" in told
    assert told.endswith("ratios count, absolutes do not.")
    unsure = by_mode["compression"].model_copy(
        update={"put_to_passthrough": Interval(median=0.9, low=0.7, high=1.1, values=[0.7, 0.9, 1.1])}
    )
    other = summary.model_copy(update={"headline": [by_mode["passthrough"], unsure]})
    assert "uploads at" not in bottom_line(other)
    assert "uploads show no difference" in bottom_line(other)
    once = by_mode["compression"].model_copy(
        update={
            f"{name}_to_passthrough": Interval(median=0.5, values=[0.5]) for name in ("put", "cold_get", "warm_get")
        }
    )
    told = bottom_line(summary.model_copy(update={"headline": [by_mode["passthrough"], once]}))
    assert "One trial says nothing about the speed of" in told
    assert "0.50×" not in told
    fatal = Finding(severity="fatal", code="byte-mismatch", where="", message="")
    assert bottom_line(summary.model_copy(update={"findings": [fatal]})).endswith("may not be used.")


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ((5.0, 4.0, 6.0), "An upload takes 3.00 s of processor per GB more than"),
        ((0.5, 0.4, 0.6), "An upload takes 1.50 s of processor per GB less than"),
        ((2.5, 1.9, 3.1), "An upload shows no difference from passthrough's in processor time."),
        ((5.0, None, None), ""),
    ],
)
def test_more_processor_is_said_only_where_the_intervals_say_so(
    summary: Summary, ours: tuple[float, float | None, float | None], said: str
) -> None:
    by_mode = {row.mode: row for row in summary.headline}
    median, low, high = ours
    changed = [
        by_mode["passthrough"].model_copy(update={"put_cpu_s_per_gb": Interval(median=2.0, low=1.8, high=2.2)}),
        by_mode["compression"].model_copy(update={"put_cpu_s_per_gb": Interval(median=median, low=low, high=high)}),
    ]
    told = bottom_line(summary.model_copy(update={"headline": changed}))
    assert said in told
    assert bool(said) == ("An upload " in told)


def test_the_sample_report_is_what_the_kept_run_gives(summary: Summary) -> None:
    assert SAMPLE.read_text() == markdown.render(summary)


def test_the_doctor_looks_at_the_cloud(cloud: FakeCloud, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--hcloud", "--ssh-key-name", "bench", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert {name: check["level"] for name, check in checks.items()} == {
        "cloud token": "ok",
        "cloud machines": "ok",
        "cloud SSH key": "ok",
        "cloud leftovers": "ok",
    }
    assert re.search(r"hel1: 0\.2380 EUR per hour", checks["cloud machines"]["detail"])
    assert all(method == "GET" for method, _, _ in cloud.requests), "it makes nothing"


def test_the_doctor_says_what_the_cloud_lacks(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["doctor", "--hcloud", "--location", "nowhere", "--json"]) == 1
    levels = {check["name"]: check["level"] for check in json.loads(capsys.readouterr().out)}
    assert (levels["cloud machines"], levels["cloud SSH key"]) == ("failed", "failed")
    monkeypatch.setenv("HCLOUD_TOKEN", "another")
    assert main(["doctor", "--hcloud", "--json"]) == 1
    assert [check["name"] for check in json.loads(capsys.readouterr().out)] == ["cloud token"]
    monkeypatch.delenv("HCLOUD_TOKEN")
    assert main(["doctor", "--hcloud", "--json"]) == 1
    assert "HCLOUD_TOKEN is not set" in capsys.readouterr().out


def test_the_doctor_asks_what_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 2
    assert "--hcloud" in capsys.readouterr().err

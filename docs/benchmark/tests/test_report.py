"""The report is drawn by a real browser, offline: every chart has marks, nothing complains, nothing is fetched."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import plotly.graph_objects
import pytest
from chromium import Browser, ChromiumMissingError
from conftest import ARTEFACTS, HERE

from taxbench import guards
from taxbench.bundle import Bundle
from taxbench.cli import main
from taxbench.commands import pin
from taxbench.report import page
from taxbench.report.numbers import significant, size
from taxbench.summarize import summarize
from taxbench.summary import Finding

MARKS = """
Object.fromEntries([...document.querySelectorAll('.plot')].map(plot => {
  const marks = [...plot.querySelectorAll('.scatterlayer .trace path.js-line, .scatterlayer .trace .point, ' +
    '.barlayer .point path, .waterfalllayer .point path')];
  const drawn = marks.filter(m => { const b = m.getBBox(); return b.width + b.height > 0.5; });
  const box = plot.getBoundingClientRect();
  return [plot.id, {marks: drawn.length, traces: plot.querySelectorAll('.cartesianlayer .trace').length,
                    width: box.width, height: box.height,
                    cut: [...plot.querySelectorAll('svg text')].filter(t => t.textContent === 'NaN').length}];
}))
"""
EXPECTED = {
    "relative-speed", "throughput", "put-concurrency", "ecdf-ttfb", "ecdf-latency", "waterfall", "families",
    "base-drift", "negative-controls", "cpu", "memory", "timeline", "break-even-link", "break-even-price",
    "level-sweep", "level-links", "adaptive", "codecs", "small-files",
}  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A whole `local` run with every study, against the stand-in for the real binary."""
    place = tmp_path_factory.mktemp("local")
    binary = place / "deltaweir"
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_store.py"} "$@"\n')
    binary.chmod(0o755)
    arguments = [
        "local", "--profile", "smoke", "--binary", str(binary), "--results", str(place / "results"),
        "--run-id", "report",
        "--trials", "2", "--concurrency", "1,2", "--comparators", "none", "--synthetic-scale", "0.02",
        "--json", "--timeout", "20", "--resource-sample-interval", "0.05", "--part-size", str(96 << 10),
    ]  # fmt: skip
    assert main(arguments) == 0
    return Bundle(place / "results" / "report")


def test_a_local_run_leaves_everything_the_specification_lists(bundle: Bundle) -> None:
    root = bundle.root
    top = {p.name for p in root.iterdir()}
    assert top >= {
        "environment.json", "artifacts.json", "resource_timeseries.json", "resources_rollup.json", "summary.json",
        "report.md", "report.html", "manifest.sha256", "report.tgz", "studies",
    }  # fmt: skip
    cell = {p.name for p in (root / "compression/c1").iterdir()}
    phases = {
        "put",
        "cold_get",
        "warm_get",
        "range_get",
        "head",
        "list",
        "multipart_put",
        "overwrite",
        "mixed",
        "delete",
    }
    assert cell >= {f"{phase}.csv" for phase in phases}
    assert cell >= {
        f"{when}_t{trial:03d}.{kind}" for when in ("before", "after") for trial in (1, 2) for kind in ("prom", "json")
    }
    assert {p.stem for p in (root / "studies").iterdir()} == {
        "level_sweep",
        "adaptive",
        "codec_table",
        "small_files",
        "memory",
    }
    assert main(["verify", str(root)]) == 0
    assert main(["verify", str(root / "report.tgz")]) == 0
    assert main(["compare", str(root), str(root / "report.tgz")]) == 0


def test_cold_really_was_cold_and_the_process_was_restarted_once_per_cell(bundle: Bundle) -> None:
    for cell in bundle.cells():
        assert cell.cold is not None and cell.cold.process_restarted
        assert cell.cold.resident_fraction is not None and cell.cold.resident_fraction < 0.1
        if cell.counters is not None:
            assert cell.counters.restarts_seen == cell.counters.restarts_ordered == 1
            assert cell.counters.backwards == []


def test_modes_run_in_a_shuffled_order_that_the_seed_repeats(bundle: Bundle) -> None:
    order = bundle.environment().cell_order
    first, second = ([c for c in order if c.startswith(t)] for t in ("t001", "t002"))
    assert {c[5:] for c in first} == {c[5:] for c in second}
    assert [c[5:] for c in first] != [c[5:] for c in second]


def test_server_cpu_and_peak_memory_are_measured_for_every_working_phase(bundle: Bundle) -> None:
    for cell in bundle.cells():
        for phase in (p for p in cell.phases if not p.skipped and p.operations):
            assert phase.server_cpu_s is not None and phase.server_cpu_s > 0
            assert phase.server_rss_max_bytes is not None and phase.server_rss_max_bytes > 1 << 20


def test_no_secret_of_the_run_is_in_its_bundle(bundle: Bundle) -> None:
    for path in bundle.files():
        text = path.read_bytes()
        assert b"SECRET_ACCESS_KEY" not in text and b"DELTAWEIR_KEK" not in text and b"AWS4-HMAC" not in text
        assert str(HERE).encode() not in text or path.name in (
            "environment.json",
            "summary.json",
            "report.md",
            "report.html",
        )


def test_every_figure_is_one_that_plotly_accepts(bundle: Bundle) -> None:
    charts = page.charts_of(bundle, summarize(bundle))
    assert {chart.id for chart in charts} == EXPECTED
    for chart in charts:
        plotly.graph_objects.Figure(chart.figure)
        assert chart.title and chart.caption.endswith(".")


def test_the_page_draws_every_chart_offline_without_a_complaint(bundle: Bundle, tmp_path: Path) -> None:
    alone = tmp_path / "report.html"
    shutil.copy(bundle.root / "report.html", alone)
    with Browser(tmp_path / "profile") as browser:
        browser.open(alone)
        browser.until("document.documentElement?.hasAttribute('data-drawn')")
        drawn = browser.evaluate(MARKS)
        browser.screenshot(ARTEFACTS / "report.png")
        assert set(drawn) == EXPECTED
        for name, chart in drawn.items():
            assert chart["marks"] >= 2, f"{name} shows nothing"
            assert chart["traces"] >= 1 and chart["width"] > 300 and chart["height"] > 200, name
            assert chart["cut"] == 0, f"{name} shows NaN"
        overflow = browser.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, "the page is wider than its window"
        browser.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        browser.until("document.querySelector('#cpu .xtick text').style.fill === 'rgb(230, 234, 240)'")
        browser.screenshot(ARTEFACTS / "report-dark.png")
        assert browser.complaints() == []
        assert all(url.startswith(("file:", "data:", "blob:")) for url in browser.requests())


def test_a_broken_chart_would_be_seen(bundle: Bundle, tmp_path: Path) -> None:
    text = (bundle.root / "report.html").read_text()
    figures = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert figures is not None
    value = json.loads(figures[1])
    value["cpu"]["data"] = []
    broken = tmp_path / "broken.html"
    broken.write_text(
        text.replace(figures[1], json.dumps(value)).replace("draw().then", "console.error('x'); draw().then")
    )
    with Browser(tmp_path / "profile") as browser:
        browser.open(broken)
        browser.until("document.documentElement?.hasAttribute('data-drawn')")
        assert browser.evaluate(MARKS)["cpu"]["marks"] == 0
        assert browser.complaints()


def test_without_chromium_the_check_fails_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ChromiumMissingError, match="apt-packages"):
        Browser(tmp_path)


def test_what_the_run_says_cannot_become_markup(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "</script><script>alert(1)</script><b>x"
    monkeypatch.setattr(
        guards, "GUARDS", (lambda _: iter([Finding(severity="fatal", code="c", where=evil, message=evil)]),)
    )
    summary = summarize(bundle)
    summary.environment.command.append(evil)
    text = page.render(bundle, summary)
    assert evil not in text and "&lt;/script&gt;&lt;script&gt;alert(1)" in text
    assert text.count("FATAL FINDINGS") == 1


def test_the_page_is_one_file_and_names_no_other(bundle: Bundle) -> None:
    text = (bundle.root / "report.html").read_text()
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!#|data:)', own)
    assert "@import" not in own and "url(" not in own


def test_html_report_draws_again_from_the_archive(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again.html"
    assert main(["html-report", "--bundle", str(bundle.root / "report.tgz"), "--out", str(out)]) == 0
    assert out.read_text() == (bundle.root / "report.html").read_text()


def test_a_pinned_run_is_whole_small_and_what_the_readme_says(bundle: Bundle, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- taxbench:begin -->\nstale\n<!-- taxbench:end -->\nafter\n")
    command = ["pin", str(bundle.root), "--readme", str(readme)]
    assert main([*command, "--check"]) == 1
    assert main([*command, "--into", str(tmp_path / "runs")]) == 0
    kept = tmp_path / "runs" / "report.tgz"
    assert kept.stat().st_size < 500_000
    assert main(["verify", str(kept)]) == 0
    assert main(["pin", str(kept), "--readme", str(readme), "--check"]) == 0
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert "| compression + encryption |" in text and "ratios count" in text and "MB/s" not in text
    readme.write_text("no markers")
    assert main(command) == 2


def test_the_readme_of_the_repository_has_the_block_and_in_it_nothing_but_a_run_that_is_kept() -> None:
    readme = HERE.parents[2] / "README.md"
    empty = pin.with_block(readme.read_text(), "", readme)
    said = readme.read_text().partition(pin.BEGIN)[2].partition(pin.END)[0]
    assert pin.END in empty and "MB/s" not in said
    if said.strip():
        (run_id,) = re.findall(r"^Run `(.+?)`", said, re.MULTILINE)
        kept = HERE.parent / "runs" / f"{run_id}.tgz"
        assert main(["pin", str(kept), "--readme", str(readme), "--check"]) == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (1.5, "1.5"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12\u202f346"), (0, "0")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert significant(value) == text.replace("1.5", "1.50") or significant(value) == text


def test_sizes_are_decimal() -> None:
    assert size(317_000_000) == "317\u00a0MB"
    assert size(None) == "–"

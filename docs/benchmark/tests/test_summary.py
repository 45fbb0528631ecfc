"""A summary follows from raw files: known walls and bytes give known ratios, and notes appear where they must."""

from __future__ import annotations

import pytest
from conftest import Run, codes

from taxbench import guards, prometheus
from taxbench.bundle import Bundle, opened
from taxbench.commands.verify import differences, problems
from taxbench.names import CORE_PHASES
from taxbench.records import PhaseFacts
from taxbench.summarize import summarize

QUICK = (*CORE_PHASES, "delete")


def set_speed(bundle: Bundle, mode: str, mb_s: float) -> None:
    """Rewrites the walls of a mode's cells: its phases ran at a known speed, those without payload as for 1 MB."""
    for cell in bundle.cells():
        if cell.mode == mode:
            for phase in cell.phases:
                phase.wall_s = (phase.payload_bytes or 1e6) / (mb_s * 1e6)
            bundle.write_cell(cell)


def test_ratios_to_passthrough_are_those_of_the_walls(run: Run) -> None:
    bundle, _ = run(modes=("passthrough", "encryption"), phases=QUICK, trials=2)
    set_speed(bundle, "passthrough", 100)
    set_speed(bundle, "encryption", 60)
    summary = summarize(bundle)
    cell = summary.cell("encryption", 1)
    assert cell is not None and cell.phases["put"].to_passthrough is not None
    assert cell.phases["put"].to_passthrough.median == pytest.approx(0.6)
    assert "PUT 0.60×" in next(row.verdict for row in summary.headline if row.mode == "encryption")


def test_a_mode_faster_than_passthrough_beyond_its_interval_wants_a_reason(run: Run) -> None:
    bundle, _ = run(modes=("passthrough", "encryption"), phases=QUICK, trials=2)
    set_speed(bundle, "passthrough", 97.05)
    set_speed(bundle, "encryption", 299.9)
    noted = [f for f in summarize(bundle).findings if f.code == "faster-than-passthrough"]
    assert any("cold_get" in f.message and "3.09" in f.message for f in noted)
    set_speed(bundle, "encryption", 90)
    assert not [f for f in summarize(bundle).findings if f.code == "faster-than-passthrough"]


def test_put_cpu_includes_what_was_left_to_the_background(run: Run) -> None:
    bundle, _ = run(modes=("passthrough",), phases=QUICK)
    cell = bundle.cells()[0]
    for phase in cell.phases:
        phase.server_cpu_s = {"put_base": 1.0, "put_delta": 2.0, "settle": 4.0}.get(phase.phase, 0.5)
    bundle.write_cell(cell)
    put = summarize(bundle).cells[0].phases["put"]
    assert put.cpu_s_per_gb is not None
    assert put.cpu_s_per_gb.median == pytest.approx(7.0 / (put.payload_bytes / 1e9))


def test_a_delayed_ack_in_small_requests_is_noted(run: Run) -> None:
    bundle, _ = run(modes=("passthrough",), phases=QUICK)
    rows = bundle.samples("passthrough", 1)
    small = next(s for s in rows if s.kind == "get" and s.logical_bytes <= 64 << 10)
    for number in range(300):
        small.total_s = 0.0405 if number % 4 == 0 else 0.001 + number * 1e-6
        bundle.append_samples([small])
    assert "delayed-ack" in codes(summarize(bundle), "note")


def test_cold_reads_from_a_warm_page_cache_are_noted(run: Run) -> None:
    bundle, _ = run(modes=("passthrough",), phases=QUICK)
    cell = bundle.cells()[0]
    assert cell.cold is not None
    cell.cold.resident_fraction = 0.9
    bundle.write_cell(cell)
    assert "not-cold" in codes(summarize(bundle), "note")


def test_a_skipped_phase_says_why(run: Run) -> None:
    bundle, _ = run(modes=("passthrough",), phases=QUICK)
    cell = bundle.cells()[0]
    cell.phases.append(
        PhaseFacts(
            phase="list",
            started_s=0,
            ended_s=0,
            operations=0,
            failed=0,
            payload_bytes=0,
            wall_s=0,
            client_cpu_s=0,
            skipped="the target has no LIST",
        )
    )
    bundle.write_cell(cell)
    summary = summarize(bundle)
    assert "phase-skipped" in codes(summary, "note")
    assert summary.cells[0].phases["list"].skipped == "the target has no LIST"


def test_the_waterfall_adds_up(run: Run) -> None:
    _, summary = run(modes=("compression",), phases=QUICK)
    storage = summary.cells[0].storage
    assert storage is not None and storage.stored_bytes is not None and storage.overhead_bytes is not None
    assert storage.logical_bytes - sum(storage.saved_bytes.values()) + storage.overhead_bytes == storage.stored_bytes
    assert storage.saved_bytes["dedup"] > 0 and storage.saved_bytes["delta"] > 0


def test_every_guard_is_registered_once() -> None:
    names = [guard.__name__ for guard in guards.GUARDS]
    assert len(names) == len(set(names)) == 18


def test_a_bundle_verifies_and_every_kind_of_tampering_is_found(run: Run) -> None:
    bundle, _ = run(modes=("passthrough",), phases=QUICK)
    assert problems(bundle) == []
    with opened(bundle.root / "unit.tgz") as archived:
        assert problems(archived) == []

    csv = bundle.cell_dir("passthrough", 1) / "put.csv"
    original = csv.read_text()
    csv.write_text(original.replace(",ok,", ",mismatch,", 1))
    assert any("put.csv: changed" in p for p in problems(bundle))
    bundle.seal()
    assert any("does not follow" in p for p in problems(bundle)), (
        "resealing does not help: the summary is computed again"
    )
    csv.write_text(original.replace("put_base", "put_base,extra", 1))
    assert problems(bundle)
    csv.unlink()
    assert any("put.csv: missing" in p for p in problems(bundle))


def test_json_values_differ_where_they_differ() -> None:
    assert differences({"a": [1.0, {"b": 2}]}, {"a": [1.0 + 1e-12, {"b": 2}]}) == []
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": 0}) == ["$.a[1].b", "$.c"]


def test_counters_that_fall_or_vanish_are_named_and_gauges_may_do_as_they_like() -> None:
    lines = ["# TYPE c_total counter", 'c_total{a="1"} 5', "# TYPE g gauge", "g 9"]
    text = "\n".join([*lines, "# TYPE h histogram", 'h_bucket{le="1"} 4', "h_sum 3"])
    before = prometheus.parse(text)
    after = prometheus.parse(text.replace('c_total{a="1"} 5', 'c_total{a="1"} 4').replace("g 9", "g 1"))
    assert prometheus.went_backwards(before, before) == []
    assert [line.split("{")[0] for line in prometheus.went_backwards(before, after)] == ["c_total"]
    gone = prometheus.parse("# TYPE c_total counter\n")
    assert len(prometheus.went_backwards(before, gone)) == 3


def test_prometheus_text_is_read_with_escaped_labels_and_odd_values() -> None:
    scrape = prometheus.parse('x{a="1\\"2,}",b="z"} 1e3 1700000000\nx{a="2"} +Inf\ny NaN\nrubbish\n')
    assert scrape.total("x", b="z") == 1000
    assert scrape.by_label("x", "a")["2"] == float("inf")
    assert scrape.has("y") and not scrape.has("rubbish")

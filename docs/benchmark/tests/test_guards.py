"""Each guard is seen to fire, and to keep quiet when nothing is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import HERE, FakeTarget, Run, codes

from taxbench import guards
from taxbench.bundle import Bundle
from taxbench.names import CORE_PHASES
from taxbench.records import Noise, StorageCounts
from taxbench.report.numbers import significant
from taxbench.studies.bench import StudyError

QUICK = (*CORE_PHASES, "delete")


def test_an_honest_store_has_no_findings_beyond_the_single_machine_label(run: Run) -> None:
    _, summary = run()
    assert codes(summary, "fatal") == set()
    assert codes(summary, "label") == {"single-machine"}
    assert summary.publishable


@pytest.mark.parametrize(
    ("fault", "modes", "phases", "code"),
    [
        ("wrong-bytes", ("passthrough",), QUICK, "byte-mismatch"),
        ("wrong-etag", ("passthrough",), QUICK, "byte-mismatch"),
        ("list-stored-size", ("compression",), (*QUICK, "list"), "byte-mismatch"),
        ("put-fails", ("passthrough",), QUICK, "failed-operations"),
        ("cut", ("passthrough",), QUICK, "failed-operations"),
        ("zero-saving", ("compression",), QUICK, "no-saving"),
        ("grow", ("passthrough",), QUICK, "growth"),
        ("plaintext", ("encryption",), QUICK, "plaintext"),
        ("plaintext-name", ("encryption",), QUICK, "plaintext-name"),
        ("hidden-plaintext", ("passthrough",), QUICK, "canary-blind"),
        ("counter-reset", ("passthrough",), QUICK, "counter-reset"),
        ("silent-restart", ("passthrough",), QUICK, "counter-reset"),
        ("identity", ("passthrough",), QUICK, "storage-disagreement"),
        ("backend-lies", ("passthrough",), QUICK, "storage-disagreement"),
        ("metrics-lie", ("passthrough",), QUICK, "storage-disagreement"),
        ("wrong-mode", ("passthrough",), QUICK, "wrong-mode"),
        ("contaminated", ("compression",), QUICK, "contaminated"),
    ],
)  # fmt: skip
def test_a_fault_is_fatal(run: Run, fault: str, modes: tuple[str, ...], phases: tuple[str, ...], code: str) -> None:
    _, summary = run(fault, modes=modes, phases=phases)
    assert code in codes(summary, "fatal")
    assert summary.fatal and not summary.publishable


def test_a_stalled_answer_is_a_failed_operation(run: Run) -> None:
    _, summary = run("stall", modes=("passthrough",), phases=QUICK, timeout_s=0.3)
    assert "failed-operations" in codes(summary, "fatal")
    assert any("stalled" in finding.message for finding in summary.findings)


def test_a_body_that_goes_silent_is_noted(run: Run) -> None:
    _, summary = run("gap", modes=("passthrough",), phases=QUICK, concurrency=(4,))
    assert "stalled-body" in codes(summary, "note")
    assert not summary.fatal


def test_a_repeated_request_is_noted_and_its_time_is_counted(run: Run) -> None:
    bundle, summary = run("slow-down-once", modes=("passthrough",), phases=QUICK)
    assert "retries" in codes(summary, "note")
    repeated = [s for s in bundle.samples("passthrough", 1) if s.retries]
    assert len(repeated) == 1 and repeated[0].total_s >= 0.1


def test_unfinished_background_work_is_noted(run: Run) -> None:
    _, summary = run("never-settles", modes=("passthrough",), phases=QUICK)
    assert "not-settled" in codes(summary, "note")


def test_uploads_that_are_encoded_later_are_labelled_with_what_was_stored_before_and_after(run: Run) -> None:
    bundle, summary = run("defers", modes=("compression",), phases=QUICK)
    (finding,) = (f for f in summary.findings if f.code == "deferred")
    storage = summary.cells[0].storage
    assert storage is not None and storage.deferred_share and storage.unsettled_ratio and storage.stored_ratio
    assert 0.3 < storage.deferred_share.median < 1
    assert storage.unsettled_ratio.median > storage.stored_ratio.median * 1.2
    before = f"{storage.unsettled_ratio.median:.2f}×"
    assert finding.severity == "label" and f"{before} were stored at the end of PUT" in finding.message
    assert f"({before} before settling)" in summary.headline[0].verdict
    stored = f"Stored {significant(storage.unsettled_ratio.median)}× at the end of PUT"
    assert stored in (bundle.root / "report.md").read_text()
    assert "no-saving" not in codes(summary, "fatal")
    _, at_once = run(modes=("compression",), phases=QUICK, run_id="at-once")
    assert "deferred" not in codes(at_once, "label") and "before settling" not in at_once.headline[0].verdict


def test_an_encrypted_store_that_cannot_be_searched_is_noted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTarget, "private_roots", lambda _: [])
    _, summary = run(modes=("encryption",), phases=QUICK)
    assert "canary-unchecked" in codes(summary, "note")


def test_a_server_that_had_to_be_killed_is_noted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = FakeTarget.stop

    def stubborn(target: FakeTarget) -> None:
        stop(target)
        target.kills += 1

    monkeypatch.setattr(FakeTarget, "stop", stubborn)
    _, summary = run(modes=("passthrough",), phases=QUICK)
    assert "killed" in codes(summary, "note")


def test_every_finding_a_guard_can_make_is_made_in_a_test() -> None:
    made = set(re.findall(r'code="([a-z-]+)"', Path(guards.__file__).read_text()))
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    assert len(made) > 20
    assert {code for code in made if f'"{code}"' not in tests} == set()


def test_savings_are_not_demanded_when_the_operator_says_so_and_that_is_labelled(run: Run) -> None:
    _, summary = run("zero-saving", modes=("compression",), phases=QUICK, verify_compression=False)
    assert "no-saving" not in codes(summary, "fatal")
    assert "savings-unverified" in codes(summary, "label")


def test_without_storage_headers_saving_is_judged_by_the_accounting(run: Run) -> None:
    _, summary = run("zero-saving", "no-storage-headers", modes=("compression",), phases=QUICK)
    assert "no-saving" in codes(summary, "fatal")
    _, honest = run("no-storage-headers", modes=("compression",), phases=QUICK, run_id="honest")
    assert "no-saving" not in codes(honest, "fatal")


def test_a_noisy_machine_makes_a_run_unpublishable_but_not_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    noise = Noise(steal_fraction=0.05, foreign_fraction=0.5, load_before=9.0, swap_in_pages=3)
    monkeypatch.setattr("taxbench.machine.NoiseMeter.read", lambda _: noise)
    _, summary = run(modes=("passthrough",), phases=QUICK)
    assert codes(summary, "unpublishable") == {"steal", "foreign-load", "load-before", "swapping"}
    assert not summary.publishable and not summary.fatal


def test_a_study_that_fails_is_fatal_and_does_not_take_the_run_with_it(run: Run) -> None:
    def broken(_bundle: Bundle, _place: Path) -> None:
        raise StudyError("the codec gave other bytes back")

    bundle, summary = run(modes=("passthrough",), phases=QUICK, studies={"codec_table": broken})
    assert "study-failed" in codes(summary, "fatal")
    assert (bundle.root / "report.html").is_file()


def test_a_client_near_its_own_ceiling_is_labelled(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "CEILING_MARGIN", 1e9)
    _, summary = run(modes=("passthrough",), phases=QUICK)
    assert "client-limited" in codes(summary, "label")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"account_total": 1001}, "bucket's accounting does not add up"),
        ({"store_total": 1001}, "store's accounting does not add up"),
        ({"backend_said": 500_000}, "the accounting puts"),
        ({"backend_listed": 500_000}, "listing it finds"),
        ({"metrics_total": 500_000}, "the metrics say"),
    ],
)
def test_every_pair_of_counts_is_compared(change: dict[str, int], complaint: str) -> None:
    parts = {"exclusive": 900, "overhead": 60, "tombstoned": 30, "inline": 10}
    agreeing = StorageCounts(
        objects=1, logical_bytes=2000, account_total=1000, account_parts=parts, store_total=1000, store_parts=parts,
        backend_said=990, backend_listed=990, metrics_total=1000, header_total=970,
    )  # fmt: skip
    assert list(guards.disagreements(agreeing)) == []
    assert any(complaint in message for message in guards.disagreements(agreeing.model_copy(update=change)))

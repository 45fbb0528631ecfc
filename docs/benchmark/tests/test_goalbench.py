"""goalbench: a bound is held against the whole interval, nothing is left out in silence, and growth is fitted."""

from __future__ import annotations

import json
import mmap
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from goalbench import __main__ as program
from goalbench import cloud, codec, counts, encryption, gigabytes, limits, peer, replicas, served, size, table
from goalbench.goals import GOALS, Check, Found, Report, Size, line, of_line, verdict
from goalbench.seen import seen
from goalbench.served import BUCKETS, Load, Round, Served, Study, Timed, ask
from taxbench.progress import Reporter
from taxbench.prometheus import parse
from taxbench.records import MachineFacts, Noise
from taxbench.servers.target import TargetError
from taxbench.statistics import Interval
from taxbench.studies.bench import Content, StudyError

AT_MOST, AT_LEAST = Check("PUT", "ms", 0.25), Check("speed", "×", 0.8, at_least=True)


def found(*values: float, number: int = 1, name: str = "PUT") -> Found:
    median = float(np.median(values))
    low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
    return Found(line=number, name=name, interval=Interval(median=median, low=low, high=high, values=list(values)))


def report(measured: list[Found], growth: list[Size]) -> Report:
    machine = MachineFacts(cpu_model="One CPU", cpu_count=2, memory_bytes=1 << 30, kernel="6", os="linux")
    noise = Noise(steal_fraction=0.0, foreign_fraction=0.0, load_before=0.0)
    return Report(commit="abc", machine=machine, noise=noise, rounds=3, found=measured, growth=growth)


def one(value: float) -> Interval:
    return Interval(median=value, values=[value])


def test_who_wants_no_counts_needs_no_right_to_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(process: int) -> None:
        raise PermissionError(f"/proc/{process}/io")

    monkeypatch.setattr(served, "seen", refused)
    monkeypatch.setattr(served, "cpu_s", lambda _: 1.5)
    monkeypatch.setattr(served, "run_checked", lambda *_: "batch")
    server: Any = SimpleNamespace(process_ids=lambda: [7])
    pool: Any = None
    assert Served(server, pool).timed([]) == ("batch", 0.0)
    wanted: list[Timed] = []
    with pytest.raises(PermissionError):
        Served(server, pool, wanted).timed([])


@pytest.mark.parametrize(
    ("check", "values", "said"),
    [
        (AT_MOST, (0.20, 0.25), "met"),
        (AT_MOST, (0.20, 0.26), "unsure"),
        (AT_MOST, (0.26, 0.30), "not met"),
        (AT_MOST, (0.24,), "met"),
        (AT_LEAST, (0.80, 0.90), "met"),
        (AT_LEAST, (0.70, 0.90), "unsure"),
        (AT_LEAST, (0.70, 0.79), "not met"),
    ],
)
def test_a_goal_is_met_when_the_whole_interval_is(check: Check, values: tuple[float, ...], said: str) -> None:
    assert verdict(check, found(*values)) == said


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert verdict(AT_MOST, None) == verdict(AT_MOST, Found(line=1, name="PUT", why_not="no server")) == "not measured"


def test_the_table_has_every_number_of_all_fourteen_lines_and_says_why_one_is_missing() -> None:
    measured = [found(0.2, 0.3), Found(line=10, name="ratio", why_not="bsdiff is not installed")]
    rows = table.render(report(measured, [])).splitlines()[2:]
    assert [goal.number for goal in GOALS] == list(range(1, 15))
    assert len(rows) == sum(len(goal.checks) for goal in GOALS)
    assert rows[0].endswith("| 0.250 [0.200, 0.300] ms | ≤ 0.25 ms | unsure |")
    [tenth] = [row for row in rows if row.startswith("| 10 |")]
    assert tenth.endswith("| – | ≥ 1.2 × | not measured: bsdiff is not installed |")
    [eighth] = [row for row in rows if row.startswith("| 8 |")]
    assert eighth.endswith("| not measured: not asked for |")


def test_a_figure_that_doubles_with_the_objects_has_the_exponent_one_and_one_that_stays_has_none_to_speak_of() -> None:
    assert table.exponent([(10, 5.0), (100, 50.0), (1000, 500.0)]) == pytest.approx(1.0)
    assert table.exponent([(10, 4.0), (1000, 40.0)]) == pytest.approx(0.5)
    assert table.exponent([(10, 7.0), (1000, 7.0)]) == pytest.approx(0.0)
    assert table.exponent([(10, 7.0)]) is None
    assert table.exponent([(10, 0.0), (100, 1.0)]) is None


def test_growth_stands_in_the_order_of_objects_with_a_dash_where_a_size_lacks_a_figure() -> None:
    sizes = [
        Size(objects=1000, figures={"gc s": one(10)}),
        Size(objects=10, figures={"gc s": one(1), "RSS MB": one(9)}),
    ]
    rows = list(table.growth(sizes))
    assert rows[0] == "| objects | 10 | 1,000 | exponent |"
    assert rows[2:] == ["| gc s | 1.00 | 10.0 | 0.50 |", "| RSS MB | 9.00 | – | – |"]


def test_every_line_is_measured_by_one_study_or_says_where_it_is() -> None:
    by_studies = [number for study in program.ALL_STUDIES for number in study.numbers()]
    elsewhere = [9, 10, program.IDLE_LINE]
    assert sorted([*by_studies, *elsewhere]) == [goal.number for goal in GOALS]


def test_a_run_that_is_told_no_lines_measures_all_fourteen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []

    def run(_: object, wanted: set[int], __: object) -> tuple[Report, bool]:
        asked.append(wanted)
        return report([], []), True

    monkeypatch.setattr(program, "run", run)
    assert program.main(["--out", str(tmp_path)]) == 0
    assert asked == [set(range(1, 15))]


def test_a_study_that_fails_says_so_in_each_of_its_lines_and_leaves_the_others(tmp_path: Path) -> None:
    def measure(_: Round) -> Iterator[tuple[str, float]]:
        yield "cold", 0.9
        raise StudyError("the second upload was refused")

    study = Study("reads", measure, {"cold": (3, "cold"), "warm": (3, "warm"), "first": (4, "cold")})
    failed = program.studied(study, Path("none"), tmp_path, 2, Reporter(quiet=True))
    assert [(one.line, one.name, one.interval) for one in failed] == [
        (3, "cold", None),
        (3, "warm", None),
        (4, "cold", None),
    ]
    assert {one.why_not for one in failed} == {"the second upload was refused"}


def test_the_values_of_all_rounds_stand_under_one_number_and_a_round_has_a_seed_of_its_own(tmp_path: Path) -> None:
    def measure(round_: Round) -> Iterator[tuple[str, float]]:
        yield "PUT", float(round_.seed - program.SEED)

    [put] = program.studied(Study("small", measure, 1), Path("none"), tmp_path, 3, Reporter(quiet=True))
    assert put.interval is not None
    assert (put.line, put.name, put.interval.values) == (1, "PUT", [0.0, 1.0, 2.0])
    once = Study("small", measure, 1, rounds_max=1)
    [put] = program.studied(once, Path("none"), tmp_path, 3, Reporter(quiet=True))
    assert put.interval is not None and put.interval.values == [0.0]


def test_the_idle_line_is_that_of_the_largest_store_or_says_why_there_is_none() -> None:
    def of(objects: int, cpu: float) -> Size:
        return Size(objects=objects, figures={"idle CPU s in 10 s": one(cpu), "RSS × its bound": one(0.5)})

    idle = program.idle_of([of(10, 1), of(100, 2)], "")
    assert [(one.name, one.interval.median if one.interval else None) for one in idle] == [("CPU", 2.0), ("RSS", 0.5)]
    assert [one.why_not for one in program.idle_of([], "fill_store failed")] == ["fill_store failed"] * 2


def test_the_bound_of_memory_is_the_budget_and_a_tenth_and_64_bytes_for_each_object() -> None:
    assert size.bound_bytes(0) == 1.1 * size.MEMORY_BYTES_MAX
    assert size.bound_bytes(1_000_000) - size.bound_bytes(0) == 64_000_000


def test_listed_prefixes_are_ones_that_were_filled() -> None:
    assert {size.prefix(number, 3_000) for number in range(20)} == {f"fill/{n:06d}/" for n in range(3)}
    assert size.prefix(19, 10) == "fill/000000/"


def test_a_program_that_is_not_installed_leaves_its_line_unmeasured_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(codec, "run_ours", lambda *_: pytest.fail("measured although there is nothing to compare with"))
    monkeypatch.setattr(codec, "pairs", lambda _: [])
    [ratio] = program.alone(tmp_path / "bench_codec", {10}, tmp_path, 1, Reporter(quiet=True))
    assert (ratio.line, ratio.interval, ratio.why_not) == (10, None, "bsdiff is not installed")


def test_a_codec_that_is_not_built_is_said_by_its_name_alone(tmp_path: Path) -> None:
    with pytest.raises(codec.NotHereError, match=r"^(bench_codec is not built|zstd is not installed)$"):
        list(codec.against_zstd(tmp_path / "bench_codec", [], tmp_path))


def test_ratios_are_averaged_as_ratios() -> None:
    assert codec.mean([0.5, 2.0]) == pytest.approx(1.0)


def test_an_operation_has_its_kind_and_the_key_it_was_given(tmp_path: Path) -> None:
    content = Content.write(tmp_path / "c", b"content")
    asked = ask("delete", content, "delta", "a/b")
    assert (asked.kind, asked.bucket, asked.key, asked.size) == ("delete", "delta", "a/b", 7)


def test_the_command_refuses_a_line_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--lines", "15", "--out", str(tmp_path)]) == 2
    assert "there is no line 15" in capsys.readouterr().err
    with pytest.raises(KeyError):
        line(1).check("PATCH")


def test_a_run_writes_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_: Round) -> Iterator[tuple[str, float]]:
        for check in line(1).checks:
            yield check.name, 0.05

    binary = tmp_path / "deltaweir"
    binary.touch()
    monkeypatch.setattr(program, "ALL_STUDIES", (Study("small", measure, 1),))
    command = ["--lines", "1", "--sizes", "--rounds", "2", "--binary", str(binary), "--out", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    assert program.main(command) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "out" / "report.md").read_text()
    assert "| PUT | 0.05 [0.05, 0.05] ms | ≤ 0.25 ms | met |" in printed
    kept = Report.model_validate_json((tmp_path / "out" / "results.json").read_text())
    assert [of.interval.values for of in kept.found if of.interval] == [[0.05, 0.05]] * len(line(1).checks)
    assert all(one is not None for _, one in of_line(kept.found, line(1)))
    assert program.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 2


def test_what_versitygw_takes_beside_is_a_ratio_with_a_goal_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "small_requests", lambda _: iter([("PUT", 0.5), ("GET", 0.1)]))
    monkeypatch.setattr(peer, "requests_of", lambda *_: iter([("PUT", 0.25), ("GET", 0.2)]))
    monkeypatch.setattr(peer, "versitygw", lambda *_: nullcontext())
    figures = dict(peer.small_requests_of_both(Round(tmp_path, tmp_path, Load(), 1)))
    assert figures == {"PUT": 0.5, "GET": 0.1, "PUT / versitygw": 2.0, "GET / versitygw": 0.5}
    assert all(line(1).check(name).unit for name in figures)


def test_without_versitygw_its_lines_say_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "find_tool", lambda _: "")
    with pytest.raises(TargetError, match=r"tests/setup\.sh"), peer.versitygw(Round(tmp_path, tmp_path, Load(), 1), 1):
        pass


def test_the_load_is_one_that_every_client_has_a_share_of() -> None:
    load = Load()
    assert load.small >= 100 * load.clients and load.parted_bytes >= 2 * load.part_bytes
    assert {settings.compression for settings in BUCKETS.values()} == {"off", "delta"}


def test_a_cloud_bills_writes_and_listings_dearer_than_reads_and_deletions_not_at_all() -> None:
    def doors(**counts: int) -> str:
        name = "deltaweir_http_requests_total"
        lines = [f'{name}{{op="{op}",status="200"}} {count}' for op, count in counts.items()]
        return "\n".join([f"# TYPE {name} counter", *lines]) + "\n"

    before = parse(doors(PutObject=5, GetObject=7))
    after = parse(doors(PutObject=8, GetObject=9, HeadObject=1, ListObjectsV2=2, DeleteObjects=4))
    assert cloud.billed(before, after) == (5.0, 3.0, 4.0)
    row = cloud.Row("PUT", 1.0, 2.0, 9.0)
    assert row.dollars_per_million == pytest.approx(5.8)
    assert cloud.render([row]).splitlines()[-1] == "| PUT | 1.00 | 2.00 | 9.00 | 5.80 |"


def test_a_file_of_gigabytes_is_small_ones_in_a_row_whose_successors_change_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gigabytes, "SMALL_BYTES", 300_000)
    [small, *_] = gigabytes.files(1, "disk", 300_000)
    first, second, third = gigabytes.files(1, "disk", 900_000)
    assert first.startswith(small) and len(first) == 3 * len(small)
    pieces = [first[at : at + len(small)] for at in range(0, len(first), len(small))]
    assert len(set(pieces)) == 3
    assert {piece.count(0) for piece in pieces} == {small.count(0)}, "holes stay holes"

    def changed(one: bytes, other: bytes) -> set[int]:
        return {at % len(small) for at in range(0, len(one), 4096) if one[at : at + 4096] != other[at : at + 4096]}

    assert 0 < len(changed(first, second)) < len(changed(first, third)) < len(small) // 4096


def test_a_distance_holds_what_passes_and_counts_the_journeys() -> None:
    def answer(listener: socket.socket) -> None:
        with listener.accept()[0] as peer:
            while piece := peer.recv(100):
                peer.sendall(piece.upper())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        with replicas.Distance(listener.getsockname()[1], 0.001) as distance:
            with socket.create_connection(("127.0.0.1", distance.port), timeout=10) as client:
                for word in (b"a read", replicas.WRITING, b"two", b"three"):
                    client.sendall(word)
                    assert client.recv(100) == word.upper()
            assert distance.journeys == 3


def test_parts_of_the_largest_upload_repeat_and_differ_and_end_where_they_should() -> None:
    contents = limits.Contents(1)
    whole = b"".join(contents.stream(0, 3 * limits.MIB + 5))
    assert len(whole) == 3 * limits.MIB + 5
    assert contents.piece(16, limits.MIB) != contents.piece(0, limits.MIB), "stamped"
    assert contents.piece(16, limits.MIB)[8:4096] == contents.piece(0, limits.MIB)[8:4096]
    assert b"".join(contents.stream(0, 100)) == whole[:100]


def test_a_process_is_seen_to_touch_fresh_pages_and_to_write(tmp_path: Path) -> None:
    before = seen(os.getpid())
    with mmap.mmap(-1, 300 * mmap.PAGESIZE) as fresh, (tmp_path / "file").open("wb", buffering=0) as file:
        for page in range(300):
            fresh[page * mmap.PAGESIZE] = 1
        for _ in range(50):
            file.write(b"x")
    took = seen(os.getpid()).since(before)
    assert took.faults >= 300
    assert took.writes >= 50


def test_counts_are_medians_of_the_rounds_in_the_order_of_the_work() -> None:
    rounds = [(1.0, 2.0, 0.0, 0.0, 0.0, 0.0), (3.0, 9.0, 0.0, 0.0, 0.0, 0.0), (2.0, 4.0, 0.0, 0.0, 0.0, 0.0)]
    lines = counts.render({("PUT", 1): rounds, ("GET", 0): rounds[:1], ("PUT", 0): rounds[1:2]}).splitlines()
    assert [line.split(" | ")[:4] for line in lines[2:]] == [
        ["| PUT", "1", "3", "9"],
        ["| PUT", "2", "2", "4"],
        ["| GET", "1", "1", "2"],
    ]


def test_encryption_is_held_against_the_plain_bucket_of_the_same_rounds() -> None:
    def round_with(slow_s: float) -> encryption.Figures:
        wall = {"SSE-C": 1.0 + slow_s}
        return {(way, method): (wall.get(way, 1.0), 2.0) for way in encryption.WAYS for method in ("PUT", "GET")}

    lines = encryption.render([round_with(0.3), round_with(0.2)]).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| sealed bucket", "| SSE-S3", "| SSE-C", "| SSE-KMS"]
    assert lines[0].endswith("| 1.00 | 1.00 | 1.00 | 1.00 | met |")
    assert lines[2].endswith("| 0.83 | 1.00 | 0.83 | 1.00 | not met |"), "the fastest rounds are held together"

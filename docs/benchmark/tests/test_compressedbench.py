"""What is printed of a run over the store follows from its raw values."""

from __future__ import annotations

import dataclasses

import pytest
from compressedbench.figures import Pair, by_family, goals, line, of_plain, peer_share, render, speed_mb_s, stored_share

ONE = Pair(
    effort="auto",
    family="pypi",
    package="one",
    tuned=False,
    base_bytes=10_000_000,
    target_bytes=20_000_000,
    base_stored_bytes=10_000_000,
    stored_bytes=1_000_000,
    reason="similar-base",
    put_s=0.5,
    converter_cpu_s=2.0,
    plain_cold_s=0.1,
    plain_warm_s=0.05,
    get_cold_s=0.4,
    get_warm_s=0.2,
    range_cold_s=0.09,
    range_warm_s=0.01,
    peers={"xdelta3": 15_000_000, "bsdiff": None},
)
TWO = dataclasses.replace(
    ONE, family="npm", package="two", target_bytes=5_000_000, stored_bytes=4_000_000, range_cold_s=0.2, peers={}
)


def test_a_long_file_counts_for_what_it_is() -> None:
    assert stored_share([ONE, TWO]) == pytest.approx(5 / 25)
    assert speed_mb_s([ONE], "get_cold_s") == pytest.approx(50)
    assert speed_mb_s([ONE, TWO], "get_cold_s") == pytest.approx(25 / 0.8)


def test_speed_is_beside_that_of_the_object_before() -> None:
    assert of_plain([ONE], "cold") == pytest.approx(0.5)
    assert of_plain([ONE], "warm") == pytest.approx(100 / 200)


def test_a_program_that_gave_up_counts_for_nothing() -> None:
    assert peer_share([ONE, TWO], "xdelta3") == pytest.approx(0.75)
    assert peer_share([ONE, TWO], "bsdiff") is None
    assert line("pypi", [ONE]).count("–") == 2, "zstd was not there, bsdiff gave up"


def test_a_line_has_a_cell_for_every_head() -> None:
    told = render({"seed": 1, "build": "debug", "cores": 2, "peak_bytes": 2**20, "pairs": [], "failed": []})
    assert "| family |" not in told
    results = {"seed": 1, "build": "debug", "cores": 2, "peak_bytes": 2**28, "failed": []}
    told = render(results | {"pairs": [ONE.as_json(), TWO.as_json()]})
    assert len({row.count("|") for row in told.splitlines() if row.startswith("|")}) == 1
    assert "256 MiB" in told
    assert "| sum | 2 | 25.0 | 20.0 % | 100.0 % | 25 | 160 |" in told


def test_each_effort_has_a_table_and_goals_of_its_own_and_a_line_beside_the_others() -> None:
    results = {"seed": 1, "build": "debug", "cores": 2, "peak_bytes": 2**28, "failed": []}
    high = dataclasses.replace(ONE, effort="high", stored_bytes=400_000)
    told = render(results | {"pairs": [ONE.as_json(), high.as_json()]})
    assert "| auto | 1 | 20.0 | 5.0 % |" in told and "| high | 1 | 20.0 | 2.0 % |" in told
    assert told.count("successors take at most 15 % in sum") == 2
    assert "## By effort" not in render(results | {"pairs": [ONE.as_json()]})


def test_goals_are_met_or_not_by_the_worst() -> None:
    assert list(by_family([ONE, TWO])) == ["pypi", "npm"]
    assert [met for _, met in goals([ONE])] == [True, True, False, True, True, True]
    told = goals([ONE, TWO])
    assert [met for _, met in told] == [False, False, False, True, False, True]
    assert "npm 80.0 %" in told[1][0]
    assert "200 ms (two)" in told[4][0]


def test_what_was_not_measured_is_named() -> None:
    failed = [{"family": "go", "package": "three", "error": "OSError"}]
    told = render({"seed": 1, "build": "debug", "cores": 2, "peak_bytes": 1, "pairs": [], "failed": failed})
    assert "- go three: OSError" in told

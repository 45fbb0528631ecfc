"""The table of negative cases tells the truth: each number once, each test where it says."""

from __future__ import annotations

import pytest

from threats import CASES, REASON, REASONS_MAX, TABLE_OF_REQUESTS, cases, exists, read, reasons


def test_every_number_stands_in_the_table_once() -> None:
    assert list(cases()) == list(range(1, CASES + 1))
    with pytest.raises(ValueError, match="twice"):
        read("1 open\n1 open\n")


@pytest.mark.parametrize("number", [number for number, tests in cases().items() if tests not in ([], [REASON])])
def test_the_tests_of_a_case_are_there(number: int) -> None:
    assert [test for test in cases()[number] if not exists(test)] == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert not exists("tests/threats/test_threats.py::test_that_nobody_wrote")
    assert not exists("tests/nowhere.py::test_a")
    assert not exists(f"{TABLE_OF_REQUESTS}::C999")
    assert exists("tests/threats/test_threats.py::test_a_test_that_is_not_there_is_noticed")


def test_few_cases_have_a_reason_in_the_place_of_a_test_and_each_is_told() -> None:
    excused = {number for number, tests in cases().items() if tests == [REASON]}
    assert excused == reasons()
    assert len(excused) <= REASONS_MAX

"""Runs the simulator: three engines on a made-up machine, a seed at a time, and each mutant until it is found."""

from __future__ import annotations

from typing import Any

import pytest

from campaigns.in_process import OPTIMIZED, lines_of
from campaigns.sizes import size

SEEDS = size(1000)
ROUGH_SEEDS = size(200)
POINT_SEEDS = size(4)
"""Runs of some 1,400 points each, at each of which a process dies."""


def run_told(test: str, **variables: object) -> dict[str, dict[str, Any]]:
    """Runs a test of the simulator; the lines that it told, by campaign."""
    lines = lines_of(*OPTIMIZED, "--test", test, arguments=("--test-threads=1",), timeout_s=7000, variables=variables)
    return {line["campaign"]: line for line in lines}


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_thousand_seeds_lose_nothing_and_each_mutant_is_found() -> None:
    lines = run_told("simulate", SIMULATOR_SEEDS=SEEDS, SIMULATOR_ROUGH_SEEDS=ROUGH_SEEDS)
    assert len(lines) == 2
    usual, rough = lines["simulator"], lines["simulator, rough weather"]
    assert usual["seeds"] == SEEDS and usual["mutants"] >= 2
    assert usual["mutant_detected"] and usual["failovers"] > 0
    assert rough["seeds"] == ROUGH_SEEDS


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_death_at_each_call_loses_nothing_and_the_mutant_is_found() -> None:
    (line,) = run_told("points", POINTS_SEEDS=POINT_SEEDS, POINTS_EVERY=1).values()
    assert line["deaths"] == line["points"] > 1000 * POINT_SEEDS and line["mutant_detected"]

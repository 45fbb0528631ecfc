"""Runs the simulator: three engines on a made-up machine, a seed at a time, and each mutant until it is found."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from campaigns.sizes import size
from outside.features import FEATURES

ROOT = Path(__file__).resolve().parent.parent.parent
SEEDS = size(1000)
ROUGH_SEEDS = size(200)
POINT_SEEDS = size(4)
"""Runs of some 1,400 points each, at each of which a process dies."""


def run_told(test: str, timeout_s: float, **variables: int) -> tuple[dict[str, dict[str, Any]], str]:
    """Runs a test of the simulator; the lines that it told, by campaign, and all that it said if it failed."""
    cargo = ["cargo", "test", "--locked", "-q", "--workspace", *FEATURES, "--test", test]
    run = subprocess.run(
        [*cargo, "--", "--nocapture", "--test-threads=1"],
        cwd=ROOT,
        env=os.environ | {name: str(value) for name, value in variables.items()},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    told = [line[line.index('{"') :] for line in run.stdout.splitlines() if '{"' in line and '"campaign"' in line]
    lines = {line["campaign"]: line for line in map(json.loads, told)}
    for line in lines.values():
        print(json.dumps(line))
    return lines, "" if run.returncode == 0 else run.stdout + run.stderr


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_thousand_seeds_lose_nothing_and_each_mutant_is_found() -> None:
    lines, trouble = run_told("simulate", 7000, SIMULATOR_SEEDS=SEEDS, SIMULATOR_ROUGH_SEEDS=ROUGH_SEEDS)
    assert not trouble and len(lines) == 2, trouble
    usual, rough = lines["simulator"], lines["simulator, rough weather"]
    assert usual["seeds"] == SEEDS and usual["mutants"] >= 2
    assert usual["mutant_detected"] and usual["failovers"] > 0
    assert rough["seeds"] == ROUGH_SEEDS


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_death_at_each_call_loses_nothing_and_the_mutant_is_found() -> None:
    lines, trouble = run_told("points", 7000, POINTS_SEEDS=POINT_SEEDS, POINTS_EVERY=1)
    assert not trouble and len(lines) == 1, trouble
    [line] = lines.values()
    assert line["deaths"] == line["points"] > 1000 * POINT_SEEDS and line["mutant_detected"]

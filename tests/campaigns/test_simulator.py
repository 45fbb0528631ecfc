"""Runs the simulator: three engines on a made-up machine, a seed at a time, and each mutant until it is found."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from campaigns.sizes import size

ROOT = Path(__file__).resolve().parent.parent.parent
SEEDS = size(1000)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_thousand_seeds_lose_nothing_and_each_mutant_is_found() -> None:
    cargo = ["cargo", "test", "--locked", "-q", "--workspace", "--all-features", "--test", "simulate"]
    run = subprocess.run(
        [*cargo, "--", "--nocapture", "--test-threads=1"],
        cwd=ROOT,
        env=os.environ | {"SIMULATOR_SEEDS": str(SEEDS)},
        capture_output=True,
        text=True,
        timeout=7000,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"')]
    for line in lines:
        print(json.dumps(line))
    assert run.returncode == 0 and len(lines) == 1, run.stdout + run.stderr
    assert lines[0]["seeds"] == SEEDS and lines[0]["mutants"] >= 2
    assert lines[0]["mutant_detected"] and lines[0]["failovers"] > 0

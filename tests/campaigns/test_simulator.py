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
ROUGH_SEEDS = size(200)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_thousand_seeds_lose_nothing_and_each_mutant_is_found() -> None:
    cargo = ["cargo", "test", "--locked", "-q", "--workspace", "--all-features", "--test", "simulate"]
    run = subprocess.run(
        [*cargo, "--", "--nocapture", "--test-threads=1"],
        cwd=ROOT,
        env=os.environ | {"SIMULATOR_SEEDS": str(SEEDS), "SIMULATOR_ROUGH_SEEDS": str(ROUGH_SEEDS)},
        capture_output=True,
        text=True,
        timeout=7000,
        check=False,
    )
    told = [line[line.index('{"') :] for line in run.stdout.splitlines() if '{"' in line and '"campaign"' in line]
    lines = {line["campaign"]: line for line in map(json.loads, told)}
    for line in lines.values():
        print(json.dumps(line))
    assert run.returncode == 0 and len(lines) == 2, run.stdout + run.stderr
    usual, rough = lines["simulator"], lines["simulator, rough weather"]
    assert usual["seeds"] == SEEDS and usual["mutants"] >= 2
    assert usual["mutant_detected"] and usual["failovers"] > 0
    assert rough["seeds"] == ROUGH_SEEDS

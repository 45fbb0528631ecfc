"""Campaigns B11 and B12 at full length: damage in each of 10,000 stored units, and in one with its dependents."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
UNITS = 10_000
TRIALS = 200


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_one_of_ten_thousand_damaged_units_is_found() -> None:
    command = ["cargo", "test", "--locked", "--all-features", "-q", "-p", "proxy", "--test", "it", "scrub::"]
    run = subprocess.run(
        [*command, "--", "--nocapture"],
        cwd=ROOT,
        env=os.environ | {"SCRUB_UNITS": str(UNITS), "SCRUB_TRIALS": str(TRIALS)},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"')]
    print(*lines, sep="\n")
    assert run.returncode == 0, run.stdout + run.stderr
    assert [line["campaign"] for line in lines] == ["B11", "B12"]
    for line in lines:
        assert line["detected"] == line["ops"] >= UNITS and line["wrong"] == 0 and line["affected_is_exact"]

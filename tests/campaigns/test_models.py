"""Walks through the models of collector, job leases and journal: more than a million states each, and each mutant."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_states_of_each_protocol_break_no_property() -> None:
    run = subprocess.run(
        ["cargo", "test", "--locked", "-q", "-p", "models", "--test", "walk", "--", "--nocapture", "--test-threads=1"],
        cwd=ROOT,
        env=os.environ | {"DELTAWEIR_MODELS_WHOLE": "1"},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    # A dot for the test before stands in front of a line.
    told = [line.lstrip(".") for line in run.stdout.splitlines()]
    lines: list[dict[str, Any]] = [json.loads(line) for line in told if line.startswith('{"')]
    for line in lines:
        print(json.dumps(line))
    assert run.returncode == 0 and len(lines) == 3, run.stdout + run.stderr
    for line in lines:
        assert line["whole"] and line["ops"] > 1_000_000
        assert (line["wrong"], line["mutant_detected"]) == (0, True)
        assert line["mutants"] >= 5

"""Campaign B10 at full length: 100,000 operations over a store that fails in nine ways."""

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
OPS = size(100_000)
NOTHING = (
    "lost",
    "torn",
    "resurrected",
    "wrong",
    "error_read_as_absent",
    "unexpected",
    "overwritten",
    "orphans",
    "panics",
)


def campaign(ops: int, seed: int) -> dict[str, Any]:
    """Runs the campaign of proxy/tests/it/campaign.rs and gives its line."""
    command = ["cargo", "test", "--workspace", "--locked", *FEATURES, "-q", "--test", "it", "campaign::"]
    run = subprocess.run(
        [*command, "--", "--nocapture"],
        cwd=ROOT,
        env=os.environ | {"CAMPAIGN_OPS": str(ops), "CAMPAIGN_SEED": str(seed)},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith('{"')]
    assert run.returncode == 0 and len(lines) == 1, run.stdout + run.stderr
    line: dict[str, Any] = json.loads(lines[0])
    return line


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_operations_over_a_failing_store_lose_nothing() -> None:
    line = campaign(OPS, seed=1)
    print(json.dumps(line))
    assert line["ops"] >= OPS and line["mutant_detected"]
    assert {name: line[name] for name in NOTHING} == dict.fromkeys(NOTHING, 0)
    assert all(count >= OPS // 1000 for count in line["faults"].values()), line["faults"]

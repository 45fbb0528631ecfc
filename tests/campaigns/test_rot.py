"""Campaigns B11 and B12 at full length: damage in each of 10,000 stored units, and in one with its dependents.

And rot of the catalog: a thousand of its bits, one at a time, half of them in ids of blobs.
"""

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
UNITS = size(10_000)
TRIALS = size(200)
FLIPS = size(1000, share=0.1)
"""A tenth of them among the long tests, all of them in `make campaigns`."""


def lines_of(*tests: str, **environment: object) -> list[dict[str, Any]]:
    """The JSON lines that tests of the workspace print, with the features of `make test`."""
    run = subprocess.run(
        ["cargo", "test", "--workspace", "--locked", *FEATURES, "-q", *tests, "--", "--nocapture"],
        cwd=ROOT,
        env=os.environ | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"')]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_one_of_ten_thousand_damaged_units_is_found() -> None:
    lines = lines_of("--test", "it", "scrub::", SCRUB_UNITS=UNITS, SCRUB_TRIALS=TRIALS)
    print(*map(json.dumps, lines), sep="\n")
    assert [line["campaign"] for line in lines] == ["B11", "B12"]
    for line in lines:
        assert line["detected"] == line["ops"] >= UNITS and line["wrong"] == 0 and line["affected_is_exact"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_flipped_bits_of_the_catalog_delete_no_live_blob_and_give_no_wrong_byte() -> None:
    (line,) = lines_of("--lib", "tests::rot::a_flipped_bit", ROT_FLIPS=FLIPS)
    print(json.dumps(line))
    assert (line["ops"], line["in_ids"]) == (FLIPS, FLIPS // 2)
    assert (line["lost"], line["wrong"]) == (0, 0)
    assert line["refused_to_collect"] > 0 and line["mutant_detected"]

"""A hundred thousand damaged containers, each taken through units and back: no wrong byte, no panic, bounded cost.

The crate does it to a thousand of them in every run. Bytes are flipped, cut, repeated, overwritten and mixed with those
of other containers, whole ones are put into others, and bombs among them. Every third lies in the plain text of a
stream. Work (plain text, searches) and memory are
counted, and compared with what the containers cost before they were damaged. Two bugs on purpose must be noticed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess

import pytest

from campaigns.sizes import size
from outside.content import MIB
from outside.server import ROOT

MUTATED = size(100_000)
CARGO = ("cargo", "test", "--quiet", "--locked", "--package", "deflate-view", "--test", "bounds")
TEST = "mutated_containers_come_back_at_a_bounded_cost_and_bugs_are_noticed"


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_mutated_containers_come_back_or_stay_raw() -> None:
    subprocess.run([*CARGO, "--no-run"], cwd=ROOT, check=True)

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (512 * MIB, 512 * MIB))

    done = subprocess.run(
        [*CARGO, "--", "--exact", TEST, "--nocapture"],
        cwd=ROOT,
        env=os.environ | {"DELTAWEIR_MUTATED_CONTAINERS": str(MUTATED)},
        capture_output=True,
        text=True,
        preexec_fn=bound,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "1 passed" in done.stdout
    (line,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    print(json.dumps(line))
    assert (line["ops"], line["wrong"], line["panics"]) == (MUTATED, 0, 0)
    assert line["memory_bytes_beyond_max"] <= 32 * MIB and line["mutant_detected"]

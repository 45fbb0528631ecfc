"""A hundred thousand damaged containers, each taken through units and back: no wrong byte, no panic, bounded cost.

The crate does it to a thousand of them in every run. Bytes are flipped, cut, repeated, overwritten and mixed with those
of other containers, whole ones are put into others, and bombs among them. Every third lies in the plain text of a
stream. Work (plain text, searches) and memory are
counted, and compared with what the containers cost before they were damaged. Two bugs on purpose must be noticed.
"""

from __future__ import annotations

import resource

import pytest

from campaigns.in_process import lines_of
from campaigns.sizes import size
from outside.content import MIB

MUTATED = size(100_000)
TEST = "mutated_containers_come_back_at_a_bounded_cost_and_bugs_are_noticed"


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_mutated_containers_come_back_or_stay_raw() -> None:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (512 * MIB, 512 * MIB))

    (line,) = lines_of(
        *("-p", "deflate-view", "--test", "bounds"),
        arguments=("--exact", TEST),
        timeout_s=7000,
        preexec=bound,
        variables={"DELTAWEIR_MUTATED_CONTAINERS": MUTATED},
    )
    assert (line["ops"], line["wrong"], line["panics"]) == (MUTATED, 0, 0)
    assert line["memory_bytes_beyond_max"] <= 32 * MIB and line["mutant_detected"]

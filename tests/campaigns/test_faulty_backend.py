"""Campaign B10 at full length: 100,000 operations over a store that fails in nine ways."""

from __future__ import annotations

import pytest

from campaigns.in_process import OPTIMIZED, lines_of
from campaigns.sizes import size

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


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_operations_over_a_failing_store_lose_nothing() -> None:
    (line,) = lines_of(*OPTIMIZED, "--test", "it", "campaign::", variables={"CAMPAIGN_OPS": OPS, "CAMPAIGN_SEED": 1})
    assert line["ops"] >= OPS and line["mutant_detected"]
    assert {name: line[name] for name in NOTHING} == dict.fromkeys(NOTHING, 0)
    assert all(count >= OPS // 1000 for count in line["faults"].values()), line["faults"]

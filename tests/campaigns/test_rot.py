"""Campaigns B11 and B12 at full length: damage in each of 10,000 stored units, and in one with its dependents.

And rot of the catalog: a thousand of its bits, one at a time, half of them in ids of blobs.
"""

from __future__ import annotations

import pytest

from campaigns.in_process import OPTIMIZED, WORKSPACE, lines_of
from campaigns.sizes import size

UNITS = size(10_000)
TRIALS = size(200)
FLIPS = size(1000, share=0.1)
"""A tenth of them among the long tests, all of them in `make campaigns`."""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_one_of_ten_thousand_damaged_units_is_found() -> None:
    lines = lines_of(*OPTIMIZED, "--test", "it", "scrub::", variables={"SCRUB_UNITS": UNITS, "SCRUB_TRIALS": TRIALS})
    told = {line["campaign"]: line for line in lines}
    assert told.pop("a part of a scrub")["mutant_detected"]
    assert sorted(told) == ["B11", "B12"]
    for line in told.values():
        assert line["detected"] == line["ops"] >= UNITS and line["wrong"] == 0 and line["affected_is_exact"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_flipped_bits_of_the_catalog_delete_no_live_blob_and_give_no_wrong_byte() -> None:
    (line,) = lines_of(*WORKSPACE, "--lib", "tests::rot::a_flipped_bit", variables={"ROT_FLIPS": FLIPS})
    assert (line["ops"], line["in_ids"]) == (FLIPS, FLIPS // 2)
    assert (line["lost"], line["wrong"]) == (0, 0)
    assert line["refused_to_collect"] > 0 and line["mutant_detected"]

"""Walks through the models of collector, job leases and journal: more than a million states each, and each mutant."""

from __future__ import annotations

import pytest

from campaigns.in_process import lines_of


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_states_of_each_protocol_break_no_property() -> None:
    walk = ("-p", "models", "--test", "walk")
    lines = lines_of(*walk, arguments=("--test-threads=1",), variables={"DELTAWEIR_MODELS_WHOLE": 1})
    assert len(lines) == 3
    for line in lines:
        assert line["whole"] and line["ops"] > 1_000_000
        assert (line["wrong"], line["mutant_detected"]) == (0, True)
        assert line["mutants"] >= 5

"""The page of reliability says what its results say."""

from __future__ import annotations

from campaigns.promises import MENDED, is_there
from campaigns.reliability import CAMPAIGNS, PAGE, page, results


def test_the_page_is_made_of_the_results_that_are_committed() -> None:
    assert PAGE.read_text() == page(results()), "make reliability-page"


def test_no_campaign_is_told_as_passed_that_was_not_run() -> None:
    campaign = next(campaign for campaign in CAMPAIGNS if not campaign.is_whole)
    ended = {"share": 0.1, "pytest": "1 skipped in 0.1s", "commit": "0", "lines": []}
    told = page([{"campaign": campaign.name, "outcome": "not run", **ended}])
    assert f"| {campaign.name} |" in told and "**not run**: 1 skipped" in told
    assert told.count("not run") == len(CAMPAIGNS)
    lines = [{"lost": 0, "wrong": 2, "ops": 7, "mutant_detected": False}, {"wrong": 1, "ops": 5}]
    told = page([{"campaign": campaign.name, "outcome": "passed", **ended, "lines": lines}])
    assert "| 12 | 10 % | lost 0, wrong 3 | 0 of 1 |" in told


def test_each_test_that_the_page_names_is_there() -> None:
    assert [test for _, _, tests in MENDED for test in tests if not is_there(test)] == []

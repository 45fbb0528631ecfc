"""The negative cases of the threat model by number, and the tests that prove them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = 141
TABLE_OF_REQUESTS = "tests/e2e/bad_requests.py"
REASON = "reason"
REASONS_MAX = 8


def read(table: str) -> dict[int, list[str]]:
    """The tests of each case; an open one has none, one with a reason has the word."""
    cases: dict[int, list[str]] = {}
    for line in table.splitlines():
        if not line or line.startswith("#"):
            continue
        number, *tests = line.split()
        if int(number) in cases:
            raise ValueError(f"case {number} stands there twice")
        cases[int(number)] = [] if tests == ["open"] else tests
    return cases


def cases() -> dict[int, list[str]]:
    """The table of this folder."""
    return read((Path(__file__).parent / "cases.txt").read_text())


def reasons() -> set[int]:
    """The numbers for which docs/threat-model.md says why they have no test."""
    model = (ROOT / "docs" / "threat-model.md").read_text()
    section = model.partition("\n## Without a test\n")[2].partition("\n## ")[0]
    return {int(number) for number in re.findall(r"^\| (\d+) \| ", section, re.MULTILINE)}


def exists(test: str) -> bool:
    """Whether a test is where the table says: a function in a file, or entries in the table of bad requests."""
    path, separator, name = test.partition("::")
    if not separator or not (ROOT / path).is_file():
        return False
    text = (ROOT / path).read_text()
    if path == TABLE_OF_REQUESTS:
        return f'"{name} ' in text
    function = re.compile(rf"(?:^|\n)[ \t]*(?:pub )?(?:async )?(?:fn|def) {re.escape(name)}[(<]")
    return function.search(text) is not None

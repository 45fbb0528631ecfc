"""The negative cases of the threat model by number, and the tests that prove them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = 141
TABLE_OF_REQUESTS = "tests/e2e/bad_requests.py"


def read(table: str) -> dict[int, list[str]]:
    """The tests of each case; an open one has none."""
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


def exists(test: str) -> bool:
    """Whether a test is where the table says: a function in a file, or entries in the table of bad requests."""
    path, separator, name = test.partition("::")
    if not separator or not (ROOT / path).is_file():
        return False
    text = (ROOT / path).read_text()
    if path == TABLE_OF_REQUESTS:
        return f'"{name} ' in text
    function = re.compile(rf"(?:^|\n)[ \t]*(?:async )?(?:fn|def) {re.escape(name)}\(")
    return function.search(text) is not None

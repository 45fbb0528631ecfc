"""Prints how many of the negative cases have a test: `threats: N/141`."""

from __future__ import annotations

import sys

from threats import CASES, REASON, cases, exists, reasons


def main() -> int:
    """1 when the table names a test that is not there, or leaves a number out."""
    table = cases()
    told = reasons()
    tested = {number: tests for number, tests in table.items() if tests != [REASON]}
    missing = [f"{number} {test}" for number, tests in tested.items() for test in tests if not exists(test)]
    missing += [f"{number} has no reason in docs/threat-model.md" for number in table.keys() - tested.keys() - told]
    missing += [f"{number} is not in the table" for number in range(1, CASES + 1) if number not in table]
    for line in missing:
        print(f"threats: {line}: no such test")
    proven = sum(bool(tests) and all(map(exists, tests)) for tests in tested.values())
    excused = len((table.keys() - tested.keys()) & told)
    print(f"threats: {proven + excused}/{CASES}, {excused} of them by a reason instead of a test")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

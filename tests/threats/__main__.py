"""Prints how many of the negative cases have a test: `threats: N/141`."""

from __future__ import annotations

import sys

from threats import CASES, cases, exists


def main() -> int:
    """1 when the table names a test that is not there, or leaves a number out."""
    table = cases()
    missing = [f"{number} {test}" for number, tests in table.items() for test in tests if not exists(test)]
    missing += [f"{number} is not in the table" for number in range(1, CASES + 1) if number not in table]
    for line in missing:
        print(f"threats: {line}: no such test")
    proven = sum(bool(tests) and all(map(exists, tests)) for tests in table.values())
    print(f"threats: {proven}/{CASES}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""Cells that were not measured again stay as they were, and the report says which code each came from."""

from __future__ import annotations

from codecbench.__main__ import merged
from codecbench.codecs import Result
from codecbench.report import measured_at


def cell(codec: str, pair: str, delta_bytes: int, commit: str) -> Result:
    return Result(codec, pair, "native", 1000, 1000, delta_bytes, commit=commit)


def test_added_cells_replace_their_own_and_keep_the_others() -> None:
    earlier = [cell("bsdiff", "duckdb", 30, "old"), cell("max", "esbuild", 50, "old"), cell("max", "duckdb", 40, "old")]
    after = merged(earlier, [cell("max", "duckdb", 35, "new"), cell("fast", "duckdb", 60, "new")])
    assert [(result.pair, result.codec, result.delta_bytes) for result in after] == [
        ("duckdb", "fast", 60),
        ("duckdb", "max", 35),
        ("duckdb", "bsdiff", 30),
        ("esbuild", "max", 50),
    ]
    assert measured_at(after) == "- cells measured at: new (2), old (2)"

"""Lines 1 and 2 with versitygw beside: seconds of one machine say little about another, a ratio of the same round does.

versitygw flushes nothing, and keeps no checksum of what it stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goalbench.served import (
    PLAIN,
    Figures,
    Round,
    Served,
    Study,
    ask,
    beside,
    families,
    parts_of,
    per_gigabyte,
    requests_of,
    small_requests,
    warmed_put,
)
from taxbench.servers.gateway import find_tool
from taxbench.servers.target import TargetError
from taxbench.servers.versitygw import Versitygw


def against_peer(figure: str) -> str:
    """What the ratio to versitygw is called."""
    return f"{figure} / versitygw"


@contextmanager
def versitygw(round_: Round, object_bytes_max: int) -> Iterator[Served]:
    """It runs until the end of the block.

    # Errors
    `TargetError` where it is not installed.
    """
    command = find_tool("versitygw")
    if not command:
        raise TargetError("versitygw is not installed: tests/setup.sh does that")
    data = round_.place / "versitygw"
    data.mkdir()
    with beside(Versitygw(command, data), data, round_, round_.load.clients, object_bytes_max) as served:
        yield served


def small_requests_of_both(round_: Round) -> Figures:
    """Line 1."""
    ours = dict(small_requests(round_))
    yield from ours.items()
    with versitygw(round_, round_.load.small_bytes) as served:
        for figure, theirs in requests_of(served, round_):
            yield against_peer(figure), ours[figure] / theirs


def parts_of_both(round_: Round) -> Figures:
    """Line 2; it has no deltas."""
    old, new = families(round_)
    ours = dict(parts_of(round_, old, new))
    yield from ours.items()
    with versitygw(round_, 2 * round_.load.parted_bytes) as served:
        yield against_peer("PUT"), ours["PUT"] / warmed_put(served, round_.load, old)
        gets = [ask("get", content, PLAIN, key) for content, key in old]
        yield against_peer("GET cold"), ours["GET cold"] / per_gigabyte(served, gets)


STUDIES = (
    Study("4 KiB requests", small_requests_of_both, 1),
    Study("parts of 8 MiB", parts_of_both, 2),
)

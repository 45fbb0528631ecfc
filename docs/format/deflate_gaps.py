"""Gaps in streams that their container cuts into pieces, as docs/format/deflate-view-v1.md has them (§3.2). The decoder
`deflate_view_v1.py` stands on this file."""

from __future__ import annotations

from collections.abc import Callable

from deflate_streams import MalformedError

GAP_RUNS_MAX = GAPPED_MAX = 1 << 16
PIECE_LEN_MAX = (1 << 31) - 1

Gaps = list[tuple[int, int, int]]


def read_gaps(number: Callable[[int], int], most: int, first_may_be_empty: bool) -> Gaps:
    """A table: so many times a piece and a gap, all within `most` bytes."""
    gaps: Gaps = []
    total = 0
    for run in range(number(GAP_RUNS_MAX)):
        piece, gap, times = (number(PIECE_LEN_MAX) for _ in range(3))
        total += (piece + gap) * times
        empty = first_may_be_empty and run == 0 and times == 1
        if 0 in (gap, times) or (piece == 0 and not empty) or total > most:
            raise MalformedError("gaps where none can be")
        gaps.append((piece, gap, times))
    if not gaps:
        raise MalformedError("a table of no gaps")
    return gaps


def put_gaps(gaps: Gaps, joined: bytes) -> bytes:
    """Bytes with what stands in their gaps, which is at their end."""
    gaps_len = sum(gap * times for _, gap, times in gaps)
    at, gap_at, out = 0, len(joined) - gaps_len, bytearray()
    for piece, gap, times in gaps:
        for _ in range(times):
            out += joined[at : at + piece] + joined[gap_at : gap_at + gap]
            at, gap_at = at + piece, gap_at + gap
    return bytes(out + joined[at : len(joined) - gaps_len])


def without_gaps(gaps: Gaps, data: bytes) -> bytes:
    """A stream, from its bytes with gaps."""
    at, out = 0, bytearray()
    for piece, gap, times in gaps:
        for _ in range(times):
            if at >= len(data):
                break
            out += data[at : at + piece]
            at += piece + gap
    return bytes(out + data[at:])


def gaps_before(gaps: Gaps, joined: int) -> int:
    """Bytes of gaps before the byte that has so many bytes of the stream before it."""
    total = passed = 0
    for piece, gap, times in gaps:
        now = min((joined - passed) // piece, times)
        total += now * gap
        passed += times * piece
        if now < times:
            break
    return total


def read_gapped(number: Callable[[int], int]) -> dict[int, Gaps]:
    """The gaps of streams by their places (§12.1)."""
    gapped: dict[int, Gaps] = {}
    place = 0
    for stream in range(number(GAPPED_MAX)):
        further = number((1 << 63) - 1)
        place += further
        gapped[place] = read_gaps(number, 1 << 62, False)
        if (stream > 0 and further == 0) or place >= 1 << 62:
            raise MalformedError("gaps of streams that do not ascend")
    if sum(len(gaps) for gaps in gapped.values()) > GAP_RUNS_MAX:
        raise MalformedError("too many runs of gaps")
    return gapped

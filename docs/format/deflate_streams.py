"""Deflate streams and their encoders, as docs/format/deflate-view-v1.md needs them: inflating with the parse kept (§3),
zlib's codes (§8), replayed encoders (§7). The decoder `deflate_view_v1.py` stands on this file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW_LEN = 32768

LENGTH_BASE = (
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    13,
    15,
    17,
    19,
    23,
    27,
    31,
    35,
    43,
    51,
    59,
    67,
    83,
    99,
    115,
    131,
    163,
    195,
    227,
    258,
)
LENGTH_EXTRA = (0,) * 8 + (1,) * 4 + (2,) * 4 + (3,) * 4 + (4,) * 4 + (5,) * 4 + (0,)
DISTANCE_BASE = tuple(1 + sum(1 << (max(at, 2) // 2 - 1) for at in range(symbol)) for symbol in range(30))
DISTANCE_EXTRA = tuple(max(symbol // 2 - 1, 0) for symbol in range(30))
LENGTH_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
FIXED = ([8] * 144 + [9] * 112 + [7] * 24 + [8] * 8, [5] * 30)


class MalformedError(Exception):
    """Something a decoder must refuse (§9)."""


@dataclass(frozen=True)
class Match:
    at: int
    length: int
    distance: int

    @property
    def end(self) -> int:
        return self.at + self.length


def codes(lengths: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Canonical codes by symbol: (bits, first bit lowest; length)."""
    if sum(1 << (15 - length) for length in lengths if length) > 1 << 15:
        raise MalformedError("more codes than there are")
    out: dict[int, tuple[int, int]] = {}
    code = 0
    for length in range(1, 16):
        for symbol, own in enumerate(lengths):
            if own == length:
                out[symbol] = (int(f"{code:0{length}b}"[::-1], 2), length)
                code += 1
        code <<= 1
    return out


# --- A deflate stream with its parse (for bases) ---


class BitReader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.bit = data, at * 8

    def take(self, count: int) -> int:
        value = 0
        for at in range(count):
            byte = self.bit >> 3
            if byte >= len(self.data):
                raise MalformedError("a stream ends early")
            value |= (self.data[byte] >> (self.bit & 7) & 1) << at
            self.bit += 1
        return value

    def symbol(self, table: dict[tuple[int, int], int]) -> int:
        code = 0
        for length in range(1, 16):
            code |= self.take(1) << (length - 1)
            if (code, length) in table:
                return table[code, length]
        raise MalformedError("a code without a meaning")


def inflate(data: bytes, start: int, wanted: int) -> tuple[bytes, list[Match]]:
    """The first `wanted` plain bytes (or more) of the stream at `start`, and its matches."""
    bits = BitReader(data, start)
    out = bytearray()
    matches: list[Match] = []
    last = False
    while not last and len(out) < wanted:
        last = bool(bits.take(1))
        kind = bits.take(2)
        if kind == 0:
            bits.bit = -(-bits.bit // 8) * 8
            length = bits.take(16)
            if bits.take(16) != length ^ 0xFFFF:
                raise MalformedError("a stored length and its complement differ")
            out += data[bits.bit // 8 : bits.bit // 8 + length]
            bits.bit += length * 8
            continue
        if kind == 3:
            raise MalformedError("a block of the reserved kind")
        lengths = FIXED if kind == 1 else read_lengths(bits)
        litlen, distance = ({code: symbol for symbol, code in codes(part).items()} for part in lengths)
        while (symbol := bits.symbol(litlen)) != 256:
            if symbol < 256:
                out.append(symbol)
                continue
            length = LENGTH_BASE[symbol - 257] + bits.take(LENGTH_EXTRA[symbol - 257])
            symbol = bits.symbol(distance)
            far = DISTANCE_BASE[symbol] + bits.take(DISTANCE_EXTRA[symbol])
            if far > len(out):
                raise MalformedError("a match of what is not there")
            matches.append(Match(len(out), length, far))
            for _ in range(length):
                out.append(out[-far])
    if len(out) < wanted:
        raise MalformedError("a stream that is shorter than it was")
    return bytes(out), matches


def read_lengths(bits: BitReader) -> tuple[list[int], list[int]]:
    litlen, distance, count = 257 + bits.take(5), 1 + bits.take(5), 4 + bits.take(4)
    own = [0] * 19
    for symbol in LENGTH_ORDER[:count]:
        own[symbol] = bits.take(3)
    table = {code: symbol for symbol, code in codes(own).items()}
    lengths: list[int] = []
    while len(lengths) < litlen + distance:
        symbol = bits.symbol(table)
        if symbol < 16:
            lengths.append(symbol)
        elif symbol == 16:
            lengths += [lengths[-1]] * (3 + bits.take(2))
        else:
            lengths += [0] * (3 + bits.take(3) if symbol == 17 else 11 + bits.take(7))
    return lengths[:litlen], lengths[litlen:]


# --- What zlib would have written (§8) ---


def smaller(left: tuple[int, int, int], right: tuple[int, int, int]) -> bool:
    return left[:2] <= right[:2]


def sink(heap: list[tuple[int, int, int]], at: int) -> None:
    node = heap[at]
    while 2 * at < len(heap):
        child = 2 * at
        if child + 1 < len(heap) and smaller(heap[child + 1], heap[child]):
            child += 1
        if smaller(node, heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = node


def zlib_tree(counts: Sequence[int], longest: int) -> tuple[list[int], int]:
    """Code lengths by symbol, and the last symbol that has one. A node is (count, depth, number)."""
    size = len(counts)
    heap = [(0, 0, 0)] + [(count, 0, symbol) for symbol, count in enumerate(counts) if count]
    last = max((symbol for symbol, count in enumerate(counts) if count), default=-1)
    while len(heap) < 3:
        made_up = 0
        if last < 2:
            last += 1
            made_up = last
        heap.append((1, 0, made_up))
    for at in range((len(heap) - 1) // 2, 0, -1):
        sink(heap, at)
    parents: dict[int, int] = {}
    joined: list[int] = []
    number = size
    while True:
        least = heap[1]
        tail = heap.pop()
        if len(heap) > 1:
            heap[1] = tail
        sink(heap, 1)
        second = heap[1]
        joined += [least[2], second[2]]
        parents[least[2]] = parents[second[2]] = number
        heap[1] = (least[0] + second[0], max(least[1], second[1]) + 1, number)
        number += 1
        sink(heap, 1)
        if len(heap) <= 2:
            break
    return bounded(joined, parents, size, longest), last


def bounded(joined: list[int], parents: dict[int, int], size: int, longest: int) -> list[int]:
    lengths = [0] * size
    depths: dict[int, int] = {}
    at_depth = [0] * (longest + 2)
    over = 0
    for node in reversed(joined):
        depth = depths.get(parents[node], 0) + 1
        over += depth > longest
        depths[node] = min(depth, longest)
        if node < size:
            lengths[node] = depths[node]
            at_depth[depths[node]] += 1
    if over == 0:
        return lengths
    while over > 0:
        depth = max(depth for depth in range(1, longest) if at_depth[depth])
        at_depth[depth] -= 1
        at_depth[depth + 1] += 2
        at_depth[longest] -= 1
        over -= 2
    leaves = iter([node for node in joined if node < size])
    for depth in range(longest, 0, -1):
        for _ in range(at_depth[depth]):
            lengths[next(leaves)] = depth
    return lengths


def zlib_run(rest: Sequence[int], last: int | None) -> tuple[int, int]:
    """The next symbol of the code lengths and its extra value."""
    value = rest[0]
    equal = 0
    while equal < len(rest) and equal < 138 and rest[equal] == value:
        equal += 1
    if value == 0:
        if equal >= 11:
            return 18, equal - 11
        return (17, equal - 3) if equal >= 3 else (0, 0)
    if equal >= 3 and last == value:
        return 16, min(equal, 6) - 3
    return value, 0


def run_count(run: tuple[int, int]) -> int:
    return {16: 3, 17: 3, 18: 11}.get(run[0], 1) + run[1]


RUN_EXTRA = {16: 2, 17: 3, 18: 7}


# --- Replayed encoders (§7) ---

GREEDY, LAZY, GO = range(3)
REPLAYS = (
    (GREEDY, 4, 4, 8, 4),
    (GREEDY, 4, 5, 16, 8),
    (GREEDY, 4, 6, 32, 32),
    *((style, *tuning) for style in (LAZY, GO) for tuning in (
        (4, 4, 16, 16), (8, 16, 32, 32), (8, 16, 128, 128), (8, 32, 128, 256), (32, 128, 258, 1024),
        (32, 258, 258, 4096),
    )),
)  # fmt: skip

Step = tuple[int, int]  # length and distance; a literal is (1, 0)
LITERAL: Step = (1, 0)
NOTHING: Step = (0, 0)


def common(text: bytes, left: int, right: int, most: int) -> int:
    count = 0
    while count < most and text[left + count] == text[right + count]:
        count += 1
    return count


class Searcher:
    def __init__(self, replay: tuple[int, int, int, int, int]) -> None:
        self.style, self.good, self.lazy, self.nice, self.chain = replay
        self.heads: dict[int, int] = {}
        self.before: dict[int, int] = {}

    def begin(self, start: int, end: int, from_start: bool) -> None:
        self.start, self.end, self.from_start = start, end, from_start
        self.entered, self.steps_entered = start, 0
        self.known: tuple[int, Step] | None = None

    def guess(self, text: bytes, at: int, steps: list[Match], after_literal: bool) -> Step:
        if self.style == GREEDY:
            self.enter_greedily(text, at, steps)
            return self.search(text, at, 2) or LITERAL
        least = 3 if self.style == GO else 2
        known, self.known = self.known, None
        found: Step | None = None
        if known and known[0] == at and after_literal:
            found = known[1]
        elif after_literal and at != self.start:
            waiting = self.look(text, at - 1, least)
            if waiting and waiting[0] < self.lazy:
                found = self.look(text, at, waiting[0])
        if found is None:
            found = self.look(text, at, least)
        if found is None:
            return LITERAL
        if found[0] < self.lazy:
            better = self.look(text, at + 1, found[0])
            if better and better[0] > found[0]:
                self.known = (at + 1, better)
                return LITERAL
        return found

    def look(self, text: bytes, at: int, least: int) -> Step | None:
        for place in range(max(self.entered, at - WINDOW_LEN), at):
            self.enter(text, place)
        self.entered = max(self.entered, at)
        if self.style == GO:
            found = self.search_as_go(text, at)
            return found if found and found[0] > least else None
        found = self.search(text, at, least)
        return None if found and found[0] == 3 and found[1] > 4096 else found

    def hash(self, text: bytes, at: int) -> int:
        if self.style == GO:
            return (int.from_bytes(text[at : at + 4], "big") * 0x1E35A7BD & 0xFFFF_FFFF) >> 15
        return (text[at] << 10 ^ text[at + 1] << 5 ^ text[at + 2]) & 0x7FFF

    def enter(self, text: bytes, at: int) -> None:
        if at + (4 if self.style == GO else 3) <= self.end:
            value = self.hash(text, at)
            self.before[at] = self.heads.get(value, -1)
            self.heads[value] = at

    def enter_greedily(self, text: bytes, at: int, steps: list[Match]) -> None:
        place = max(self.entered, at - WINDOW_LEN)
        while self.steps_entered < len(steps) and steps[self.steps_entered].end <= place:
            self.steps_entered += 1
        while place < at:
            step = steps[self.steps_entered] if self.steps_entered < len(steps) else None
            if step is None or step.at > place:
                self.enter(text, place)
                place += 1
                continue
            is_long = step.length > self.lazy
            if not is_long or place == step.at:
                self.enter(text, place)
            place = step.end if is_long else place + 1
            self.steps_entered += place >= step.end
        self.entered = max(self.entered, at)

    def search(self, text: bytes, at: int, least: int) -> Step | None:
        room = min(self.end - at, 258)
        if room < 3 or least >= room:
            return None
        tries = self.chain // 4 if least >= self.good else self.chain
        first = self.start + self.from_start
        farthest = max(at - (WINDOW_LEN - 262), 0)
        return self.walk(text, at, room, least, tries, max(first, farthest + 1), max(first, farthest), WINDOW_LEN)

    def search_as_go(self, text: bytes, at: int) -> Step | None:
        room = min(self.end - at, 258)
        if room < 4:
            return None
        first = max(self.start, at - WINDOW_LEN)
        return self.walk(text, at, room, 3, self.chain, first, first, 4096)

    def walk(
        self, text: bytes, at: int, room: int, least: int, tries: int, near: int, far: int, reach: int
    ) -> Step | None:
        place = self.heads.get(self.hash(text, at), -1)
        best, limit = (least, 0), far
        while place >= limit and place >= 0 and tries > 0:
            if place < at:
                last = best[0]
                if text[place + last - 1 : place + last + 1] == text[at + last - 1 : at + last + 1]:
                    length = common(text, place, at, room)
                    if length > last and (length > 4 or at - place <= reach):
                        best = (length, at - place)
                        if length >= min(self.nice, room):
                            break
                tries -= 1
                limit = near
            before = self.before[place]
            if before < 0 or place - before > WINDOW_LEN:
                break
            place = before
        return best if best[1] else None

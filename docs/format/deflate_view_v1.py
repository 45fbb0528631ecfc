#!/usr/bin/env python3
"""An independent decoder of deflate-view-v1 (docs/format/deflate-view-v1.md).

A stored unit and its base object to the unit's bytes:

    deflate_view_v1.py BASE UNIT > BYTES

Plain and strict rather than fast: it shares no code with the crate `deflate-view`, and both must agree on every vector
in tests/vectors/deflate-view/. The section numbers in comments are those of the document.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import delta_v1
import zstandard
from deflate_gaps import Gaps, gaps_before, put_gaps, read_gapped, read_gaps, without_gaps
from deflate_streams import (
    DISTANCE_BASE,
    DISTANCE_EXTRA,
    FIXED,
    LENGTH_BASE,
    LENGTH_EXTRA,
    LENGTH_ORDER,
    LITERAL,
    REPLAYS,
    RUN_EXTRA,
    WINDOW_LEN,
    MalformedError,
    Match,
    Searcher,
    Step,
    codes,
    common,
    inflate,
    run_count,
    zlib_run,
    zlib_tree,
)

TEXT_LEN_MAX = UNIT_LEN_MAX = 4 << 20
FOOTPRINT_LEN_MAX = 32 << 20
PARTS_MAX = 1 << 16
LEAD_BITS_MAX = 4096
TAIL_LEN_MAX = 1024
UNITS_MAX, OPENINGS_MAX = 1 << 12, 1 << 16
OPENING_LEN_MAX, OPENED_LEN_MAX = 8 << 20, 128 << 20
NESTED_LEN_MAX = 8 << 20
BLOCK_SYMBOLS = 16383

# --- Numbers that an arithmetic coder reads (§4) ---


@dataclass
class Model:
    one: int = 1 << 15
    seen: int = 0


class Models(dict[tuple[object, ...], Model]):
    """Every model by name, made when it is first asked for."""

    def __missing__(self, name: tuple[object, ...]) -> Model:
        self[name] = Model()
        return self[name]


class Decoder:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.low, self.high, self.value = 0, 0xFFFF_FFFF, 0
        self.models = Models()
        for _ in range(4):
            self.shift()

    def shift(self) -> None:
        byte = self.data[self.at] if self.at < len(self.data) else 0
        self.value = (self.value << 8 | byte) & 0xFFFF_FFFF
        self.at += 1

    def narrow(self, probability: int) -> int:
        middle = self.low + ((self.high - self.low) * probability >> 16)
        bit = int(self.value <= middle)
        if bit:
            self.high = middle
        else:
            self.low = middle + 1
        while (self.low ^ self.high) >> 24 == 0:
            self.low = self.low << 8 & 0xFFFF_FFFF
            self.high = (self.high << 8 | 255) & 0xFFFF_FFFF
            self.shift()
        return bit

    def bit(self, *name: object) -> int:
        model = self.models[name]
        bit = self.narrow(min(max(model.one, 16), 65536 - 16))
        rate = (model.seen + 1).bit_length()
        if bit:
            model.one += (65535 - model.one) >> rate
        else:
            model.one -= model.one >> rate
        model.seen = min(model.seen + 1, 30)
        return bit

    def plain(self, count: int) -> int:
        value = 0
        for _ in range(count):
            value = value << 1 | self.narrow(1 << 15)
        return value

    def tree(self, bits: int, *name: object) -> int:
        node = 1
        for _ in range(bits):
            node = node << 1 | self.bit(*name, node)
        return node - (1 << bits)

    def number(self, *name: object) -> int:
        bits = min(self.tree(6, *name, "bits"), 32)
        if bits < 2:
            return bits
        number = node = 1
        below = bits - 1
        for _ in range(min(below, 2)):
            bit = self.bit(*name, bits, node)
            node = node << 1 | bit
            number = number << 1 | bit
            below -= 1
        return number << below | self.plain(below)

    def check(self) -> None:
        if self.at > len(self.data):
            raise MalformedError("a parse ends early")

    def finish(self) -> None:
        self.check()
        if self.at < len(self.data):
            raise MalformedError("bytes after a parse")


# --- Headers (§8) ---


@dataclass
class Header:
    litlen: list[int]
    distance: list[int]
    own: list[int] = field(default_factory=list)
    own_count: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list)


def read_header(coder: Decoder, litlen_counts: list[int], distance_counts: list[int]) -> Header:
    litlen, last = zlib_tree(litlen_counts, 15)
    distance, last_distance = zlib_tree(distance_counts, 15)
    if coder.bit("same lengths"):
        header = Header(litlen[: max(last + 1, 257)], distance[: last_distance + 1])
    else:
        counts = 257 + coder.tree(5, "litlen count"), 1 + coder.tree(5, "distance count")
        expected = (litlen + [0] * 2, distance + [0] * 2)
        header = Header(
            [coder.tree(4, "length", 0, expected[0][at]) for at in range(counts[0])],
            [coder.tree(4, "length", 1, expected[1][at]) for at in range(counts[1])],
        )
    if len(header.litlen) > 286:
        raise MalformedError("too many lengths")
    read_runs(coder, header)
    counts_of_runs = [0] * 19
    for symbol, _ in header.runs:
        counts_of_runs[symbol] += 1
    own, _ = zlib_tree(counts_of_runs, 7)
    if coder.bit("same length lengths"):
        header.own, header.own_count = own, max(max(at for at in range(19) if own[LENGTH_ORDER[at]]) + 1, 4)
    else:
        header.own_count = 4 + coder.tree(4, "length count")
        header.own = [0] * 19
        header.own_count = min(header.own_count, 19)
        for symbol in LENGTH_ORDER[: header.own_count]:
            header.own[symbol] = coder.tree(3, "length length", own[symbol])
    if any(header.own[symbol] == 0 for symbol, _ in header.runs):
        raise MalformedError("a symbol without a code")
    return header


def read_runs(coder: Decoder, header: Header) -> None:
    if coder.bit("same runs"):
        for alphabet in (header.litlen, header.distance):
            at, last = 0, None
            while at < len(alphabet):
                run = zlib_run(alphabet[at:], last)
                last = alphabet[at]
                header.runs.append(run)
                at += run_count(run)
        return
    lengths = header.litlen + header.distance
    at, previous = 0, None
    while at < len(lengths):
        likely = zlib_run(lengths[at:], previous)
        if coder.bit("run as expected", likely[0]):
            run = likely
        else:
            kind = coder.tree(2, "run kind")
            symbol = lengths[at] if kind == 0 else 15 + kind
            run = (symbol, coder.plain(RUN_EXTRA.get(symbol, 0)))
        value = previous if run[0] == 16 else 0 if run[0] > 16 else run[0]
        covered = lengths[at : at + run_count(run)]
        if len(covered) < run_count(run) or any(length != value for length in covered):
            raise MalformedError("a run of lengths that are not equal")
        previous = value
        header.runs.append(run)
        at += run_count(run)


# --- Steps (§6) ---

NO_BASE, BASE_LITERAL, SAME_MATCH, BASE_MATCH, INSIDE, NO_MATCH = range(6)


@dataclass(frozen=True)
class Run:
    at: int
    length: int
    base: int
    equal: bool


@dataclass
class Base:
    data: bytes = b""
    matches: list[Match] = field(default_factory=list)
    opened: list[tuple[int, int]] = field(default_factory=list)


class Steps:
    def __init__(self, coder: Decoder, text: bytes, base: Base, runs: list[Run], replay: int) -> None:
        self.coder, self.text, self.base, self.runs = coder, text, base, runs
        self.run_starts = [run.at for run in runs]
        self.match_ends = [match.end for match in base.matches]
        self.opened_starts = [start for start, _ in base.opened]
        self.searcher = Searcher(REPLAYS[replay - 1]) if replay else None
        self.history = self.replay_history = self.streak = 0

    def begin(self, start: int, end: int, from_start: bool) -> None:
        self.start, self.end = start, end
        if self.searcher:
            self.searcher.begin(start, end, from_start)

    def predict(self, at: int) -> tuple[int, Step]:
        number = bisect_right(self.run_starts, at) - 1
        if number < 0 or at >= self.runs[number].at + self.runs[number].length:
            return NO_BASE, LITERAL
        run = self.runs[number]
        place = run.base + at - run.at
        opened = bisect_right(self.opened_starts, place) - 1
        if opened < 0 or place >= self.base.opened[opened][1]:
            return NO_BASE, LITERAL
        nearest = bisect_right(self.match_ends, place)
        if nearest == len(self.base.matches) or self.base.matches[nearest].at > place:
            return BASE_LITERAL, LITERAL
        match = self.base.matches[nearest]
        if match.distance > at - self.start:
            return NO_MATCH, LITERAL
        begins = match.at == place
        run_end, end = run.at + run.length, at + match.length
        if begins and run.equal and at - match.distance >= run.at and end <= self.end and (
            end < run_end or (end == run_end and (match.length == 258 or end == self.end))
        ):  # fmt: skip
            return SAME_MATCH, (match.length, match.distance)
        length = common(self.text, at - match.distance, at, min(258, self.end - at))
        if length < 3:
            return NO_MATCH, LITERAL
        return BASE_MATCH if begins else INSIDE, (length, match.distance)

    def decode(self, at: int, limit: int, count: int | None, matches: list[Match]) -> int:
        """Appends the matches of a block from `at` on, of `count` steps or up to `limit`; returns where it ends."""
        after_literal = at > self.start and (not matches or matches[-1].end < at)
        run: int | None = None
        done = 0
        while done < count if count is not None else at < limit:
            if run is None and self.streak >= 16:
                run = self.coder.number("run")
            reason, step = self.predict(at)
            replayed = reason == NO_BASE and self.searcher is not None
            if replayed and self.searcher:
                step = self.searcher.guess(self.text, at, matches, after_literal)
            if run:
                run -= 1
            elif run is None and self.flag(reason, step):
                self.history = self.history << 1 | 1
                self.streak += 1
            else:
                run = None
                self.coder.check()
                second: Step | None = None
                if self.searcher and not replayed:
                    second = self.searcher.guess(self.text, at, matches, after_literal)
                step = self.wrong(reason, step, None if second == step else second)
            if step != LITERAL:
                if step[1] > at - self.start:
                    raise MalformedError("a match before its stream")
                matches.append(Match(at, *step))
            at += step[0]
            if at > limit:
                raise MalformedError("a step past its text")
            after_literal = step == LITERAL
            done += 1
        if run:
            raise MalformedError("a run past its block")
        return at

    def flag(self, reason: int, step: Step) -> int:
        kind = 0 if step == LITERAL else 1 if step[0] == 3 else 2 if step[0] == 4 else 3 if step[0] <= 8 else 4
        return self.coder.bit("right", reason, kind, self.history % 16)

    def wrong(self, reason: int, first: Step, second: Step | None) -> Step:
        self.history <<= 1
        self.streak = 0
        coder = self.coder
        if second is not None:
            right = coder.bit("replay right", reason, second == LITERAL, self.replay_history % 16)
            self.replay_history = self.replay_history << 1 | right
            if right:
                return second
        if LITERAL not in (first, second) and coder.bit("literal", reason):
            return LITERAL
        known = (0, 0)
        for place, guess in enumerate((first, second)):
            if not known[0] and guess is not None and guess != LITERAL and coder.bit("same distance", place):
                known = (place + 1, guess[1])
        length = 3 + coder.tree(8, "match length", known[0])
        if known[0]:
            return length, known[1]
        symbol = min(coder.tree(5, "distance", min(length - 3, 3)), 29)
        return length, DISTANCE_BASE[symbol] + coder.plain(DISTANCE_EXTRA[symbol])


# --- A unit's parse (§5) ---


class BitWriter:
    def __init__(self) -> None:
        self.bits: list[int] = []

    def put(self, value: int, count: int) -> None:
        self.bits += [value >> at & 1 for at in range(count)]

    def padding(self) -> int:
        return -len(self.bits) % 8

    def put_bytes(self, data: bytes) -> None:
        for byte in data:
            self.put(byte, 8)

    def done(self) -> bytes:
        return bytes(
            sum(bit << k for k, bit in enumerate(self.bits[at : at + 8])) for at in range(0, len(self.bits), 8)
        )


class ParseDecoder:
    def __init__(self, parse: bytes, text: bytes, base: Base, runs: list[Run], object_len: int) -> None:
        self.coder = Decoder(parse)
        replay = self.coder.plain(8)
        if replay > len(REPLAYS):
            raise MalformedError("an unknown encoder")
        self.text, self.object_len = text, object_len
        self.steps = Steps(self.coder, text, base, runs, replay)
        self.out = BitWriter()
        self.kind, self.symbols = 2, BLOCK_SYMBOLS
        # Which bytes of the text are bytes of the object as they are: position in either, length.
        self.raws: list[tuple[int, int, int]] = []

    def decode(self) -> bytes:
        at, first = 0, True
        while len(self.out.bits) < self.object_len * 8:
            at = self.item(at, first)
            first = False
        self.coder.finish()
        if at != len(self.text) or len(self.out.bits) != self.object_len * 8:
            raise MalformedError("a text and its object do not fit")
        return self.out.done()

    def item(self, at: int, first: bool) -> int:
        coder = self.coder
        context = lead = tail = length = 0
        inside = in_block = ends_inside = 0
        object_len = 0
        is_part = coder.bit("part", first)
        if is_part:
            length = coder.number("plain length")
            inside = coder.bit("starts inside") if first else 0
            if inside:
                context, lead, in_block = coder.number("context"), coder.number("lead"), coder.bit("in block")
            ends_inside = coder.bit("ends inside")
            if ends_inside:
                tail, object_len = coder.number("tail"), coder.number("object length")
        else:
            length = coder.number("raw length")
        coder.check()
        end = at + context + length + tail
        if context > WINDOW_LEN or lead > LEAD_BITS_MAX or tail > TAIL_LEN_MAX or end > len(self.text):
            raise MalformedError("an item past its text")
        if not is_part:
            if length == 0 or len(self.out.bits) + length * 8 > self.object_len * 8:
                raise MalformedError("an item past its object")
            self.note_raw(at, len(self.out.bits) // 8, length)
            self.out.put_bytes(self.text[at:end])
            return end
        object_end = len(self.out.bits) // 8 + object_len
        for _ in range(lead):
            self.out.put(coder.plain(1), 1)
        self.steps.begin(at, end, not inside)
        self.blocks(at + context, at + context + length, not in_block, object_end if ends_inside else None)
        return end

    def note_raw(self, at: int, object_at: int, length: int) -> None:
        if self.raws:
            last_at, last_object, last_length = self.raws[-1]
            if (last_at + last_length, last_object + last_length) == (at, object_at):
                self.raws[-1] = (last_at, last_object, last_length + length)
                return
        self.raws.append((at, object_at, length))

    def blocks(self, place: int, own_end: int, written: bool, object_end: int | None) -> None:
        matches: list[Match] = []
        last = False
        while not last and not (object_end is not None and len(self.out.bits) >= object_end * 8):
            place, last = self.block(place, own_end, written, object_end is not None, matches)
            written = True
            if len(self.out.bits) // 8 > self.object_len + LEAD_BITS_MAX:
                raise MalformedError("a part past its object")
        if place != own_end:
            raise MalformedError("a part that ends before its text")
        if object_end is None:
            padding = self.coder.plain(7) if self.coder.bit("padded") else 0
            self.out.put(padding, self.out.padding())
            return
        if object_end > self.object_len or len(self.out.bits) + self.out.padding() < object_end * 8:
            raise MalformedError("a part and its object do not fit")
        self.out.put(0, self.out.padding())
        del self.out.bits[object_end * 8 :]

    def block(self, at: int, own_end: int, written: bool, may_end: bool, matches: list[Match]) -> tuple[int, bool]:
        coder, out = self.coder, self.out
        kind = coder.tree(2, "kind", self.kind)
        last = bool(coder.bit("last", kind == 0))
        length = padding = 0
        symbols: int | None = None
        if kind == 0:
            padding = coder.plain(7) if coder.bit("padded") else 0
            length = coder.number("stored length")
        elif not coder.bit("end", 0, last):
            symbols = self.symbols if coder.bit("end", 1, last) else coder.number("symbols")
        coder.check()
        self.kind = kind
        if symbols is not None and not last:
            self.symbols = symbols
        if written:
            out.put(int(last) | kind << 1, 3)
        if kind == 3:
            raise MalformedError("a block of the reserved kind")
        if kind == 0:
            return self.stored(at, own_end, length, padding, written, may_end), last
        return self.coded(kind, at, own_end, symbols, written, may_end, matches), last

    def stored(self, at: int, own_end: int, length: int, padding: int, written: bool, may_end: bool) -> int:
        if length > 0xFFFF:
            raise MalformedError("a stored block of impossible length")
        if written:
            self.out.put(padding, self.out.padding())
            self.out.put(length, 16)
            self.out.put(length ^ 0xFFFF, 16)
        if self.out.padding():
            raise MalformedError("stored bytes inside a byte")
        here = min(length, own_end - at)
        if here < length and not may_end:
            raise MalformedError("a stored block past its text")
        self.out.put_bytes(self.text[at : at + here])
        return at + here

    def coded(
        self, kind: int, at: int, own_end: int, symbols: int | None, written: bool, may_end: bool, matches: list[Match]
    ) -> int:
        first = len(matches)
        end = self.steps.decode(at, own_end, symbols, matches)
        own = matches[first:]
        spelled = spell(self.text, at, end, own)
        litlen_counts, distance_counts = [0] * 286, [0] * 30
        litlen_counts[256] = 1
        for symbol, _, _, far, _, _ in spelled:
            litlen_counts[symbol] += 1
            if far is not None:
                distance_counts[far] += 1
        header = Header(*FIXED)
        if kind == 2:
            header = read_header(self.coder, litlen_counts, distance_counts)
            if written:
                self.write_header(header)
        litlen, distance = codes(header.litlen), codes(header.distance)
        needed = [symbol for symbol, count in enumerate(litlen_counts) if count]
        needed_distances = [symbol for symbol, count in enumerate(distance_counts) if count]
        if any(symbol not in litlen for symbol in needed) or any(symbol not in distance for symbol in needed_distances):
            raise MalformedError("a symbol without a code")
        for symbol, extra, extra_bits, far, far_extra, far_bits in spelled:
            self.out.put(*litlen[symbol])
            if far is not None:
                self.out.put(extra, extra_bits)
                self.out.put(*distance[far])
                self.out.put(far_extra, far_bits)
        if symbols is not None or not may_end:
            self.out.put(*litlen[256])
        return end

    def write_header(self, header: Header) -> None:
        own = codes(header.own)
        self.out.put(len(header.litlen) - 257, 5)
        self.out.put(len(header.distance) - 1, 5)
        self.out.put(header.own_count - 4, 4)
        for symbol in LENGTH_ORDER[: header.own_count]:
            self.out.put(header.own[symbol], 3)
        for symbol, extra in header.runs:
            self.out.put(*own[symbol])
            self.out.put(extra, RUN_EXTRA.get(symbol, 0))


Spelled = tuple[int, int, int, int | None, int, int]


def spell(text: bytes, at: int, end: int, matches: list[Match]) -> list[Spelled]:
    """Every step as symbol, extra bits, distance symbol, its extra bits."""
    out: list[Spelled] = []
    for match in matches:
        out += [(byte, 0, 0, None, 0, 0) for byte in text[at : match.at]]
        symbol = 28 if match.length == 258 else bisect_right(LENGTH_BASE[:28], match.length) - 1
        far = bisect_right(DISTANCE_BASE, match.distance) - 1
        extra, far_extra = match.length - LENGTH_BASE[symbol], match.distance - DISTANCE_BASE[far]
        out.append((257 + symbol, extra, LENGTH_EXTRA[symbol], far, far_extra, DISTANCE_EXTRA[far]))
        at = match.end
    return out + [(byte, 0, 0, None, 0, 0) for byte in text[at:end]]


# --- A stored unit (§3) ---


class UnitReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise MalformedError("a unit ends early")
        self.at += 1
        return self.data[self.at - 1]

    def number(self, most: int = (1 << 63) - 1) -> int:
        value = 0
        for at in range(9):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                if byte == 0 and at > 0:
                    raise MalformedError("a number is not minimal")
                if value > most:
                    raise MalformedError("a number is too large")
                return value
        raise MalformedError("a number is too long")


@dataclass(frozen=True)
class Part:
    plain: bool
    place: int
    plain_at: int
    length: int
    # Of a nested stream: where it lies in the plain text of the outer one. Its length is 0 for the others.
    nested_at: int = 0
    nested_len: int = 0

    @property
    def opened(self) -> tuple[int, int]:
        """Which plain bytes of the stream at `place` it is read from."""
        if self.nested_len:
            return self.nested_at, self.nested_at + self.nested_len
        return self.plain_at, self.plain_at + self.length


def read_parts(reader: UnitReader, form: int) -> list[Part]:
    parts: list[Part] = []
    place = total = 0
    for _ in range(reader.number(PARTS_MAX)):
        head = reader.number()
        place += head >> 2
        kind = head & 3
        nested_at = nested_len = plain_at = 0
        if kind == 3:
            if form not in (2, 4):
                raise MalformedError("a part of unknown kind")
            nested_at, nested_len = reader.number(), reader.number(NESTED_LEN_MAX)
            plain_at = reader.number(NESTED_LEN_MAX)
            total += nested_len + plain_at
            if nested_len == 0:
                raise MalformedError("a nested stream of no bytes")
        elif kind == 2:
            plain_at = reader.number()
        if kind == 2 and plain_at == 0:
            raise MalformedError("a number in the wrong form")
        length = reader.number(FOOTPRINT_LEN_MAX)
        total += length
        if length == 0 or total > FOOTPRINT_LEN_MAX:
            raise MalformedError("a part of impossible length")
        parts.append(Part(kind > 0, place, plain_at, length, nested_at, nested_len))
    return parts


def open_parts(parts: list[Part], read: Callable[[int, int], bytes], whole: bytes, gapped: dict[int, Gaps]) -> Base:
    """The base: the parts' bytes one after another, the matches in them, and which of them are plain text."""
    base = Base()
    data = bytearray()
    for part in parts:
        start = len(data)
        if not part.plain:
            data += read(part.place, part.length)
            continue
        end = part.plain_at + part.length
        stream, place = whole, part.place
        if part.place in gapped:
            stream, place = without_gaps(gapped[part.place], whole[part.place :]), 0
        if part.nested_len:
            until = part.nested_at + part.nested_len
            outer, _ = inflate(stream, place, until)
            if len(outer) < until:
                raise MalformedError("a part past its stream")
            plain, matches = inflate(outer[part.nested_at : until], 0, end)
            if len(plain) < end:
                raise MalformedError("a part past its stream")
        else:
            plain, matches = inflate(stream, place, end)
        data += plain[part.plain_at : end]
        for match in matches:
            at, stop = max(match.at, part.plain_at), min(match.end, end)
            if at < stop:
                base.matches.append(Match(at - part.plain_at + start, stop - at, match.distance))
        base.opened.append((start, len(data)))
    base.data = bytes(data)
    return base


def runs_of(delta: bytes, footprint: bytes, text_len: int) -> list[Run]:
    """Which text came from which bytes of the footprint (§5.1)."""
    reader = delta_v1.Reader(delta)
    form = reader.take(1)[0]
    if form == delta_v1.COPY:
        return [Run(0, text_len, reader.number(), True)]
    count = reader.number()
    streams = [delta_v1.read_stream(reader, 4 * count) for _ in range(3)]
    runs: list[Run] = []
    for copy in delta_v1.read_copies(count, streams, text_len, len(footprint)):
        if copy.gap_is_sub and copy.gap_len:
            runs.append(Run(copy.gap_start, copy.gap_len, copy.source - copy.gap_len, False))
        if copy.copy_len:
            runs.append(Run(copy.copy_start, copy.copy_len, copy.source, True))
    return runs


@dataclass(frozen=True)
class Head:
    form: int
    object_len: int
    outer_len: int
    text_len: int
    gaps: Gaps

    @property
    def nested(self) -> bool:
        return self.form in (2, 4)


def read_head(reader: UnitReader) -> Head:
    form = reader.byte()
    if form not in (1, 2, 3, 4):
        raise MalformedError("a unit of unknown form")
    object_len = reader.number(UNIT_LEN_MAX)
    outer_len = reader.number(TEXT_LEN_MAX) if form in (2, 4) else 1
    text_len = reader.number(TEXT_LEN_MAX)
    if 0 in (object_len, outer_len, text_len):
        raise MalformedError("a unit of nothing")
    gaps = read_gaps(reader.number, object_len, True) if form > 2 else []
    return Head(form, object_len, outer_len, text_len, gaps)


def outer_runs(raws: list[tuple[int, int, int]], runs: list[Run]) -> list[Run]:
    """The runs of the text that a nested parse gave (§3.1)."""
    out: list[Run] = []
    for at, outer_at, length in raws:
        for run in runs:
            start, end = max(at, run.at), min(at + length, run.at + run.length)
            if start < end:
                out.append(Run(outer_at + start - at, end - start, run.base + start - run.at, run.equal))
    return out


def decode(base_object: bytes, unit: bytes, gapped: dict[int, Gaps] | None = None) -> bytes:
    """The unit's bytes of the object; raises MalformedError for whatever must be refused. `gapped` has the gaps of the
    base's streams by their places."""
    reader = UnitReader(unit)
    head = read_head(reader)
    parts = read_parts(reader, head.form)
    nested_len = reader.number(len(unit)) if head.nested else 0
    delta_len = reader.number(len(unit))
    delta, rest = unit[reader.at : reader.at + delta_len], unit[reader.at + delta_len :]
    nested, parse = rest[:nested_len], rest[nested_len:]
    if len(delta) < delta_len or len(nested) < nested_len:
        raise MalformedError("a unit ends early")
    text_len = head.text_len

    def read(at: int, length: int) -> bytes:
        if at + length > len(base_object):
            raise MalformedError("a part past its base")
        return base_object[at : at + length]

    base = open_parts(parts, read, base_object, gapped or {})
    try:
        text = delta_v1.decode(base.data, delta, text_len)
    except delta_v1.MalformedDeltaError as error:
        raise MalformedError(str(error)) from error
    runs = runs_of(delta, base.data, text_len)
    if head.nested:
        inner = ParseDecoder(nested, text, base, runs, head.outer_len)
        text = inner.decode()
        runs = outer_runs(inner.raws, runs)
    return put_gaps(head.gaps, ParseDecoder(parse, text, base, runs, head.object_len).decode())


# --- A segment of units (§12) ---


@dataclass(frozen=True)
class Opening:
    """Plain text of a stream that can be read without what lies before it."""

    stream: int
    plain_at: int
    plain_len: int
    block_at: int
    length: int

    def first(self, gapped: dict[int, Gaps]) -> int:
        """Where the bytes begin that it is read from."""
        return self.stream + self.block_at + gaps_before(gapped.get(self.stream, []), self.block_at)

    @property
    def window_len(self) -> int:
        return min(WINDOW_LEN, self.plain_at)


def read_openings(reader: UnitReader) -> list[Opening]:
    openings: list[Opening] = []
    stream = total = 0
    for _ in range(reader.number(OPENINGS_MAX)):
        head = reader.number()
        stream += head >> 1
        plain_at, block_bit, step_bits = (reader.number() for _ in range(3)) if head & 1 else (0, 0, 0)
        plain_len, length = reader.number(OPENING_LEN_MAX), reader.number(FOOTPRINT_LEN_MAX)
        total += plain_len
        far = max(stream, plain_at + plain_len, block_bit + step_bits) >= 1 << 62
        if far or (head & 1 and plain_at == 0) or 0 in (plain_len, length) or total > OPENED_LEN_MAX:
            raise MalformedError("an opening of impossible length")
        if openings and (openings[-1].stream, openings[-1].plain_at + openings[-1].plain_len) > (stream, plain_at):
            raise MalformedError("openings that do not ascend")
        openings.append(Opening(stream, plain_at, plain_len, block_bit // 8, length))
    return openings


def is_opened(part: Part, openings: list[Opening]) -> bool:
    """Whether a part lies in openings of its stream without a gap."""
    covered, end = part.opened
    for opening in openings:
        if opening.stream == part.place and opening.plain_at <= covered:
            covered = max(covered, opening.plain_at + opening.plain_len)
    return covered >= end


def check_windows(windows: bytes, length: int) -> None:
    """The windows themselves are for readers in a hurry."""
    if (length > 0) != (len(windows) > 0):
        raise MalformedError("windows that nobody needs, or none where some are needed")
    if length == 0:
        return
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    try:
        # One byte of room more than wanted, so that a frame that holds too much is not mistaken for one that fits.
        plain = decompressor.decompressobj(write_size=length + 1).decompress(windows)
    except zstandard.ZstdError as error:
        raise MalformedError(f"zstd refuses the windows: {error}") from error
    if len(plain) != length:
        raise MalformedError("windows of another length")


def decode_segment(
    view: bytes, footprint: list[tuple[int, int]], stored: bytes, plain_len: int, coding: int
) -> list[tuple[bytes, bytes]]:
    """The bytes of each unit and the digest they must have. `footprint`: ranges of the view by offset and length."""
    reader = UnitReader(stored)
    table: list[tuple[int, int, bytes]] = []
    for _ in range(reader.number(UNITS_MAX)):
        object_len, length = reader.number(UNIT_LEN_MAX), reader.number(UNIT_LEN_MAX)
        table.append((object_len, length, bytes(reader.byte() for _ in range(16))))
    if any(0 in (row[0], row[1]) for row in table) or sum(row[0] for row in table) != plain_len:
        raise MalformedError("units that do not cover their segment")
    openings = read_openings(reader)
    gapped = read_gapped(reader.number) if coding == 5 else {}
    windows_len = reader.number(len(stored))
    windows = stored[reader.at : reader.at + windows_len]
    at = reader.at + windows_len
    if at + sum(row[1] for row in table) != len(stored):
        raise MalformedError("units that do not fill their segment")
    check_windows(windows, sum(opening.window_len for opening in openings))

    def within(first: int, length: int) -> bool:
        return any(offset <= first and first + length <= offset + size for offset, size in footprint)

    if not all(within(opening.first(gapped), opening.length) for opening in openings):
        raise MalformedError("an opening outside of the footprint")
    units: list[tuple[bytes, bytes]] = []
    for object_len, length, digest in table:
        unit = stored[at : at + length]
        at += length
        if coding == 3 and read_head(UnitReader(unit)).gaps:
            raise MalformedError("gaps in a segment of coding 3")
        for part in parts_of(unit):
            if not (is_opened(part, openings) if part.plain else within(part.place, part.length)):
                raise MalformedError("base bytes outside of footprint or openings")
        decoded = decode(view, unit, gapped)
        if len(decoded) != object_len:
            raise MalformedError("a unit of another length")
        units.append((decoded, digest))
    return units


def segment_work(stored: bytes, coding: int) -> int:
    """Bytes of all units' parts, and those of their openings as often as they are opened (delta-file-v1, §2)."""
    reader = UnitReader(stored)
    lens: list[int] = []
    for _ in range(reader.number(UNITS_MAX)):
        reader.number(UNIT_LEN_MAX)
        lens.append(reader.number(UNIT_LEN_MAX))
        for _ in range(16):
            reader.byte()
    openings = read_openings(reader)
    gapped = read_gapped(reader.number) if coding == 5 else {}

    def opened(opening: Opening) -> int:
        gaps = gapped.get(opening.stream)
        return opening.plain_len + (opening.length + len(gaps) if gaps else 0)

    windows_len = reader.number(len(stored))
    at, work = reader.at + windows_len, 0
    for length in lens:
        before: list[Opening] = []
        for part in parts_of(stored[at : at + length]):
            work += part.length
            if part.plain:
                work += part.plain_at + part.length if part.nested_len else 0
                used = [opening for opening in openings if opens(opening, part)]
                work += sum(opened(opening) for opening in used if opening not in before)
                before = used
        at += length
    return work


def opens(opening: Opening, part: Part) -> bool:
    first, behind = part.opened
    end = opening.plain_at + opening.plain_len
    return opening.stream == part.place and opening.plain_at < behind and first < end


def parts_of(unit: bytes) -> list[Part]:
    reader = UnitReader(unit)
    return read_parts(reader, read_head(reader).form)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    sys.stdout.buffer.write(decode(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]).read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

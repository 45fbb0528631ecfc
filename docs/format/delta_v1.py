"""An independent decoder of delta-v1, written from docs/format/delta-v1.md and from nothing else.

Plain and strict rather than fast: it shares no code with the crate `delta-codec`, and both must agree on every vector
in tests/vectors/delta-v1/. Frames are decoded by the `zstandard` package.

    python delta_v1.py FOOTPRINT DELTA TARGET_LEN > TARGET
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

SEGMENT_LEN_MAX = 4 << 20
FOOTPRINT_LEN_MAX = 32 << 20
CONTEXT_LEN_MAX = 16 << 20
WINDOW_LEN_MAX = 1 << 27
BYTES_PER_COPY_MIN = 8
CONTEXT_MARGIN = 32
WORD_LEN = 4

BLOCK_LEN = 4096
BYTES_PER_KNOT_MIN = 64
REACH = 1 << 28
SEAMS_MAX = 15
LEFT_OUT_MAX = 1 << 27
PAGE_LEN = 4096
HELD_FOR = 64

COPY, STREAMS, WORDS, PREDICTED, PREDICTED_ARM64 = range(5)
PLAIN, CODE, POINTERS, OFFSETS, ARM64 = range(5)
STORED, REPEATED, ZSTD, ZSTD_OVER_CONTEXT = range(4)


class MalformedDeltaError(ValueError):
    """The document tells a decoder to refuse this."""


@dataclass
class Reader:
    """Takes bytes and numbers from the front."""

    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise MalformedDeltaError("the delta ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, len_max: int = 5) -> int:
        """A minimal LEB128 number below 2^32 (§2)."""
        value = 0
        for place in range(len_max):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if byte == 0 and place > 0:
                    raise MalformedDeltaError("a number is not minimal")
                if value >= 1 << 32:
                    raise MalformedDeltaError("a number is too large")
                return value
        raise MalformedDeltaError("a number is too long")

    def at_end(self) -> bool:
        return self.at == len(self.data)


@dataclass(frozen=True)
class Stream:
    """A stream whose content is still packed (§4)."""

    plain_len: int
    coding: int
    payload: bytes

    def unpack(self, context: bytes = b"") -> bytes:
        if self.coding == STORED:
            return self.payload
        if self.coding == REPEATED:
            return self.payload * self.plain_len
        prefix = context if self.coding == ZSTD_OVER_CONTEXT else b""
        return unpack_frame(self.payload, prefix, self.plain_len)


@dataclass(frozen=True)
class Copy:
    """One copy, and the gap before it, with all positions settled."""

    gap_start: int
    gap_len: int
    gap_is_sub: bool
    copy_start: int
    copy_len: int
    source: int


class SubBytes:
    """The sub runs of form 1: one difference for every byte (§5)."""

    def __init__(self, sub: Stream) -> None:
        self.sub = Reader(sub.unpack())

    def run(self, base: bytes) -> bytes:
        return bytes((left + right) & 0xFF for left, right in zip(base, self.sub.take(len(base)), strict=True))

    def at_end(self) -> bool:
        return self.sub.at_end()


class SubWords:
    """The sub runs of form 2: how far base and target are equal, then a difference of four bytes, and so on (§5)."""

    def __init__(self, distances: Stream, words: Stream) -> None:
        self.distances, self.words = Reader(distances.unpack()), Reader(words.unpack())

    def run(self, base: bytes) -> bytes:
        out = bytearray()
        while len(out) < len(base):
            distance = self.distances.number(4)
            if distance > len(base) - len(out):
                raise MalformedDeltaError("a distance past the end of its sub run")
            out += base[len(out) : len(out) + distance]
            # Fewer than four bytes at the end of the run, and none when it ends with equal bytes.
            part = base[len(out) : len(out) + WORD_LEN]
            if part:
                value = int.from_bytes(part, "little") + int.from_bytes(self.words.take(WORD_LEN), "little")
                out += (value % (1 << 8 * len(part))).to_bytes(len(part), "little")
        return bytes(out)

    def at_end(self) -> bool:
        return self.distances.at_end() and self.words.at_end()


@dataclass(frozen=True)
class Predictor:
    """What forms 3 and 4 say about references (§5.1, §5.2)."""

    base_page: int
    target_page: int
    seams: list[tuple[int, int]]
    kinds: bytes
    near: list[tuple[int, int | None]]
    far: list[tuple[int, int | None]]

    def predict(self, base: bytes, source: int, at: int) -> bytes:
        """The base bytes of a sub run with their references changed."""
        run = bytearray(base)
        origin = source + sum(left_out for place, left_out in self.seams if place <= source)
        i = 0
        while i < len(run):
            kind = self.kinds[(at + i) // BLOCK_LEN]
            if kind == CODE:
                i = self.code(run, i, origin, at)
            elif kind == ARM64:
                end = min((at + i) // BLOCK_LEN * BLOCK_LEN + BLOCK_LEN - at, len(run))
                i = Arm64Block(self, run, origin, at).walk(i, end)
            elif kind in (POINTERS, OFFSETS):
                i = self.address(run, i, source, 8 if kind == POINTERS else 4)
            else:
                i += 1
        return bytes(run)

    def code(self, run: bytearray, i: int, origin: int, at: int) -> int:
        if run[i] in (0xE8, 0xE9) or run[i] & 0xC7 == 0x05:
            field = i + 1
        elif run[i] == 0x0F and i + 1 < len(run) and run[i + 1] & 0xF0 == 0x80:
            field = i + 2
        else:
            return i + 1
        value = int.from_bytes(run[field : field + 4], "little", signed=True)
        if field + 4 > len(run) or not -REACH <= value < REACH:
            return i + 1
        shift = shift_of(self.near, origin + field + 4 + value + REACH)
        if shift is None:
            return i + 1
        run[field : field + 4] = ((value + shift + origin - at) % (1 << 32)).to_bytes(4, "little")
        return field + 4

    def address(self, run: bytearray, i: int, source: int, step: int) -> int:
        if (source + i) % step:
            return i + step - (source + i) % step
        if i + 4 <= len(run):
            value = int.from_bytes(run[i : i + 4], "little")
            run[i : i + 4] = ((value + (shift_of(self.far, value) or 0)) % (1 << 32)).to_bytes(4, "little")
        return i + step


@dataclass
class HeldPage:
    """What a register holds: a page, where the ADRP stands that made it, and whether that is settled."""

    page: int
    made_at: int
    settled: bool = False


class Arm64Block:
    """The walk through a block of kind 4 (§5.2)."""

    def __init__(self, predictor: Predictor, run: bytearray, origin: int, at: int) -> None:
        self.predictor, self.run, self.origin, self.at = predictor, run, origin, at
        self.held: dict[int, HeldPage] = {}

    def walk(self, i: int, end: int) -> int:
        while i < end:
            if (self.origin + i + self.predictor.base_page) % 4:
                i += 1
                continue
            if i + 4 > len(self.run):
                return len(self.run)
            self.instruction(i, self.code(i))
            i += 4
        return i

    def code(self, i: int) -> int:
        return int.from_bytes(self.run[i : i + 4], "little")

    def put(self, i: int, code: int) -> None:
        self.run[i : i + 4] = code.to_bytes(4, "little")

    def shift(self, address: int) -> int | None:
        shift = shift_of(self.predictor.near, address + REACH)
        return None if shift is None else signed(shift, 32)

    def instruction(self, i: int, code: int) -> None:
        if code & 0x7C000000 == 0x14000000:
            address = self.origin + i + 4 * signed(code & 0x03FFFFFF, 26)
            shift = self.shift(address)
            if shift is not None and (address + shift - self.at - i) % 4 == 0:
                distance = (address + shift - self.at - i) // 4
                self.put(i, code & 0xFC000000 | distance % (1 << 26))
        elif code & 0x9F000000 == 0x90000000:
            number = signed((code >> 5 & 0x7FFFF) << 2 | code >> 29 & 3, 21)
            place = self.origin + i + self.predictor.base_page
            page = place - place % PAGE_LEN - self.predictor.base_page + PAGE_LEN * number
            if code & 31 < 31:
                self.held[code & 31] = HeldPage(page, i)
        elif code & 0xFFC00000 == 0x91000000:
            self.lower_bits(i, code, 0)
        elif code & 0x3B000000 == 0x39000000:
            self.lower_bits(i, code, 4 if code & 0xFF800000 == 0x3D800000 else code >> 30)

    def lower_bits(self, i: int, code: int, scale: int) -> None:
        register = code >> 5 & 31
        if register not in self.held:
            return
        held = self.held[register]
        if i - held.made_at > HELD_FOR:
            del self.held[register]
            return
        low = (code >> 10 & 0xFFF) << scale
        address = held.page + low
        if low < PAGE_LEN and -REACH <= address - self.origin - i < REACH:
            self.redirect(i, code, scale, address, held)
        if code & 31 == register:
            del self.held[register]

    def redirect(self, i: int, code: int, scale: int, address: int, held: HeldPage) -> None:
        shift = self.shift(address)
        if shift is None:
            return
        target = address + shift + self.predictor.target_page
        low = target % PAGE_LEN
        if low % (1 << scale):
            return
        self.put(i, code & ~(0xFFF << 10) | low >> scale << 10)
        if not held.settled:
            here = self.at + held.made_at + self.predictor.target_page
            number = (target // PAGE_LEN - here // PAGE_LEN) % (1 << 21)
            self.put(held.made_at, self.code(held.made_at) & 0x9F00001F | (number & 3) << 29 | number >> 2 << 5)
            held.settled = True


def signed(value: int, bits: int) -> int:
    """The lowest bits of a number in two's complement."""
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def shift_of(knots: list[tuple[int, int | None]], address: int) -> int | None:
    """What the last knot at or below an address says."""
    behind = bisect.bisect_right(knots, address, key=lambda knot: knot[0])
    return knots[behind - 1][1] if behind else None


def read_predictor(reader: Reader, form: int, target_len: int) -> Predictor:
    """The pages of form 4, both tables and the kinds of the blocks (§5.1, §5.2)."""
    pages = (reader.number(), reader.number()) if form == PREDICTED_ARM64 else (0, 0)
    if max(pages) >= PAGE_LEN:
        raise MalformedDeltaError("a place past the end of a page")
    seams: list[tuple[int, int]] = []
    place = 0
    count = reader.number()
    if count > SEAMS_MAX:
        raise MalformedDeltaError("more seams than a footprint has")
    for _ in range(count):
        place += reader.number()
        seams.append((place, reader.number()))
    if place > FOOTPRINT_LEN_MAX or sum(left_out for _, left_out in seams) > LEFT_OUT_MAX:
        raise MalformedDeltaError("a seam outside of a footprint, or one that leaves out too much")
    counts = reader.number(), reader.number()
    if max(counts) > target_len // BYTES_PER_KNOT_MIN:
        raise MalformedDeltaError("more knots than the target has room for")
    blocks = -(-target_len // BLOCK_LEN)
    packed = read_stream(reader, blocks), *(read_stream(reader, 5 * sum(counts)) for _ in range(2))
    kinds = packed[0].unpack()
    if len(kinds) != blocks or max(kinds) > (ARM64 if form == PREDICTED_ARM64 else OFFSETS):
        raise MalformedDeltaError("blocks without a kind, or with an unknown one")
    starts, shifts = (Reader(stream.unpack()) for stream in packed[1:])
    near, far = [read_knots(count, starts, shifts) for count in counts]
    if not (starts.at_end() and shifts.at_end()):
        raise MalformedDeltaError("more numbers than knots")
    return Predictor(*pages, seams, kinds, near, far)


def read_knots(count: int, starts: Reader, shifts: Reader) -> list[tuple[int, int | None]]:
    """One table."""
    knots: list[tuple[int, int | None]] = []
    start = shift = 0
    for number in range(count):
        step, code = starts.number(), shifts.number()
        start += step
        if start >= 1 << 32 or (step == 0 and number > 0):
            raise MalformedDeltaError("a knot that has no place of its own")
        if code:
            shift = (shift + unzigzag(code - 1)) % (1 << 32)
        knots.append((start, shift if code else None))
    return knots


def read_stream(reader: Reader, plain_len_max: int, *, context_allowed: bool = False) -> Stream:
    """A stream's head and payload."""
    head = reader.number()
    plain_len, coding = head >> 3, head & 7
    if plain_len > plain_len_max:
        raise MalformedDeltaError("a stream is too long")
    if coding == STORED:
        return Stream(plain_len, coding, reader.take(plain_len))
    if coding == REPEATED:
        if plain_len == 0:
            raise MalformedDeltaError("a byte repeated no times")
        return Stream(plain_len, coding, reader.take(1))
    if coding == ZSTD or (coding == ZSTD_OVER_CONTEXT and context_allowed):
        return Stream(plain_len, coding, reader.take(reader.number()))
    raise MalformedDeltaError("a stream of unknown or misplaced coding")


def unpack_frame(frame: bytes, prefix: bytes, plain_len: int) -> bytes:
    """The content of exactly one bare frame, exactly `plain_len` bytes of it (§4)."""
    check_frame(frame)
    dictionary = None
    if prefix:
        dictionary = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    decompressor = zstandard.ZstdDecompressor(
        dict_data=dictionary, max_window_size=WINDOW_LEN_MAX, format=zstandard.FORMAT_ZSTD1_MAGICLESS
    )
    try:
        # One byte of room more than wanted, so that a frame that holds too much is not mistaken for one that fits.
        plain = decompressor.decompressobj(write_size=plain_len + 1).decompress(frame)
    except zstandard.ZstdError as error:
        raise MalformedDeltaError(f"zstd refuses a frame: {error}") from error
    if len(plain) != plain_len:
        raise MalformedDeltaError("a frame of another length")
    return plain


def check_frame(frame: bytes) -> None:
    """Walks the outside of a frame: header, window, and blocks up to the last byte (RFC 8878 §3.1.1)."""
    if len(frame) < 2 or frame[0] != 0:
        raise MalformedDeltaError("a frame header that is missing or claims more than a window")
    base = 1 << (10 + (frame[1] >> 3))
    if base + base // 8 * (frame[1] & 7) > WINDOW_LEN_MAX:
        raise MalformedDeltaError("too large a window")
    at = 2
    last = False
    while not last:
        if at + 3 > len(frame):
            raise MalformedDeltaError("a frame ends early")
        header = int.from_bytes(frame[at : at + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == 3:
            raise MalformedDeltaError("a block of the reserved type")
        at += 3 + (1 if kind == 1 else size)
    if at != len(frame):
        raise MalformedDeltaError("bytes after a frame, or missing from it")


def unzigzag(value: int) -> int:
    return -(value + 1) // 2 if value & 1 else value // 2


def read_copies(count: int, streams: list[Stream], target_len: int, footprint_len: int) -> list[Copy]:
    """The instructions, checked (§5)."""
    gaps, lengths, codes = (Reader(stream.unpack()) for stream in streams)
    copies: list[Copy] = []
    at = diagonal = 0
    for _ in range(count):
        gap_len, copy_len, code = gaps.number(4), lengths.number(4), codes.number(4)
        if code > 1:
            diagonal += unzigzag(code - 1)
        copy = Copy(at, gap_len, code == 0, at + gap_len, copy_len, at + gap_len + diagonal)
        at = copy.copy_start + copy_len
        if at > target_len:
            raise MalformedDeltaError("instructions run past the target")
        if copy.source < 0 or copy.source + copy_len > footprint_len:
            raise MalformedDeltaError("a copy outside of the footprint")
        copies.append(copy)
    if not (gaps.at_end() and lengths.at_end() and codes.at_end()):
        raise MalformedDeltaError("more numbers than copies")
    return copies


def literal_runs(copies: list[Copy], target_len: int) -> Iterator[tuple[int, int | None, int | None]]:
    """Every literal run: its length, where the previous copy ends, where the next one starts."""
    previous: int | None = None
    at = 0
    for copy in copies:
        if copy.gap_len > 0 and not copy.gap_is_sub:
            yield copy.gap_len, previous, copy.source
        previous = copy.source + copy.copy_len
        at = copy.copy_start + copy.copy_len
    if at < target_len:
        yield target_len - at, previous, None


def build_context(copies: list[Copy], target_len: int, footprint: bytes) -> bytes:
    """The prefix of the literals (§6)."""
    regions: list[tuple[int, int]] = []

    def add(start: int, end: int) -> None:
        start, end = max(start - CONTEXT_MARGIN, 0), min(end + CONTEXT_MARGIN, len(footprint))
        if start >= end:
            return
        if regions and regions[-1][0] <= start <= regions[-1][1]:
            regions[-1] = (regions[-1][0], max(regions[-1][1], end))
        else:
            regions.append((start, end))

    for run_len, previous, following in literal_runs(copies, target_len):
        reach = 2 * run_len + 256
        if previous is not None and following is not None and 0 <= following - previous <= 8 * reach:
            add(previous, following)
            continue
        if previous is not None:
            add(previous, previous + reach)
        if following is not None:
            # A start below 0 is clamped before the margin is added to the end; the end is what counts.
            add(following - reach, following)

    context = bytearray()
    for start, end in regions:
        if len(context) + end - start > CONTEXT_LEN_MAX:
            break
        context += footprint[start:end]
    return bytes(context)


def decode(footprint: bytes, delta: bytes, target_len: int) -> bytes:
    """The target of `target_len` bytes; raises MalformedDeltaError for whatever must be refused (§7)."""
    if not 1 <= target_len <= SEGMENT_LEN_MAX or len(footprint) > FOOTPRINT_LEN_MAX:
        raise MalformedDeltaError("impossible lengths")
    reader = Reader(delta)
    form = reader.take(1)[0]
    if form == COPY:
        source = reader.number()
        if not reader.at_end():
            raise MalformedDeltaError("bytes after the end")
        if source + target_len > len(footprint):
            raise MalformedDeltaError("a copy outside of the footprint")
        return footprint[source : source + target_len]
    if form not in (STREAMS, WORDS, PREDICTED, PREDICTED_ARM64):
        raise MalformedDeltaError("an unknown form")
    return decode_streams(reader, form, footprint, target_len)


def decode_streams(reader: Reader, form: int, footprint: bytes, target_len: int) -> bytes:
    """The body of forms 1 to 4."""
    count = reader.number()
    if count > target_len // BYTES_PER_COPY_MIN:
        raise MalformedDeltaError("more copies than the target has room for")
    instructions = [read_stream(reader, 4 * count) for _ in range(3)]
    predictor = read_predictor(reader, form, target_len) if form >= PREDICTED else None
    room = target_len
    if form != STREAMS:
        distances = read_stream(reader, room)
        room -= distances.plain_len
        words = read_stream(reader, room)
        room -= words.plain_len
        if words.plain_len % WORD_LEN:
            raise MalformedDeltaError("a part of a word")
        packed_sub = [distances, words]
    else:
        packed_sub = [read_stream(reader, room)]
    packed_literals = read_stream(reader, room, context_allowed=True)
    if not reader.at_end():
        raise MalformedDeltaError("bytes after the end")

    copies = read_copies(count, instructions, target_len, len(footprint))
    sub = SubWords(*packed_sub) if form != STREAMS else SubBytes(*packed_sub)
    context = b""
    if packed_literals.coding == ZSTD_OVER_CONTEXT:
        context = build_context(copies, target_len, footprint)
    literals = Reader(packed_literals.unpack(context))

    target = bytearray()
    for copy in copies:
        if copy.gap_is_sub:
            start = copy.source - copy.gap_len
            base = footprint[start : copy.source]
            target += sub.run(predictor.predict(base, start, len(target)) if predictor else base)
        else:
            target += literals.take(copy.gap_len)
        target += footprint[copy.source : copy.source + copy.copy_len]
    target += literals.take(target_len - len(target))
    if not (sub.at_end() and literals.at_end()):
        raise MalformedDeltaError("sub, distances, words or literals left over")
    return bytes(target)


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    footprint, delta = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]).read_bytes()
    sys.stdout.buffer.write(decode(footprint, delta, int(sys.argv[3])))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""An independent decoder of delta-file-v1 in all versions, from docs/format/delta-file-v1.md and nothing else.

python delta_file_v1.py BASE DELTA > TARGET
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import deflate_view_v1
import xxhash
from blob_v1 import FormatError, unzstd
from deflate_streams import MalformedError
from delta_v1 import FOOTPRINT_LEN_MAX, SEGMENT_LEN_MAX, MalformedDeltaError, Reader, decode

RANGES_MAX = 16
VIEW_WORK_MAX = 1 << 30
RAW, ZSTD, DELTA, VIEW = range(4)
GAPPED_VIEW = 5
BASED = (DELTA, VIEW, GAPPED_VIEW)
CODINGS = {1: (RAW, ZSTD, DELTA), 2: (RAW, ZSTD, DELTA, VIEW), 3: (RAW, ZSTD, DELTA, VIEW, GAPPED_VIEW)}


def decode_file(base: bytes, file: bytes) -> bytes:
    """The target; raises MalformedDeltaError for whatever must be refused (§3)."""
    reader = Reader(file)
    head = reader.take(8)
    if head not in [b"DWDF%c\0\0\0" % version for version in CODINGS]:
        raise MalformedDeltaError("another magic or version")
    codings = CODINGS[head[4]]
    base_len, target_len = big_endian(reader, 8), big_endian(reader, 8)
    if len(base) != base_len or hashlib.sha256(base).digest() != reader.take(32):
        raise MalformedDeltaError("another base")
    target = bytearray()
    while len(target) < target_len:
        target += read_segment(reader, base, min(SEGMENT_LEN_MAX, target_len - len(target)), codings)
    if hashlib.sha256(target).digest() != reader.take(32) or not reader.at_end():
        raise MalformedDeltaError("another target, or bytes after the end")
    return bytes(target)


def read_segment(reader: Reader, base: bytes, plain_len: int, codings: tuple[int, ...]) -> bytes:
    """One segment (§2)."""
    stored_len = big_endian(reader, 4)
    coding, ranges, *zero = reader.take(4)
    if any(zero) or coding not in codings or ranges > (RANGES_MAX if coding in BASED else 0):
        raise MalformedDeltaError("an impossible head")
    if stored_len != plain_len if coding == RAW else not 1 <= stored_len < plain_len:
        raise MalformedDeltaError("an impossible stored length")
    digest = reader.take(16)
    footprint = read_footprint(reader, base, ranges)
    stored = reader.take(stored_len)
    if coding == RAW:
        plain = stored
    elif coding == ZSTD:
        plain = unzip(stored, plain_len)
    elif coding in (VIEW, GAPPED_VIEW):
        plain = decode_view(base, footprint, stored, plain_len, coding)
    else:
        plain = decode(b"".join(base[at : at + length] for at, length in footprint), stored, plain_len)
    if xxhash.xxh3_128_digest(plain)[::-1] != digest:
        raise MalformedDeltaError("a segment does not have its digest")
    return plain


def decode_view(base: bytes, footprint: list[tuple[int, int]], stored: bytes, plain_len: int, coding: int) -> bytes:
    """A segment of coding 3 or 5 (deflate-view-v1.md, §12)."""
    try:
        if deflate_view_v1.segment_work(stored, coding) > VIEW_WORK_MAX:
            raise MalformedDeltaError("a view that asks for too much work")
        units = deflate_view_v1.decode_segment(base, footprint, stored, plain_len, coding)
    except MalformedError as error:
        raise MalformedDeltaError(str(error)) from error
    if any(xxhash.xxh3_128_digest(plain)[::-1] != digest for plain, digest in units):
        raise MalformedDeltaError("a unit does not have its digest")
    return b"".join(plain for plain, _ in units)


def read_footprint(reader: Reader, base: bytes, ranges: int) -> list[tuple[int, int]]:
    """Ranges of the base by offset and length."""
    footprint: list[tuple[int, int]] = []
    at = 0
    for _ in range(ranges):
        offset, length = big_endian(reader, 8), big_endian(reader, 4)
        if offset < at or length == 0 or offset + length > len(base):
            raise MalformedDeltaError("an impossible footprint")
        at = offset + length
        footprint.append((offset, length))
    if sum(length for _, length in footprint) > FOOTPRINT_LEN_MAX:
        raise MalformedDeltaError("a footprint that is too long")
    return footprint


def unzip(frame: bytes, plain_len: int) -> bytes:
    """What one zstd frame holds, which must be so long."""
    try:
        return unzstd(frame, plain_len)
    except FormatError as error:
        raise MalformedDeltaError(str(error)) from error


def big_endian(reader: Reader, count: int) -> int:
    return int.from_bytes(reader.take(count), "big")


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    sys.stdout.buffer.write(decode_file(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]).read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

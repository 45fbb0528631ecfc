"""Reads blobs of format v1 as `blob-v1.md` describes them. Independent of the Rust crate: written from the document.

    python blob_v1.py --describe BLOB                       what the blob consists of, as JSON
    python blob_v1.py BLOB -o CONTENT                       its plain content
    python blob_v1.py --keyset KEYSET --blobs DIR BLOB -o CONTENT

Sealed blobs need a keyset blob and, in the environment variable DELTAWEIR_KEK, the key-encryption key in base64.
Deltas need their base blobs, found by id below DIR. Whole blobs are read into memory; this is a reference, not a
fast path.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import deflate_streams
import deflate_view_v1
import delta_v1
import xxhash
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap_with_padding

HEADER_LEN = 160
TRAILER_LEN = 64
TAG_LEN = 16
CHUNK_LEN = 65_536
SEGMENT_LEN = 4_194_304
PLAIN_LEN_MAX = 5 << 30
CHUNKS_MAX = 1 << 31
PAGE_LEN_MAX = 65_536
ROOT_LEN_MAX = 1 << 20
VIEW_RANGES_MAX = 256
FOOTPRINT_RANGES_MAX = 16
FOOTPRINT_LEN_MAX = 32 << 20
ZSTD_WINDOW_MAX = 1 << 27
WRAP_LENS = (64, 72)
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

SUITE_NONE, SUITE_AES_256_GCM = 0, 1
KIND_DELTA, KIND_KEYSET, KIND_MAX = 1, 4, 5
CHUNK, LAST_CHUNK, SEGMENT_PAGE, CHECK_PAGE, ROOT = range(5)
RAW, ZSTD, DELTA, VIEW, PLANES, GAPPED_VIEW = range(6)


class FormatError(ValueError):
    """The bytes are not the blob they should be; `kind` is the word the vectors use."""

    kind = "malformed"


class IntegrityError(FormatError):
    """A tag, check or digest does not fit."""

    kind = "integrity"


class WrongBlobError(FormatError):
    """A blob, but not the one that was asked for."""

    kind = "wrong-blob"


class KeyRefusedError(FormatError):
    """The key is missing, another one, or does not match the blob's commitment."""

    kind = "key"


class TooLargeError(FormatError):
    """Past a limit of the format."""

    kind = "too-large"


def require(holds: bool, what: str, error: type[FormatError] = FormatError) -> None:
    if not holds:
        raise error(what)


class Fields:
    """Fixed-width fields read from front to back."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, length: int) -> bytes:
        require(length <= self.left(), "cut short")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "little")

    def zero(self, length: int) -> None:
        require(not any(self.take(length)), "a reserved byte is not zero")

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise FormatError("text that is not UTF-8") from error

    def end(self) -> None:
        require(self.left() == 0, "bytes left over")


def xxh3_128(data: bytes) -> bytes:
    return bytes(reversed(xxhash.xxh3_128_digest(data)))


def hkdf(secret: bytes, salt: bytes | None, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA512(), length=length, salt=salt, info=info).derive(secret)


@dataclass(frozen=True)
class DomainKey:
    """The key of one bucket and key epoch."""

    id: bytes
    epoch: int
    secret: bytes = field(repr=False)

    def keyed_tag(self, purpose: bytes, message: bytes) -> bytes:
        key = hkdf(self.secret, None, b"deltaweir tag v1\0" + purpose, 32)
        return hmac.digest(key, message, "sha256")


@dataclass(frozen=True)
class Header:
    """The first 160 bytes."""

    raw: bytes
    suite: int
    kind: int
    key_id: bytes
    key_epoch: int
    blob_id: bytes
    salt: bytes
    commitment: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Header:
        fields = Fields(raw)
        require(fields.take(4) == b"DWB1", "wrong magic")
        require(fields.number(1) == 1, "unknown version")
        suite = fields.number(1)
        require(suite in (SUITE_NONE, SUITE_AES_256_GCM), "unknown suite")
        require(fields.take(2) == bytes([16, 22]), "unknown chunk or segment length")
        kind = fields.number(1)
        require(kind <= KIND_MAX, "unknown kind")
        fields.zero(7)
        key_id, key_epoch = fields.take(16), fields.number(4)
        fields.zero(12)
        blob_id, salt, commitment = fields.take(16), fields.take(32), fields.take(32)
        fields.zero(32)
        fields.end()
        if suite == SUITE_NONE:
            require(not any(key_id + salt + commitment) and key_epoch == 0, "key fields in a blob without a key")
        return cls(raw, suite, kind, key_id, key_epoch, blob_id, salt, commitment)


class Protection:
    """Opens units of one blob (§4)."""

    def __init__(self, header: Header, key: DomainKey | None) -> None:
        self.header = header
        self.header_hash = hashlib.sha256(header.raw).digest()
        self.key = key
        self.cipher: AESGCM | None = None
        if header.suite == SUITE_NONE:
            require(key is None, "the blob is not sealed, though it should be", KeyRefusedError)
            return
        if key is None:
            raise KeyRefusedError("the blob is sealed and no key was given")
        same = (key.id, key.epoch) == (header.key_id, header.key_epoch)
        require(same, "sealed under another key", KeyRefusedError)
        info = b"deltaweir blob v1" + header.raw[:96] + header.raw[128:]
        okm = hkdf(key.secret, header.salt, info, 71)
        committed = hmac.compare_digest(okm[32:64], header.commitment)
        require(committed, "the key commitment does not match", KeyRefusedError)
        self.cipher, self.prefix = AESGCM(okm[:32]), okm[64:]

    @property
    def chunk_overhead(self) -> int:
        return 0 if self.cipher is None else TAG_LEN

    def open(self, unit: int, index: int, body: bytes, tag: bytes) -> bytes:
        place = bytes([unit])
        if self.cipher is None:
            check = xxh3_128(self.header_hash + place + index.to_bytes(4, "big") + body)
            require(check == tag, f"unit {unit}, index {index}: check", IntegrityError)
            return body
        nonce = self.prefix + index.to_bytes(4, "big") + place
        try:
            return self.cipher.decrypt(nonce, body + tag, self.header_hash + place)
        except InvalidTag as error:
            raise IntegrityError(f"unit {unit}, index {index}: tag") from error

    def open_tagged(self, unit: int, index: int, expected_tag: bytes, stored: bytes) -> bytes:
        """A page or root, which ends with its tag."""
        require(len(stored) >= TAG_LEN, "shorter than a tag")
        require(stored[-TAG_LEN:] == expected_tag, "another tag than its place names", IntegrityError)
        return self.open(unit, index, stored[:-TAG_LEN], expected_tag)

    def base_tag(self, plain_len: int, digests: bytes) -> bytes:
        message = b"deltaweir base v1" + self.header.blob_id + plain_len.to_bytes(8, "little") + digests
        if self.key is None:
            return hashlib.sha256(message).digest()[:16]
        return self.key.keyed_tag(b"base", message)[:16]


@dataclass(frozen=True)
class PageEntry:
    """A page's entry in the root's directory."""

    length: int
    count: int
    tag: bytes

    @classmethod
    def parse(cls, fields: Fields) -> PageEntry:
        entry = cls(fields.number(4), fields.number(4), fields.take(16))
        require(entry.length <= PAGE_LEN_MAX, "a page of more than 64 KiB", TooLargeError)
        require(entry.count > 0 and entry.length >= TAG_LEN, "an empty page")
        return entry


@dataclass(frozen=True)
class ViewRange:
    """A range of the base view: bytes of a whole blob."""

    blob: bytes
    offset: int
    length: int
    base_tag: bytes

    @classmethod
    def parse(cls, fields: Fields) -> ViewRange:
        return cls(fields.take(16), fields.number(8), fields.number(8), fields.take(16))


@dataclass
class Root:
    """The root's fields."""

    plain_len: int = -1
    payload_len: int = -1
    segments: int = -1
    segment_pages: list[PageEntry] = field(default_factory=list)
    check_pages: list[PageEntry] = field(default_factory=list)
    view: list[ViewRange] = field(default_factory=list)
    base_tag: bytes = b""
    bucket: str = ""
    key: str = ""
    version_id: bytes | None = None
    part: tuple[bytes, int] | None = None
    sha256: bytes | None = None
    facts: bytes = b""
    sketch: bytes = b""

    @classmethod
    def parse(cls, data: bytes, header: Header) -> Root:
        root, fields, previous = cls(), Fields(data), 0
        while fields.left():
            tag, length = fields.number(2), fields.number(4)
            require(tag > previous and length > 0, "fields not ascending, or an empty one")
            previous = tag
            value = Fields(fields.take(length))
            root._set(tag, value, length)
        require(root.plain_len >= 0 and root.base_tag != b"", "no sizes, or no base tag")
        require(root.plain_len <= PLAIN_LEN_MAX, "more than 5 GiB", TooLargeError)
        require(root.chunks() <= CHUNKS_MAX, "more than 2^31 chunks", TooLargeError)
        require(root.segments == -(-root.plain_len // SEGMENT_LEN), "the number of segments")
        require((root.plain_len == 0) == (root.payload_len == 0), "content without payload, or the other way round")
        root._check_view(header)
        return root

    def _set(self, tag: int, value: Fields, length: int) -> None:
        match tag:
            case 0x0001:
                self.plain_len, self.payload_len, self.segments = value.number(8), value.number(8), value.number(8)
            case 0x0002:
                self.segment_pages = list(rows(value, PageEntry.parse))
            case 0x0003:
                self.check_pages = list(rows(value, PageEntry.parse))
            case 0x0004:
                self.view = list(rows(value, ViewRange.parse))
            case 0x0005:
                self.base_tag = value.take(16)
            case 0x8001:
                self.bucket = value.text(length)
            case 0x8002:
                self.key = value.text(length)
            case 0x8003:
                self.version_id = value.take(16)
            case 0x8004:
                self.part = value.take(16), value.number(4)
            case 0x8005:
                self.sha256 = value.take(32)
            case 0x8006:
                self.facts = value.take(length)
            case 0x8007:
                self.sketch = value.take(length)
            case _:
                require(tag >= 0x8000, "an unknown field that must be understood")
                return
        value.end()

    def _check_view(self, header: Header) -> None:
        require(not self.view or header.kind == KIND_DELTA, "a view in a blob of another kind")
        require(len(self.view) <= VIEW_RANGES_MAX, "more than 256 view ranges", TooLargeError)
        for part in self.view:
            require(part.length > 0 and part.offset + part.length <= PLAIN_LEN_MAX, "a range no blob can have")

    def chunks(self) -> int:
        return -(-self.payload_len // CHUNK_LEN)


Row = TypeVar("Row")


def rows(fields: Fields, parse: Callable[[Fields], Row]) -> Iterator[Row]:
    while fields.left():
        yield parse(fields)


@dataclass(frozen=True)
class Segment:
    """A row of the segment table."""

    plain_len: int
    stored_offset: int
    stored_len: int
    coding: int
    digest: bytes
    footprint: list[tuple[int, int]]


class Base(Protocol):
    """What a delta needs of a base: an opened blob, or whatever stands for one."""

    @property
    def base_tag(self) -> bytes: ...

    @property
    def is_whole(self) -> bool: ...

    def content(self) -> bytes: ...


def no_bases(blob_id: bytes) -> Base:
    raise FormatError(f"base {blob_id.hex()} is not at hand")


class Blob:
    """A blob whose every part has been checked but what its segments decode to; `content` does that."""

    def __init__(self, data: bytes, expected_id: bytes | None, key: DomainKey | None) -> None:
        require(len(data) >= HEADER_LEN + TRAILER_LEN, "shorter than a header and a trailer")
        self.data = data
        self.header = Header.parse(data[:HEADER_LEN])
        same = expected_id is None or self.header.blob_id == expected_id
        require(same, "not the expected blob", WrongBlobError)
        self.protection = Protection(self.header, key)
        root_at, root_len, root_tag = parse_trailer(data[-TRAILER_LEN:], len(data))
        root = self.protection.open_tagged(ROOT, 0, root_tag, data[root_at : root_at + root_len])
        self.root = Root.parse(root, self.header)
        self._place_pages(root_at)
        self.segments = self._read_segments()
        digests = b"".join(segment.digest for segment in self.segments)
        same = self.protection.base_tag(self.root.plain_len, digests) == self.root.base_tag
        require(same, "the base tag is not of these segments", IntegrityError)
        self.payload = self._open_payload()

    @property
    def base_tag(self) -> bytes:
        return self.root.base_tag

    @property
    def is_whole(self) -> bool:
        return not self.root.view

    def _place_pages(self, root_at: int) -> None:
        """Everything must tile the blob exactly."""
        root, overhead = self.root, self.protection.chunk_overhead
        at = HEADER_LEN + root.payload_len + root.chunks() * overhead
        checked_chunks = 0 if overhead else root.chunks()
        require(sum(page.count for page in root.segment_pages) == root.segments, "rows of the segment pages")
        require(sum(page.count for page in root.check_pages) == checked_chunks, "rows of the check pages")
        self.segment_pages_at = at
        self.check_pages_at = at + sum(page.length for page in root.segment_pages)
        end = self.check_pages_at + sum(page.length for page in root.check_pages)
        require(end == root_at, "the parts do not end where the root begins")

    def _pages(self, unit: int, entries: list[PageEntry], at: int) -> Iterator[tuple[int, int, Fields]]:
        """First row, number of rows and the rows of every page."""
        first = 0
        for index, entry in enumerate(entries):
            stored = self.data[at : at + entry.length]
            fields = Fields(self.protection.open_tagged(unit, index, entry.tag, stored))
            require((fields.number(8), fields.number(4)) == (first, entry.count), "a page about other rows")
            fields.zero(4)
            yield first, entry.count, fields
            at += entry.length
            first += entry.count

    def _read_segments(self) -> list[Segment]:
        segments: list[Segment] = []
        stored_at = 0
        for first, count, fields in self._pages(SEGMENT_PAGE, self.root.segment_pages, self.segment_pages_at):
            require(fields.number(8) == stored_at, "segments do not tile the payload")
            for number in range(first, first + count):
                segment = self._read_segment(fields, number, stored_at)
                stored_at += segment.stored_len
                segments.append(segment)
            fields.end()
        return segments

    def _read_segment(self, fields: Fields, number: int, stored_at: int) -> Segment:
        plain_len, stored_len, coding, ranges = (fields.number(width) for width in (4, 4, 1, 1))
        require(coding <= GAPPED_VIEW, "unknown coding")
        fields.zero(2)
        digest = fields.take(16)
        require(ranges <= FOOTPRINT_RANGES_MAX, "more than 16 footprint ranges", TooLargeError)
        footprint = [(fields.number(8), fields.number(4)) for _ in range(ranges)]
        plain_left = min(SEGMENT_LEN, self.root.plain_len - number * SEGMENT_LEN)
        require(plain_left > 0 and plain_len == plain_left, "a segment's plain length")
        require(0 < stored_len <= SEGMENT_LEN, "a segment's stored length", TooLargeError)
        require(coding != RAW or stored_len == plain_len, "a raw segment's lengths differ")
        end = stored_at + stored_len
        require(end <= self.root.payload_len, "a segment past the payload")
        require(number + 1 < self.root.segments or end == self.root.payload_len, "payload after the last segment")
        self._check_footprint(coding, footprint)
        return Segment(plain_len, stored_at, stored_len, coding, digest, footprint)

    def _check_footprint(self, coding: int, footprint: list[tuple[int, int]]) -> None:
        if coding not in (DELTA, VIEW, GAPPED_VIEW):
            require(not footprint, "a footprint without a delta")
            return
        require(self.header.kind == KIND_DELTA, "a delta in a blob of another kind")
        view_len, end = sum(part.length for part in self.root.view), 0
        for offset, length in footprint:
            require(length > 0 and offset >= end, "footprint ranges not ascending and disjoint")
            end = offset + length
            require(end <= view_len, "a footprint outside the view")
        require(sum(length for _, length in footprint) <= FOOTPRINT_LEN_MAX, "a footprint too long", TooLargeError)

    def _open_payload(self) -> bytes:
        chunks = self.root.chunks()
        checks: list[bytes] = []
        for _, count, fields in self._pages(CHECK_PAGE, self.root.check_pages, self.check_pages_at):
            checks.extend(fields.take(TAG_LEN) for _ in range(count))
            fields.end()
        overhead = self.protection.chunk_overhead
        payload = bytearray()
        for index in range(chunks):
            at = HEADER_LEN + index * (CHUNK_LEN + overhead)
            length = min(CHUNK_LEN, self.root.payload_len - index * CHUNK_LEN)
            body, behind = self.data[at : at + length], self.data[at + length : at + length + overhead]
            unit = LAST_CHUNK if index == chunks - 1 else CHUNK
            payload += self.protection.open(unit, index, body, behind if overhead else checks[index])
        return bytes(payload)

    def content(self, base_of: Callable[[bytes], Base] = no_bases) -> bytes:
        """The plain content. `base_of` opens the blob of an id, for deltas."""
        view = (
            self._view_bytes(base_of)
            if any(segment.coding in (DELTA, VIEW, GAPPED_VIEW) for segment in self.segments)
            else b""
        )
        plain = bytearray()
        for segment in self.segments:
            stored = self.payload[segment.stored_offset : segment.stored_offset + segment.stored_len]
            if segment.coding == RAW:
                decoded = stored
            elif segment.coding == ZSTD:
                decoded = unzstd(stored, segment.plain_len)
            elif segment.coding == PLANES:
                decoded = from_planes(stored, segment.plain_len)
            elif segment.coding in (VIEW, GAPPED_VIEW):
                decoded = decode_view(view, segment, stored)
            else:
                footprint = b"".join(view[offset : offset + length] for offset, length in segment.footprint)
                try:
                    decoded = delta_v1.decode(footprint, stored, segment.plain_len)
                except ValueError as error:
                    raise FormatError(f"delta: {error}") from error
            require(xxh3_128(decoded) == segment.digest, "a segment's content", IntegrityError)
            plain += decoded
        return bytes(plain)

    def _view_bytes(self, base_of: Callable[[bytes], Base]) -> bytes:
        view = bytearray()
        for part in self.root.view:
            base = base_of(part.blob)
            fits = base.base_tag == part.base_tag and base.is_whole
            require(fits, "another base than the one named, or one that is a delta itself", WrongBlobError)
            content = base.content()
            require(part.offset + part.length <= len(content), "a range past the base's end", WrongBlobError)
            view += content[part.offset : part.offset + part.length]
        return bytes(view)


def decode_view(view: bytes, segment: Segment, stored: bytes) -> bytes:
    """A segment of coding 3 or 5 (deflate-view-v1.md, §12)."""
    try:
        units = deflate_view_v1.decode_segment(view, segment.footprint, stored, segment.plain_len, segment.coding)
    except deflate_streams.MalformedError as error:
        raise FormatError(f"deflate view: {error}") from error
    for plain, digest in units:
        require(xxh3_128(plain) == digest, "a unit's content", IntegrityError)
    return b"".join(plain for plain, _ in units)


def parse_trailer(raw: bytes, stored_len: int) -> tuple[int, int, bytes]:
    """Offset, length and tag of the root."""
    fits = raw[48:56] == xxhash.xxh3_64_intdigest(raw[:48]).to_bytes(8, "little") and raw[56:] == b"DWB1END\n"
    require(fits, "no trailer where one should be")
    fields = Fields(raw[:48])
    offset, length = fields.number(8), fields.number(4)
    fields.zero(4)
    tag, stored = fields.take(16), fields.number(8)
    require(fields.number(1) == 1, "unknown version")
    fields.zero(7)
    require(stored == stored_len, "another length than the trailer says")
    require(length <= ROOT_LEN_MAX, "a root of more than 1 MiB", TooLargeError)
    require(offset >= HEADER_LEN and length >= TAG_LEN, "a root where none can be")
    require(offset + length + TRAILER_LEN == stored_len, "the root does not end where the trailer begins")
    return offset, length, tag


def unzstd(frame: bytes, plain_len: int) -> bytes:
    """One frame without a dictionary, window at most 2^27, content exactly `plain_len`; never makes much more."""
    require(frame.startswith(ZSTD_MAGIC), "not a zstd frame")
    try:
        require(zstandard.get_frame_parameters(frame).dict_id == 0, "a frame with a dictionary")
        decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX).decompressobj()
        plain, step = bytearray(), 64
        for at in range(0, len(frame), step):
            require(not decoder.eof, "bytes after the frame")
            plain += decoder.decompress(frame[at : at + step])
            require(len(plain) <= plain_len, "a frame longer than its segment")
    except zstandard.ZstdError as error:
        raise FormatError(f"zstd: {error}") from error
    require(decoder.eof and not decoder.unused_data, "a frame cut short, or bytes after it")
    require(len(plain) == plain_len, "a frame shorter than its segment")
    return bytes(plain)


def from_planes(stored: bytes, plain_len: int) -> bytes:
    """A segment of coding 4 (§6.3)."""
    fields = Fields(stored)
    width, rotated, head_len, zero = (fields.number(1) for _ in range(4))
    require(width in (2, 4, 8) and rotated <= 1 and head_len < width and zero == 0, "a header of planes")
    words, tail_len = divmod(plain_len - head_len, width)
    require(words > 0, "planes without a word")
    lengths = [fields.number(4) for _ in range(width)]
    require(all(0 < length <= words for length in lengths), "a plane's stored length")
    head = fields.take(head_len)
    planes = [fields.take(length) for length in lengths]
    tail = fields.take(tail_len)
    fields.end()
    planes = [plane if len(plane) == words else unzstd(plane, words) for plane in planes]
    middle = bytearray(words * width)
    for place, plane in enumerate(planes):
        middle[place::width] = plane
    if rotated:
        top = width * 8 - 1
        numbers = (int.from_bytes(middle[at : at + width], "little") for at in range(0, len(middle), width))
        middle = bytearray(b"".join((word >> 1 | (word & 1) << top).to_bytes(width, "little") for word in numbers))
    return head + bytes(middle) + tail


@dataclass(frozen=True)
class KeysetEntry:
    """One wrapped domain key."""

    key_id: bytes
    key_epoch: int
    kek_fingerprint: bytes
    wrapped: bytes
    label: bytes

    def open(self, kek: bytes) -> tuple[DomainKey, int, str]:
        """The key, and the catalog id and name of the bucket it is for."""
        fingerprint = hkdf(kek, None, b"deltaweir kek fingerprint v1", 8)
        require(fingerprint == self.kek_fingerprint, "wrapped under another KEK", KeyRefusedError)
        fields = Fields(unwrap(kek, bare_wrap(self.wrapped)))
        key = DomainKey(secret=fields.take(32), id=fields.take(16), epoch=fields.number(4))
        same = (key.id, key.epoch) == (self.key_id, self.key_epoch)
        require(same and fields.left() == 0, "the wrap of another key", KeyRefusedError)
        label_key = hkdf(key.secret, None, b"deltaweir keyset label v1" + key.id, 32)
        label = Fields(unwrap(label_key, self.label))
        return key, label.number(8), label.text(label.left())


def bare_wrap(stored: bytes) -> bytes:
    """A wrap without what stands before it when a provider keeps its KEK."""
    if len(stored) in WRAP_LENS:
        return stored
    fields = Fields(stored)
    require(fields.take(4) == b"DWPK" and fields.number(1) == 1, "no wrap of a key", KeyRefusedError)
    fields.zero(3)
    for longest in (32, 2048, 16 << 10):
        part = fields.take(fields.number(2))
        require(0 < len(part) <= longest, "what is said of a KEK has another length", KeyRefusedError)
    wrap = fields.take(fields.left())
    require(len(wrap) in WRAP_LENS, "no wrap of a key", KeyRefusedError)
    return wrap


def unwrap(kek: bytes, wrapped: bytes) -> bytes:
    try:
        return aes_key_unwrap_with_padding(kek, wrapped)
    except (InvalidUnwrap, ValueError) as error:
        raise KeyRefusedError("not wrapped under this key, or altered") from error


def parse_keyset(document: bytes) -> list[KeysetEntry]:
    fields = Fields(document)
    require(fields.take(4) == b"DWKS" and fields.number(1) == 1, "not a keyset, or of an unknown version")
    fields.zero(3)
    entries: list[KeysetEntry] = []
    for _ in range(fields.number(4)):
        key_id, key_epoch, fingerprint = fields.take(16), fields.number(4), fields.take(8)
        ascending = not entries or (entries[-1].key_id, entries[-1].key_epoch) < (key_id, key_epoch)
        require(ascending, "entries not ascending")
        wrapped = fields.take(fields.number(2))
        entries.append(KeysetEntry(key_id, key_epoch, fingerprint, wrapped, fields.take(fields.number(2))))
    fields.end()
    return entries


def read_keyset(data: bytes, expected_id: bytes | None) -> list[KeysetEntry]:
    """The entries of a keyset blob."""
    blob = Blob(data, expected_id, None)
    raw = all(segment.coding == RAW for segment in blob.segments)
    require(blob.header.kind == KIND_KEYSET and raw, "not a keyset blob of raw segments")
    return parse_keyset(blob.content())


@dataclass(frozen=True)
class RowContext:
    """What a sealed row is bound to. An extent is blob id, offset and length."""

    bucket: int
    key: str
    version_id: bytes
    part: int | None
    extents: list[tuple[bytes, int, int]]

    def bound(self) -> bytes:
        key = self.key.encode()
        extents = (
            blob + offset.to_bytes(8, "little") + length.to_bytes(8, "little") for blob, offset, length in self.extents
        )
        return hashlib.sha256(
            b"deltaweir row v1"
            + self.bucket.to_bytes(8, "little")
            + len(key).to_bytes(4, "little")
            + key
            + self.version_id
            + (b"\0" if self.part is None else b"\1" + self.part.to_bytes(4, "little"))
            + hashlib.sha256(b"".join(extents)).digest()
        ).digest()


def open_row(key: DomainKey, context: RowContext, sealed: bytes) -> bytes:
    """The facts of a row that was sealed for this context."""
    fields = Fields(sealed)
    require(fields.number(1) == 1, "unknown version of a sealed row")
    require(fields.take(16) == key.id, "sealed under another key", KeyRefusedError)
    nonce = fields.take(24)
    require(fields.left() >= TAG_LEN, "shorter than a tag")
    okm = hkdf(key.secret, nonce, b"deltaweir row v1" + key.id, 44)
    try:
        return AESGCM(okm[:32]).decrypt(okm[32:], fields.take(fields.left()), context.bound())
    except InvalidTag as error:
        raise IntegrityError("a sealed row") from error


def describe(blob: Blob) -> dict[str, object]:
    """What a blob consists of, for printing."""
    header, root = blob.header, blob.root
    return {
        "blob_id": header.blob_id.hex(),
        "suite": header.suite,
        "kind": header.kind,
        "key_id": header.key_id.hex() if header.suite else None,
        "key_epoch": header.key_epoch if header.suite else None,
        "stored_bytes": len(blob.data),
        "plain_bytes": root.plain_len,
        "payload_bytes": root.payload_len,
        "base_tag": root.base_tag.hex(),
        "bucket": root.bucket,
        "key": root.key,
        "view": [[part.blob.hex(), part.offset, part.length] for part in root.view],
        "segments": [
            {
                "plain_bytes": segment.plain_len,
                "stored_offset": segment.stored_offset,
                "stored_bytes": segment.stored_len,
                "coding": ("raw", "zstd", "delta", "view", "planes", "gapped-view")[segment.coding],
                "footprint": segment.footprint,
            }
            for segment in blob.segments
        ],
    }


class Store:
    """Blobs by id below a folder, opened with the keys of a keyset."""

    def __init__(self, folder: Path | None, keys: list[DomainKey]) -> None:
        self.folder = folder
        self.keys = {(key.id, key.epoch): key for key in keys}

    def open(self, data: bytes, expected_id: bytes | None) -> Blob:
        header = Header.parse(data[:HEADER_LEN])
        key = self.keys.get((header.key_id, header.key_epoch)) if header.suite else None
        return Blob(data, expected_id, key)

    def base(self, blob_id: bytes) -> Base:
        found = next(self.folder.rglob(blob_id.hex() + "*"), None) if self.folder else None
        if found is None:
            return no_bases(blob_id)
        return self.open(found.read_bytes(), blob_id)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("blob", type=Path)
    parser.add_argument("--describe", action="store_true", help="print the blob's parts as JSON")
    parser.add_argument("-o", "--output", type=Path, help="write the plain content here")
    parser.add_argument("--keyset", type=Path, help="keyset blob; the KEK is in DELTAWEIR_KEK")
    parser.add_argument("--blobs", type=Path, help="folder with base blobs, named by id")
    arguments = parser.parse_args()
    try:
        keys: list[DomainKey] = []
        if arguments.keyset:
            kek = base64.b64decode(os.environ["DELTAWEIR_KEK"], validate=True)
            keys = [entry.open(kek)[0] for entry in read_keyset(arguments.keyset.read_bytes(), None)]
        store = Store(arguments.blobs, keys)
        blob = store.open(arguments.blob.read_bytes(), None)
        if arguments.describe:
            print(json.dumps(describe(blob), indent=2))
        if arguments.output:
            arguments.output.write_bytes(blob.content(store.base))
    except FormatError as error:
        print(f"{arguments.blob}: {error.kind}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Every vector of deflate-view-v1 through the independent decoder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import xxhash
from deflate_gaps import without_gaps
from deflate_streams import MalformedError, inflate
from deflate_view_v1 import decode, decode_segment, segment_work

VECTORS = Path(__file__).resolve().parents[2] / "tests" / "vectors" / "deflate-view"


@dataclass(frozen=True)
class Vector:
    name: str
    header: dict[str, str]
    data: bytes


@cache
def read(name: str) -> Vector:
    header, body = (VECTORS / f"{name}.vec").read_text(encoding="ascii").split("\n\n", 1)
    fields = dict(line.split(": ", 1) for line in header.splitlines())
    return Vector(name, fields, bytes.fromhex("".join(body.split())))


ALL = [read(path.stem) for path in sorted(VECTORS.glob("*.vec"))]
CONTAINERS = [vector for vector in ALL if vector.header["type"] == "container"]
UNITS = [vector for vector in ALL if vector.header["type"] == "unit"]
SEGMENTS = [vector for vector in ALL if vector.header["type"] == "segment"]
GOOD = [vector for vector in UNITS if vector.header["expect"] != "malformed"]
BAD = [vector for vector in UNITS if vector.header["expect"] == "malformed"]


def test_no_vector_is_missing_or_of_a_third_kind() -> None:
    assert len(GOOD) >= 20
    assert len(BAD) > len(GOOD)
    assert len(CONTAINERS) >= 55
    assert len(SEGMENTS) >= 34
    assert len(CONTAINERS) + len(UNITS) + len(SEGMENTS) == len(ALL)


@pytest.mark.parametrize("vector", GOOD, ids=lambda vector: vector.name)
def test_a_good_unit_gives_its_object(vector: Vector) -> None:
    object_bytes = decode(read(vector.header["base"]).data, vector.data)
    assert hashlib.sha256(object_bytes).hexdigest() == vector.header["expect"]


@pytest.mark.parametrize("vector", BAD, ids=lambda vector: vector.name)
def test_a_bad_unit_is_refused(vector: Vector) -> None:
    with pytest.raises(MalformedError):
        decode(read(vector.header["base"]).data, vector.data)


@pytest.mark.parametrize("length", range(0, 600, 7))
def test_a_unit_that_ends_early_is_refused(length: int) -> None:
    vector = read("unit_next_release")
    assert length < len(vector.data)
    with pytest.raises(MalformedError):
        decode(read(vector.header["base"]).data, vector.data[:length])


@pytest.mark.parametrize("vector", CONTAINERS, ids=lambda vector: vector.name)
def test_the_streams_of_a_container_have_their_plain_text(vector: Vector) -> None:
    for stream in vector.header["streams"].split(" "):
        if stream == "none":
            continue
        _, start, end, length, digest, *runs = stream.split(":")
        if int(length) > 1_000_000:
            continue  # a minute of Python's time: the other reader of these vectors looks at it
        data, at = vector.data, int(start)
        if runs:
            each = [tuple(map(int, run.split("/"))) for run in runs[0].split("+")]
            gaps = [(piece, gap, times) for piece, gap, times in each]
            data, at = without_gaps(gaps, vector.data[int(start) : int(end)]), 0
        plain, _ = inflate(data, at, int(length))
        assert hashlib.sha256(plain).hexdigest()[:16] == digest


def segment_content(vector: Vector, stored: bytes) -> bytes:
    """The content, all digests compared."""
    base = read(vector.header["base"]).data
    coding = int(vector.header.get("coding", 3))
    units = decode_segment(base, [(0, len(base))], stored, int(vector.header["plain-length"]), coding)
    for plain, digest in units:
        if xxhash.xxh3_128_digest(plain)[::-1] != digest:
            raise MalformedError("a unit of another digest")
    return b"".join(plain for plain, _ in units)


@pytest.mark.parametrize("vector", SEGMENTS, ids=lambda vector: vector.name)
def test_a_segment_gives_its_content_or_is_refused(vector: Vector) -> None:
    if vector.header["expect"] == "malformed":
        with pytest.raises(MalformedError):
            segment_content(vector, vector.data)
    else:
        content = segment_content(vector, vector.data)
        assert hashlib.sha256(content).hexdigest() == vector.header["expect"]


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("segment_gaps_base", 279_142),
        ("segment_gaps_dump", 279_142),
        ("segment_gaps_picture", 208_186),
        ("segment_gaps_point", 1_067_833),
        ("segment_gaps_units", 1_457_302),
    ],
)
def test_the_work_of_a_segment_with_gaps_counts_the_bytes_that_are_joined_for_it(name: str, work: int) -> None:
    assert segment_work(read(name).data, 5) == work

"""Every vector of delta-v1 through the independent decoder, and a few properties the vectors do not show."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from delta_v1 import MalformedDeltaError, Reader, decode, unzigzag

VECTORS = Path(__file__).resolve().parents[2] / "tests" / "vectors" / "delta-v1"


@dataclass(frozen=True)
class Vector:
    name: str
    header: dict[str, str]
    delta: bytes

    def footprint(self) -> bytes:
        words = self.header["footprint"].split(" ")
        if words == ["empty"]:
            return b""
        if words[0] == "hex":
            return bytes.fromhex(words[1])
        kind, seed, length = words
        assert kind == "lcg"
        return lcg(int(seed), int(length))


def lcg(seed: int, length: int) -> bytes:
    out = bytearray(length)
    state = seed
    for at in range(length):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        out[at] = state >> 56
    return bytes(out)


def read(path: Path) -> Vector:
    header, body = path.read_text(encoding="ascii").split("\n\n")
    fields = dict(line.split(": ", 1) for line in header.splitlines())
    return Vector(path.stem, fields, bytes.fromhex("".join(body.split())))


ALL = [read(path) for path in sorted(VECTORS.glob("*.vec"))]
GOOD = [vector for vector in ALL if vector.header["expect"] == "target"]
BAD = [vector for vector in ALL if vector.header["expect"] == "malformed"]


def test_no_vector_is_missing_or_of_a_third_kind() -> None:
    assert len(GOOD) >= 20
    assert len(BAD) > 2 * len(GOOD)
    assert len(GOOD) + len(BAD) == len(ALL)


@pytest.mark.parametrize("vector", GOOD, ids=lambda vector: vector.name)
def test_a_good_vector_gives_its_target(vector: Vector) -> None:
    target_len = int(vector.header["target_len"])
    target = decode(vector.footprint(), vector.delta, target_len)
    assert len(target) == target_len
    assert hashlib.sha256(target).hexdigest() == vector.header["target_sha256"]


@pytest.mark.parametrize("vector", BAD, ids=lambda vector: vector.name)
def test_a_bad_vector_is_refused(vector: Vector) -> None:
    # The contents of a footprint that is only too long do not matter; making 32 MiB of them would take Python a minute.
    length = int(vector.header["footprint"].split(" ")[-1]) if "lcg" in vector.header["footprint"] else 0
    footprint = bytes(length) if length > 1 << 20 else vector.footprint()
    with pytest.raises(MalformedDeltaError):
        decode(footprint, vector.delta, int(vector.header["target_len"]))


@pytest.mark.parametrize(
    "vector", [vector for vector in GOOD if len(vector.delta) < 3000], ids=lambda vector: vector.name
)
def test_a_truncated_good_vector_is_refused(vector: Vector) -> None:
    footprint, target_len = vector.footprint(), int(vector.header["target_len"])
    for length in range(len(vector.delta)):
        with pytest.raises(MalformedDeltaError):
            decode(footprint, vector.delta[:length], target_len)


def stored(content: bytes) -> bytes:
    """A stream in coding 0, of at most 15 bytes."""
    return bytes([len(content) << 3]) + content


@pytest.mark.parametrize("run_len", range(1, 13))
@pytest.mark.parametrize("distance", range(13))
def test_a_sub_run_of_words_is_the_same_run_in_bytes(run_len: int, distance: int) -> None:
    rng = random.Random(13 * run_len + distance)
    footprint = rng.randbytes(40)
    # The least and the largest byte among equal ones: carries go up to the top of a word, and out of it.
    target = bytes(byte if at < distance else rng.choice([byte, 0, 255]) for at, byte in enumerate(footprint[:run_len]))
    sub = bytes((new - old) & 0xFF for new, old in zip(target, footprint, strict=False))
    equal = min(distance, run_len)
    distances, words = bytes([equal]), b""
    for at in range(equal, run_len, 4):
        new, old = (int.from_bytes(data[at : min(at + 4, run_len)], "little") for data in (target, footprint))
        words += ((new - old) & 0xFFFF_FFFF).to_bytes(4, "little")
        distances += b"\0" if at + 4 < run_len else b""
    copies = b"\1" + stored(bytes([run_len])) + stored(bytes([20])) + stored(b"\0")
    whole = target + footprint[run_len : run_len + 20]
    assert decode(footprint, b"\1" + copies + stored(sub) + stored(b""), len(whole)) == whole
    assert decode(footprint, b"\2" + copies + stored(distances) + stored(words) + stored(b""), len(whole)) == whole


@pytest.mark.parametrize(("code", "value"), [(0, 0), (1, -1), (2, 1), (3, -2), (4, 2), (2**28 - 1, -(2**27))])
def test_zigzag(code: int, value: int) -> None:
    assert unzigzag(code) == value


def test_the_largest_number_is_below_two_to_the_32() -> None:
    assert Reader(b"\xff\xff\xff\xff\x0f").number() == 2**32 - 1
    with pytest.raises(MalformedDeltaError):
        Reader(b"\x80\x80\x80\x80\x10").number()

"""Content to store, made from seeds: the same call gives the same bytes on every machine."""

from __future__ import annotations

import hashlib
import random

import numpy

KIB = 1024
MIB = 1024 * KIB


def noise(seed: int, size: int) -> bytes:
    """Bytes nothing can shrink."""
    return numpy.random.default_rng(seed).bytes(size)


def text(seed: int, size: int) -> bytes:
    """Lines of a log: compressible, without long repeats."""
    rng = random.Random(seed)
    lines: list[str] = []
    length = 0
    while length < size:
        day, host, job = rng.randint(1, 30), rng.randint(1, 40), rng.getrandbits(40)
        line = f"2026-11-{day:02} host-{host} job {job:x} took {rng.random():.6f} s\n"
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()[:size]


def release(seed: int, size: int, version: int) -> bytes:
    """A build's output, `version` builds after the first: noise that keeps most of its bytes from build to build, with
    scattered changed bytes (addresses that moved) and new code that shifts what follows."""
    content = numpy.frombuffer(noise(seed, size), dtype=numpy.uint8).copy()
    if size == 0:
        return b""
    for step in range(1, version + 1):
        rng = numpy.random.default_rng((seed, step))
        at = rng.integers(0, size, size=max(1, size // 2048))
        content[at] ^= rng.integers(1, 256, size=len(at), dtype=numpy.uint8)
        cut = int(rng.integers(0, size))
        inserted = numpy.frombuffer(rng.bytes(97 + size // 512), dtype=numpy.uint8)
        content = numpy.concatenate([content[:cut], inserted, content[cut:]])[:size]
    return content.tobytes()


def sha256(content: bytes) -> str:
    """Hex SHA-256."""
    return hashlib.sha256(content).hexdigest()


def md5(content: bytes) -> str:
    """Hex MD5: the ETag of a single PUT."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def multipart_etag(parts: list[bytes]) -> str:
    """The ETag of a multipart object: MD5 over the parts' MD5s, and their number."""
    digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
    return f"{md5(digests)}-{len(parts)}"

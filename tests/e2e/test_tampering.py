"""A stored byte that changed is an error, never wrong bytes with a clean end (I4)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import KIB, MIB, noise, release, text
from outside.server import Server

BUCKETS = ["delta-00", "delta-aes256-00", "off-00"]


def contents() -> dict[str, bytes]:
    """Objects of each form; the second release is a delta against the first."""
    return {
        "app-1": release(61, 5 * MIB, 0),
        "app-2": release(61, 5 * MIB, 1),
        "text": text(61, 2 * MIB),
        "noise": noise(61, 300 * KIB),
    }


def filled(server: Server, bucket: str) -> S3Client:
    """A started server with the objects in a bucket."""
    s3 = blunt_client(server.start().endpoint)
    s3.create_bucket(Bucket=bucket)
    for key, content in contents().items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    return s3


def read(s3: S3Client, bucket: str, key: str, **more: str) -> bytes | None:
    """An object's bytes; `None` when the answer was an error or was cut short."""
    try:
        body: bytes = s3.get_object(Bucket=bucket, Key=key, **more)["Body"].read()
    except (BotoCoreError, ClientError):
        return None
    return body


def damaged_reads(server: Server, s3: S3Client, bucket: str) -> int:
    """How many objects fail to be read now; none may be read wrong."""
    server.drop_caches()
    failed = 0
    for key, content in contents().items():
        got = read(s3, bucket, key)
        assert got in (None, content), f"wrong bytes of {key} with a clean end"
        failed += got is None
    return failed


def flip(path: Path, at: int) -> None:
    """Changes one bit."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_flipped_bit_anywhere_is_never_read_as_content(new_server: NewServer, bucket: str) -> None:
    server = new_server()
    s3 = filled(server, bucket)
    rng = random.Random(61)
    detected = 0
    for path in server.blob_files():
        size = path.stat().st_size
        for at in {0, 80, 159, size // 3, size // 2, size - 200, size - 1, *(rng.randrange(size) for _ in range(4))}:
            if not 0 <= at < size:
                continue
            flip(path, at)
            detected += damaged_reads(server, s3, bucket) > 0
            flip(path, at)
    assert detected >= 10
    assert damaged_reads(server, s3, bucket) == 0
    assert (
        server.metrics().total("deltaweir_checksum_failures_total")
        + server.metrics().total("deltaweir_aead_failures_total")
        > 0
    )


@pytest.mark.parametrize("bucket", BUCKETS)
def test_cut_extended_emptied_and_missing_files_are_errors(new_server: NewServer, bucket: str) -> None:
    server = new_server()
    s3 = filled(server, bucket)
    largest = max(server.blob_files(), key=lambda path: path.stat().st_size)
    whole = largest.read_bytes()
    half = whole[: len(whole) // 2]
    for damaged in (half, b"", half + bytes(len(whole) - len(half))):
        largest.write_bytes(damaged)
        assert damaged_reads(server, s3, bucket) >= 1
    for unread in (whole[:-1], whole + b"more"):  # the trailer serves who has lost the catalog; reads do not need it
        largest.write_bytes(unread)
        damaged_reads(server, s3, bucket)
    largest.unlink()
    assert damaged_reads(server, s3, bucket) >= 1
    largest.write_bytes(whole)
    assert damaged_reads(server, s3, bucket) == 0


def test_two_blobs_of_one_size_cannot_change_places(new_server: NewServer) -> None:
    server = new_server()
    s3 = blunt_client(server.start().endpoint)
    first, second = noise(1, 400 * KIB), noise(2, 400 * KIB)
    for bucket in ("off-00", "off-aes256-00"):
        s3.create_bucket(Bucket=bucket)
        before = set(server.blob_files())
        s3.put_object(Bucket=bucket, Key="1", Body=first)
        s3.put_object(Bucket=bucket, Key="2", Body=second)
        one, two = (path for path in server.blob_files() if path not in before)
        swap = one.read_bytes(), two.read_bytes()
        one.write_bytes(swap[1])
        two.write_bytes(swap[0])
        server.drop_caches()
        assert (read(s3, bucket, "1"), read(s3, bucket, "2")) == (None, None)


def test_damage_behind_the_range_does_not_stop_the_range(new_server: NewServer) -> None:
    server = new_server()
    s3 = blunt_client(server.start().endpoint)
    s3.create_bucket(Bucket="off-00")
    content = noise(3, 9 * MIB)
    s3.put_object(Bucket="off-00", Key="k", Body=content)
    (path,) = server.blob_files()[-1:]
    flip(path, 8 * MIB)
    server.drop_caches()
    assert read(s3, "off-00", "k", Range="bytes=0-99999") == content[:100_000]
    assert read(s3, "off-00", "k", Range=f"bytes={7 * MIB}-") is None
    assert read(s3, "off-00", "k") is None

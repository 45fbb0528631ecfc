"""Objects put together from each other, in every way there is to put them, are read as they were put, whatever serves
them as a base."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client, upload_parts
from outside.content import MIB, noise, text
from outside.storage import assert_accounts_balance, collect

OBJECTS = 24
"""Half as many with the seed of every run."""
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 22)))


def edited(rng: random.Random, content: bytes) -> bytes:
    """The same with none, one or many bytes changed."""
    changed = bytearray(content)
    for _ in range(rng.choice((0, 1, len(changed) // 3000))):
        changed[rng.randrange(len(changed))] ^= rng.randint(1, 255)
    return bytes(changed)


def mixture(rng: random.Random, earlier: list[bytes]) -> bytes:
    """Up to 24 MiB: something new, the next version of an earlier object, or stretches of several and something new."""
    manner = rng.random() if earlier else 0
    if manner < 0.2:
        return noise(rng.randrange(1 << 30), rng.randint(1, 24 * MIB))
    if manner < 0.5:
        return edited(rng, rng.choice(earlier))
    parts: list[bytes] = []
    for _ in range(rng.randint(1, 5)):
        if rng.random() < 0.2:
            parts.append((noise if rng.random() < 0.7 else text)(rng.randrange(1 << 30), rng.randint(1, 4 * MIB)))
        else:
            source = rng.choice(earlier)
            start = rng.randrange(len(source))
            parts.append(edited(rng, source[start : start + rng.randint(1, 16 * MIB)]))
    return b"".join(parts)[: 24 * MIB]


def put(rng: random.Random, s3: S3Client, bucket: str, key: str, content: bytes) -> None:
    """In one piece, in parts of boto3's choice, or in parts of any length in any order."""
    match rng.randrange(3):
        case 0:
            s3.put_object(Bucket=bucket, Key=key, Body=content)
        case 1:
            upload_parts(s3, bucket, key, content)
        case _:
            cuts = [0]
            while cuts[-1] < len(content):
                cuts.append(min(len(content), cuts[-1] + rng.randint(5 * MIB, 11 * MIB)))
            pieces = list(enumerate((content[a:b] for a, b in itertools.pairwise(cuts)), 1))
            upload = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
            etags = {}
            for number, piece in rng.sample(pieces, len(pieces)):
                done = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=piece)
                etags[number] = done["ETag"]
            parts = [{"PartNumber": number, "ETag": etags[number]} for number in sorted(etags)]
            s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})


def differing(s3: S3Client, bucket: str, contents: dict[str, bytes], rng: random.Random) -> Iterator[str]:
    """Keys that are not read as they were put, whole or from somewhere in the middle."""
    for key, content in contents.items():
        if s3.get_object(Bucket=bucket, Key=key)["Body"].read() != content:
            yield key
        start = rng.randrange(len(content))
        end = min(len(content), start + rng.randint(1, MIB)) - 1
        ranged = s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{end}")["Body"].read()
        if ranged != content[start : end + 1]:
            yield f"{key} {start}-{end}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bucket", ("delta-00", "delta-aes256-00"))
def test_objects_made_of_each_other_are_read_as_they_were_put(new_server: NewServer, bucket: str, seed: int) -> None:
    """A budget of 64 MiB, so that most bases are longer than a window; some objects are replaced, some deleted, some
    copied, and the converter encodes and merges what it finds."""
    rng = random.Random(f"{bucket} {seed}")
    own = new_server(
        defaults={"effort": "high"},
        limits={"memory_bytes_max": "64MiB"},
        convert={"interval": "1h", "free_bytes_min": 0, "merge_extents": 32},
    ).start()
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket=bucket)
    contents: dict[str, bytes] = {}
    for number in range(OBJECTS if seed > 1 else OBJECTS // 2):
        key = rng.choice((f"app-{number}", f"{number:x}/data", rng.choice(list(contents) or ["first"])))
        contents[key] = mixture(rng, list(contents.values()))
        put(rng, s3, bucket, key, contents[key])
        if rng.random() < 0.2:
            source = rng.choice(list(contents))
            s3.copy_object(Bucket=bucket, Key=f"copy-{number}", CopySource={"Bucket": bucket, "Key": source})
            contents[f"copy-{number}"] = contents[source]
        if rng.random() < 0.15 and len(contents) > 3:
            gone = rng.choice(list(contents))
            s3.delete_object(Bucket=bucket, Key=gone)
            del contents[gone]
        if rng.random() < 0.2:
            own.settle(300)
    assert list(differing(s3, bucket, contents, rng)) == []
    own.settle(300)
    collect(own)
    own.restart()
    s3 = s3_client(own.endpoint)
    assert list(differing(s3, bucket, contents, rng)) == []
    assert_accounts_balance(own)

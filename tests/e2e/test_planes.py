"""Files of numbers: their byte planes take less than zstd makes of them, and every byte comes back."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client, upload_parts
from outside.content import MIB, noise, text
from outside.server import Server
from outside.storage import assert_accounts_balance, stored

SIZE = 9 * MIB + 77
"""Three segments, the last one short and not a whole number of words."""

BUCKETS = ("zstd-00", "delta-00", "delta-aes256-00")

Kind = Callable[[int], bytes]

HEADER = b'{"layer.0.weight":{"dtype":"F32","shape":[1024,2300]}}'
"""Numbers begin behind it, at no multiple of their width."""


def fp32(seed: int, size: int = SIZE) -> bytes:
    """Weights of single precision behind a header, as a file of tensors holds them."""
    weights = numpy.random.default_rng(seed).normal(0.0, 0.02, size // 4).astype("<f4")
    return (HEADER + weights.tobytes())[:size]


def bf16(seed: int, size: int = SIZE) -> bytes:
    """The same weights rounded to bfloat16."""
    weights = numpy.random.default_rng(seed).normal(0.0, 0.02, size // 2).astype("<f4").view("<u4")
    return (HEADER + ((weights + 0x8000) >> 16).astype("<u2").tobytes())[:size]


def tuned(seed: int, size: int = SIZE) -> bytes:
    """Each weight of [`fp32`] a little other: no byte run of the first ones is left, and a delta gains nothing."""
    rng = numpy.random.default_rng(seed)
    weights = rng.normal(0.0, 0.02, size // 4) + rng.normal(0.0, 0.001, size // 4)
    return (HEADER + weights.astype("<f4").tobytes())[:size]


def flip(path: Path) -> None:
    """One bit in the middle; done twice, nothing has happened."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.chmod(0o600)
    path.write_bytes(content)


def body(s3: S3Client, bucket: str, key: str, first: int, end: int) -> bytes:
    """A range of an object."""
    content: bytes = s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={first}-{end - 1}")["Body"].read()
    return content


def codings(server: Server, bucket: str, key: str) -> dict[str, int]:
    """How many segments have which coding, as `explain` says."""
    counts: dict[str, int] = {}
    for blob in server.json("explain", f"s3://{bucket}/{key}")["blobs"]:
        for coding, number in blob["segments_by_coding"].items():
            counts[coding] = counts.get(coding, 0) + number
    return counts


def assert_same(s3: S3Client, server: Server, bucket: str, key: str, content: bytes) -> None:
    """The whole object and ranges of it, read from the store and not from memory."""
    server.drop_caches()
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == content
    rng = random.Random(key)
    starts = [0, 4 * MIB - 3, len(content) - 5, *(rng.randrange(len(content)) for _ in range(8))]
    for first in starts:
        end = min(len(content), first + rng.choice([1, 7, 70_000, 5 * MIB]))
        server.drop_caches()
        assert body(s3, bucket, key, first, end) == content[first:end], (first, end)


KINDS: dict[str, tuple[Kind, float]] = {"bf16": (bf16, 0.67), "fp32": (fp32, 0.84)}
"""Made-up weights and the share that is published for their kind."""


@pytest.mark.parametrize("kind", KINDS)
def test_weights_take_the_published_share_in_every_bucket_and_come_back(new_server: NewServer, kind: str) -> None:
    make, share_max = KINDS[kind]
    server, content = new_server(convert={"interval": "1h"}).start(), make(1)
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    s3.put_object(Bucket="off-00", Key="weights", Body=content)
    assert stored(s3, "off-00", "weights").stored_bytes >= len(content)
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="weights", Body=content)
        found = stored(s3, bucket, "weights")
        assert found.form == "zstd", "compressed alone"
        assert found.stored_bytes <= len(content) * share_max, (bucket, found.stored_bytes / len(content))
        assert codings(server, bucket, "weights") == {"planes": 3}
        assert_same(s3, server, bucket, "weights", content)
    assert server.metrics().total("deltaweir_encode_seconds_count", codec="planes") == 3 * len(BUCKETS)
    assert server.metrics().total("deltaweir_decode_seconds_count", codec="planes") > 3 * len(BUCKETS)
    assert_accounts_balance(server)


@pytest.mark.parametrize("effort", ["fast", "balanced", "high", "max"])
def test_parts_and_every_effort_make_planes(new_server: NewServer, effort: str) -> None:
    server = new_server(defaults={"effort": effort}, convert={"interval": "1h", "free_bytes_min": 0}).start()
    s3, content = s3_client(server.endpoint), bf16(2)
    for bucket in BUCKETS[1:]:
        s3.create_bucket(Bucket=bucket)
        upload_parts(s3, bucket, "weights", content)
        server.settle(120)
        assert stored(s3, bucket, "weights").stored_bytes <= len(content) * 0.67
        assert codings(server, bucket, "weights").keys() == {"planes"}
        assert_same(s3, server, bucket, "weights", content)
    assert_accounts_balance(server)


def test_the_next_weights_are_a_delta_where_that_pays_and_planes_where_not(new_server: NewServer) -> None:
    server = new_server(convert={"interval": "1h"}).start()
    s3, bucket = s3_client(server.endpoint), BUCKETS[1]
    s3.create_bucket(Bucket=bucket)
    first = fp32(3)
    frozen = bytearray(first)
    frozen[6 * MIB : 6 * MIB + 200_000] = fp32(4)[6 * MIB : 6 * MIB + 200_000]
    for key, content in (("model-1", first), ("model-2", bytes(frozen)), ("model-3", tuned(3))):
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    server.settle(120)
    assert stored(s3, bucket, "model-2").form == "delta", "most weights stayed"
    assert stored(s3, bucket, "model-2").stored_bytes <= 400_000
    assert codings(server, bucket, "model-3") == {"planes": 3}, "all weights changed"
    assert stored(s3, bucket, "model-3").stored_bytes <= SIZE * 0.84
    for key, content in (("model-1", first), ("model-2", bytes(frozen)), ("model-3", tuned(3))):
        assert_same(s3, server, bucket, key, content)


def test_what_is_no_numbers_gets_no_planes(new_server: NewServer) -> None:
    server = new_server(convert={"interval": "1h"}).start()
    s3, bucket = s3_client(server.endpoint), BUCKETS[0]
    s3.create_bucket(Bucket=bucket)
    letters = bytes(byte & 0x3F | 0x40 for byte in noise(5, MIB))
    for key, content in (("log", text(5, MIB)), ("noise", noise(6, MIB)), ("letters", letters), ("few", fp32(7, 3000))):
        s3.put_object(Bucket=bucket, Key=key, Body=content)
        assert "planes" not in codings(server, bucket, key), key
    assert server.metrics().total("deltaweir_encode_seconds_count", codec="planes") == 0


def test_what_reads_or_moves_stored_objects_knows_planes(new_server: NewServer, tmp_path: Path) -> None:
    """Copies, scrub and damage, eject, estimate, preview, a rebuilt catalog."""
    server = new_server(convert={"interval": "1h"}).start()
    s3, bucket, content = s3_client(server.endpoint), BUCKETS[1], fp32(8)
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="weights", Body=content)
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/weights")
    taken = stored(s3, bucket, "weights").stored_bytes
    (preview,) = server.json("preview", f"s3://{bucket}/weights", "--compression", "zstd")["previews"]
    assert abs(preview["stored_bytes"]["predicted"] - taken) < taken * 0.02
    assert server.json("scrub")["counts"]["damaged"] == 0
    (extent,) = server.json("explain", f"s3://{bucket}/weights")["extents"]
    (blob,) = server.blobs.rglob(extent["blob"])
    told = server.json("inspect", extent["blob"])
    assert [segment["coding"] for segment in told["segments"]] == ["planes"] * 3
    flip(blob)
    found = server.run("scrub", "--json", check=False)
    assert {one["key"] for one in json.loads(found.stdout)["quarantine"]["affected"]} == {"weights", "copy"}
    flip(blob)
    server.run("scrub", "--percent", "100", "--older-than", "0s", "--bytes-per-second", "1GiB")
    ejected = tmp_path / "ejected"
    assert server.json("eject", f"s3://{bucket}", str(ejected))["failed"] == 0
    assert (ejected / "weights").read_bytes() == content
    estimated = server.json("estimate", str(ejected))["stored_bytes"]
    assert estimated["low"] <= taken * 1.02 and estimated["high"] >= taken * 0.98, (estimated, taken)
    assert server.stop() == 0
    server.lose_catalog()
    assert server.json("rebuild")["recovered"]["unknown_blobs"] == 0
    server.start()
    assert_same(s3, server, bucket, "copy", content)
    assert_accounts_balance(server)

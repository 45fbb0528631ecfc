"""Bases are found by what content holds, wherever it lies in its bucket, and nowhere else."""

from __future__ import annotations

import pytest

from outside.buckets import MakeBucket, NewServer
from outside.clients import S3Client, s3_client, upload_parts
from outside.content import MIB, noise, release
from outside.server import DELTA, DELTA_SEALED, Mode, Server
from outside.storage import assert_accounts_balance, stored


@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_a_renamed_release_in_another_prefix_is_a_delta(
    server: Server, s3: S3Client, make_bucket: MakeBucket, mode: Mode
) -> None:
    bucket = make_bucket(mode)
    s3.put_object(Bucket=bucket, Key="nightly/2026-01-01/image", Body=release(81, 9 * MIB, 0))
    server.settle()
    s3.put_object(Bucket=bucket, Key="customers/seven/download.bin", Body=release(81, 9 * MIB, 1))
    found = stored(s3, bucket, "customers/seven/download.bin")
    assert (found.form, found.bases) == ("delta", ("nightly/2026-01-01/image",))
    assert found.stored_bytes < 9 * MIB // 10
    body = s3.get_object(Bucket=bucket, Key="customers/seven/download.bin")["Body"].read()
    assert body == release(81, 9 * MIB, 1)
    told = server.admin(f"/api/v1/explain?bucket={bucket}&key=customers/seven/download.bin")
    (candidate,) = told["blobs"][0]["choices"][0]["candidates"]
    assert (candidate["source"], candidate["chosen"]) == ("hooks", True)
    assert candidate["overlap_permille"] > 500


def test_the_same_content_in_another_bucket_is_no_base(server: Server, s3: S3Client, make_bucket: MakeBucket) -> None:
    first, second = make_bucket(DELTA), make_bucket(DELTA)
    s3.put_object(Bucket=first, Key="a", Body=release(82, 6 * MIB, 0))
    server.settle()
    s3.put_object(Bucket=second, Key="b", Body=release(82, 6 * MIB, 1))
    assert stored(s3, second, "b").form != "delta"


def test_among_unrelated_objects_nothing_is_read(server: Server, s3: S3Client, bucket: str) -> None:
    for index in range(3):
        s3.put_object(Bucket=bucket, Key=f"{index}/{index}", Body=noise(90 + index, 5 * MIB))
    server.settle()
    server.drop_caches()
    before = server.metrics().total("deltaweir_backend_bytes_total", backend="local", dir="read")
    s3.put_object(Bucket=bucket, Key="x/y", Body=noise(99, 9 * MIB))
    assert server.metrics().total("deltaweir_backend_bytes_total", backend="local", dir="read") == before


@pytest.mark.parametrize("bucket", ("delta-00", "delta-aes256-00"))
def test_what_differs_from_more_blobs_than_a_window_holds_is_read_back_as_it_was_put(
    new_server: NewServer, bucket: str
) -> None:
    """A budget of 128 MiB takes bases whole up to 16 MiB; of longer ones every 4 MiB of the target have a window of
    their own, with other blobs in it. What is stored at first and what the converter makes of it later must both find
    each byte in the right one."""
    own = new_server(defaults={"effort": "high"}, limits={"memory_bytes_max": "128MiB"}, convert={"interval": "1h"})
    own.start()
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket=bucket)
    contents = {f"app-{version}": release(91, 40 * MIB, version) for version in range(3)}
    contents["other"] = release(92, 20 * MIB, 0)
    contents["mixed"] = release(92, 20 * MIB, 1) + contents["app-2"][: 20 * MIB]
    for key, content in contents.items():
        if key in ("app-0", "other"):
            upload_parts(s3, bucket, key, content)
            own.settle(120)
        else:
            s3.put_object(Bucket=bucket, Key=key, Body=content)
            found = stored(s3, bucket, key)
            assert found.form == "delta" and found.stored_bytes < len(content) * 2 // 3, (key, found)
    for restart in (False, True):
        for key, content in contents.items():
            assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == content, (key, restart)
        own.settle(120)
        if not restart:
            assert own.metrics().total("deltaweir_convert_blobs_total", reason="deferred") > 0
            own.restart()
            s3 = s3_client(own.endpoint)
    assert_accounts_balance(own)


def test_a_base_whose_blob_is_lost_keeps_no_other_from_being_one(new_server: NewServer) -> None:
    own = new_server(convert={"interval": "1h", "defer": False}).start()
    s3 = s3_client(own.endpoint)
    bucket = "delta-00"
    s3.create_bucket(Bucket=bucket)
    halves = [noise(number, MIB) for number in (301, 302)]
    for number, half in enumerate(halves):
        s3.put_object(Bucket=bucket, Key=f"app-{number}", Body=half)
    own.settle()
    (blob,) = own.admin(f"/api/v1/explain?bucket={bucket}&key=app-1")["blobs"]
    (lost,) = own.blobs.rglob(blob["id"])
    lost.unlink()
    own.drop_caches()
    s3.put_object(Bucket=bucket, Key="app-2", Body=b"".join(halves))
    found = stored(s3, bucket, "app-2")
    assert (found.form, found.bases) == ("delta", ("app-0",))
    assert found.stored_bytes < 1.1 * MIB
    own.drop_caches()
    assert s3.get_object(Bucket=bucket, Key="app-2")["Body"].read() == b"".join(halves)

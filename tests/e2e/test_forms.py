"""What this server is for: the same bytes in less space, told truthfully."""

from __future__ import annotations

import pytest

from outside.buckets import MakeBucket, NewServer
from outside.clients import S3Client, s3_client, upload_parts
from outside.content import KIB, MIB, md5, noise, release, text
from outside.server import DELTA, DELTA_SEALED, MODES, OFF, ZSTD, Mode, Server
from outside.storage import assert_accounts_balance, bucket_stats, stored

SIZE = 20 * MIB


@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_the_next_release_is_a_small_delta_against_the_last(
    server: Server, s3: S3Client, make_bucket: MakeBucket, mode: Mode
) -> None:
    bucket = make_bucket(mode)
    for version in range(3):
        s3.put_object(Bucket=bucket, Key=f"app-1.{version}.bin", Body=release(41, SIZE, version))
    first, second, third = (stored(s3, bucket, f"app-1.{version}.bin") for version in range(3))
    assert first.form == "raw"
    assert second.form == third.form == "delta"
    assert second.bases == ("app-1.0.bin",)
    assert set(third.bases) <= {"app-1.0.bin", "app-1.1.bin"}
    assert max(second.stored_bytes, third.stored_bytes) < SIZE // 20
    server.settle()
    stats = bucket_stats(server, bucket)
    assert (stats["objects"], stats["logical_bytes"]) == (3, 3 * SIZE)
    assert stats["stored"]["total"] < SIZE * 1.15


def test_the_nearest_version_is_the_base_in_natural_order(s3: S3Client, bucket: str) -> None:
    """1.10 follows 1.9, not 1.1; what is far away in another family is not considered."""
    for version, name in ((0, "app-1.1.tar"), (9, "app-1.9.tar"), (0, "other.tar")):
        s3.put_object(Bucket=bucket, Key=name, Body=release(42 if "app" in name else 43, 6 * MIB, version))
    s3.put_object(Bucket=bucket, Key="app-1.10.tar", Body=release(42, 6 * MIB, 10))
    assert stored(s3, bucket, "app-1.10.tar").bases == ("app-1.9.tar",)


def test_an_overwritten_key_is_a_delta_of_what_it_was(s3: S3Client, bucket: str) -> None:
    for version in range(3):
        s3.put_object(Bucket=bucket, Key="nightly.img", Body=release(44, 8 * MIB, version))
    assert stored(s3, bucket, "nightly.img").form == "delta"
    assert s3.get_object(Bucket=bucket, Key="nightly.img")["Body"].read() == release(44, 8 * MIB, 2)


def test_each_kind_of_bucket_stores_text_as_it_is_told(s3: S3Client, make_bucket: MakeBucket) -> None:
    content = text(45, 3 * MIB)
    forms = {}
    for mode in (OFF, ZSTD, DELTA):
        bucket = make_bucket(mode)
        s3.put_object(Bucket=bucket, Key="day.log", Body=content)
        forms[mode.name] = stored(s3, bucket, "day.log")
    assert {name: found.form for name, found in forms.items()} == {"off": "raw", "zstd": "zstd", "delta": "zstd"}
    assert forms["off"].stored_bytes >= len(content)
    assert forms["zstd"].stored_bytes < len(content) // 2
    assert forms["delta"].stored_bytes < len(content) // 2


def test_what_cannot_shrink_is_raw_and_costs_little_more(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="noise", Body=noise(46, 8 * MIB))
    found = stored(s3, bucket, "noise")
    assert found.form == "raw"
    assert 8 * MIB <= found.stored_bytes <= 8 * MIB * 1.01


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_an_exact_duplicate_costs_nothing(server: Server, s3: S3Client, make_bucket: MakeBucket, mode: Mode) -> None:
    bucket = make_bucket(mode)
    content = release(47, 5 * MIB, 0)
    s3.put_object(Bucket=bucket, Key="one", Body=content)
    server.settle()
    before = bucket_stats(server, bucket)["stored"]["total"]
    for key in ("two", "three/deep"):
        s3.put_object(Bucket=bucket, Key=key, Body=content)
        assert (stored(s3, bucket, key).form, stored(s3, bucket, key).stored_bytes) == ("dedup", 0)
    server.settle()
    server.run("gc")
    assert bucket_stats(server, bucket)["stored"]["total"] == before
    s3.delete_object(Bucket=bucket, Key="one")
    assert s3.get_object(Bucket=bucket, Key="three/deep")["Body"].read() == content


def test_duplicates_are_not_shared_between_buckets(server: Server, s3: S3Client, make_bucket: MakeBucket) -> None:
    """A domain is one bucket: what another tenant stored must not be noticeable (E11)."""
    content = release(48, 3 * MIB, 0)
    here, there = make_bucket(), make_bucket()
    for bucket in (here, there):
        s3.put_object(Bucket=bucket, Key="same", Body=content)
        assert stored(s3, bucket, "same").form == "raw"
        assert bucket_stats(server, bucket)["stored"]["total"] >= len(content)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_list_head_and_get_agree_on_every_form(
    server: Server, s3: S3Client, make_bucket: MakeBucket, mode: Mode
) -> None:
    bucket = make_bucket(mode)
    contents = {f"app-{version}": release(49, 5 * MIB + version, version) for version in range(3)}
    contents |= {
        "text": text(1, 300_000),
        "noise": noise(1, 300_000),
        "tiny": b"t",
        "empty": b"",
        "inline": noise(2, 4 * KIB),
    }
    contents["again"] = contents["app-1"]
    for key, content in contents.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    upload_parts(s3, bucket, "parts", contents["app-2"] * 4)
    contents["parts"] = contents["app-2"] * 4
    listed = {found["Key"]: (found["Size"], found["ETag"]) for found in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert set(listed) == set(contents)
    for key, content in contents.items():
        head, got = s3.head_object(Bucket=bucket, Key=key), s3.get_object(Bucket=bucket, Key=key)
        assert listed[key] == (head["ContentLength"], head["ETag"]) == (got["ContentLength"], got["ETag"])
        assert got["Body"].read() == content
        assert key == "parts" or listed[key] == (len(content), f'"{md5(content)}"')
    server.settle()
    stats = bucket_stats(server, bucket)
    assert (stats["objects"], stats["logical_bytes"]) == (len(contents), sum(map(len, contents.values())))


def test_parts_of_8_mib_shrink_as_much_as_single_puts(server: Server, s3: S3Client, make_bucket: MakeBucket) -> None:
    releases = [release(50, 33 * MIB + 12345, version) for version in range(3)]
    single, parts = make_bucket(), make_bucket()
    for version, content in enumerate(releases):
        s3.put_object(Bucket=single, Key=f"app-{version}", Body=content)
        upload_parts(s3, parts, f"app-{version}", content)
        assert s3.get_object(Bucket=parts, Key=f"app-{version}")["Body"].read() == content
    server.settle()
    in_single, in_parts = (bucket_stats(server, bucket)["stored"]["total"] for bucket in (single, parts))
    assert in_single < 1.2 * len(releases[0])
    assert in_parts <= in_single * 1.10
    later_single, later_parts = (
        sum(stored(s3, bucket, f"app-{version}").stored_bytes for version in (1, 2)) for bucket in (single, parts)
    )
    assert later_parts <= later_single * 1.10


def test_storage_headers_are_silent_when_they_are_switched_off(new_server: NewServer) -> None:
    quiet = new_server(server={"storage_headers": False}).start()
    s3 = s3_client(quiet.endpoint)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="k", Body=b"x" * 100_000)
    for answer in (s3.head_object(Bucket="bucket", Key="k"), s3.get_object(Bucket="bucket", Key="k")):
        assert not [name for name in answer["ResponseMetadata"]["HTTPHeaders"] if name.startswith("x-deltaweir")]


def test_accounts_balance_after_everything_that_moves_them(new_server: NewServer) -> None:
    own = new_server().start()
    s3 = s3_client(own.endpoint)
    for bucket in ("delta-00", "zstd-aes256-00"):
        s3.create_bucket(Bucket=bucket)
        for version in range(4):
            s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=release(51, 5 * MIB, version))
        s3.put_object(Bucket=bucket, Key="copy", Body=release(51, 5 * MIB, 1))
        s3.copy_object(Bucket=bucket, Key="copied", CopySource=f"{bucket}/app-2")
        s3.put_object(Bucket=bucket, Key="tiny", Body=b"tiny")
        s3.delete_object(Bucket=bucket, Key="app-0")
        s3.put_object(Bucket=bucket, Key="app-1", Body=noise(1, 100_000))
        upload = s3.create_multipart_upload(Bucket=bucket, Key="open")["UploadId"]
        s3.upload_part(Bucket=bucket, Key="open", UploadId=upload, PartNumber=1, Body=noise(2, 5 * MIB))
    own.settle()
    assert_accounts_balance(own)
    assert bucket_stats(own, "delta-00")["stored"]["base_only"] < 6 * MIB, (
        "at most the deleted base is kept for its deltas"
    )
    own.run("gc")
    assert_accounts_balance(own)


def test_when_everything_is_deleted_nothing_is_left(new_server: NewServer) -> None:
    own = new_server().start()
    s3 = s3_client(own.endpoint)
    s3.create_bucket(Bucket="delta-00")
    for version in range(6):
        s3.put_object(Bucket="delta-00", Key=f"app-{version}", Body=release(52, 5 * MIB, version))
    for version in (0, 3, 1, 5, 2, 4):
        s3.delete_object(Bucket="delta-00", Key=f"app-{version}")
    for _ in range(3):  # a base is free only when the deltas that named it are gone
        own.run("gc", "--now")
    stats = bucket_stats(own, "delta-00")
    assert stats["stored"]["total"] == stats["objects"] == 0
    assert_accounts_balance(own)

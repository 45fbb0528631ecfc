"""`preview`: what a bucket's objects would take under other settings, held against what they take under them."""

from __future__ import annotations

import urllib.error
from typing import Any

import pytest

from outside.archives import wheel
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import KIB, release
from outside.server import Server
from outside.storage import bucket_stats, kept_bytes

SERIES = 6
VERSIONS = 10
SETTINGS = ("off", "zstd", "delta")


def objects() -> dict[str, bytes]:
    """Series of successive builds."""
    return {
        f"builds/app-{chr(97 + series)}/v-{version}.bin": release(series, (20 + 9 * series) * KIB, version)
        for series in range(SERIES)
        for version in range(VERSIONS)
    }


def fill(server: Server, bucket: str, made: dict[str, bytes]) -> int:
    """What everything takes in a bucket, in the order of names."""
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=bucket)
    for key, content in made.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    server.settle()
    return kept_bytes(server, bucket)


def previews(server: Server, *arguments: str) -> dict[str, Any]:
    """What the command shows, by compression."""
    found = server.json("preview", *arguments)["previews"]
    return {one["compression"]: one for one in found}


def test_each_setting_is_predicted_as_it_turns_out(new_server: NewServer) -> None:
    made = objects()
    server = new_server().start()
    truth = {
        setting: fill(server, bucket, made)
        for setting, bucket in (("off", "off-00"), ("zstd", "zstd-00"), ("delta", "delta-00"))
    }
    found = previews(server, "s3://zstd-00")
    assert set(found) == set(SETTINGS)
    for setting, told in found.items():
        assert (told["objects"], told["more"], told["logical_bytes"]) == (
            len(made),
            False,
            sum(map(len, made.values())),
        )
        predicted = told["stored_bytes"]["predicted"]
        assert abs(predicted - truth[setting]) < truth[setting] * 0.1, (setting, predicted, truth)
        assert told["cpu_s_per_gb"] > 0
        assert abs(told["stored_now_bytes"] - truth["zstd"]) < truth["zstd"] * 0.1
    assert found["delta"]["stored_bytes"]["predicted"] < found["zstd"]["stored_bytes"]["predicted"] * 0.7
    below = previews(server, "s3://zstd-00/builds/app-a/", "--compression", "delta")
    assert below["delta"]["objects"] == VERSIONS
    shown = server.run("preview", "s3://zstd-00").stdout
    assert shown.startswith(f"{len(made)} objects, ")
    assert [line.split()[0] for line in shown.splitlines()[2:]] == list(SETTINGS)


def test_wheels_are_foreseen_as_the_converter_stores_them(new_server: NewServer) -> None:
    made = {f"package-1.{version}.whl": wheel(1, 16, 60_000, version) for version in range(4)}
    server = new_server(defaults={"effort": "auto"}).start()
    truth = {bucket: fill(server, bucket, made) for bucket in ("zstd-00", "delta-00")}
    predicted = previews(server, "s3://zstd-00", "--compression", "delta")["delta"]["stored_bytes"]["predicted"]
    assert truth["delta-00"] < truth["zstd-00"] * 0.5, "the successors are small"
    assert abs(predicted - truth["delta-00"]) < truth["delta-00"] * 0.1, (predicted, truth)


def test_the_history_of_a_bucket_that_keeps_versions_counts(new_server: NewServer) -> None:
    made = {key: content for key, content in objects().items() if "v-0" not in key}
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    for bucket in ("zstd-00", "delta-00"):
        s3.create_bucket(Bucket=bucket)
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        for key, content in made.items():
            s3.put_object(Bucket=bucket, Key=f"{key.rpartition('/')[0]}/app.bin", Body=content)
        s3.delete_object(Bucket=bucket, Key="builds/app-a/app.bin")
    server.settle()
    truth = {bucket: int(bucket_stats(server, bucket)["stored"]["total"]) for bucket in ("zstd-00", "delta-00")}
    found = previews(server, "s3://zstd-00", "--compression", "delta")["delta"]
    assert (found["objects"], found["logical_bytes"]) == (len(made), sum(map(len, made.values())))
    assert abs(found["stored_now_bytes"] - truth["zstd-00"]) < truth["zstd-00"] * 0.1
    predicted = found["stored_bytes"]["predicted"]
    assert abs(predicted - truth["delta-00"]) < truth["delta-00"] * 0.1, (predicted, truth)


def test_a_preview_changes_nothing_and_leaves_nothing(new_server: NewServer) -> None:
    made = objects()
    server = new_server().start()
    before = fill(server, "zstd-00", made)
    blobs = server.blob_files()
    leftover = server.data / "preview" / "of-a-process-that-was-killed"
    leftover.mkdir(parents=True)
    previews(server, "s3://zstd-00", "--sample", "1MiB")
    assert list((server.data / "preview").iterdir()) == []
    assert int(bucket_stats(server, "zstd-00")["stored"]["total"]) == before
    assert server.blob_files() == blobs
    server.stop()
    found = previews(server, "s3://zstd-00", "--compression", "delta")
    assert found["delta"]["objects"] == len(made), "it needs no server"


def test_no_more_is_read_than_the_sample_and_one_object(new_server: NewServer) -> None:
    made = {f"images/v-{number}.bin": release(0, 900 * KIB, number) for number in range(12)}
    server = new_server().start()
    fill(server, "delta-00", made)
    longest = max(map(len, made.values()))
    for sample_bytes in (100 * KIB, 1024 * KIB, 4096 * KIB):
        asked = f"/api/v1/preview?bucket=delta-00&compression=zstd&sample_bytes={sample_bytes}"
        sample = server.admin(asked, "POST")["sample"]
        assert 0 < sample["bytes"] <= sample_bytes + longest, sample
        assert sample["bytes"] <= sample_bytes * 9 // 8, "an eighth of the sample is read of one object"
        assert sample["truncated"] == sample["objects"], sample
    whole = server.admin("/api/v1/preview?bucket=delta-00&compression=zstd", "POST")["sample"]
    assert (whole["bytes"], whole["truncated"]) == (sum(map(len, made.values())), 0)


def test_an_encrypted_bucket_has_a_preview(new_server: NewServer) -> None:
    server = new_server().start()
    made = {f"secret/{n}": bytes([n]) * 20_000 for n in range(4)}
    fill(server, "delta-aes256-00", made)
    told = previews(server, "s3://delta-aes256-00")
    assert [one["objects"] for one in told.values()] == [len(made)] * len(SETTINGS)
    assert told["zstd"]["stored_bytes"]["predicted"] < told["off"]["stored_bytes"]["predicted"]


def test_what_is_wrong_is_refused(new_server: NewServer) -> None:
    server = new_server().start()
    s3_client(server.endpoint).create_bucket(Bucket="empty")
    for query, status in [
        ("bucket=none", 404),
        ("", 400),
        ("bucket=empty&compression=best", 400),
        ("bucket=empty&sample_bytes=0", 400),
    ]:
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.admin(f"/api/v1/preview?{query}", "POST")
        assert refused.value.code == status, query
        refused.value.close()
    nothing = server.admin("/api/v1/preview?bucket=empty", "POST")
    assert (nothing["objects"], nothing["stored_bytes"]["predicted"], nothing["cpu_s_per_gb"]) == (0, 0, 0)
    assert server.run("preview", "empty", check=False).returncode == 1

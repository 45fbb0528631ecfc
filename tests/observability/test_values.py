"""Figures that alerts rest on say what they are meant to say."""

from __future__ import annotations

import os
import time

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from observability.load import flip
from outside.buckets import NewServer
from outside.clients import blunt_client, s3_client
from outside.content import KIB, MIB, noise, release
from outside.server import until


def test_failures_are_counted_from_zero_so_that_the_first_is_a_step(new_server: NewServer) -> None:
    samples = new_server().start().metrics().samples
    for name, label, values in (
        ("deltaweir_aead_failures_total", "reason", {"open", "row"}),
        ("deltaweir_checksum_failures_total", "where", {"chunk", "segment", "row", "encoder", "request"}),
        ("deltaweir_http_cut_total", "op", {"GetObject"}),
    ):
        assert {s.labels[label]: s.value for s in samples if s.name == name} == dict.fromkeys(values, 0)


def test_buckets_made_at_run_time_have_names_of_their_own_up_to_a_bound(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    sizes = {"mine": [1000, 20], "yours": [3]} | {f"one-of-many-{n:03}": [] for n in range(98)}
    sizes |= {"beyond": [7], "further": [8, 9], "delta-00": [100]}
    for bucket, lengths in sizes.items():
        s3.create_bucket(Bucket=bucket)
        for size in lengths:
            s3.put_object(Bucket=bucket, Key=f"k{size}", Body=noise(size, size))
    s3.create_multipart_upload(Bucket="mine", Key="open")
    server.admin("/api/v1/stats")
    metrics = server.metrics()
    objects = {s.labels["bucket"]: s.value for s in metrics.samples if s.name == "deltaweir_bucket_objects"}
    assert (objects["mine"], objects["yours"], objects["delta-00"], objects["one-of-many-097"]) == (2, 1, 1, 0)
    assert objects["_other"] == 3, "the buckets that were made last"
    assert {"beyond", "further"} & objects.keys() == set()
    assert metrics.total("deltaweir_bucket_logical_bytes", bucket="mine") == 1020
    assert metrics.total("deltaweir_bucket_objects") == 7
    assert metrics.total("deltaweir_multipart_inflight") == 1
    s3.delete_object(Bucket="yours", Key="k3")
    s3.delete_bucket(Bucket="yours")
    server.admin("/api/v1/stats")
    now = server.metrics()
    shown = {s.labels["bucket"] for s in now.samples if s.name.startswith("deltaweir_bucket_")}
    assert "yours" not in shown, "a deleted bucket's series end"
    assert now.total("deltaweir_bucket_objects", bucket="beyond") == 1, "and the next one has a name"


def test_the_last_good_collection_and_the_disks_are_as_they_are(new_server: NewServer) -> None:
    server = new_server().start()
    server.run("gc")
    figures = os.statvfs(server.data)
    metrics = until(
        lambda: m if (m := server.metrics()).total("deltaweir_disk_bytes", state="size") else None, 10, "disks measured"
    )
    assert abs(metrics.total("deltaweir_gc_last_success_timestamp_seconds") - time.time()) < 30
    for place in ("data", "backend/local"):
        size = metrics.total("deltaweir_disk_bytes", place=place, state="size")
        assert size == figures.f_blocks * figures.f_frsize
        free = metrics.total("deltaweir_disk_bytes", place=place, state="free")
        assert free == pytest.approx(figures.f_bavail * figures.f_frsize, abs=size / 20)


def test_a_read_that_meets_damage_is_counted_once_and_a_cut_one_as_cut_too(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)  # a repeated request would count again
    s3.create_bucket(Bucket="off-00")
    for key, size, at in (("early", 300 * KIB, 1000), ("late", 13 * MIB, 12 * MIB)):
        before = set(server.blob_files())
        s3.put_object(Bucket="off-00", Key=key, Body=noise(size, size))
        (path,) = set(server.blob_files()) - before
        flip(path, at)
    server.drop_caches()
    with pytest.raises(ClientError):
        s3.get_object(Bucket="off-00", Key="early")
    metrics = server.metrics()
    assert metrics.total("deltaweir_integrity_errors_total") == 1
    assert metrics.total("deltaweir_http_cut_total") == 0
    with pytest.raises(BotoCoreError):
        s3.get_object(Bucket="off-00", Key="late")["Body"].read()
    until(lambda: server.metrics().total("deltaweir_http_cut_total", op="GetObject") == 1, 10, "the cut is counted")
    assert server.metrics().total("deltaweir_integrity_errors_total") == 2
    assert server.metrics().total("deltaweir_checksum_failures_total", where="chunk") >= 2


def test_signatures_tell_the_distance_of_clocks_and_pools_rest_after_work(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    for version in range(2):
        s3.put_object(Bucket="delta-00", Key=f"app-{version}", Body=release(5, 5 * MIB, version))
    metrics = server.metrics()
    assert metrics.total("deltaweir_clock_skew_seconds_count") == 3
    assert metrics.total("deltaweir_clock_skew_seconds_bucket", le="5") == 3
    assert metrics.total("deltaweir_codec_threads", state="total") >= 1
    for state in ("busy", "hashing"):
        until(lambda state=state: server.metrics().total("deltaweir_codec_threads", state=state) == 0, 10, state)

"""The same promises with blobs in a bucket of another S3 server."""

from __future__ import annotations

from outside.buckets import NewServer
from outside.clients import s3_client, upload_parts
from outside.content import MIB, noise, release
from outside.failure import error_code
from outside.server import Server
from outside.storage import bucket_stats, stored
from outside.store import Store


def over(store: Store, new_server: NewServer) -> Server:
    """A server whose buckets lie in the store."""
    return new_server(**store.tables()).start()


def blob_names(store: Store) -> list[str]:
    """What lies in the store."""
    pages = store.client().get_paginator("list_objects_v2").paginate(Bucket="blobs")
    return [found["Key"] for page in pages for found in page.get("Contents", [])]


def test_deltas_are_kept_in_an_s3_store_and_read_back_after_a_restart(new_server: NewServer, store: Store) -> None:
    server = over(store, new_server)
    s3 = s3_client(server.endpoint)
    for bucket in ("delta-00", "delta-aes256-00"):
        s3.create_bucket(Bucket=bucket)
        for version in range(2):
            s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=release(121, 9 * MIB, version))
        upload_parts(s3, bucket, "parts", release(121, 17 * MIB, 2))
        assert stored(s3, bucket, "app-1").form == "delta"
    names = blob_names(store)
    assert names
    assert all(name.startswith("blobs/") and "app" not in name for name in names)
    server.restart()
    s3 = s3_client(server.endpoint)
    for bucket in ("delta-00", "delta-aes256-00"):
        for version in range(2):
            got = s3.get_object(Bucket=bucket, Key=f"app-{version}")["Body"].read()
            assert got == release(121, 9 * MIB, version)
        got = s3.get_object(Bucket=bucket, Key="parts", Range="bytes=16000000-16999999")["Body"].read()
        assert got == release(121, 17 * MIB, 2)[16_000_000:17_000_000]
        for key in ("app-0", "app-1", "parts"):
            s3.delete_object(Bucket=bucket, Key=key)
    for _ in range(3):
        server.run("gc", "--now")
    assert bucket_stats(server, "delta-00")["stored"]["total"] == 0
    s3.delete_bucket(Bucket="delta-00")


def test_a_store_that_is_gone_is_an_error_and_never_an_absence(new_server: NewServer, store: Store) -> None:
    server = over(store, new_server)
    s3 = s3_client(server.endpoint, read_timeout=120)
    s3.create_bucket(Bucket="off-00")
    content = noise(1, 2 * MIB)
    s3.put_object(Bucket="off-00", Key="k", Body=content)
    server.drop_caches()
    store.stop()
    assert error_code(s3.get_object, Bucket="off-00", Key="k")[0] in (500, 503)
    assert error_code(s3.put_object, Bucket="off-00", Key="new", Body=noise(2, 2 * MIB))[0] in (500, 503)
    assert s3.head_object(Bucket="off-00", Key="k")["ContentLength"] == 2 * MIB
    assert [found["Key"] for found in s3.list_objects_v2(Bucket="off-00")["Contents"]] == ["k"]
    store.start()
    assert s3.get_object(Bucket="off-00", Key="k")["Body"].read() == content

"""The same promises with blobs in a bucket of another S3 server."""

from __future__ import annotations

import datetime
from typing import Any

from outside.buckets import NewServer
from outside.clients import s3_client, upload_parts
from outside.content import MIB, noise, release
from outside.failure import error_code
from outside.faults import FaultProxy
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Server, Value, until
from outside.storage import bucket_stats, stored
from outside.store import Store
from outside.wire import Connection, signed


def over(store: Store, new_server: NewServer, **more: dict[str, Value]) -> Server:
    """A server whose buckets lie in the store."""
    return new_server(**store.tables() | more).start()


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


def test_a_probe_of_readiness_makes_two_reads_of_the_store(new_server: NewServer) -> None:
    store = new_server("store").start()
    s3_client(store.endpoint).create_bucket(Bucket="blobs")
    cloud: dict[str, Value] = {
        "type": "s3",
        "bucket": "blobs",
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": SECRET_ACCESS_KEY,
    }
    probes = 20
    with FaultProxy(store.port) as passed:
        cloud["endpoint"] = passed.endpoint
        tables: dict[str, dict[str, Value]] = {"backends.cloud": cloud, "storage": {"backend": "cloud"}}
        server = new_server(**tables).start()
        passed.forget()
        for _ in range(probes):
            assert server.admin_status("/readyz") == 200
        owners = [read.target for read in passed.seen("GET") if "owner/" in read.target]
        server.stop()
    # A job that begins meanwhile looks at them, too.
    assert 2 * probes <= len(owners) < 2.5 * probes, owners


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


def unfinished(store: Store) -> dict[str, Any]:
    """Uploads in parts that were begun in the store and not ended, by key."""
    told = store.client().list_multipart_uploads(Bucket="blobs")
    return {found["Key"]: found["Initiated"] for found in told.get("Uploads", [])}


def begin_upload(server: Server, key: str, content: bytes) -> tuple[Connection, bytes]:
    """A PUT that stops before its last bytes: its connection, and what is missing."""
    connection = Connection(server.port, timeout_s=60)
    request = signed(connection.host, "PUT", f"/off-00/{key}", body=content)
    connection.send(request[:-1000])
    return connection, request[-1000:]


def test_uploads_that_a_crash_left_in_the_store_are_aborted_and_no_others(new_server: NewServer, store: Store) -> None:
    server = over(store, new_server, gc={"unfinished_age": "1s"})
    s3_client(server.endpoint).create_bucket(Bucket="off-00")
    with begin_upload(server, "crashed", noise(1, 24 * MIB))[0]:
        (crashed,) = until(lambda: unfinished(store), 60, "parts are on their way to the store")
        server.kill()
    theirs = {"elsewhere/blobs/0000000100000000000000000000000a", "blobs/Not ours"}
    for key in theirs:
        store.client().create_multipart_upload(Bucket="blobs", Key=key)

    server.start()
    content = noise(2, 24 * MIB)
    connection, rest = begin_upload(server, "living", content)
    with connection:
        (living,) = until(lambda: unfinished(store).keys() - theirs - {crashed}, 60, "another one is on its way")

        def are_old() -> bool:
            now = datetime.datetime.now(datetime.UTC)
            return all(now - begun > datetime.timedelta(seconds=2) for begun in unfinished(store).values())

        until(are_old, 60, "all of them are old")
        until(lambda: not server.admin("/api/v1/jobs/leftovers")["running"], 60, "the run of the start has ended")
        server.admin("/api/v1/jobs/leftovers", "POST")
        until(lambda: not server.admin("/api/v1/jobs/leftovers")["running"], 60, "the run has ended")
        assert server.admin("/api/v1/jobs/leftovers")["last_result"] == "ok"
        assert unfinished(store).keys() == theirs | {living}
        assert server.metrics().total("deltaweir_backend_uploads_aborted_total", backend="cloud") == 1
        connection.send(rest)
        answer = connection.answer()
        assert answer is not None and answer.status == 200
    assert s3_client(server.endpoint).get_object(Bucket="off-00", Key="living")["Body"].read() == content

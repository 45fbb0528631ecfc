"""Coming from a bucket that exists, and leaving again: import, read-through, eject."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outside import originals
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client, upload_parts
from outside.content import KIB, MIB, noise, release, sha256
from outside.failure import error_code
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Server, Value, until
from outside.storage import bucket_stats, stored
from outside.store import Store


def adopting(store: Store, new_server: NewServer, **more: dict[str, Any]) -> tuple[Server, S3Client]:
    """A server that knows the store's bucket, with an empty bucket `delta-00`."""
    server = new_server(**{"stores.old": originals.table(store)} | more).start()
    s3 = s3_client(server.endpoint, read_timeout=120)
    s3.create_bucket(Bucket="delta-00")
    return server, s3


def requests(server: Server, op: str) -> float:
    """How many requests of a kind the store `old` has got."""
    return server.metrics().total("deltaweir_backend_requests_total", backend="old", op=op)


def check_objects(s3: S3Client, bucket: str, expected: dict[str, originals.Original]) -> None:
    """Every object is what it was, beside its content too."""
    for key, made in expected.items():
        got = s3.get_object(Bucket=bucket, Key=key)
        assert got["Body"].read() == made.content, key
        assert (got["ContentType"], got["CacheControl"]) == (made.content_type, "max-age=60")
        assert got["Metadata"] == made.metadata


def adopt_and_leave(store: Store, new_server: NewServer, folder: Path, count: int, checked: int) -> None:
    """Import moves no bytes, convert shrinks what was imported, eject gives everything back."""
    made = originals.fill(store, count)
    server, s3 = adopting(store, new_server)
    report = server.json("import", "old", "s3://delta-00")
    assert (report["adopted"], report["failed"]) == (count, 0)
    assert report["adopted_bytes"] == sum(len(one.content) for one in made.values())
    assert requests(server, "get") == 0, "no content was moved"
    assert server.metrics().total("deltaweir_backend_bytes_total", backend="old") == 0
    assert requests(server, "head") == count
    assert requests(server, "put") == 0

    assert originals.listed(s3, "delta-00") == originals.listed(store.client(), originals.BUCKET)
    stats = bucket_stats(server, "delta-00")
    assert (stats["foreign_bytes"], stats["stored"]["total"]) == (report["adopted_bytes"], 0)
    sample = dict(list(made.items())[:: max(1, count // checked)])
    check_objects(s3, "delta-00", sample)
    key = next(iter(sample))
    assert s3.get_object(Bucket="delta-00", Key=key, Range="bytes=100-299")["Body"].read() == made[key].content[100:300]
    assert stored(s3, "delta-00", key).form == "foreign"
    told = server.json("explain", f"s3://delta-00/{key}")
    assert told["blobs"][0]["original"]["key"] == key
    assert server.json("import", "old", "s3://delta-00", "--verify")["existing"] == count

    listed = originals.listed(s3, "delta-00")
    server.run("convert", "s3://delta-00", timeout_s=1800)
    server.run("gc", "--now")
    server.settle()
    assert originals.listed(s3, "delta-00") == listed, "listings do not tell how content is kept"
    stats = bucket_stats(server, "delta-00")
    assert stats["foreign_bytes"] == 0
    assert stats["stored"]["total"] < report["adopted_bytes"] / 2, stats["stored"]
    check_objects(s3, "delta-00", sample)

    target = folder / "out"
    left = server.json("eject", "s3://delta-00", str(target))
    assert (left["written"], left["failed"], left["renamed"]) == (count, 0, 0)
    lines = [json.loads(line) for line in (target / ".deltaweir-eject" / "manifest.jsonl").read_text().splitlines()]
    assert len(lines) == count
    for line in lines:
        one = made[line["key"]]
        content = (target / line["file"]).read_bytes()
        assert content == one.content
        assert line["sha256"] == sha256(content)
        assert (line["headers"]["content-type"], line["user_metadata"]) == (one.content_type, one.metadata)


@pytest.mark.timeout(300)
def test_three_hundred_objects_are_adopted_and_given_back(store: Store, new_server: NewServer, tmp_path: Path) -> None:
    adopt_and_leave(store, new_server, tmp_path, 300, 60)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_objects_are_adopted_and_given_back(store: Store, new_server: NewServer, tmp_path: Path) -> None:
    adopt_and_leave(store, new_server, tmp_path, 10_000, 500)


def test_an_original_that_changed_or_went_is_an_error_that_says_so(store: Store, new_server: NewServer) -> None:
    made = originals.fill(store, 3)
    changed, gone, kept = made
    server, s3 = adopting(store, new_server)
    server.run("import", "old", "s3://delta-00")
    theirs = store.client()
    theirs.put_object(Bucket=originals.BUCKET, Key=changed, Body=noise(1, len(made[changed].content)))
    theirs.delete_object(Bucket=originals.BUCKET, Key=gone)
    for key in (changed, gone):
        with pytest.raises(Exception, match="changed or removed in its store"):
            s3.get_object(Bucket="delta-00", Key=key)
        assert s3.head_object(Bucket="delta-00", Key=key)["ContentLength"] == len(made[key].content)
    assert s3.get_object(Bucket="delta-00", Key=kept)["Body"].read() == made[kept].content
    again = server.json("import", "old", "s3://delta-00", "--overwrite")
    assert again["adopted"] == 2
    assert s3.get_object(Bucket="delta-00", Key=changed)["Body"].read() == noise(1, len(made[changed].content))
    store.stop()
    assert error_code(s3.get_object, Bucket="delta-00", Key=kept)[0] in (500, 503)


def test_what_is_there_is_left_alone_and_what_is_wanted_lands_under_its_prefix(
    store: Store, new_server: NewServer
) -> None:
    made = originals.fill(store, 40)
    server, s3 = adopting(store, new_server)
    first = next(key for key in made if key.startswith("builds/"))
    s3.put_object(Bucket="delta-00", Key=f"new/{first.removeprefix('builds/')}", Body=b"mine")
    ended = server.run("import", "old/builds/", "s3://delta-00/new/", "--verify", "--json", check=False)
    assert ended.returncode == 1, "what differs is told by the exit status as well"
    report = json.loads(ended.stdout)
    builds = [key for key in made if key.startswith("builds/")]
    assert (report["adopted"], report["existing"]) == (len(builds) - 1, 1)
    assert (report["verified"]["same"], report["verified"]["different"]) == (len(builds) - 1, 1)
    assert set(originals.listed(s3, "delta-00")) == {f"new/{key.removeprefix('builds/')}" for key in builds}
    got = s3.get_object(Bucket="delta-00", Key=f"new/{first.removeprefix('builds/')}")["Body"].read()
    assert got == b"mine"


def test_a_copy_of_an_adopted_object_is_stored_as_our_own(store: Store, new_server: NewServer) -> None:
    made = originals.fill(store, 1, 2 * MIB)
    (key,) = made
    server, s3 = adopting(store, new_server)
    server.run("import", "old", "s3://delta-00")
    s3.copy_object(Bucket="delta-00", Key="copy", CopySource=f"delta-00/{key}")
    assert stored(s3, "delta-00", "copy").form != "foreign"
    store.client().delete_object(Bucket=originals.BUCKET, Key=key)
    assert s3.get_object(Bucket="delta-00", Key="copy")["Body"].read() == made[key].content


def test_originals_stay_unless_they_were_taken_over(store: Store, new_server: NewServer) -> None:
    made = originals.fill(store, 4)
    server, s3 = adopting(store, new_server)
    theirs = store.client()
    server.run("import", "old/builds/app-0/app-0", "s3://delta-00/kept")
    server.run("import", "old/builds/app-0/app-1", "s3://delta-00/taken", "--take-over")
    for key in originals.listed(s3, "delta-00"):
        s3.delete_object(Bucket="delta-00", Key=key)
    assert set(originals.listed(theirs, originals.BUCKET)) == set(made), "not before their grace is over"
    server.run("gc", "--now")
    assert set(originals.listed(theirs, originals.BUCKET)) == set(made) - {"builds/app-0/app-1.bin"}
    assert bucket_stats(server, "delta-00")["foreign_bytes"] == 0


def test_an_import_that_was_killed_goes_on(store: Store, new_server: NewServer) -> None:
    made = originals.fill(store, 700, KIB)
    server, s3 = adopting(store, new_server)
    server.admin("/api/v1/jobs/import", "POST", body={"source": "old", "bucket": "delta-00"})
    until(lambda: bucket_stats(server, "delta-00")["objects"] >= 100, 60, "some are adopted")
    server.kill()
    server.start()
    s3 = s3_client(server.endpoint)
    until(lambda: not server.admin("/api/v1/jobs/import")["running"], 120, "the import has ended")
    job = server.admin("/api/v1/jobs/import")
    if job["last_result"] != "ok":
        until(lambda: server.admin("/api/v1/jobs/import")["last_result"] == "ok", 120, "it went on")
    assert originals.listed(s3, "delta-00") == originals.listed(store.client(), originals.BUCKET)
    assert len(made) == bucket_stats(server, "delta-00")["objects"]


def test_an_eject_that_was_killed_goes_on_where_the_command_is_given_again(
    new_server: NewServer, tmp_path: Path
) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    keys = [f"k{number:03}" for number in range(400)]
    for key in keys:
        s3.put_object(Bucket="delta-00", Key=key, Body=key.encode())
    server.stop()
    target = tmp_path / "out"
    command = ["eject", "s3://delta-00", str(target)]
    first = subprocess.Popen(
        [str(server.binary), *command, "--config", str(server.config)], env=server.variables(), cwd=server.folder
    )
    until(lambda: len(list(target.glob("k*"))) >= 50, 60, "some are written")
    first.kill()
    first.wait()
    assert len(list(target.glob("k*"))) < len(keys), "it was under way"
    other = server.run("eject", "s3://delta-00", str(tmp_path / "other"), check=False)
    assert other.returncode == 1
    assert "resume or cancel it first" in other.stderr, "another target is another run"
    again = server.run(*command)
    assert "eject had begun with these parameters as run 1: it goes on from " in again.stderr
    assert sorted(path.name for path in target.glob("k*")) == keys
    assert "goes on" not in server.run(*command).stderr, "that run has ended"


def reading_through(store: Store, new_server: NewServer) -> tuple[Server, S3Client]:
    """A server whose bucket `through` reads through to the store's `builds/`."""
    server, s3 = adopting(store, new_server, **{"buckets.through": {"read_through": "old/builds/"}})
    s3.create_bucket(Bucket="through")
    return server, s3


def test_a_key_the_catalog_lacks_is_served_from_the_original_and_adopted(store: Store, new_server: NewServer) -> None:
    made = originals.fill(store, 5)
    server, s3 = reading_through(store, new_server)
    assert originals.listed(s3, "through") == {}, "a listing shows what was adopted"
    key = "app-0/app-3.bin"
    head = s3.head_object(Bucket="through", Key=key)
    assert head["ContentLength"] == len(made[f"builds/{key}"].content)
    check_objects(s3, "through", {key: made[f"builds/{key}"]})
    assert set(originals.listed(s3, "through")) == {key}
    heads = requests(server, "head")
    s3.get_object(Bucket="through", Key=key)
    assert requests(server, "head") == heads, "it is adopted once"
    assert error_code(s3.get_object, Bucket="through", Key="none") == (404, "NoSuchKey")
    assert error_code(s3.put_object, Bucket="through", Key="app-0/app-1.bin", Body=b"", IfNoneMatch="*")[0] == 412
    store.stop()
    assert error_code(s3.get_object, Bucket="through", Key="app-0/app-4.bin")[0] in (500, 503)
    assert error_code(s3.head_object, Bucket="through", Key="none")[0] in (500, 503)


def test_a_deleted_key_does_not_come_back_from_the_original(store: Store, new_server: NewServer) -> None:
    originals.fill(store, 5)
    server, s3 = reading_through(store, new_server)
    read, unread, written = "app-0/app-0.bin", "app-0/app-1.bin", "app-0/app-2.bin"
    s3.get_object(Bucket="through", Key=read)
    s3.put_object(Bucket="through", Key=written, Body=b"mine")
    assert s3.get_object(Bucket="through", Key=written)["Body"].read() == b"mine"
    s3.delete_object(Bucket="through", Key=read)
    s3.delete_objects(Bucket="through", Delete={"Objects": [{"Key": unread}, {"Key": written}]})
    server.restart()
    s3 = s3_client(server.endpoint)
    for key in (read, unread, written):
        assert error_code(s3.get_object, Bucket="through", Key=key) == (404, "NoSuchKey")
    assert server.json("import", "old/builds/", "s3://through")["deleted"] == 3
    assert server.json("import", "old/builds/", "s3://through", "--overwrite")["adopted"] == 5
    assert s3.get_object(Bucket="through", Key=unread)["ContentLength"] > 0
    assert len(originals.listed(store.client(), originals.BUCKET)) == 5, "the originals are where they were"


UNUSUAL = [
    "a",
    "a/b",
    "a//b",
    "../up",
    "x/../../y",
    "/lead",
    "trail/",
    ".",
    "é/ü",
    "l" * 300,
    ".deltaweir-eject/x",
    "empty",
]
"""Keys of which a file system can hold a few."""


def test_keys_no_file_system_holds_are_given_back_and_stay_inside_the_target(
    new_server: NewServer, tmp_path: Path
) -> None:
    server = new_server(eject={"roots": [str(tmp_path)]}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-aes256-00")
    contents = {key: b"" if key == "empty" else noise(n, 300 * KIB) for n, key in enumerate(UNUSUAL)}
    for key, content in contents.items():
        s3.put_object(Bucket="delta-aes256-00", Key=key, Body=content, Metadata={"n": "grüße".encode().hex()})
    target = tmp_path / "target" / "deep"
    target.mkdir(parents=True)
    report = server.json("eject", "s3://delta-aes256-00", str(target))
    assert (report["written"], report["failed"]) == (len(UNUSUAL), 0)
    assert report["renamed"] == len(UNUSUAL) - 3, "all but é/ü, empty, and a or a/b"
    lines = [json.loads(line) for line in (target / ".deltaweir-eject" / "manifest.jsonl").read_text().splitlines()]
    assert {line["key"]: (target / line["file"]).read_bytes() for line in lines} == contents
    assert all((target / line["file"]).resolve().is_relative_to(target.resolve()) for line in lines)
    outside = [path for path in (tmp_path / "target").rglob("*") if path.is_file() and target not in path.parents]
    assert outside == []
    refused = server.run("eject", "s3://delta-aes256-00", str(tmp_path), check=False)
    assert refused.returncode != 0
    assert "not empty" in refused.stderr


def test_a_bucket_is_ejected_into_another_store_with_everything_beside_content(
    store: Store, new_server: NewServer
) -> None:
    store.client().create_bucket(Bucket=originals.BUCKET)
    server, s3 = adopting(store, new_server)
    expected: dict[str, bytes] = {}
    for version in range(3):
        expected[f"app-{version}"] = release(7, 3 * MIB, version)
        s3.put_object(
            Bucket="delta-00",
            Key=f"app-{version}",
            Body=expected[f"app-{version}"],
            ContentType="text/x",
            ContentDisposition="inline",
            Metadata={"v": str(version)},
        )
    expected["long"] = release(8, 20 * MIB, 1)
    upload_parts(s3, "delta-00", "long", expected["long"])
    report = server.json("eject", "s3://delta-00", "store:old/back/")
    assert (report["written"], report["failed"]) == (4, 0)
    theirs = store.client()
    for key, content in expected.items():
        got = theirs.get_object(Bucket=originals.BUCKET, Key=f"back/{key}")
        assert got["Body"].read() == content
        if key != "long":
            assert (got["ContentType"], got["ContentDisposition"]) == ("text/x", "inline")
            assert got["Metadata"] == {"v": key[-1]}
    assert server.json("eject", "s3://delta-00", "store:old/back/")["written"] == 4, "the same again is no trouble"
    theirs.put_object(Bucket=originals.BUCKET, Key="back/app-1", Body=b"theirs")
    refused = server.run("eject", "s3://delta-00", "store:old/back/", check=False)
    assert refused.returncode != 0
    assert theirs.get_object(Bucket=originals.BUCKET, Key="back/app-1")["Body"].read() == b"theirs"
    assert server.json("eject", "s3://delta-00", "store:old/back/", "--overwrite")["failed"] == 0
    assert theirs.get_object(Bucket=originals.BUCKET, Key="back/app-1")["Body"].read() == expected["app-1"]


def test_a_key_that_is_too_long_below_a_prefix_keeps_back_no_other_object(new_server: NewServer) -> None:
    """The report names it, and the run ends."""
    other = new_server("other").start()
    theirs = s3_client(other.endpoint)
    theirs.create_bucket(Bucket="there")
    store: dict[str, Value] = {
        "type": "s3",
        "endpoint": other.endpoint,
        "bucket": "there",
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": SECRET_ACCESS_KEY,
    }
    server = new_server(**{"stores.other": store}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    long, fits = "k/" * 511 + "kk", "k/" * 508 + "kk"
    for key in ("a", long, fits, "z"):
        s3.put_object(Bucket="delta-00", Key=key, Body=key.encode())
    done = server.run("eject", "s3://delta-00", "store:other/below/", "--json", check=False)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["written"], [failure["key"] for failure in report["failures"]]) == (3, [long])
    assert "longer than 1024 bytes" in report["failures"][0]["error"]
    for key in ("a", fits, "z"):
        assert theirs.get_object(Bucket="there", Key=f"below/{key}")["Body"].read() == key.encode()
    assert server.json("eject", "s3://delta-00", "store:other")["failed"] == 0, "without the prefix it fits"

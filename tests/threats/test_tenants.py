"""Tenants of one bucket learn nothing of each other's content from how their own is stored (C105, C106, C139)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import noise, release, text
from outside.failure import error_code
from outside.server import Server, Value
from outside.storage import bucket_stats, stored
from outside.tenants import BUCKET, OWN_PREFIX, add_tenants, allow
from outside.users import client_of
from threats.guessing import DOCUMENT_BYTES, guess

TRIALS = 30
READER: dict[str, Any] = {"carl": [allow("s3:*", "")]}
WRITER: dict[str, Any] = {"dora": [allow("s3:PutObject", "")]}


def shared(new_server: NewServer, **settings: Value) -> Server:
    """A server with tenants, and the bucket that they share, made with these settings."""
    tables: dict[str, dict[str, Value]] = {f"buckets.{BUCKET}": settings} if settings else {}
    tables["server"] = {"admin_token": "t" * 32}
    server = new_server(**tables)
    add_tenants(server, {**OWN_PREFIX, **READER, **WRITER})
    server.start()
    s3_client(server.endpoint).create_bucket(Bucket=BUCKET)
    return server


def ours(answer: Any) -> dict[str, str]:
    """The headers that say how something is stored."""
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    return {name: value for name, value in headers.items() if name.startswith("x-deltaweir")}


@pytest.mark.parametrize("encryption", ["off", "aes256"])
def test_a_right_guess_of_anothers_document_looks_like_a_wrong_one(new_server: NewServer, encryption: str) -> None:
    server = shared(new_server, encryption=encryption)
    ann, bob = client_of(server.endpoint, "ann"), client_of(server.endpoint, "bob")
    rng = random.Random(17)
    trials = [guess(ann, bob, number, rng) for number in range(TRIALS)]
    assert {trial.right for trial in trials} == {True, False}
    assert len({trial.seen for trial in trials}) == 1, "whatever was guessed, the guesser sees the same"
    stats = bucket_stats(server, BUCKET)
    assert stats["logical_bytes"] >= 2 * TRIALS * DOCUMENT_BYTES
    root = s3_client(server.endpoint)
    for number in range(TRIALS):
        found = stored(root, BUCKET, f"bob/{number}")
        assert found.form != "dedup" and not any(base.startswith("ann/") for base in found.bases), found


def test_the_same_guesses_are_told_apart_where_the_bucket_says_that_everybody_shares(new_server: NewServer) -> None:
    server = shared(new_server, isolation="bucket", storage_headers="readers")
    ann, bob = client_of(server.endpoint, "ann"), client_of(server.endpoint, "bob")
    rng = random.Random(17)
    trials = [guess(ann, bob, number, rng) for number in range(TRIALS)]
    by_sight = {right: {"dedup" in trial.seen for trial in trials if trial.right == right} for right in (False, True)}
    assert by_sight == {True: {True}, False: {False}}


def test_near_content_of_another_tenant_is_no_base_and_ones_own_is(new_server: NewServer) -> None:
    server = shared(new_server)
    root, ann, bob, carl = s3_client(server.endpoint), *(client_of(server.endpoint, n) for n in ("ann", "bob", "carl"))
    builds = [release(7, 600_000, version) for version in range(3)]
    ann.put_object(Bucket=BUCKET, Key="ann/build-1", Body=builds[0])
    bob.put_object(Bucket=BUCKET, Key="bob/build-2", Body=builds[1])
    assert stored(root, BUCKET, "bob/build-2").form != "delta"
    bob.put_object(Bucket=BUCKET, Key="bob/build-3", Body=builds[2])
    found = stored(root, BUCKET, "bob/build-3")
    assert (found.form, found.bases) == ("delta", ("bob/build-2",))
    # Who may read the whole bucket shares with everybody else who may.
    root.put_object(Bucket=BUCKET, Key="carl/build-1", Body=builds[0])
    carl.put_object(Bucket=BUCKET, Key="carl/build-2", Body=builds[1])
    assert stored(root, BUCKET, "carl/build-2").bases == ("carl/build-1",)
    # A part is stored like a whole object, and a copy needs to be allowed to read.
    upload = ann.create_multipart_upload(Bucket=BUCKET, Key="ann/build-2")["UploadId"]
    part = ann.upload_part(Bucket=BUCKET, Key="ann/build-2", UploadId=upload, PartNumber=1, Body=builds[1])
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    ann.complete_multipart_upload(Bucket=BUCKET, Key="ann/build-2", UploadId=upload, MultipartUpload=parts)
    assert stored(root, BUCKET, "ann/build-2").bases == ("ann/build-1",)
    source = {"Bucket": BUCKET, "Key": "bob/build-2"}
    assert error_code(ann.copy_object, Bucket=BUCKET, Key="ann/copy", CopySource=source)[0] == 403
    for key, content in (("bob/build-3", builds[2]), ("ann/build-2", builds[1]), ("carl/build-2", builds[1])):
        assert root.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content


@pytest.mark.parametrize(
    ("isolation", "shares"),
    [
        ("bucket", {"ann/2", "bob/1", "bob/2", "carl/1", "ann/3"}),
        ("prefix", {"ann/2", "bob/2", "ann/3"}),
        ("strict", {"ann/2", "bob/2", "ann/3"}),
    ],
)
def test_a_bucket_may_say_who_shares_with_whom(new_server: NewServer, isolation: str, shares: set[str]) -> None:
    server = shared(new_server, isolation=isolation)
    clients = {name: client_of(server.endpoint, name) for name in ("ann", "bob", "carl")}
    content = text(3, 100_000)
    puts = [("ann", "ann/1"), ("ann", "ann/2"), ("bob", "bob/1"), ("bob", "bob/2"), ("carl", "carl/1")]
    puts.append(("carl", "ann/3"))  # carl's second one, below ann's prefix
    for name, key in puts:
        clients[name].put_object(Bucket=BUCKET, Key=key, Body=content)
    root = s3_client(server.endpoint)
    assert {key for _, key in puts if stored(root, BUCKET, key).form == "dedup"} == shares


def test_who_may_only_write_learns_nothing_of_how_it_is_stored(new_server: NewServer) -> None:
    server = shared(new_server)
    root, ann, dora = s3_client(server.endpoint), *(client_of(server.endpoint, name) for name in ("ann", "dora"))
    known = {"same": text(1, 50_000), "near": text(1, 49_000) + b"x" * 1000, "other": noise(2, 50_000)}
    ann.put_object(Bucket=BUCKET, Key="ann/same", Body=known["same"])
    answers = {name: dora.put_object(Bucket=BUCKET, Key=f"drop/{name}", Body=body) for name, body in known.items()}
    for name, answer in answers.items():
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        assert not ours(answer) and "server-timing" not in headers, headers
        assert set(headers) == set(answers["other"]["ResponseMetadata"]["HTTPHeaders"]), name
    key = {"Bucket": BUCKET, "Key": "drop/same"}
    refused = [
        error_code(dora.get_object, **key),
        error_code(dora.head_object, **key),
        error_code(dora.get_object_attributes, **key, ObjectAttributes=["ObjectSize"]),
        error_code(dora.list_objects_v2, Bucket=BUCKET),
        error_code(dora.list_object_versions, Bucket=BUCKET),
    ]
    assert {status for status, _ in refused} == {403}
    for path in ("/metrics", "/api/v1/stats", f"/api/v1/explain?bucket={BUCKET}&key=drop/same"):
        assert server.admin_status(path, token="not the token") == 401, path
    assert stored(root, BUCKET, "drop/same").form != "dedup"
    # Its own content is shared with itself.
    dora.put_object(Bucket=BUCKET, Key="drop/again", Body=known["same"])
    assert stored(root, BUCKET, "drop/again").form == "dedup"


def test_who_is_no_administrator_is_told_sizes_only_where_the_bucket_says_so_and_rounded(new_server: NewServer) -> None:
    server = shared(new_server)
    root, carl = s3_client(server.endpoint), client_of(server.endpoint, "carl")
    carl.put_object(Bucket=BUCKET, Key="k", Body=noise(5, 100_003))
    at = {"Bucket": BUCKET, "Key": "k"}
    assert not ours(carl.head_object(**at)) and not ours(carl.get_object(**at))
    exact = int(ours(root.head_object(**at))["x-deltaweir-stored-bytes"])
    server.tables[f"buckets.{BUCKET}"] = {"storage_headers": "readers"}
    server.restart()
    told = int(ours(carl.head_object(**at))["x-deltaweir-stored-bytes"])
    assert exact < told < exact * 1.12 and told % 2048 == 0
    assert int(ours(root.head_object(**at))["x-deltaweir-stored-bytes"]) == exact

"""minio-py: streams of unknown length, composition, versions, tags, presigned requests, its AssumeRole provider."""

from __future__ import annotations

import io
import json
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from minio import Minio
from minio.commonconfig import ENABLED, ComposeSource, CopySource, Tags
from minio.credentials.providers import AssumeRoleProvider
from minio.datatypes import PostPolicy
from minio.deleteobjects import DeleteObject
from minio.versioningconfig import VersioningConfig

from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY

pytestmark = pytest.mark.long


@pytest.fixture
def client(endpoint: str) -> Minio:
    """minio-py on the shared endpoint."""
    address = endpoint.removeprefix("http://")
    return Minio(address, access_key=ACCESS_KEY_ID, secret_key=SECRET_ACCESS_KEY, secure=False)


def read(client: Minio, bucket: str, key: str) -> bytes:
    """All of an object."""
    answer = client.get_object(bucket, key)
    try:
        return bytes(answer.data)
    finally:
        answer.close()
        answer.release_conn()


def test_streams_go_up_in_parts_and_are_composed(client: Minio, bucket: str) -> None:
    body = noise(1, 12 * MIB)
    client.put_object(bucket, "stream", io.BytesIO(body), length=-1, part_size=5 * MIB)
    assert read(client, bucket, "stream") == body
    sources = [ComposeSource(bucket, "stream"), ComposeSource(bucket, "stream", offset=0, length=5 * MIB)]
    client.compose_object(bucket, "composed", sources)
    assert read(client, bucket, "composed") == body + body[: 5 * MIB]
    client.copy_object(bucket, "copied", CopySource(bucket, "stream"))
    assert client.stat_object(bucket, "copied").size == len(body)
    assert [found.object_name for found in client.list_objects(bucket)] == ["composed", "copied", "stream"]


def test_versions_and_tags_are_kept_and_removed(client: Minio, bucket: str) -> None:
    client.set_bucket_versioning(bucket, VersioningConfig(ENABLED))
    tags = Tags.new_object_tags()
    tags["colour"] = "blue"
    ids = [client.put_object(bucket, "k", io.BytesIO(b"x" * n), n, tags=tags).version_id for n in (1, 2)]
    assert client.get_object_tags(bucket, "k") == tags
    client.remove_object(bucket, "k")
    listed = list(client.list_objects(bucket, include_version=True))
    assert [found.version_id for found in listed if not found.is_delete_marker] == ids[::-1]
    gone = [DeleteObject(str(found.object_name), found.version_id) for found in listed]
    assert list(client.remove_objects(bucket, gone)) == []
    assert list(client.list_objects(bucket, include_version=True)) == []


def test_presigned_requests_and_forms_work(client: Minio, bucket: str) -> None:
    put = urllib.request.Request(client.presigned_put_object(bucket, "k"), b"by url", method="PUT")
    with urllib.request.urlopen(put, timeout=20) as answer:
        assert answer.status == 200
    url = client.presigned_get_object(bucket, "k", expires=timedelta(minutes=1))
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.read() == b"by url"
    policy = PostPolicy(bucket, datetime.now(UTC) + timedelta(minutes=1))
    policy.add_starts_with_condition("key", "forms/")
    assert client.presigned_post_policy(policy)["policy"]


def test_its_provider_takes_credentials_that_a_policy_narrows(client: Minio, endpoint: str, bucket: str) -> None:
    client.put_object(bucket, "k", io.BytesIO(b"here"), 4)
    allowed = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:GetBucketLocation"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": allowed})
    provider = AssumeRoleProvider(
        sts_endpoint=endpoint,
        access_key=ACCESS_KEY_ID,
        secret_key=SECRET_ACCESS_KEY,
        policy=policy,
        duration_seconds=3600,
    )
    narrow = Minio(endpoint.removeprefix("http://"), credentials=provider, secure=False)
    assert read(narrow, bucket, "k") == b"here"
    with pytest.raises(Exception, match="AccessDenied"):
        narrow.put_object(bucket, "k", io.BytesIO(b"x"), 1)

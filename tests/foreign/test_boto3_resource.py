"""boto3's resource API: buckets, objects, versions, uploads and collections as objects of Python."""

from __future__ import annotations

import io
from typing import Any

import boto3
import pytest

from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY


@pytest.fixture
def resource(endpoint: str) -> Any:
    """The resource as it comes."""
    return boto3.session.Session().resource(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY_ID,
        aws_secret_access_key=SECRET_ACCESS_KEY,
    )


def test_a_bucket_is_filled_listed_and_emptied(resource: Any) -> None:
    bucket = resource.create_bucket(Bucket="resource-bucket")
    bucket.wait_until_exists()
    for number in range(5):
        bucket.put_object(Key=f"dir/{number}", Body=str(number))
    assert [found.key for found in bucket.objects.filter(Prefix="dir/").limit(3)] == ["dir/0", "dir/1", "dir/2"]
    assert {found.key: found.get()["Body"].read() for found in bucket.objects.all()}["dir/4"] == b"4"
    copied = bucket.Object("copy")
    copied.copy_from(CopySource={"Bucket": bucket.name, "Key": "dir/1"})
    copied.wait_until_exists()
    assert copied.content_length == 1
    assert bucket.name in [found.name for found in resource.buckets.all()]
    bucket.objects.all().delete()
    assert list(bucket.objects.all()) == []
    bucket.delete()
    bucket.wait_until_not_exists()


def test_versions_acls_and_tags_are_attributes(resource: Any, bucket: str) -> None:
    bucket_object = resource.Bucket(bucket)
    bucket_object.Versioning().enable()
    thing = bucket_object.Object("k")
    thing.put(Body=b"1")
    thing.put(Body=b"2")
    bodies = [version.get()["Body"].read() for version in bucket_object.object_versions.filter(Prefix="k")]
    assert bodies == [b"2", b"1"]
    thing.Acl().put(ACL="public-read")
    assert len(thing.Acl().grants) == 2
    bucket_object.Tagging().put(Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    assert bucket_object.Tagging().tag_set == [{"Key": "a", "Value": "b"}]
    bucket_object.object_versions.delete()
    assert list(bucket_object.object_versions.all()) == []


def test_an_upload_is_driven_part_by_part_and_by_the_transfer_manager(resource: Any, bucket: str) -> None:
    thing = resource.Object(bucket, "parts")
    upload = thing.initiate_multipart_upload()
    parts = [noise(1, 5 * MIB), b"end"]
    listed = [
        {"PartNumber": number, "ETag": upload.Part(number).upload(Body=body)["ETag"]}
        for number, body in enumerate(parts, 1)
    ]
    assert [part.size for part in upload.parts.all()] == [len(part) for part in parts]
    upload.complete(MultipartUpload={"Parts": listed})
    back = io.BytesIO()
    thing.download_fileobj(back)
    assert back.getvalue() == b"".join(parts)
    thing.upload_fileobj(io.BytesIO(noise(2, 9 * MIB)))
    assert thing.get()["Body"].read() == noise(2, 9 * MIB)

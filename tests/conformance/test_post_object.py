"""PostObject: what nobody may send into a bucket that is open, and which fields no policy has to name."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outside.clients import S3Client, s3_client
from outside.failure import error_code
from outside.policies import allow, deny, put_policy
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY

BOUNDARY = "----formBoundary"
TAGS = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"
ADDITIONS: dict[str, dict[str, str]] = {
    "nothing": {},
    "acl": {"acl": "public-read"},
    "tags": {"tagging": TAGS},
    "both": {"acl": "authenticated-read", "tagging": TAGS},
}


def send(endpoint: str, bucket: str, fields: dict[str, str], file: bytes = b"by a form") -> int:
    """Posts a form, and gives the status."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'.encode()
    body = b"".join([*parts, head, file, f"\r\n--{BOUNDARY}--\r\n".encode()])
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
    try:
        connection.request("POST", f"/{bucket}", body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("more", ADDITIONS.values(), ids=ADDITIONS)
def test_who_does_not_sign_says_what_its_own_object_is_like(
    s3: S3Client, endpoint: str, bucket: str, more: dict[str, str]
) -> None:
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    assert send(endpoint, bucket, {"key": "k"} | more) == 204
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"by a form"
    tags = s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
    assert tags == ([{"Key": "a", "Value": "1"}] if "tagging" in more else [])
    assert (len(s3.get_object_acl(Bucket=bucket, Key="k")["Grants"]) == 2) == ("acl" in more)


@pytest.mark.parametrize("header", [{"Tagging": "a=1"}, {"ACL": "public-read"}], ids=["tags", "acl"])
def test_a_put_that_nobody_signed_may_say_it_too(s3: S3Client, nobody: Any, bucket: str, header: Any) -> None:
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    nobody.put_object(Bucket=bucket, Key="k", Body=b"x", **header)
    put_policy(s3, bucket, deny(bucket, ["s3:PutObjectTagging", "s3:PutObjectAcl"]))
    assert error_code(nobody.put_object, Bucket=bucket, Key="k", Body=b"y", **header) == (403, "AccessDenied")


@pytest.mark.parametrize("more", [{"acl": "public-read"}, {"tagging": TAGS}], ids=["acl", "tags"])
def test_in_a_bucket_whose_owner_owns_everything_nobody_says_more(
    s3: S3Client, endpoint: str, bucket: str, more: dict[str, str]
) -> None:
    enforced = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=enforced)
    put_policy(s3, bucket, allow(bucket, "s3:PutObject"))
    assert send(endpoint, bucket, {"key": "k"}) == 204
    assert send(endpoint, bucket, {"key": "k"} | more) == 403


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_a_form_without_its_signature_is_malformed_whatever_its_policy_says(
    endpoint: str, bucket: str, version: str
) -> None:
    made: Any = s3_client(endpoint, signature_version=version).generate_presigned_post(bucket, "k")
    unsigned = {name: value for name, value in made["fields"].items() if "signature" not in name.lower()}
    for key in ("k", "another"):
        assert send(endpoint, bucket, unsigned | {"key": key}) == 400


@pytest.mark.parametrize(("written", "status"), [("T{}Z", 204), ("T{}+00:00", 204), (" {}+00:00", 400)])
def test_the_end_of_a_policy_is_a_date_and_a_time_with_a_t_between(
    endpoint: str, bucket: str, written: str, status: int
) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%d") + written.format("23:59:59")
    document = {"expiration": until, "conditions": [{"bucket": bucket}, {"key": "k"}]}
    policy = base64.b64encode(json.dumps(document).encode())
    signature = base64.b64encode(hmac.digest(SECRET_ACCESS_KEY.encode(), policy, "sha1")).decode()
    signed = {"AWSAccessKeyId": ACCESS_KEY_ID, "policy": policy.decode(), "signature": signature}
    assert send(endpoint, bucket, {"key": "k"} | signed) == status


@pytest.mark.parametrize("version", ["s3v4", "s3"])
@pytest.mark.parametrize(("claimed", "status"), [(b"by a form", 204), (b"another", 400)], ids=["right", "wrong"])
def test_no_policy_has_to_name_a_checksum(
    s3: S3Client, endpoint: str, bucket: str, version: str, claimed: bytes, status: int
) -> None:
    made: Any = s3_client(endpoint, signature_version=version).generate_presigned_post(bucket, "k")
    checksum = base64.b64encode(hashlib.sha256(claimed).digest()).decode()
    assert send(endpoint, bucket, made["fields"] | {"x-amz-checksum-sha256": checksum}) == status
    if status == 204:
        head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
        assert head["ChecksumSHA256"] == checksum

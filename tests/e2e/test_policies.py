"""Bucket policies: what they allow and deny, to whom, under which conditions; and what is no policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.failure import error_code
from outside.policies import allow, deny, put_policy
from outside.server import DELTA_SEALED
from outside.users import ALT_ID, client_of

DENIED = (403, "AccessDenied")


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_a_policy_is_given_back_as_it_was_sent_until_it_is_deleted(
    s3: S3Client, make_bucket: MakeBucket, sealed: bool
) -> None:
    bucket = make_bucket(DELTA_SEALED) if sealed else make_bucket()
    text = json.dumps({"Version": "2012-10-17", "Statement": [allow(bucket, "s3:GetObject", Sid="all")]}, indent=2)
    assert s3.put_bucket_policy(Bucket=bucket, Policy=text)["ResponseMetadata"]["HTTPStatusCode"] == 204
    assert s3.get_bucket_policy(Bucket=bucket)["Policy"] == text
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"] == {"IsPublic": True}
    assert s3.delete_bucket_policy(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 204
    assert error_code(s3.get_bucket_policy, Bucket=bucket) == (404, "NoSuchBucketPolicy")
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"] == {"IsPublic": False}


def test_nobody_may_what_a_policy_allows_everybody(s3: S3Client, bucket: str, nobody: Any) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"open")
    assert error_code(nobody.get_object, Bucket=bucket, Key="k") == DENIED
    put_policy(s3, bucket, allow(bucket, ["s3:GetObject", "s3:ListBucket"]))
    assert nobody.get_object(Bucket=bucket, Key="k")["Body"].read() == b"open"
    assert [found["Key"] for found in nobody.list_objects_v2(Bucket=bucket)["Contents"]] == ["k"]
    assert error_code(nobody.get_object, Bucket=bucket, Key="none") == (404, "NoSuchKey")
    assert error_code(nobody.put_object, Bucket=bucket, Key="k", Body=b"x") == DENIED
    assert error_code(nobody.delete_object, Bucket=bucket, Key="k") == DENIED
    assert error_code(nobody.get_bucket_policy, Bucket=bucket) == DENIED
    s3.delete_bucket_policy(Bucket=bucket)
    assert error_code(nobody.get_object, Bucket=bucket, Key="k") == DENIED


def test_who_may_not_list_is_not_told_what_is_there(s3: S3Client, bucket: str, nobody: Any) -> None:
    put_policy(s3, bucket, allow(bucket, "s3:GetObject"))
    assert error_code(nobody.get_object, Bucket=bucket, Key="none") == DENIED
    assert error_code(nobody.get_object, Bucket="never-made-bucket", Key="none") == (404, "NoSuchBucket")


def test_another_account_needs_both_sides(s3: S3Client, bucket: str, alt: S3Client, endpoint: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert error_code(alt.get_object, Bucket=bucket, Key="k") == DENIED
    assert error_code(alt.list_objects_v2, Bucket=bucket) == DENIED
    put_policy(s3, bucket, allow(bucket, "s3:*", {"AWS": ALT_ID}))
    assert alt.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"
    assert alt.list_objects_v2(Bucket=bucket)["KeyCount"] == 1
    tenant = client_of(endpoint, "tenant")
    assert error_code(tenant.get_object, Bucket=bucket, Key="k") == DENIED
    assert bucket not in [found["Name"] for found in alt.list_buckets()["Buckets"]]


def test_a_colleague_needs_one_side(s3: S3Client, bucket: str, endpoint: str) -> None:
    colleague = client_of(endpoint, "colleague")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert error_code(colleague.get_object, Bucket=bucket, Key="k") == DENIED
    put_policy(s3, bucket, allow(bucket, "s3:GetObject", {"AWS": "arn:aws:iam:::user/colleague"}))
    assert colleague.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"
    assert error_code(colleague.put_object, Bucket=bucket, Key="k", Body=b"y") == DENIED


def test_a_deny_wins_even_over_the_owner_who_can_still_repair_the_policy(s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    put_policy(s3, bucket, allow(bucket, "s3:*"), deny(bucket, "s3:*"))
    assert error_code(s3.get_object, Bucket=bucket, Key="k") == DENIED
    assert error_code(s3.list_objects_v2, Bucket=bucket) == DENIED
    assert "Deny" in s3.get_bucket_policy(Bucket=bucket)["Policy"]
    s3.delete_bucket_policy(Bucket=bucket)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_a_policy_covers_every_way_to_an_object(s3: S3Client, bucket: str) -> None:
    for key in ("open", "secret"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    secret = {"Resource": f"arn:aws:s3:::{bucket}/secret"}
    put_policy(s3, bucket, deny(bucket, ["s3:GetObject", "s3:DeleteObject", "s3:PutObject"], **secret))
    for call, arguments in (
        (s3.get_object, {}),
        (s3.put_object, {"Body": b"y"}),
        (s3.delete_object, {}),
        (s3.create_multipart_upload, {}),
        (s3.copy_object, {"CopySource": f"{bucket}/open"}),
    ):
        assert error_code(call, Bucket=bucket, Key="secret", **arguments) == DENIED
    assert error_code(s3.head_object, Bucket=bucket, Key="secret")[0] == 403
    assert error_code(s3.copy_object, Bucket=bucket, Key="copy", CopySource=f"{bucket}/secret") == DENIED
    batch = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "open"}, {"Key": "secret"}]})
    assert [found["Key"] for found in batch["Deleted"]] == ["open"]
    assert [(found["Key"], found["Code"]) for found in batch["Errors"]] == [("secret", "AccessDenied")]


def test_versions_have_actions_of_their_own(s3: S3Client, bucket: str, nobody: Any) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    put_policy(s3, bucket, allow(bucket, "s3:GetObject"))
    assert nobody.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
    assert error_code(nobody.get_object, Bucket=bucket, Key="k", VersionId=version) == DENIED
    put_policy(s3, bucket, allow(bucket, "s3:GetObjectVersion", Condition={"StringEquals": {"s3:VersionId": version}}))
    assert nobody.get_object(Bucket=bucket, Key="k", VersionId=version)["Body"].read() == b"1"
    assert error_code(nobody.get_object, Bucket=bucket, Key="k", VersionId="null") == DENIED


CONDITIONS = [
    ({"StringLike": {"s3:prefix": "a/*"}}, {"Prefix": "a/b"}, {"Prefix": "b/"}),
    ({"StringEquals": {"s3:delimiter": "/"}}, {"Delimiter": "/"}, {"Delimiter": "-"}),
    ({"NumericLessThanEquals": {"s3:max-keys": "10"}}, {"MaxKeys": 10}, {"MaxKeys": 11}),
    ({"Null": {"s3:prefix": "true"}}, {}, {"Prefix": "a"}),
]


@pytest.mark.parametrize(("condition", "fits", "misfits"), CONDITIONS, ids=lambda value: json.dumps(value))
def test_conditions_see_the_parameters_of_a_listing(
    s3: S3Client, bucket: str, nobody: Any, condition: Any, fits: Any, misfits: Any
) -> None:
    put_policy(s3, bucket, allow(bucket, "s3:ListBucket", Condition=condition))
    nobody.list_objects_v2(Bucket=bucket, **fits)
    nobody.list_objects(Bucket=bucket, **fits)
    assert error_code(nobody.list_objects_v2, Bucket=bucket, **misfits) == DENIED


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        ({"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}, True),
        ({"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, False),
        ({"NotIpAddress": {"aws:SourceIp": "127.0.0.1/32"}}, False),
        ({"Bool": {"aws:SecureTransport": "false"}}, True),
        ({"Bool": {"aws:SecureTransport": "true"}}, False),
        ({"StringLike": {"aws:UserAgent": "*Boto3*"}}, True),
        ({"StringLike": {"aws:Referer": "https://example.com/*"}}, False),
        ({"StringLikeIfExists": {"aws:Referer": "https://example.com/*"}}, True),
        ({"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}, True),
        ({"DateLessThan": {"aws:EpochTime": "1577836800"}}, False),
        ({"StringEquals": {"aws:PrincipalType": "Anonymous"}}, True),
        ({"Null": {"aws:username": "true"}}, True),
        ({"StringNotEquals": {"aws:username": "alt"}}, True),
        ({"StringEquals": {"s3:authType": "REST-HEADER"}}, False),
    ],
    ids=lambda value: json.dumps(value),
)
def test_conditions_see_the_request(s3: S3Client, bucket: str, nobody: Any, condition: Any, allowed: bool) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    put_policy(s3, bucket, allow(bucket, "s3:GetObject", Condition=condition))
    if allowed:
        nobody.get_object(Bucket=bucket, Key="k")
    else:
        assert error_code(nobody.get_object, Bucket=bucket, Key="k") == DENIED


@pytest.mark.parametrize(
    ("key", "value", "fits", "misfits"),
    [
        ("s3:x-amz-acl", "public-read", {"ACL": "public-read"}, {"ACL": "private"}),
        ("s3:x-amz-storage-class", "STANDARD_IA", {"StorageClass": "STANDARD_IA"}, {}),
        ("s3:x-amz-server-side-encryption", "AES256", {"ServerSideEncryption": "AES256"}, {}),
        ("s3:x-amz-grant-full-control", "*", {"GrantFullControl": f"id={ALT_ID}"}, {}),
        ("s3:RequestObjectTag/security", "public", {"Tagging": "security=public"}, {"Tagging": "security=private"}),
    ],
)
def test_conditions_see_the_headers_of_a_put(
    s3: S3Client, bucket: str, alt: S3Client, key: str, value: str, fits: Any, misfits: Any
) -> None:
    put_policy(s3, bucket, allow(bucket, "s3:PutObject", {"AWS": ALT_ID}, Condition={"StringLike": {key: value}}))
    alt.put_object(Bucket=bucket, Key="k", Body=b"x", **fits)
    assert error_code(alt.put_object, Bucket=bucket, Key="k", Body=b"x", **misfits) == DENIED


def test_conditions_see_where_a_copy_comes_from(s3: S3Client, bucket: str, alt: S3Client) -> None:
    for key in ("public/a", "private/a"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    condition = {"StringLike": {"s3:x-amz-copy-source": f"{bucket}/public/*"}}
    only_from = allow(bucket, "s3:PutObject", {"AWS": ALT_ID}, Condition=condition)
    put_policy(s3, bucket, allow(bucket, "s3:GetObject", {"AWS": ALT_ID}), only_from)
    alt.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/public/a")
    assert error_code(alt.copy_object, Bucket=bucket, Key="to", CopySource=f"{bucket}/private/a") == DENIED
    assert error_code(alt.put_object, Bucket=bucket, Key="to", Body=b"x") == DENIED


def test_conditions_see_the_tags_an_object_has_and_is_to_have(s3: S3Client, bucket: str, alt: S3Client) -> None:
    for key in ("public", "private", "none"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x", Tagging="" if key == "none" else f"security={key}")
    has = {"StringEquals": {"s3:ExistingObjectTag/security": "public"}}
    gets = {"ForAllValues:StringEquals": {"s3:RequestObjectTagKeys": ["security", "virus"]}}
    put_policy(
        s3,
        bucket,
        allow(bucket, ["s3:GetObject", "s3:GetObjectAcl", "s3:GetObjectTagging"], {"AWS": ALT_ID}, Condition=has),
        allow(bucket, "s3:PutObjectTagging", {"AWS": ALT_ID}, Condition=gets),
    )
    for call in (alt.get_object, alt.head_object, alt.get_object_acl, alt.get_object_tagging):
        call(Bucket=bucket, Key="public")
        assert error_code(call, Bucket=bucket, Key="private")[0] == 403
        assert error_code(call, Bucket=bucket, Key="none")[0] == 403
    tags = [{"Key": "security", "Value": "public"}]
    alt.put_object_tagging(Bucket=bucket, Key="private", Tagging={"TagSet": tags})
    alt.get_object(Bucket=bucket, Key="private")
    tags.append({"Key": "colour", "Value": "blue"})
    assert error_code(alt.put_object_tagging, Bucket=bucket, Key="none", Tagging={"TagSet": tags}) == DENIED


def test_a_variable_gives_every_user_a_home(s3: S3Client, bucket: str, alt: S3Client, endpoint: str) -> None:
    home = {"Resource": f"arn:aws:s3:::{bucket}/home/${{aws:username}}/*"}
    put_policy(s3, bucket, allow(bucket, ["s3:PutObject", "s3:GetObject"], **home))
    alt.put_object(Bucket=bucket, Key="home/alt/k", Body=b"mine")
    assert error_code(alt.put_object, Bucket=bucket, Key="home/tenant/k", Body=b"x") == DENIED
    tenant = client_of(endpoint, "tenant")
    tenant.put_object(Bucket=bucket, Key="home/tenant/k", Body=b"theirs")
    assert error_code(tenant.get_object, Bucket=bucket, Key="home/alt/k") == DENIED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Principal": "alt"}, "Invalid principal in policy"),
        ({"Action": "s3:GetEverything"}, "Policy has invalid action"),
        ({"Resource": "arn:aws:s3:::another-bucket/*"}, "Policy has invalid resource"),
        ({"Action": "s3:ListBucket", "Resource": "arn:aws:s3:::BUCKET/*"}, "Action does not apply to any resource"),
        ({"Effect": "Perhaps"}, "Invalid effect"),
        ({"Condition": {"StringEquals": {"s3:colour": "blue"}}}, "invalid condition key"),
        ({"Condition": {"StringResembles": {"s3:prefix": "a"}}}, "Invalid Condition type"),
        ({"Why": "because"}, "Unknown field Why"),
    ],
    ids=lambda value: json.dumps(value),
)
def test_what_is_no_policy_is_malformed(s3: S3Client, bucket: str, change: dict[str, Any], message: str) -> None:
    statement = allow(bucket, "s3:GetObject") | json.loads(json.dumps(change).replace("BUCKET", bucket))
    with pytest.raises(s3.exceptions.ClientError, match=r"MalformedPolicy.*" + message):
        put_policy(s3, bucket, statement)
    assert error_code(s3.get_bucket_policy, Bucket=bucket) == (404, "NoSuchBucketPolicy")


@pytest.mark.parametrize("text", ["", "not JSON", "[]", "{}", '{"Version":"2012-10-17","Statement":[]}'])
def test_a_document_that_is_no_policy_is_malformed(s3: S3Client, bucket: str, text: str) -> None:
    assert error_code(s3.put_bucket_policy, Bucket=bucket, Policy=text) == (400, "MalformedPolicy")


def test_a_blocked_bucket_takes_no_public_policy_and_opens_no_older_one(
    s3: S3Client, bucket: str, nobody: Any, alt: S3Client
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    put_policy(s3, bucket, allow(bucket, "s3:GetObject"))
    nobody.get_object(Bucket=bucket, Key="k")
    block = {
        "RestrictPublicBuckets": True,
        "BlockPublicPolicy": True,
        "BlockPublicAcls": False,
        "IgnorePublicAcls": False,
    }
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=block)
    assert s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"] == block
    assert error_code(nobody.get_object, Bucket=bucket, Key="k") == DENIED
    assert error_code(alt.get_object, Bucket=bucket, Key="k") == DENIED
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"] == {"IsPublic": False}
    document = json.dumps({"Version": "2012-10-17", "Statement": allow(bucket, "s3:ListBucket")})
    assert error_code(s3.put_bucket_policy, Bucket=bucket, Policy=document) == DENIED
    put_policy(s3, bucket, allow(bucket, "s3:GetObject", {"AWS": ALT_ID}))
    alt.get_object(Bucket=bucket, Key="k")
    s3.delete_public_access_block(Bucket=bucket)
    assert error_code(s3.get_public_access_block, Bucket=bucket) == (404, "NoSuchPublicAccessBlockConfiguration")
    put_policy(s3, bucket, allow(bucket, "s3:GetObject"))
    nobody.get_object(Bucket=bucket, Key="k")

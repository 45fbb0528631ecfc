"""ACLs: what each canned one grants, and who may do what under each pair of a bucket's and an object's."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from outside.clients import S3Client
from outside.failure import error_code
from outside.policies import allow, put_policy
from outside.users import ALT_ID, anonymous

ALL = "http://acs.amazonaws.com/groups/global/AllUsers"
SIGNED = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
CANNED = {
    "private": [],
    "public-read": [(ALL, "READ")],
    "public-read-write": [(ALL, "READ"), (ALL, "WRITE")],
    "authenticated-read": [(SIGNED, "READ")],
}


def grants(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Whom an ACL grants what, the owner's own grant left out."""
    owner = answer["Owner"]["ID"]
    named = [(grant["Grantee"].get("URI") or grant["Grantee"]["ID"], grant["Permission"]) for grant in answer["Grants"]]
    assert (owner, "FULL_CONTROL") in named
    return sorted(pair for pair in named if pair != (owner, "FULL_CONTROL"))


def allowed(client: S3Client, call: str, **asked: Any) -> bool:
    try:
        getattr(client, call)(**asked)
    except client.exceptions.ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        return False
    return True


@pytest.mark.parametrize("canned", CANNED)
@pytest.mark.parametrize("how", ["put", "create"])
def test_a_canned_acl_of_a_bucket_grants_what_it_says(s3: S3Client, bucket: str, canned: str, how: str) -> None:
    if how == "put":
        s3.put_bucket_acl(Bucket=bucket, ACL=canned)
    else:
        s3.delete_bucket(Bucket=bucket)
        s3.create_bucket(Bucket=bucket, ACL=canned)
    assert grants(s3.get_bucket_acl(Bucket=bucket)) == sorted(CANNED[canned])


@pytest.mark.parametrize("canned", CANNED)
@pytest.mark.parametrize("how", ["put", "set", "copy", "upload"])
def test_a_canned_acl_of_an_object_grants_what_it_says(s3: S3Client, bucket: str, canned: str, how: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**at, Body=b"x", **({"ACL": canned} if how == "put" else {}))
    if how == "set":
        s3.put_object_acl(**at, ACL=canned)
    elif how == "copy":
        s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/k", ACL=canned)
        at["Key"] = "to"
    elif how == "upload":
        upload = s3.create_multipart_upload(**at, ACL=canned)["UploadId"]
        etag = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"y")["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)
    assert grants(s3.get_object_acl(**at)) == sorted(CANNED[canned])


BUCKETS = ["private", "public-read", "public-read-write"]
OBJECTS = ["private", "public-read", "public-read-write", "authenticated-read"]


@pytest.mark.parametrize(("of_bucket", "of_object"), list(product(BUCKETS, OBJECTS)))
@pytest.mark.parametrize("who", ["alt", "nobody"])
def test_a_stranger_may_what_the_two_acls_grant(
    request: pytest.FixtureRequest, s3: S3Client, bucket: str, of_bucket: str, of_object: str, who: str
) -> None:
    client = request.getfixturevalue(who)
    s3.put_bucket_acl(Bucket=bucket, ACL=of_bucket)
    s3.put_object(Bucket=bucket, Key="k", Body=b"content", ACL=of_object)
    reads = of_object.startswith("public") or (of_object == "authenticated-read" and who == "alt")
    at = {"Bucket": bucket, "Key": "k"}
    assert allowed(client, "get_object", **at) == reads
    assert allowed(client, "head_object", **at) == reads
    assert allowed(client, "list_objects_v2", Bucket=bucket) == (of_bucket != "private")
    writes = of_bucket == "public-read-write"
    assert not allowed(client, "get_object_acl", **at)
    assert not allowed(client, "put_object_acl", **at, ACL="public-read")
    assert allowed(client, "put_object", Bucket=bucket, Key="new", Body=b"x") == writes
    assert allowed(client, "put_object", **at, Body=b"over") == writes
    assert allowed(client, "delete_object", **at) == writes


PERMISSIONS = ["FULL_CONTROL", "READ", "READ_ACP", "WRITE", "WRITE_ACP"]


def has(permission: str, wanted: str) -> bool:
    return permission in (wanted, "FULL_CONTROL")


@pytest.mark.parametrize("permission", PERMISSIONS)
@pytest.mark.parametrize("how", ["header", "document", "email"])
def test_a_permission_on_a_bucket_gives_its_operations(
    s3: S3Client, alt: S3Client, bucket: str, permission: str, how: str
) -> None:
    if how == "header":
        name = (
            "GrantFullControl" if permission == "FULL_CONTROL" else f"Grant{permission.title().replace('_Acp', 'ACP')}"
        )
        s3.put_bucket_acl(Bucket=bucket, **{name: f"id={ALT_ID}"})
    else:
        grantee = {"Type": "CanonicalUser", "ID": ALT_ID}
        if how == "email":
            grantee = {"Type": "AmazonCustomerByEmail", "EmailAddress": "alt@example.com"}
        acl = s3.get_bucket_acl(Bucket=bucket)
        policy = {"Owner": acl["Owner"], "Grants": [*acl["Grants"], {"Grantee": grantee, "Permission": permission}]}
        s3.put_bucket_acl(Bucket=bucket, AccessControlPolicy=policy)
    assert (ALT_ID, permission) in [
        (grant["Grantee"].get("ID"), grant["Permission"]) for grant in s3.get_bucket_acl(Bucket=bucket)["Grants"]
    ]
    assert allowed(alt, "list_objects_v2", Bucket=bucket) == has(permission, "READ")
    assert allowed(alt, "get_bucket_acl", Bucket=bucket) == has(permission, "READ_ACP")
    assert allowed(alt, "put_object", Bucket=bucket, Key="k", Body=b"x") == has(permission, "WRITE")
    assert allowed(alt, "put_bucket_acl", Bucket=bucket, ACL="private") == has(permission, "WRITE_ACP")


@pytest.mark.parametrize("permission", ["FULL_CONTROL", "READ", "READ_ACP", "WRITE_ACP"])
def test_a_permission_on_an_object_gives_its_operations(
    s3: S3Client, alt: S3Client, bucket: str, permission: str
) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**at, Body=b"x")
    acl = s3.get_object_acl(**at)
    grant = {"Grantee": {"Type": "CanonicalUser", "ID": ALT_ID}, "Permission": permission}
    s3.put_object_acl(**at, AccessControlPolicy={"Owner": acl["Owner"], "Grants": [*acl["Grants"], grant]})
    assert allowed(alt, "get_object", **at) == has(permission, "READ")
    assert allowed(alt, "get_object_acl", **at) == has(permission, "READ_ACP")
    assert allowed(alt, "put_object_acl", **at, ACL="private") == has(permission, "WRITE_ACP")


@pytest.mark.parametrize("who", ["AllUsers", "AuthenticatedUsers"])
def test_a_group_is_granted_by_its_address(
    s3: S3Client, alt: S3Client, nobody: S3Client, bucket: str, who: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", GrantRead=f"uri=http://acs.amazonaws.com/groups/global/{who}")
    assert allowed(alt, "get_object", Bucket=bucket, Key="k")
    assert allowed(nobody, "get_object", Bucket=bucket, Key="k") == (who == "AllUsers")


@pytest.mark.parametrize("call", ["put_bucket_acl", "put_object_acl"])
def test_a_canned_acl_and_grants_exclude_each_other(s3: S3Client, bucket: str, call: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    at = {"Bucket": bucket} | ({"Key": "k"} if call == "put_object_acl" else {})
    code = error_code(getattr(s3, call), **at, ACL="private", GrantRead=f"id={ALT_ID}")
    assert code == (400, "InvalidRequest")


@pytest.mark.parametrize("number", [100, 101])
def test_an_acl_has_at_most_100_grants(s3: S3Client, bucket: str, number: int) -> None:
    owner = s3.get_bucket_acl(Bucket=bucket)["Owner"]
    grant = {"Grantee": {"Type": "CanonicalUser", "ID": ALT_ID}, "Permission": "READ"}
    asked = {"Bucket": bucket, "AccessControlPolicy": {"Owner": owner, "Grants": [grant] * number}}
    if number == 100:
        s3.put_bucket_acl(**asked)
    else:
        assert error_code(s3.put_bucket_acl, **asked)[0] == 400


def test_an_owner_is_not_changed_by_an_acl(s3: S3Client, bucket: str) -> None:
    asked = {"Owner": {"ID": ALT_ID}, "Grants": []}
    status, _ = error_code(s3.put_bucket_acl, Bucket=bucket, AccessControlPolicy=asked)
    assert status in (400, 403)


@pytest.mark.parametrize("canned", ["public-read", "public-read-write", "authenticated-read"])
def test_a_blocked_bucket_takes_no_public_acl(s3: S3Client, bucket: str, canned: str) -> None:
    blocked = {"BlockPublicAcls": True, "IgnorePublicAcls": False, "BlockPublicPolicy": False}
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=blocked | {"RestrictPublicBuckets": False})
    assert error_code(s3.put_bucket_acl, Bucket=bucket, ACL=canned) == (403, "AccessDenied")
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"x", ACL=canned) == (403, "AccessDenied")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert error_code(s3.put_object_acl, Bucket=bucket, Key="k", ACL=canned) == (403, "AccessDenied")


def test_nobody_begins_an_upload_in_parts_wherever_everybody_may_write(
    endpoint: str, s3: S3Client, bucket: str
) -> None:
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    nobody = anonymous(endpoint)
    nobody.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert error_code(nobody.create_multipart_upload, Bucket=bucket, Key="k") == (403, "AccessDenied")
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_an_acl_lists_groups_before_accounts(s3: S3Client, bucket: str) -> None:
    owner = s3.get_bucket_acl(Bucket=bucket)["Owner"]
    accounts = [
        {"Grantee": {"Type": "CanonicalUser", "ID": one}, "Permission": "FULL_CONTROL"} for one in (owner["ID"], ALT_ID)
    ]
    group = {"Grantee": {"Type": "Group", "URI": ALL}, "Permission": "READ"}
    s3.put_bucket_acl(Bucket=bucket, AccessControlPolicy={"Owner": owner, "Grants": [*accounts, group]})
    listed = [grant["Grantee"] for grant in s3.get_bucket_acl(Bucket=bucket)["Grants"]]
    assert [grantee.get("URI") or grantee["ID"] for grantee in listed] == [ALL, owner["ID"], ALT_ID]


@pytest.mark.parametrize(
    ("ownership", "canned", "ours"),
    [
        ("BucketOwnerEnforced", None, True),
        ("BucketOwnerEnforced", "bucket-owner-full-control", True),
        ("BucketOwnerPreferred", None, False),
        ("BucketOwnerPreferred", "bucket-owner-full-control", True),
        ("BucketOwnerPreferred", "private", False),
        ("ObjectWriter", "bucket-owner-full-control", False),
    ],
)
def test_an_upload_belongs_to_whom_its_object_will_belong(
    s3: S3Client, alt: S3Client, bucket: str, ownership: str, canned: str | None, ours: bool
) -> None:
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": ownership}]})
    put_policy(s3, bucket, allow(bucket, "s3:*"))
    us = s3.list_buckets()["Owner"]["ID"]
    asked = {} if canned is None else {"ACL": canned}
    upload = alt.create_multipart_upload(Bucket=bucket, Key="k", **asked)["UploadId"]
    part = alt.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"x")
    for listed in (
        alt.list_parts(Bucket=bucket, Key="k", UploadId=upload),
        alt.list_multipart_uploads(Bucket=bucket)["Uploads"][0],
    ):
        assert listed["Owner"]["ID"] == (us if ours else ALT_ID)
        assert listed["Initiator"]["ID"] == ALT_ID
    parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
    alt.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload={"Parts": parts})
    assert alt.get_object_acl(Bucket=bucket, Key="k")["Owner"]["ID"] == (us if ours else ALT_ID)

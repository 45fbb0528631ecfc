"""Lists of grants: canned, in headers, as documents; who owns what is written; and public access blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outside.clients import S3Client
from outside.failure import error_code
from outside.users import ALT_ID, TENANT_ID, anonymous, client_of

DENIED = (403, "AccessDenied")
GROUPS = "http://acs.amazonaws.com/groups/"
ALL = (f"{GROUPS}global/AllUsers",)
AUTHENTICATED = f"{GROUPS}global/AuthenticatedUsers"
LOG_DELIVERY = f"{GROUPS}s3/LogDelivery"

Acl = dict[str, Any]


def grants(acl: Acl) -> set[tuple[str, str]]:
    """Who (a canonical id or a URI) has which permission."""
    listed = [(found["Grantee"].get("ID") or found["Grantee"]["URI"], found["Permission"]) for found in acl["Grants"]]
    assert len(listed) == len(set(listed))
    return set(listed)


def grant(canonical_id: str, permission: str) -> dict[str, Any]:
    """A grant as documents have it."""
    return {"Grantee": {"ID": canonical_id, "Type": "CanonicalUser"}, "Permission": permission}


@pytest.fixture
def root_id(s3: S3Client) -> str:
    """Root's canonical id."""
    return str(s3.list_buckets()["Owner"]["ID"])


CANNED = [
    ("private", set()),
    ("public-read", {(*ALL, "READ")}),
    ("public-read-write", {(*ALL, "READ"), (*ALL, "WRITE")}),
    ("authenticated-read", {(AUTHENTICATED, "READ")}),
]


@pytest.mark.parametrize(("name", "expected"), CANNED)
def test_a_canned_acl_grants_what_it_is_named_for(
    s3: S3Client, bucket: str, root_id: str, name: Any, expected: set[tuple[str, str]]
) -> None:
    whole = expected | {(root_id, "FULL_CONTROL")}
    s3.put_bucket_acl(Bucket=bucket, ACL=name)
    assert grants(s3.get_bucket_acl(Bucket=bucket)) == whole
    s3.put_object(Bucket=bucket, Key="by-put", Body=b"x", ACL=name)
    s3.copy_object(Bucket=bucket, Key="by-copy", CopySource=f"{bucket}/by-put", ACL=name)
    s3.put_object(Bucket=bucket, Key="later", Body=b"x")
    s3.put_object_acl(Bucket=bucket, Key="later", ACL=name)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="by-upload", ACL=name)["UploadId"]
    tag = s3.upload_part(Bucket=bucket, Key="by-upload", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    s3.complete_multipart_upload(Bucket=bucket, Key="by-upload", UploadId=upload, MultipartUpload=parts)
    for key in ("by-put", "by-copy", "later", "by-upload"):
        acl = s3.get_object_acl(Bucket=bucket, Key=key)
        assert (grants(acl), acl["Owner"]["ID"]) == (whole, root_id), key
    s3.put_bucket_acl(Bucket=bucket, ACL="private")
    assert grants(s3.get_bucket_acl(Bucket=bucket)) == {(root_id, "FULL_CONTROL")}


def test_log_delivery_can_write_and_nobody_can_be_it(s3: S3Client, bucket: str, root_id: str) -> None:
    s3.put_bucket_acl(Bucket=bucket, ACL="log-delivery-write")
    expected = {(LOG_DELIVERY, "WRITE"), (LOG_DELIVERY, "READ_ACP"), (root_id, "FULL_CONTROL")}
    assert grants(s3.get_bucket_acl(Bucket=bucket)) == expected


def test_a_copy_leaves_the_grants_of_its_source_behind(s3: S3Client, bucket: str, root_id: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/k")
    assert grants(s3.get_object_acl(Bucket=bucket, Key="copy")) == {(root_id, "FULL_CONTROL")}


PERMISSIONS = ["READ", "WRITE", "READ_ACP", "WRITE_ACP", "FULL_CONTROL"]


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_permission_on_a_bucket_gives_its_operations_alone(
    s3: S3Client, bucket: str, root_id: str, alt: S3Client, permission: str
) -> None:
    owner = s3.get_bucket_acl(Bucket=bucket)["Owner"]
    policy: Any = {"Owner": owner, "Grants": [grant(root_id, "FULL_CONTROL"), grant(ALT_ID, permission)]}
    s3.put_bucket_acl(Bucket=bucket, AccessControlPolicy=policy)
    assert grants(s3.get_bucket_acl(Bucket=bucket)) == {(root_id, "FULL_CONTROL"), (ALT_ID, permission)}
    named = [found["Grantee"] for found in s3.get_bucket_acl(Bucket=bucket)["Grants"]]
    assert [found["DisplayName"] for found in named] == ["root", "alt"]
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "READ": (alt.list_objects_v2, {}),
        "WRITE": (alt.put_object, {"Key": "k", "Body": b"x"}),
        "READ_ACP": (alt.get_bucket_acl, {}),
        "WRITE_ACP": (alt.put_bucket_acl, {"AccessControlPolicy": policy}),
    }
    for needed, (call, arguments) in calls.items():
        if permission in (needed, "FULL_CONTROL"):
            call(Bucket=bucket, **arguments)
        else:
            assert error_code(call, Bucket=bucket, **arguments) == DENIED, needed
    for call in (alt.get_bucket_policy, alt.get_bucket_tagging, alt.delete_bucket):
        assert error_code(call, Bucket=bucket) == DENIED


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_permission_on_an_object_gives_its_operations_alone(
    s3: S3Client, bucket: str, root_id: str, alt: S3Client, permission: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    owner = s3.get_object_acl(Bucket=bucket, Key="k")["Owner"]
    policy: Any = {"Owner": owner, "Grants": [grant(root_id, "FULL_CONTROL"), grant(ALT_ID, permission)]}
    s3.put_object_acl(Bucket=bucket, Key="k", AccessControlPolicy=policy)
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "READ": (alt.get_object, {}),
        "READ_ACP": (alt.get_object_acl, {}),
        "WRITE_ACP": (alt.put_object_acl, {"AccessControlPolicy": policy}),
    }
    for needed, (call, arguments) in calls.items():
        if permission in (needed, "FULL_CONTROL"):
            call(Bucket=bucket, Key="k", **arguments)
        else:
            assert error_code(call, Bucket=bucket, Key="k", **arguments) == DENIED, needed
    assert error_code(alt.put_object, Bucket=bucket, Key="k", Body=b"y") == DENIED
    assert s3.get_object_acl(Bucket=bucket, Key="k")["Owner"]["ID"] == root_id


ACCESS = [
    # bucket's ACL, object's ACL: whether a stranger may list, read the object, write a key
    ("private", "private", (False, False, False)),
    ("private", "public-read", (False, True, False)),
    ("private", "public-read-write", (False, True, False)),
    ("public-read", "private", (True, False, False)),
    ("public-read", "public-read", (True, True, False)),
    ("public-read-write", "private", (True, False, True)),
    ("public-read-write", "public-read", (True, True, True)),
]


@pytest.mark.parametrize(("of_bucket", "of_object", "expected"), ACCESS)
@pytest.mark.parametrize("signed", [True, False], ids=["another account", "nobody"])
def test_strangers_may_what_both_lists_say(
    s3: S3Client, bucket: str, endpoint: str, of_bucket: Any, of_object: Any, expected: tuple[bool, ...], signed: bool
) -> None:
    stranger = client_of(endpoint, "alt") if signed else anonymous(endpoint)
    s3.put_bucket_acl(Bucket=bucket, ACL=of_bucket)
    s3.put_object(Bucket=bucket, Key="listed", Body=b"x", ACL=of_object)
    s3.put_object(Bucket=bucket, Key="plain", Body=b"y")
    calls: list[tuple[Any, dict[str, Any]]] = [
        (stranger.list_objects, {}),
        (stranger.get_object, {"Key": "listed"}),
        (stranger.put_object, {"Key": "new", "Body": b"z"}),
    ]
    for (call, arguments), allowed in zip(calls, expected, strict=True):
        if allowed:
            call(Bucket=bucket, **arguments)
        else:
            assert error_code(call, Bucket=bucket, **arguments) == DENIED
    assert error_code(stranger.get_object, Bucket=bucket, Key="plain") == DENIED


def test_grants_come_in_headers_too(s3: S3Client, bucket: str, root_id: str) -> None:
    s3.put_object(
        Bucket=bucket,
        Key="k",
        Body=b"x",
        GrantRead=f'id="{ALT_ID}", uri="{ALL[0]}"',
        GrantReadACP=f"id={TENANT_ID}",
        GrantFullControl="emailAddress=alt@example.com",
    )
    expected = {(ALT_ID, "READ"), (*ALL, "READ"), (TENANT_ID, "READ_ACP"), (ALT_ID, "FULL_CONTROL")}
    assert grants(s3.get_object_acl(Bucket=bucket, Key="k")) == expected
    s3.put_bucket_acl(Bucket=bucket, GrantWrite=f"id={ALT_ID}", GrantFullControl=f"id={root_id}")
    assert grants(s3.get_bucket_acl(Bucket=bucket)) == {(ALT_ID, "WRITE"), (root_id, "FULL_CONTROL")}


def test_grants_to_whom_nobody_knows_are_refused(s3: S3Client, bucket: str, root_id: str) -> None:
    owner = {"ID": root_id}
    for grantee, code in (
        ({"ID": "_foo", "Type": "CanonicalUser"}, "InvalidArgument"),
        ({"URI": "http://example.com/group", "Type": "Group"}, "InvalidArgument"),
        ({"EmailAddress": "nobody@example.com", "Type": "AmazonCustomerByEmail"}, "UnresolvableGrantByEmailAddress"),
    ):
        policy: Any = {"Owner": owner, "Grants": [{"Grantee": grantee, "Permission": "READ"}]}
        assert error_code(s3.put_bucket_acl, Bucket=bucket, AccessControlPolicy=policy) == (400, code)
    assert error_code(s3.put_bucket_acl, Bucket=bucket, ACL="public") == (400, "InvalidArgument")
    both: Any = {"ACL": "private", "GrantRead": f"id={ALT_ID}"}
    assert error_code(s3.put_bucket_acl, Bucket=bucket, **both) == (400, "InvalidRequest")
    by_email: Any = {"EmailAddress": "ALT@example.com", "Type": "AmazonCustomerByEmail"}
    policy = {"Owner": owner, "Grants": [{"Grantee": by_email, "Permission": "READ"}]}
    s3.put_bucket_acl(Bucket=bucket, AccessControlPolicy=policy)
    assert grants(s3.get_bucket_acl(Bucket=bucket)) == {(ALT_ID, "READ")}
    wrong_owner: Any = {"Owner": {"ID": ALT_ID}, "Grants": []}
    assert error_code(s3.put_bucket_acl, Bucket=bucket, AccessControlPolicy=wrong_owner) == DENIED


def test_versions_have_a_list_each(s3: S3Client, bucket: str, root_id: str, nobody: Any) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    versions = [s3.put_object(Bucket=bucket, Key="k", Body=body)["VersionId"] for body in (b"1", b"2")]
    s3.put_object_acl(Bucket=bucket, Key="k", VersionId=versions[0], ACL="public-read")
    private = {(root_id, "FULL_CONTROL")}
    assert grants(s3.get_object_acl(Bucket=bucket, Key="k")) == private
    assert grants(s3.get_object_acl(Bucket=bucket, Key="k", VersionId=versions[0])) == private | {(*ALL, "READ")}
    assert nobody.get_object(Bucket=bucket, Key="k", VersionId=versions[0])["Body"].read() == b"1"
    assert error_code(nobody.get_object, Bucket=bucket, Key="k") == DENIED
    s3.put_object_acl(Bucket=bucket, Key="k", ACL="public-read")
    assert nobody.get_object(Bucket=bucket, Key="k")["Body"].read() == b"2"


def test_what_another_account_writes_is_its_own(
    s3: S3Client, bucket: str, root_id: str, alt: S3Client, endpoint: str
) -> None:
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    actions = ["s3:GetObject", "s3:ListBucket"]
    statement = {"Effect": "Allow", "Principal": "*", "Action": actions, "Resource": resources}
    policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    s3.put_bucket_policy(Bucket=bucket, Policy=policy)
    colleague = client_of(endpoint, "colleague")
    s3.put_object(Bucket=bucket, Key="ours", Body=b"x")
    colleague.get_object(Bucket=bucket, Key="ours")
    alt.put_object(Bucket=bucket, Key="theirs", Body=b"x")
    assert alt.get_object_acl(Bucket=bucket, Key="theirs")["Owner"]["ID"] == ALT_ID
    assert error_code(colleague.get_object, Bucket=bucket, Key="theirs") == DENIED
    alt.put_object(Bucket=bucket, Key="theirs", Body=b"x", ACL="bucket-owner-read")
    expected = {(ALT_ID, "FULL_CONTROL"), (root_id, "READ")}
    assert grants(alt.get_object_acl(Bucket=bucket, Key="theirs")) == expected
    owners = {found["Key"]: found["Owner"]["ID"] for found in s3.list_objects(Bucket=bucket)["Contents"]}
    assert owners == {"ours": root_id, "theirs": ALT_ID}
    s3.put_bucket_ownership_controls(
        Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerPreferred"}]}
    )
    alt.put_object(Bucket=bucket, Key="given", Body=b"x", ACL="bucket-owner-full-control")
    alt.put_object(Bucket=bucket, Key="kept", Body=b"x")
    assert s3.get_object_acl(Bucket=bucket, Key="given")["Owner"]["ID"] == root_id
    assert s3.get_object_acl(Bucket=bucket, Key="kept")["Owner"]["ID"] == ALT_ID
    s3.delete_object(Bucket=bucket, Key="theirs")


def test_where_the_owner_owns_everything_grants_count_for_nothing(
    s3: S3Client, bucket: str, root_id: str, nobody: Any
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    nobody.get_object(Bucket=bucket, Key="k")
    enforced: Any = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    s3.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=enforced)
    assert s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"] == enforced
    assert error_code(nobody.get_object, Bucket=bucket, Key="k") == DENIED
    assert grants(s3.get_object_acl(Bucket=bucket, Key="k")) == {(root_id, "FULL_CONTROL")}
    unsupported = (400, "AccessControlListNotSupported")
    assert error_code(s3.put_bucket_acl, Bucket=bucket, ACL="public-read") == unsupported
    assert error_code(s3.put_object_acl, Bucket=bucket, Key="k", ACL="public-read") == unsupported
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"y", ACL="public-read") == unsupported
    for call, more in (
        (s3.put_object, {"Key": "k", "Body": b"y"}),
        (s3.create_multipart_upload, {"Key": "k"}),
        (s3.copy_object, {"Key": "k2", "CopySource": f"{bucket}/k"}),
        (s3.put_object_acl, {"Key": "k"}),
        (s3.put_bucket_acl, {}),
    ):
        assert error_code(call, Bucket=bucket, ACL="private", **more) == unsupported
    s3.put_object(Bucket=bucket, Key="k2", Body=b"y", ACL="bucket-owner-full-control")
    s3.delete_bucket_ownership_controls(Bucket=bucket)
    assert error_code(s3.get_bucket_ownership_controls, Bucket=bucket) == (404, "OwnershipControlsNotFoundError")
    nobody.get_object(Bucket=bucket, Key="k")
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read")
    conflict = (400, "InvalidBucketAclWithObjectOwnership")
    assert error_code(s3.put_bucket_ownership_controls, Bucket=bucket, OwnershipControls=enforced) == conflict


@pytest.mark.parametrize("ownership", ["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"])
def test_a_bucket_is_made_with_its_ownership(s3: S3Client, ownership: Any) -> None:
    name = f"owned-{ownership.lower()}"
    s3.create_bucket(Bucket=name, ObjectOwnership=ownership)
    rules = s3.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"]["Rules"]
    assert rules == [{"ObjectOwnership": ownership}]
    if ownership == "BucketOwnerEnforced":
        refused = {"Bucket": f"{name}-acl", "ObjectOwnership": ownership, "ACL": "public-read"}
        assert error_code(s3.create_bucket, **refused) == (400, "InvalidBucketAclWithObjectOwnership")


def test_a_bucket_is_made_with_its_grants(s3: S3Client, root_id: str, nobody: Any, alt: S3Client) -> None:
    s3.create_bucket(Bucket="made-public", ACL="public-read")
    assert nobody.list_objects_v2(Bucket="made-public")["KeyCount"] == 0
    s3.create_bucket(Bucket="made-granted", GrantWrite=f"id={ALT_ID}", GrantFullControl=f"id={root_id}")
    alt.put_object(Bucket="made-granted", Key="k", Body=b"x")
    assert error_code(alt.list_objects_v2, Bucket="made-granted") == DENIED
    assert error_code(s3.create_bucket, Bucket="never-granted", GrantRead="id=_foo") == (400, "InvalidArgument")


def test_public_grants_are_blocked_or_ignored(s3: S3Client, bucket: str, nobody: Any) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    block: Any = {"BlockPublicAcls": True}
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=block)
    nobody.get_object(Bucket=bucket, Key="k")
    assert error_code(s3.put_object, Bucket=bucket, Key="k", Body=b"y", ACL="public-read") == DENIED
    assert error_code(s3.put_object_acl, Bucket=bucket, Key="k", ACL="authenticated-read") == DENIED
    assert error_code(s3.put_bucket_acl, Bucket=bucket, ACL="public-read-write") == DENIED
    s3.put_object(Bucket=bucket, Key="k", Body=b"y", ACL="private")
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration={"IgnorePublicAcls": True})
    s3.put_object(Bucket=bucket, Key="k", Body=b"z", ACL="public-read")
    assert error_code(nobody.get_object, Bucket=bucket, Key="k") == DENIED
    s3.delete_public_access_block(Bucket=bucket)
    assert nobody.get_object(Bucket=bucket, Key="k")["Body"].read() == b"z"


def test_a_list_can_be_emptied_and_its_owner_can_fill_it_again(s3: S3Client, bucket: str, root_id: str) -> None:
    empty: Any = {"Owner": {"ID": root_id}, "Grants": []}
    s3.put_bucket_acl(Bucket=bucket, AccessControlPolicy=empty)
    assert s3.get_bucket_acl(Bucket=bucket)["Grants"] == []
    s3.put_bucket_acl(Bucket=bucket, ACL="private")
    assert grants(s3.get_bucket_acl(Bucket=bucket)) == {(root_id, "FULL_CONTROL")}


def test_a_public_bucket_says_so(s3: S3Client, bucket: str) -> None:
    s3.put_bucket_acl(Bucket=bucket, ACL="authenticated-read")
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"] == {"IsPublic": True}
    s3.put_bucket_acl(Bucket=bucket, ACL="private")
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"] == {"IsPublic": False}

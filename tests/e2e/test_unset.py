"""What was never set is answered as S3 answers it, and what changes nothing is accepted: clients ask before they do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import AwsCli, S3Client, s3_client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.server import DELTA, DELTA_SEALED
from outside.sigv4 import Scope, presign
from outside.wire import Answer, Connection, encode, signed

Connect = Callable[[], Connection]

UNSET_IN_A_BUCKET = [
    ("get_bucket_tagging", 404, "NoSuchTagSet"),
    ("get_bucket_policy", 404, "NoSuchBucketPolicy"),
    ("get_bucket_cors", 404, "NoSuchCORSConfiguration"),
    ("get_bucket_lifecycle_configuration", 404, "NoSuchLifecycleConfiguration"),
    ("get_bucket_encryption", 404, "ServerSideEncryptionConfigurationNotFoundError"),
    ("get_bucket_website", 404, "NoSuchWebsiteConfiguration"),
    ("get_object_lock_configuration", 404, "ObjectLockConfigurationNotFoundError"),
    ("get_bucket_replication", 404, "ReplicationConfigurationNotFoundError"),
    ("get_bucket_ownership_controls", 404, "OwnershipControlsNotFoundError"),
    ("get_public_access_block", 404, "NoSuchPublicAccessBlockConfiguration"),
]
REMOVALS = [
    "delete_bucket_tagging",
    "delete_bucket_policy",
    "delete_bucket_cors",
    "delete_bucket_lifecycle",
    "delete_bucket_encryption",
    "delete_bucket_website",
    "delete_bucket_replication",
    "delete_bucket_ownership_controls",
    "delete_public_access_block",
]
EMPTY_LISTS = [
    "list_bucket_inventory_configurations",
    "list_bucket_analytics_configurations",
    "list_bucket_metrics_configurations",
    "list_bucket_intelligent_tiering_configurations",
]
ONE_OF_A_LIST = [
    "get_bucket_inventory_configuration",
    "get_bucket_analytics_configuration",
    "get_bucket_metrics_configuration",
    "get_bucket_intelligent_tiering_configuration",
]


def ask(connect: Connect, method: str, target: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """One signed request, its answer."""
    with connect() as connection:
        connection.send(signed(connection.host, method, target, headers))
        answer = connection.answer(method)
    assert answer is not None
    return answer


@pytest.mark.parametrize(("call", "status", "code"), UNSET_IN_A_BUCKET, ids=lambda value: str(value))
def test_a_configuration_that_is_not_set_has_s3s_error(
    s3: S3Client, make_bucket: MakeBucket, call: str, status: int, code: str
) -> None:
    bucket = make_bucket(DELTA)  # a sealed one says AES256
    assert error_code(getattr(s3, call), Bucket=bucket) == (status, code)
    assert error_code(getattr(s3, call), Bucket="never-made-bucket") == (404, "NoSuchBucket")


@pytest.mark.parametrize("call", REMOVALS)
def test_what_is_not_set_can_be_removed(s3: S3Client, bucket: str, call: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"stays")
    assert getattr(s3, call)(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 204
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"stays"


@pytest.mark.parametrize(("listing", "one"), [*zip(EMPTY_LISTS, ONE_OF_A_LIST, strict=True)])
def test_lists_of_configurations_are_empty(s3: S3Client, bucket: str, listing: str, one: str) -> None:
    assert getattr(s3, listing)(Bucket=bucket)["IsTruncated"] is False
    assert error_code(getattr(s3, one), Bucket=bucket, Id="any") == (404, "NoSuchConfiguration")


def test_defaults_are_told_where_s3_has_defaults(s3: S3Client, bucket: str) -> None:
    owner = s3.list_buckets()["Owner"]
    everything = [{"Grantee": owner | {"Type": "CanonicalUser"}, "Permission": "FULL_CONTROL"}]
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    for acl in (s3.get_bucket_acl(Bucket=bucket), s3.get_object_acl(Bucket=bucket, Key="k")):
        assert (acl["Owner"], acl["Grants"]) == (owner, everything)
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket=bucket)
    assert "Status" not in s3.get_bucket_accelerate_configuration(Bucket=bucket)
    assert set(s3.get_bucket_notification_configuration(Bucket=bucket)) == {"ResponseMetadata"}
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    for call in (s3.get_object_retention, s3.get_object_legal_hold):
        assert error_code(call, Bucket=bucket, Key="k") == (400, "InvalidRequest")
    for call in (s3.get_object_tagging, s3.get_object_acl):
        assert error_code(call, Bucket=bucket, Key="none") == (404, "NoSuchKey")


def test_an_encrypted_bucket_says_so(s3: S3Client, make_bucket: MakeBucket) -> None:
    rules = s3.get_bucket_encryption(Bucket=make_bucket(DELTA_SEALED))["ServerSideEncryptionConfiguration"]["Rules"]
    assert rules[0]["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}


def test_headers_that_change_nothing_are_accepted(s3: S3Client, bucket: str) -> None:
    owner = s3.list_buckets()["Owner"]["ID"]
    s3.put_object(
        Bucket=bucket,
        Key="k",
        Body=b"x",
        ExpectedBucketOwner=owner,
        ObjectLockLegalHoldStatus="OFF",
        Tagging="",
        ServerSideEncryption="AES256",
        RequestPayer="requester",
    )
    s3.copy_object(
        Bucket=bucket, Key="to", CopySource=f"{bucket}/k", ExpectedBucketOwner=owner, ExpectedSourceBucketOwner=owner
    )
    s3.delete_object(Bucket=bucket, Key="k", BypassGovernanceRetention=True)
    stranger = "0" * 64
    assert error_code(s3.get_object, Bucket=bucket, Key="to", ExpectedBucketOwner=stranger) == (403, "AccessDenied")
    copy = {"Bucket": bucket, "Key": "k", "CopySource": f"{bucket}/to", "ExpectedSourceBucketOwner": stranger}
    assert error_code(s3.copy_object, **copy) == (403, "AccessDenied")
    held = {"Bucket": bucket, "Key": "k", "Body": b"", "ObjectLockLegalHoldStatus": "ON"}
    assert error_code(s3.put_object, **held) == (400, "InvalidRequest")


def test_a_parameter_that_s3_does_not_know_is_ignored(connect: Connect, s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"content")
    for unknown in ("?foo", "?foo=", "?foo=bar", "?ACL"):
        assert ask(connect, "GET", f"/{bucket}/k{unknown}").body == b"content"
        assert ask(connect, "GET", f"/{bucket}{unknown}").status == 200


def test_a_method_that_is_not_allowed_is_told_which_are(connect: Connect, bucket: str) -> None:
    answer = ask(connect, "POST", f"/{bucket}/k")
    assert (answer.status, answer.code) == (405, "MethodNotAllowed")
    assert answer.header("allow") == "GET, HEAD, PUT, DELETE"


def test_a_session_nobody_opened_is_an_invalid_token(endpoint: str, bucket: str) -> None:
    session = s3_client(endpoint, token="no such session")
    assert error_code(session.list_objects_v2, Bucket=bucket) == (400, "InvalidToken")


def test_a_bucket_keeps_the_tags_it_is_created_with(s3: S3Client, connect: Connect) -> None:
    document = (
        "<CreateBucketConfiguration><Tags><Tag><Key>team</Key><Value>blue + green</Value></Tag></Tags>"
        "</CreateBucketConfiguration>"
    )
    nonsense = "<CreateBucketConfiguration><Colour>red</Colour></CreateBucketConfiguration>"
    with connect() as connection:
        for name, body, status in (("created-with-tags", document, 200), ("created-with-nonsense", nonsense, 400)):
            connection.send(signed(connection.host, "PUT", f"/{name}", body=body.encode()))
            answer = connection.answer("PUT")
            assert answer is not None
            assert answer.status == status, answer.body
    tags = s3.get_bucket_tagging(Bucket="created-with-tags")["TagSet"]
    assert [(tag["Key"], tag["Value"]) for tag in tags] == [("team", "blue + green")]
    more = [{"Key": f"k{number}", "Value": ""} for number in range(50)]
    s3.put_bucket_tagging(Bucket="created-with-tags", Tagging={"TagSet": more})
    assert len(s3.get_bucket_tagging(Bucket="created-with-tags")["TagSet"]) == 50
    too_many = {"TagSet": [*more, {"Key": "one-more", "Value": ""}]}
    assert error_code(s3.put_bucket_tagging, Bucket="created-with-tags", Tagging=too_many) == (400, "InvalidTag")
    s3.delete_bucket_tagging(Bucket="created-with-tags")
    assert error_code(s3.get_bucket_tagging, Bucket="created-with-tags") == (404, "NoSuchTagSet")
    s3.delete_bucket(Bucket="created-with-tags")


def test_a_bucket_with_open_uploads_can_be_deleted_when_it_is_empty(s3: S3Client, make_bucket: MakeBucket) -> None:
    bucket = make_bucket()
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="open")["UploadId"]
    ids: dict[str, Any] = {"Bucket": bucket, "Key": "open", "UploadId": upload}
    s3.upload_part(**ids, PartNumber=1, Body=noise(1, 100_000))
    assert error_code(s3.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
    assert len(s3.list_parts(**ids)["Parts"]) == 1
    s3.delete_object(Bucket=bucket, Key="k")
    s3.delete_bucket(Bucket=bucket)
    assert error_code(s3.list_parts, **ids) == (404, "NoSuchBucket")


def test_aws_s3_copies_and_moves_large_objects_between_keys(aws: AwsCli, bucket: str, tmp_path: Path) -> None:
    """Above 8 MiB aws-cli copies in parts, and asks for the source's tags to take them along."""
    big = tmp_path / "big"
    big.write_bytes(noise(7, 20 * MIB))
    aws.run("s3", "cp", "--no-progress", "--sse", "AES256", str(big), f"s3://{bucket}/one")
    aws.run("s3", "cp", "--no-progress", f"s3://{bucket}/one", f"s3://{bucket}/two")
    aws.run("s3", "mv", "--no-progress", f"s3://{bucket}/two", f"s3://{bucket}/a name with spaces")
    aws.run("s3", "cp", "--no-progress", f"s3://{bucket}/a name with spaces", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == big.read_bytes()


def test_aws_s3_rb_force_ends_what_an_interrupted_upload_left(aws: AwsCli, s3: S3Client, bucket: str) -> None:
    s3.create_multipart_upload(Bucket=bucket, Key="interrupted")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    aws.run("s3", "rb", "--force", f"s3://{bucket}")
    assert error_code(s3.head_bucket, Bucket=bucket) == (404, "404")


def test_eight_identical_completes_at_once_all_succeed(s3: S3Client, bucket: str) -> None:
    for attempt in range(5):
        key = f"k{attempt}"
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        ids: dict[str, Any] = {"Bucket": bucket, "Key": key, "UploadId": upload}
        tags = [s3.upload_part(**ids, PartNumber=n, Body=noise(n, 5 * MIB))["ETag"] for n in (1, 2)]
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        whole = {"MultipartUpload": {"Parts": parts}}
        with ThreadPoolExecutor(8) as pool:
            at_once = [pool.submit(s3.complete_multipart_upload, **ids, **whole) for _ in range(8)]
        answers = [(answer.result()["ETag"], answer.result()["ChecksumCRC64NVME"]) for answer in at_once]
        assert len(set(answers)) == 1
        fewer = {"Parts": parts[:1]}
        assert error_code(s3.complete_multipart_upload, **ids, MultipartUpload=fewer) == (404, "NoSuchUpload")


def test_a_url_presigned_for_an_empty_body_takes_another_one(connect: Connect, s3: S3Client, bucket: str) -> None:
    """The JavaScript SDK presigns a PUT before it knows the body, with the checksum of none in the query."""
    with connect() as connection:
        host = [("Host", connection.host)]
        target = f"/{bucket}/k?x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32"
        url = presign(Scope(), "PUT", target, host)
        body = b"not empty at all"
        connection.send(encode("PUT", url, [*host, ("Content-Length", str(len(body)))], body))
        answer = connection.answer("PUT")
    assert answer is not None
    assert answer.status == 200, answer.body
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == body

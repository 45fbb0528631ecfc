"""boto3's whole S3 client: every operation of its model is called, and works, says what is not set, or is listed as not
built."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.session import Session

from outside.clients import S3Client, s3_client
from outside.policies import allow
from outside.server import ROOT

MODEL: Any = Session().get_service_model("s3")
NAMES: list[str] = sorted(MODEL.operation_names)
REFERENCE = (ROOT / "docs" / "reference" / "s3-api.md").read_text()
NOT_BUILT = set(re.findall(r"`(\w+)`", REFERENCE.split("### Not built")[1].split("`ListDirectoryBuckets`")[0]))
ELSEWHERE = {
    "ListDirectoryBuckets": (400, "AuthorizationHeaderMalformed"),
    "WriteGetObjectResponse": (400, "InvalidBucketName"),
}
UNSET = {
    "GetBucketAnalyticsConfiguration": "NoSuchConfiguration",
    "GetBucketCors": "NoSuchCORSConfiguration",
    "GetBucketIntelligentTieringConfiguration": "NoSuchConfiguration",
    "GetBucketInventoryConfiguration": "NoSuchConfiguration",
    "GetBucketLifecycle": "NoSuchLifecycleConfiguration",
    "GetBucketLifecycleConfiguration": "NoSuchLifecycleConfiguration",
    "GetBucketMetricsConfiguration": "NoSuchConfiguration",
    "GetBucketOwnershipControls": "OwnershipControlsNotFoundError",
    "GetBucketPolicy": "NoSuchBucketPolicy",
    "GetBucketReplication": "ReplicationConfigurationNotFoundError",
    "GetBucketTagging": "NoSuchTagSet",
    "GetBucketWebsite": "NoSuchWebsiteConfiguration",
    "GetObjectLegalHold": "NoSuchObjectLockConfiguration",
    "GetObjectRetention": "NoSuchObjectLockConfiguration",
    "GetPublicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
}
SEALED_TOO = {"GetBucketEncryption": "ServerSideEncryptionConfigurationNotFoundError"}
"""Set in a bucket that is sealed, else not."""
RULE = {"ID": "r", "Status": "Enabled", "Prefix": "p", "Expiration": {"Days": 1}}
UNTIL = datetime(2099, 1, 1, tzinfo=UTC)
KEY_ARN = "arn:aws:kms:us-east-1:000000000000:key/none"


def policy(bucket: str) -> str:
    """One that says something harmless."""
    return json.dumps({"Version": "2012-10-17", "Statement": [allow(bucket, "s3:GetObject")]})


SENSIBLE: dict[str, dict[str, Any]] = {
    "CopyObject": {"Key": "copied"},
    "PutBucketAccelerateConfiguration": {"AccelerateConfiguration": {"Status": "Suspended"}},
    "PutBucketAcl": {"ACL": "private"},
    "PutBucketCors": {"CORSConfiguration": {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}},
    "PutBucketLifecycle": {"LifecycleConfiguration": {"Rules": [RULE]}},
    "PutBucketLifecycleConfiguration": {"LifecycleConfiguration": {"Rules": [RULE]}},
    "PutBucketLogging": {"BucketLoggingStatus": {}},
    "PutBucketNotification": {"NotificationConfiguration": {}},
    "PutBucketNotificationConfiguration": {"NotificationConfiguration": {}},
    "PutBucketRequestPayment": {"RequestPaymentConfiguration": {"Payer": "BucketOwner"}},
    "PutBucketVersioning": {"VersioningConfiguration": {"Status": "Enabled"}},
    "PutObjectAcl": {"ACL": "private"},
    "PutObjectLegalHold": {"LegalHold": {"Status": "OFF"}},
    "PutObjectLockConfiguration": {"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}},
    "PutObjectRetention": {"Retention": {"Mode": "GOVERNANCE", "RetainUntilDate": UNTIL}},
    "UpdateObjectEncryption": {"ObjectEncryption": {"SSEKMS": {"KMSKeyArn": KEY_ARN}}},
}
"""What cannot be made up from the model."""


def made_up(shape: Any) -> Any:
    """A value of a shape: what is required of it, or its first member."""
    kind = shape.type_name
    if kind == "structure":
        return {name: made_up(shape.members[name]) for name in shape.required_members or list(shape.members)[:1]}
    if kind == "list":
        return [made_up(shape.member)]
    if kind == "string":
        return shape.enum[0] if shape.enum else "x"
    made: dict[str, Any] = {"integer": 1, "long": 1, "boolean": True, "timestamp": UNTIL, "blob": b"x", "map": {}}
    return made[kind]


@pytest.fixture
def given(s3: S3Client, name: str) -> dict[str, Any]:
    """What calls find: a bucket with object lock, in it an object, and an upload with a part."""
    bucket = f"called-{name.lower()}"[:63]
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    at = {"Bucket": bucket, "Key": "k"}
    if name != "DeleteBucket":
        s3.put_object(**at, Body=b"x")
    upload = s3.create_multipart_upload(**at)["UploadId"]
    part = {"PartNumber": 1, "ETag": s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"x")["ETag"]}
    return {
        "Bucket": f"{bucket}-anew" if name == "CreateBucket" else bucket,
        "Key": "k",
        "UploadId": upload,
        "MultipartUpload": {"Parts": [part]},
        "PartNumber": 1,
        "CopySource": f"{bucket}/k",
        "Policy": policy(bucket),
        "Id": "x",
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_of_boto3_works_or_says_why_not(endpoint: str, name: str, given: dict[str, Any]) -> None:
    s3 = s3_client(endpoint, inject_host_prefix=False)
    operation = MODEL.operation_model(name)
    members = operation.input_shape.required_members if operation.input_shape else []
    arguments = {
        member: given[member] if member in given else made_up(operation.input_shape.members[member])
        for member in [*members, *(["MultipartUpload"] if name == "CompleteMultipartUpload" else [])]
    }
    calls = {name: call for call, name in s3.meta.method_to_api_mapping.items()}
    call = getattr(s3, calls[name])
    try:
        answer = call(**arguments | SENSIBLE.get(name, {}))
    except ClientError as error:
        told = error.response
        found = (int(told["ResponseMetadata"]["HTTPStatusCode"]), told["Error"]["Code"])
        if name in NOT_BUILT:
            assert found == (501, "NotImplemented")
            assert told["Error"]["Message"]
        elif name in ELSEWHERE:
            assert found == ELSEWHERE[name]
        else:
            assert found == (404, (UNSET | SEALED_TOO)[name])
    else:
        assert answer["ResponseMetadata"]["HTTPStatusCode"] in (200, 204)
        assert name not in NOT_BUILT | set(ELSEWHERE) | set(UNSET)


def test_what_is_not_built_is_an_operation_of_s3() -> None:
    assert set(NAMES) >= NOT_BUILT
    assert not NOT_BUILT & (set(UNSET) | set(ELSEWHERE))

"""Bucket policies: every operator of conditions, and the elements a policy may have."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.failure import error_code
from outside.policies import allow, deny, put_policy
from outside.users import ALT_ID

TODAY = datetime.now(UTC).date()
PAST, FUTURE = ((TODAY + timedelta(days=days)).strftime("%Y-%m-%dT00:00:00Z") for days in (-1, 2))
CONDITIONS: list[tuple[str, dict[str, Any], bool]] = [
    ("StringEquals", {"s3:prefix": "logs/"}, True),
    ("StringEquals", {"s3:prefix": ["other", "logs/"]}, True),
    ("StringEquals", {"s3:prefix": "LOGS/"}, False),
    ("StringEquals", {"S3:PREFIX": "logs/"}, True),
    ("StringNotEquals", {"s3:prefix": "logs/"}, False),
    ("StringNotEquals", {"s3:prefix": "other"}, True),
    ("StringEqualsIgnoreCase", {"s3:prefix": "LOGS/"}, True),
    ("StringNotEqualsIgnoreCase", {"s3:prefix": "LOGS/"}, False),
    ("StringLike", {"s3:prefix": "log*"}, True),
    ("StringLike", {"s3:prefix": "lo?s/"}, True),
    ("StringLike", {"s3:prefix": "log?"}, False),
    ("StringNotLike", {"s3:prefix": "log*"}, False),
    ("StringNotLike", {"s3:prefix": "x*"}, True),
    ("StringEqualsIfExists", {"s3:delimiter": "/"}, True),
    ("StringEquals", {"s3:delimiter": "/"}, False),
    ("StringNotEquals", {"s3:delimiter": "/"}, True),
    ("Null", {"s3:delimiter": "true"}, True),
    ("Null", {"s3:delimiter": "false"}, False),
    ("Null", {"s3:prefix": "false"}, True),
    ("Null", {"s3:prefix": True}, False),
    ("NumericEquals", {"s3:max-keys": "5"}, True),
    ("NumericEquals", {"s3:max-keys": 5}, True),
    ("NumericNotEquals", {"s3:max-keys": "5"}, False),
    ("NumericLessThan", {"s3:max-keys": "5"}, False),
    ("NumericLessThan", {"s3:max-keys": "6"}, True),
    ("NumericLessThanEquals", {"s3:max-keys": "5"}, True),
    ("NumericGreaterThan", {"s3:max-keys": "5"}, False),
    ("NumericGreaterThan", {"s3:max-keys": "4"}, True),
    ("NumericGreaterThanEquals", {"s3:max-keys": "5"}, True),
    ("NumericGreaterThanEquals", {"s3:max-keys": "6"}, False),
    ("DateGreaterThan", {"aws:CurrentTime": PAST}, True),
    ("DateGreaterThan", {"aws:CurrentTime": FUTURE}, False),
    ("DateLessThan", {"aws:CurrentTime": FUTURE}, True),
    ("DateLessThanEquals", {"aws:CurrentTime": PAST}, False),
    ("DateGreaterThanEquals", {"aws:EpochTime": "1"}, True),
    ("DateNotEquals", {"aws:CurrentTime": PAST}, True),
    ("DateEquals", {"aws:CurrentTime": PAST}, False),
    ("NumericGreaterThan", {"aws:EpochTime": "1"}, True),
    ("IpAddress", {"aws:SourceIp": "127.0.0.1"}, True),
    ("IpAddress", {"aws:SourceIp": "127.0.0.0/8"}, True),
    ("IpAddress", {"aws:SourceIp": "10.0.0.0/8"}, False),
    ("IpAddress", {"aws:SourceIp": ["10.0.0.0/8", "127.0.0.1/32"]}, True),
    ("NotIpAddress", {"aws:SourceIp": "127.0.0.1"}, False),
    ("NotIpAddress", {"aws:SourceIp": "10.0.0.0/8"}, True),
    ("Bool", {"aws:SecureTransport": "false"}, True),
    ("Bool", {"aws:SecureTransport": "true"}, False),
    ("Bool", {"aws:SecureTransport": False}, True),
    ("BoolIfExists", {"aws:MultiFactorAuthPresent": "true"}, True),
    ("StringEquals", {"aws:username": "alt"}, True),
    ("StringEquals", {"aws:username": "root"}, False),
    ("StringLike", {"aws:UserAgent": "Boto3*"}, True),
    ("StringLike", {"aws:Referer": "http://*"}, False),
    ("StringEquals", {"aws:PrincipalType": "User"}, True),
    ("StringEquals", {"s3:authType": "REST-HEADER"}, True),
    ("StringEquals", {"s3:authType": "REST-QUERY-STRING"}, False),
    ("StringEquals", {"s3:signatureversion": "AWS4-HMAC-SHA256"}, True),
    ("ForAnyValue:StringEquals", {"s3:prefix": ["a", "logs/"]}, True),
    ("ForAllValues:StringEquals", {"s3:prefix": ["a", "logs/"]}, True),
    ("ForAllValues:StringEquals", {"s3:delimiter": "/"}, True),
    ("ForAnyValue:StringEquals", {"s3:delimiter": "/"}, False),
]
TWO = {"StringEquals": {"s3:prefix": "logs/"}, "NumericLessThan": {"s3:max-keys": "4"}}


@pytest.fixture(scope="module")
def shared(make_bucket: MakeBucket) -> str:
    """A bucket whose policies the cases replace."""
    return make_bucket()


def lists(client: S3Client, bucket: str) -> bool:
    try:
        client.list_objects_v2(Bucket=bucket, Prefix="logs/", MaxKeys=5)
    except client.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "AccessDenied"
        return False
    return True


@pytest.mark.parametrize(
    ("operator", "keys", "met"), CONDITIONS, ids=[f"{o} {json.dumps(k)}" for o, k, _ in CONDITIONS]
)
def test_a_condition_allows_what_it_meets_alone(
    s3: S3Client, alt: S3Client, shared: str, operator: str, keys: dict[str, Any], met: bool
) -> None:
    put_policy(s3, shared, allow(shared, "s3:ListBucket", {"AWS": ALT_ID}, Condition={operator: keys}))
    assert lists(alt, shared) == met
    granting = allow(shared, "s3:ListBucket", {"AWS": ALT_ID})
    put_policy(s3, shared, granting, deny(shared, "s3:ListBucket", {"AWS": ALT_ID}, Condition={operator: keys}))
    assert lists(alt, shared) != met


def test_every_operator_of_a_condition_must_be_met(s3: S3Client, alt: S3Client, shared: str) -> None:
    put_policy(s3, shared, allow(shared, "s3:ListBucket", {"AWS": ALT_ID}, Condition=TWO))
    assert not lists(alt, shared)
    met = {"StringEquals": {"s3:prefix": "logs/"}, "NumericLessThan": {"s3:max-keys": "40"}}
    put_policy(s3, shared, allow(shared, "s3:ListBucket", {"AWS": ALT_ID}, Condition=met))
    assert lists(alt, shared)


ACTIONS = [
    ("s3:ListBucket", True),
    ("s3:*", True),
    ("s3:List*", True),
    ("S3:LISTBUCKET", True),
    ("s3:List?ucket", True),
    ("*", True),
    ("s3:GetObject", False),
    ("s3:ListBucketVersions", False),
]


@pytest.mark.parametrize(("action", "allowed"), ACTIONS, ids=[action for action, _ in ACTIONS])
def test_an_action_is_named_with_wildcards_in_any_case(
    s3: S3Client, alt: S3Client, shared: str, action: str, allowed: bool
) -> None:
    put_policy(s3, shared, allow(shared, action, {"AWS": ALT_ID}))
    assert lists(alt, shared) == allowed


@pytest.mark.parametrize(("action", "allowed"), ACTIONS[:3] + ACTIONS[6:], ids=str)
def test_not_action_is_the_opposite(s3: S3Client, alt: S3Client, shared: str, action: str, allowed: bool) -> None:
    statement = allow(shared, [], {"AWS": ALT_ID}) | {"NotAction": action}
    statement.pop("Action")
    put_policy(s3, shared, statement)
    assert lists(alt, shared) != allowed


PRINCIPALS: list[tuple[Any, bool]] = [
    ("*", True),
    ({"AWS": "*"}, True),
    ({"AWS": ALT_ID}, True),
    ({"CanonicalUser": ALT_ID}, True),
    ({"AWS": ["arn:aws:iam:::user/alt"]}, True),
    ({"AWS": "arn:aws:iam:::user/tenant"}, False),
    ({"Service": "logging.s3.amazonaws.com"}, False),
]


@pytest.mark.parametrize(("principal", "allowed"), PRINCIPALS, ids=[json.dumps(who)[:40] for who, _ in PRINCIPALS])
def test_a_principal_is_whoever_it_names(
    s3: S3Client, alt: S3Client, shared: str, principal: Any, allowed: bool
) -> None:
    put_policy(s3, shared, allow(shared, "s3:ListBucket", principal))
    assert lists(alt, shared) == allowed


def document(**changes: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::BUCKET/*"}
    changed = {name: value for name, value in (statement | changes).items() if value is not None}
    return {"Version": "2012-10-17", "Statement": [changed]}


WRONG: list[tuple[str, Any]] = [
    ("empty", {}),
    ("no statements", {"Version": "2012-10-17", "Statement": []}),
    ("version", document() | {"Version": "2020-01-01"}),
    ("extra element", document() | {"Extra": 1}),
    ("effect", document(Effect="Perhaps")),
    ("effect in lower case", document(Effect="allow")),
    ("no effect", document(Effect=None)),
    ("no principal", document(Principal=None)),
    ("empty principal", document(Principal={})),
    ("unknown principal", document(Principal={"AWS": "nobody"})),
    ("both principals", document(NotPrincipal="*")),
    ("no action", document(Action=None)),
    ("unknown action", document(Action="s3:Fly")),
    ("action of another service", document(Action="ec2:RunInstances")),
    ("both actions", document(NotAction="s3:PutObject")),
    ("no resource", document(Resource=None)),
    ("another bucket", document(Resource="arn:aws:s3:::other/*")),
    ("no arn", document(Resource="BUCKET/*")),
    ("action that does not fit", document(Action="s3:ListBucket")),
    ("resource that does not fit", document(Resource="arn:aws:s3:::BUCKET")),
    ("unknown operator", document(Condition={"StringSame": {"aws:SourceIp": "1.2.3.4"}})),
    ("unknown key", document(Condition={"StringEquals": {"s3:nothing": "1"}})),
    ("no address", document(Condition={"IpAddress": {"aws:SourceIp": "here"}})),
    ("no number", document(Condition={"NumericEquals": {"s3:max-keys": "many"}})),
    ("no date", document(Condition={"DateLessThan": {"aws:CurrentTime": "soon"}})),
    ("same sid", {"Version": "2012-10-17", "Statement": [document(Sid="a")["Statement"][0]] * 2}),
    ("allow with not-principal", document(Principal=None, NotPrincipal={"AWS": ALT_ID})),
]


@pytest.mark.parametrize(("name", "policy"), WRONG, ids=[name for name, _ in WRONG])
def test_what_is_no_policy_is_refused(s3: S3Client, bucket: str, name: str, policy: Any) -> None:
    text = json.dumps(policy).replace("BUCKET", bucket)
    status, code = error_code(s3.put_bucket_policy, Bucket=bucket, Policy=text)
    assert (status, code) == (400, "MalformedPolicy"), name
    assert error_code(s3.get_bucket_policy, Bucket=bucket) == (404, "NoSuchBucketPolicy")


@pytest.mark.parametrize("text", ["", " ", "[]", "null", "{", "{}{}", "policy"])
def test_a_policy_is_a_json_object(s3: S3Client, bucket: str, text: str) -> None:
    status, code = error_code(s3.put_bucket_policy, Bucket=bucket, Policy=text)
    assert status == 400
    assert code in ("MalformedPolicy", "MissingRequestBodyError")


@pytest.mark.parametrize(
    ("principal", "condition", "public"),
    [
        ("*", None, True),
        ({"AWS": ALT_ID}, None, False),
        ("*", {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, False),
        ("*", {"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}, True),
        ("*", {"StringLike": {"aws:UserAgent": "x*"}}, True),
    ],
    ids=["all", "one", "network", "internet", "agent"],
)
def test_a_policy_is_public_when_everybody_is_allowed(
    s3: S3Client, bucket: str, principal: Any, condition: Any, public: bool
) -> None:
    statement = allow(bucket, ["s3:GetObject", "s3:ListBucket"], principal)
    put_policy(s3, bucket, statement | ({"Condition": condition} if condition else {}))
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"] == public


@pytest.mark.parametrize("call", ["head_object", "get_object"])
@pytest.mark.parametrize(("key", "status"), [("public/none", 404), ("private/none", 403)])
def test_whoever_may_list_a_prefix_is_told_what_is_not_in_it(
    s3: S3Client, alt: S3Client, bucket: str, call: str, key: str, status: int
) -> None:
    statement = allow(bucket, "s3:ListBucket", Condition={"StringLike": {"s3:prefix": "public/*"}})
    put_policy(s3, bucket, statement | {"Resource": f"arn:aws:s3:::{bucket}"})
    assert error_code(getattr(alt, call), Bucket=bucket, Key=key)[0] == status

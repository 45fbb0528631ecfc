"""`deltaweir policy test`: what it says is what a request meets, and it names the statement that decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.failure import error_code
from outside.policies import allow, deny, put_policy
from outside.server import Server
from outside.users import ALT_ID, anonymous, client_of

DENIED = (403, "AccessDenied")


def verdict(server: Server, *question: str) -> dict[str, Any]:
    """The answer as JSON."""
    answer: dict[str, Any] = json.loads(server.run("policy", "test", *question, "--json").stdout)
    return answer


def test_the_statement_that_decides_is_named(server: Server, s3: S3Client, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="open/a", Body=b"x")
    key = f"arn:aws:s3:::{bucket}/open/a"
    silent = verdict(server, "alt", "s3:GetObject", key)
    assert not silent["allowed"] and silent["statement"] is None
    put_policy(
        s3,
        bucket,
        allow(bucket, "s3:GetObject", {"AWS": ALT_ID}, Sid="theirs"),
        deny(bucket, "s3:DeleteObject", Sid="kept"),
    )
    read = verdict(server, "alt", "s3:GetObject", key)
    assert (read["allowed"], read["policy"], read["statement"], read["sid"]) == (True, "bucket", 0, "theirs")
    removal = verdict(server, "root", "s3:DeleteObject", key)
    assert (removal["allowed"], removal["policy"], removal["statement"], removal["sid"]) == (False, "bucket", 1, "kept")
    words = server.run("policy", "test", "alt", "s3:GetObject", key).stdout
    assert words.strip() == "allowed: statement 0 (theirs) of the bucket policy allows it"
    own = verdict(server, "colleague", "s3:ListAllMyBuckets", "*")
    assert (own["allowed"], own["policy"], own["statement"]) == (True, "user", 0)


@pytest.mark.parametrize("who", ["root", "colleague", "alt", "anonymous"])
def test_requests_are_answered_as_it_says(server: Server, endpoint: str, s3: S3Client, bucket: str, who: str) -> None:
    statements = [
        allow(bucket, ["s3:GetObject", "s3:ListBucket"], {"AWS": ALT_ID}),
        allow(bucket, "s3:PutObject"),
        deny(bucket, "s3:DeleteObject", {"AWS": ALT_ID}),
        allow(
            bucket, "s3:GetObjectTagging", {"AWS": "*"}, Condition={"StringEquals": {"s3:ExistingObjectTag/kind": "a"}}
        ),
    ]
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="kind=a")
    put_policy(s3, bucket, *statements)
    client = anonymous(endpoint) if who == "anonymous" else s3 if who == "root" else client_of(endpoint, who)
    calls: list[tuple[str, str, Callable[..., Any], dict[str, Any]]] = [
        ("s3:GetObject", "/k", client.get_object, {"Key": "k"}),
        ("s3:PutObject", "/new", client.put_object, {"Key": "new", "Body": b"y"}),
        ("s3:ListBucket", "", client.list_objects_v2, {}),
        ("s3:GetObjectTagging", "/k", client.get_object_tagging, {"Key": "k"}),
        ("s3:GetBucketVersioning", "", client.get_bucket_versioning, {}),
        ("s3:DeleteObject", "/new", client.delete_object, {"Key": "new"}),
    ]
    for action, place, call, arguments in calls:
        said = verdict(server, who, action, f"arn:aws:s3:::{bucket}{place}")
        if said["allowed"]:
            call(Bucket=bucket, **arguments)
        else:
            assert error_code(call, Bucket=bucket, **arguments) == DENIED, (action, said)


def test_a_condition_takes_the_value_that_is_given_and_one_without_a_value_is_named(
    server: Server, s3: S3Client, bucket: str
) -> None:
    office = {"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}}
    put_policy(s3, bucket, allow(bucket, "s3:GetObject", Condition=office))
    key = f"arn:aws:s3:::{bucket}/k"
    question = ("anonymous", "s3:GetObject", key)
    assert verdict(server, *question, "--context", "aws:SourceIp=192.0.2.7")["allowed"]
    elsewhere = verdict(server, *question, "--context", "aws:SourceIp=198.51.100.7")
    assert not elsewhere["allowed"] and elsewhere["missing"] == []
    unknown = verdict(server, *question)
    assert not unknown["allowed"] and unknown["missing"] == ["aws:sourceip"]
    assert "no value was given for aws:sourceip" in server.run("policy", "test", *question).stdout


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (("nobody-of-that-name", "s3:GetObject", "arn:aws:s3:::b/k"), "there is no user"),
        (("root", "s3:FetchObject", "arn:aws:s3:::b/k"), "S3 has no action"),
        (("root", "s3:GetObject", "arn:aws:s3:::b"), "needs the resource arn:aws:s3:::BUCKET/KEY"),
        (("root", "s3:ListBucket", "b"), "needs the resource arn:aws:s3:::BUCKET,"),
        (("root", "s3:GetObject", "arn:aws:s3:::b/k", "--context", "ip=1"), "condition key"),
        (("root", "s3:GetObject", "arn:aws:s3:::b/k", "--context", "aws:SourceIp"), "KEY=VALUE"),
    ],
)
def test_a_question_about_what_there_is_not_is_refused(server: Server, question: tuple[str, ...], why: str) -> None:
    done = server.run("policy", "test", *question, check=False)
    assert done.returncode == 1 and why in done.stderr, done.stderr


def test_it_is_answered_without_a_server_too(new_server: NewServer) -> None:
    server = new_server()
    with server:
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket="shut")
        put_policy(s3, "shut", deny("shut", "s3:GetObject", Sid="shut"))
    said = verdict(server, "root", "s3:GetObject", "arn:aws:s3:::shut/k")
    assert (said["allowed"], said["sid"]) == (False, "shut")
    assert verdict(server, "root", "s3:GetObject", "arn:aws:s3:::elsewhere/k")["allowed"]

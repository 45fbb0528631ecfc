"""Temporary credentials as clients get and use them: boto3's STS client, its credential provider, presigned URLs."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from e2e.test_reload import hang_up
from outside.buckets import NewServer
from outside.clients import s3_client, sts_client
from outside.failure import error_code
from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Server
from outside.users import ALT_ID, key_id, secret, users

READ_ONLY = json.dumps(
    {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}
)
ROLES = """
[[roles]]
name = "reader"
users = ["alt", "root"]
policy = "readonly"

[[roles]]
name = "visitor"
users = ["root"]
canonical_id = "%s"
duration_max = "2h"
policy = "readwrite"
"""


def s3_of(endpoint: str, credentials: dict[str, Any], **config: Any) -> Any:
    """boto3's S3 client with temporary credentials."""
    given = credentials["AccessKeyId"], credentials["SecretAccessKey"], credentials["SessionToken"]
    return s3_client(endpoint, *given, **config)


@pytest.fixture
def server(new_server: NewServer, tmp_path: Path) -> Server:
    """A server with users and roles, and a bucket with one object."""
    server = new_server()
    server.more_config = users(tmp_path / "policies") + ROLES % ALT_ID
    server.start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="k", Body=b"here")
    return server


def account_of(server: Server) -> str:
    """The number of root's account."""
    return str(sts_client(server.endpoint).get_caller_identity()["Account"])


def test_a_session_of_the_caller_does_what_the_caller_may(server: Server) -> None:
    sts = sts_client(server.endpoint)
    told = sts.get_session_token()
    credentials = told["Credentials"]
    assert credentials["AccessKeyId"].startswith("ASIA")
    lives = credentials["Expiration"] - parsedate_to_datetime(told["ResponseMetadata"]["HTTPHeaders"]["date"])
    assert 3590 <= lives.total_seconds() <= 3600, "root's sessions live for an hour"
    s3 = s3_of(server.endpoint, credentials)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"here"
    s3.put_object(Bucket="bucket", Key="by-session", Body=b"x")
    assert s3.list_objects_v2(Bucket="bucket")["KeyCount"] == 2
    given = credentials["AccessKeyId"], credentials["SecretAccessKey"], credentials["SessionToken"]
    assert sts_client(server.endpoint, *given).get_caller_identity()["Arn"] == sts.get_caller_identity()["Arn"]


def test_a_session_policy_narrows_an_administrator(server: Server) -> None:
    told = sts_client(server.endpoint).assume_role(
        RoleArn="arn:xxx:xxx:xxx:xxxx", RoleSessionName="any", Policy=READ_ONLY, DurationSeconds=900
    )
    assert 0 < told["PackedPolicySize"] <= 100
    s3 = s3_of(server.endpoint, told["Credentials"])
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"here"
    refused: list[tuple[Any, dict[str, Any]]] = [
        (s3.put_object, {"Key": "new", "Body": b"x"}),
        (s3.delete_object, {"Key": "k"}),
        (s3.list_objects_v2, {}),
        (s3.delete_bucket_policy, {}),
    ]
    for call, more in refused:
        assert error_code(call, Bucket="bucket", **more) == (403, "AccessDenied")
    assert error_code(s3.list_buckets) == (403, "AccessDenied")
    assert error_code(s3.create_bucket, Bucket="another") == (403, "AccessDenied")


def test_a_role_is_its_own_principal_for_those_it_trusts(server: Server) -> None:
    account = account_of(server)
    arn = f"arn:aws:iam::{account}:role/reader"
    alt = sts_client(server.endpoint, key_id("alt"), secret("alt"))
    told = alt.assume_role(RoleArn=arn, RoleSessionName="run-7")
    assert told["AssumedRoleUser"]["Arn"] == f"arn:aws:sts::{account}:assumed-role/reader/run-7"
    reader = s3_of(server.endpoint, told["Credentials"])
    assert reader.get_object(Bucket="bucket", Key="k")["Body"].read() == b"here"
    assert error_code(reader.put_object, Bucket="bucket", Key="k", Body=b"x") == (403, "AccessDenied")
    s3 = s3_client(server.endpoint)
    session = told["AssumedRoleUser"]["Arn"]
    for principal, refused in [(arn, True), (session, True), (f"{session}-other", False)]:
        denied = {"Effect": "Deny", "Principal": {"AWS": principal}, "Action": "s3:GetObject"}
        statement = denied | {"Resource": "arn:aws:s3:::bucket/*"}
        s3.put_bucket_policy(Bucket="bucket", Policy=json.dumps({"Version": "2012-10-17", "Statement": statement}))
        if refused:
            assert error_code(reader.head_object, Bucket="bucket", Key="k")[0] == 403
        else:
            reader.head_object(Bucket="bucket", Key="k")
    tenant = sts_client(server.endpoint, key_id("tenant"), secret("tenant"))
    for client, role in [
        (tenant, arn),
        (alt, f"arn:aws:iam::{account}:role/none"),
        (alt, "arn:aws:iam::000000000001:role/reader"),
        (alt, f"arn:aws:iam::{account}:role/visitor"),
    ]:
        assert error_code(client.assume_role, RoleArn=role, RoleSessionName="run") == (403, "AccessDenied")


def test_a_role_of_another_account_reaches_what_that_account_owns(server: Server) -> None:
    alt = s3_client(server.endpoint, key_id("alt"), secret("alt"))
    alt.create_bucket(Bucket="of-alt")
    told = sts_client(server.endpoint).assume_role(RoleArn="arn:aws:iam:::role/visitor", RoleSessionName="visit")
    visitor = s3_of(server.endpoint, told["Credentials"])
    visitor.put_object(Bucket="of-alt", Key="k", Body=b"x")
    assert alt.get_object(Bucket="of-alt", Key="k")["Body"].read() == b"x"
    assert error_code(visitor.get_object, Bucket="bucket", Key="k") == (403, "AccessDenied")


def test_durations_and_policies_are_checked_as_by_aws(server: Server) -> None:
    sts = sts_client(server.endpoint, parameter_validation=False)
    role = {"RoleArn": "arn:aws:iam:::role/reader", "RoleSessionName": "run"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"DurationSeconds": 899}, "ValidationError"),
        ({"DurationSeconds": 3601}, "ValidationError"),
        ({"DurationSeconds": 43_201}, "ValidationError"),
        ({"Policy": "{}"}, "MalformedPolicyDocument"),
        ({"Tags": [{"Key": "a", "Value": "b"}]}, "ValidationError"),
        ({"PolicyArns": [{"arn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}]}, "ValidationError"),
    ]
    for more, code in refused:
        assert error_code(sts.assume_role, **role, **more) == (400, code), more
    visitor = {"RoleArn": "arn:aws:iam:::role/visitor", "RoleSessionName": "run", "DurationSeconds": 7200}
    assert sts.assume_role(**visitor)["Credentials"]["SessionToken"]
    assert error_code(sts.get_session_token, DurationSeconds=129_601) == (400, "ValidationError")
    denied = {"SerialNumber": "arn:aws:iam::000000000000:mfa/me", "TokenCode": "123456"}
    assert error_code(sts.get_session_token, **denied) == (403, "AccessDenied")
    with pytest.raises(Exception, match="NotImplemented"):
        sts.get_federation_token(Name="someone")


def test_sessions_ask_for_no_sessions(server: Server) -> None:
    credentials = sts_client(server.endpoint).get_session_token()["Credentials"]
    given = credentials["AccessKeyId"], credentials["SecretAccessKey"], credentials["SessionToken"]
    session = sts_client(server.endpoint, *given)
    assert error_code(session.get_session_token) == (403, "AccessDenied")
    role = {"RoleArn": "arn:aws:iam:::role/reader", "RoleSessionName": "run"}
    assert error_code(session.assume_role, **role) == (403, "AccessDenied")


def test_presigned_urls_and_forms_carry_the_token(server: Server) -> None:
    credentials = sts_client(server.endpoint).get_session_token()["Credentials"]
    for version in ("s3v4", "s3"):
        s3 = s3_of(server.endpoint, credentials, signature_version=version)
        url = s3.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "k"})
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert answer.read() == b"here"
        token = urllib.parse.quote(credentials["SessionToken"], safe="")
        assert token in url
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url.replace(token, token[:-8] + "AAAAAAA%3D"), timeout=20)
        assert b"<Code>InvalidToken</Code>" in refused.value.read()
    form = s3_of(server.endpoint, credentials).generate_presigned_post("bucket", "form")
    assert form["fields"]["x-amz-security-token"] == credentials["SessionToken"]
    boundary = "of-the-form"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in form["fields"].items()
    ]
    end = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nposted\r\n--{boundary}--\r\n'
    )
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    request = urllib.request.Request(form["url"], ("".join(parts) + end).encode(), kind)
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 204
    assert s3_client(server.endpoint).get_object(Bucket="bucket", Key="form")["Body"].read() == b"posted"


def test_tokens_of_others_and_none_are_refused(server: Server) -> None:
    credentials = sts_client(server.endpoint).get_session_token()["Credentials"]
    other = sts_client(server.endpoint).get_session_token()["Credentials"]
    for wrong in [
        credentials | {"SessionToken": "nonsense"},
        credentials | {"SessionToken": other["SessionToken"]},
        {"AccessKeyId": ACCESS_KEY_ID, "SecretAccessKey": SECRET_ACCESS_KEY, "SessionToken": other["SessionToken"]},
    ]:
        assert error_code(s3_of(server.endpoint, wrong).get_object, Bucket="bucket", Key="k") == (400, "InvalidToken")
        given = wrong["AccessKeyId"], wrong["SecretAccessKey"], wrong["SessionToken"]
        assert error_code(sts_client(server.endpoint, *given).get_caller_identity) == (403, "InvalidClientTokenId")
    bare = s3_client(server.endpoint, credentials["AccessKeyId"], credentials["SecretAccessKey"])
    assert error_code(bare.get_object, Bucket="bucket", Key="k") == (403, "InvalidAccessKeyId")
    wrong_secret = sts_client(server.endpoint, ACCESS_KEY_ID, "wrong-secret-0123456789")
    assert error_code(wrong_secret.get_caller_identity) == (403, "SignatureDoesNotMatch")


def test_another_process_with_the_same_users_takes_a_session(server: Server, new_server: NewServer) -> None:
    other = new_server("other").start()
    credentials = sts_client(server.endpoint).get_session_token()["Credentials"]
    s3_of(other.endpoint, credentials).create_bucket(Bucket="elsewhere")
    assert [found["Name"] for found in s3_client(other.endpoint).list_buckets()["Buckets"]] == ["elsewhere"]


def test_removing_a_user_or_its_trust_ends_its_sessions(server: Server) -> None:
    alt = sts_client(server.endpoint, key_id("alt"), secret("alt"))
    own = s3_of(server.endpoint, alt.get_session_token()["Credentials"])
    role = s3_of(
        server.endpoint, alt.assume_role(RoleArn="arn:aws:iam:::role/reader", RoleSessionName="r1")["Credentials"]
    )
    own.create_bucket(Bucket="of-alt")
    assert role.get_object(Bucket="bucket", Key="k")["Body"].read() == b"here"
    before = server.more_config
    server.more_config = before.replace('users = ["alt", "root"]', 'users = ["root"]')
    server.write_config()
    hang_up(server)
    assert error_code(role.get_object, Bucket="bucket", Key="k") == (400, "InvalidToken")
    own.head_bucket(Bucket="of-alt")
    server.run("users", "keys", "disable", "alt", key_id("alt"))
    assert error_code(own.list_objects_v2, Bucket="of-alt") == (400, "InvalidToken")
    server.run("users", "keys", "enable", "alt", key_id("alt"))
    own.head_bucket(Bucket="of-alt")
    server.run("users", "remove", "alt")
    assert error_code(own.list_objects_v2, Bucket="of-alt") == (400, "InvalidToken")


def test_boto3s_own_provider_takes_on_a_role(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = f"""
[profile base]
aws_access_key_id = {key_id("alt")}
aws_secret_access_key = {secret("alt")}
region = {REGION}

[profile reader]
role_arn = arn:aws:iam::{account_of(server)}:role/reader
source_profile = base
region = {REGION}
"""
    (tmp_path / "config").write_text(profile)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    s3 = boto3.session.Session(profile_name="reader").client("s3")
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"here"
    assert error_code(s3.put_object, Bucket="bucket", Key="k", Body=b"x") == (403, "AccessDenied")


def test_a_form_that_nobody_signed_or_that_names_no_action_is_refused_in_stss_words(server: Server) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = b"Action=AssumeRole&Version=2011-06-15"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/", body, form), timeout=20)
    told = refused.value.read()
    assert refused.value.code == 403
    assert b"<Code>MissingAuthenticationToken</Code>" in told
    assert b'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">' in told
    with pytest.raises(urllib.error.HTTPError) as large:
        urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/", b"a" * (65 << 10), form), timeout=20)
    assert large.value.code == 413
    assert server.metrics().total("deltaweir_auth_total", result="ok", reason="sts") == 0
    sts_client(server.endpoint).get_caller_identity()
    assert server.metrics().total("deltaweir_http_requests_total", op="GetCallerIdentity", code="200") == 1

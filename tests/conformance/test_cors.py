"""CORS: which rule an origin, a method and headers meet, and what the answer then says."""

from __future__ import annotations

import http.client
from typing import Any

import pytest

from outside.buckets import MakeBucket
from outside.clients import S3Client
from outside.failure import error_code

RULES: list[dict[str, Any]] = [
    {"AllowedMethods": ["GET"], "AllowedOrigins": ["*suffix"]},
    {"AllowedMethods": ["GET"], "AllowedOrigins": ["start*end"]},
    {"AllowedMethods": ["GET"], "AllowedOrigins": ["prefix*"]},
    {"AllowedMethods": ["PUT"], "AllowedOrigins": ["*.put"]},
    {
        "AllowedMethods": ["PUT", "POST"],
        "AllowedOrigins": ["https://app.example.com"],
        "AllowedHeaders": ["x-amz-*", "Content-Type"],
        "ExposeHeaders": ["ETag", "x-amz-request-id"],
        "MaxAgeSeconds": 42,
    },
]
ORIGINS: list[tuple[str, str, bool]] = [
    ("foo.suffix", "GET", True),
    ("foo.bar", "GET", False),
    ("foo.suffix.get", "GET", False),
    ("startend", "GET", True),
    ("start1end", "GET", True),
    ("start12end", "GET", True),
    ("0start12end", "GET", False),
    ("prefix", "GET", True),
    ("prefix.suffix", "GET", True),
    ("bla.prefix", "GET", False),
    ("foo.put", "GET", False),
    ("foo.put", "PUT", True),
    ("https://app.example.com", "PUT", True),
    ("https://app.example.com", "POST", True),
    ("https://app.example.com", "DELETE", False),
    ("http://app.example.com", "PUT", False),
    ("https://app.example.com:8443", "PUT", False),
    ("HTTPS://APP.EXAMPLE.COM", "PUT", False),
]


@pytest.fixture(scope="module")
def shared(s3: S3Client, make_bucket: MakeBucket) -> str:
    """A bucket with the rules, readable by everybody."""
    bucket = make_bucket()
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES})
    s3.put_bucket_acl(Bucket=bucket, ACL="public-read")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    return bucket


def browse(endpoint: str, method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """A request as a browser sends it."""
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=20)
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


@pytest.mark.parametrize(("origin", "method", "allowed"), ORIGINS, ids=[f"{m} {o}" for o, m, _ in ORIGINS])
@pytest.mark.parametrize("target", ["", "/k", "/none"], ids=["bucket", "object", "absent"])
def test_a_preflight_is_answered_by_the_rule_that_its_origin_meets(
    endpoint: str, shared: str, origin: str, method: str, allowed: bool, target: str
) -> None:
    asked = {"Origin": origin, "Access-Control-Request-Method": method}
    status, headers, _ = browse(endpoint, "OPTIONS", f"/{shared}{target}", asked)
    assert status == (200 if allowed else 403)
    assert headers.get("access-control-allow-origin") == (origin if allowed else None)
    assert not allowed or method in headers["access-control-allow-methods"]


@pytest.mark.parametrize(("origin", "method", "allowed"), ORIGINS[:11], ids=[f"{m} {o}" for o, m, _ in ORIGINS[:11]])
def test_a_read_tells_its_origin_what_it_may(
    endpoint: str, shared: str, origin: str, method: str, allowed: bool
) -> None:
    for target, status in (("/k", 200), ("", 200), ("/none", 404)):
        got, headers, _ = browse(endpoint, method, f"/{shared}{target}", {"Origin": origin})
        assert got == status
        assert headers.get("access-control-allow-origin") == (origin if allowed else None)


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ("", True),
        ("content-type", True),
        ("Content-Type", True),
        ("x-amz-meta-a", True),
        ("x-amz-date,content-type", True),
        ("x-amz-date, content-type", True),
        ("authorization", False),
        ("content-type, authorization", False),
    ],
)
def test_every_header_that_is_asked_for_must_be_allowed(endpoint: str, shared: str, asked: str, allowed: bool) -> None:
    headers = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "PUT"}
    if asked:
        headers["Access-Control-Request-Headers"] = asked
    status, told, _ = browse(endpoint, "OPTIONS", f"/{shared}/k", headers)
    assert status == (200 if allowed else 403)
    if allowed:
        assert told["access-control-max-age"] == "42"
        assert told["access-control-expose-headers"] == "ETag, x-amz-request-id"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 400, b"BadRequest"),
        ({"Origin": "prefix"}, 400, b"BadRequest"),
        ({"Access-Control-Request-Method": "GET"}, 400, b"BadRequest"),
        ({"Origin": "prefix", "Access-Control-Request-Method": "get"}, 400, b"BadRequest"),
        ({"Origin": "prefix", "Access-Control-Request-Method": "BREW"}, 400, b"BadRequest"),
    ],
    ids=["nothing", "no-method", "no-origin", "lower-case", "unknown"],
)
@pytest.mark.parametrize("rules", [True, False], ids=["with-rules", "without-rules"])
def test_a_preflight_that_asks_nothing_is_a_bad_request(
    endpoint: str, shared: str, bucket: str, headers: dict[str, str], status: int, code: bytes, rules: bool
) -> None:
    got, _, body = browse(endpoint, "OPTIONS", f"/{shared if rules else bucket}/k", headers)
    assert (got, code in body) == (status, True)


@pytest.mark.parametrize("target", ["/no-such-bucket", "/no-such-bucket/k"])
def test_a_bucket_without_rules_or_that_is_not_there_allows_nothing(endpoint: str, bucket: str, target: str) -> None:
    asked = {"Origin": "prefix", "Access-Control-Request-Method": "GET"}
    for place in (target, f"/{bucket}/k"):
        status, headers, body = browse(endpoint, "OPTIONS", place, asked)
        assert status in (403, 404)
        assert "access-control-allow-origin" not in headers
        assert body


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"AllowedMethods": ["PATCH"], "AllowedOrigins": ["*"]}, "InvalidRequest"),
    ({"AllowedMethods": ["get"], "AllowedOrigins": ["*"]}, "InvalidRequest"),
    ({"AllowedMethods": ["GET"], "AllowedOrigins": ["a*b*c"]}, "InvalidRequest"),
    ({"AllowedMethods": ["GET"], "AllowedOrigins": ["*"], "AllowedHeaders": ["x-*-*"]}, "InvalidRequest"),
    ({"AllowedMethods": ["GET"], "AllowedOrigins": ["*"], "ExposeHeaders": ["x-*"]}, "InvalidRequest"),
    ({"AllowedMethods": [], "AllowedOrigins": ["*"]}, "MalformedXML"),
    ({"AllowedMethods": ["GET"], "AllowedOrigins": []}, "MalformedXML"),
]


@pytest.mark.parametrize(("rule", "code"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_rule_that_makes_no_sense_is_refused(s3: S3Client, bucket: str, rule: dict[str, Any], code: str) -> None:
    asked = {"Bucket": bucket, "CORSConfiguration": {"CORSRules": [rule]}}
    assert error_code(s3.put_bucket_cors, **asked) == (400, code)


@pytest.mark.parametrize("number", [1, 100])
def test_a_bucket_has_up_to_100_rules(s3: S3Client, bucket: str, number: int) -> None:
    rules = [{"ID": str(count), "AllowedMethods": ["HEAD"], "AllowedOrigins": [f"a{count}"]} for count in range(number)]
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": rules})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == rules


def test_a_rule_may_say_all_it_can_say(s3: S3Client, bucket: str) -> None:
    rule = {
        "ID": "all",
        "AllowedHeaders": ["*"],
        "AllowedMethods": ["GET", "PUT", "POST", "DELETE", "HEAD"],
        "AllowedOrigins": ["http://*", "https://*"],
        "ExposeHeaders": ["a", "b"],
        "MaxAgeSeconds": 0,
    }
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == [rule]


def test_a_negative_age_is_kept_and_sent(s3: S3Client, bucket: str, endpoint: str) -> None:
    rule: Any = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"], "MaxAgeSeconds": -1}
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == [rule]
    asked = {"Origin": "https://a.test", "Access-Control-Request-Method": "GET"}
    status, headers, _ = browse(endpoint, "OPTIONS", f"/{bucket}", asked)
    assert (status, headers["access-control-max-age"]) == (200, "-1")


def test_headers_are_exposed_in_the_order_of_the_rule(s3: S3Client, bucket: str, endpoint: str) -> None:
    exposed = ["x-amz-version-id", "ETag", "x-amz-request-id", "Content-Length"]
    rule: Any = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"], "ExposeHeaders": exposed}
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"][0]["ExposeHeaders"] == exposed
    for method in ("OPTIONS", "GET"):
        asked = {"Origin": "https://a.test", "Access-Control-Request-Method": "GET"}
        _, headers, _ = browse(endpoint, method, f"/{bucket}/k", asked)
        assert headers["access-control-expose-headers"] == ", ".join(exposed), method


@pytest.mark.parametrize(("named", "allowed"), [("GET", "GET"), ("PUT", None), ("DELETE", None), (None, None)])
def test_a_request_that_names_a_method_is_held_against_that_one(
    endpoint: str, shared: str, named: str | None, allowed: str | None
) -> None:
    headers = {"Origin": "foo.suffix"} | ({"Access-Control-Request-Method": named} if named else {})
    status, told, _ = browse(endpoint, "PUT", f"/{shared}/k", headers)
    assert status == 403
    assert told.get("access-control-allow-methods") == allowed

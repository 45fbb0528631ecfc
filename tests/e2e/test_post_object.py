"""Uploads by a form, as a browser sends them: what the policy says is all that is stored."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, md5, noise

Answer = tuple[int, dict[str, str], bytes]
BOUNDARY = "----deltaweirFormBoundary7MA4YWxk"


def form(fields: dict[str, str], file: bytes | None, file_name: str = "file.bin", cut: int | None = None) -> bytes:
    """The body of a form; `cut` ends it early."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    if file is not None:
        disposition = f'form-data; name="file"; filename="{file_name}"'
        head = f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\nContent-Type: image/png\r\n\r\n"
        parts.append(head.encode() + file + b"\r\n")
    parts.append(f"--{BOUNDARY}--\r\n".encode())
    body = b"".join(parts)
    return body if cut is None else body[:-cut]


def post(url: str, body: bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}") -> Answer:
    """Sends a form."""
    host, _, target = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("POST", f"/{target}", body, {"Content-Type": content_type})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


def code(answer: Answer) -> tuple[int, str]:
    """Status and S3 code."""
    found = re.search(rb"<Code>(\w+)</Code>", answer[2])
    return answer[0], found[1].decode() if found else ""


Presign = Callable[..., dict[str, Any]]


@pytest.fixture(params=["s3v4", "s3"])
def presign(request: pytest.FixtureRequest, endpoint: str, bucket: str) -> Presign:
    """`generate_presigned_post` on the bucket, signed by either version; `s3` is boto3's default in us-east-1."""
    signer = s3_client(endpoint, signature_version=request.param)

    def make(key: str, **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = signer.generate_presigned_post(bucket, key, **more)
        return made

    return make


def test_a_form_stores_its_file_with_what_its_fields_say(s3: S3Client, bucket: str, presign: Presign) -> None:
    more = {"Content-Type": "text/plain", "x-amz-meta-colour": "blue", "acl": "private"}
    made = presign("docs/${filename}", Fields=more, Conditions=[{name: value} for name, value in more.items()])
    status, headers, body = post(made["url"], form(made["fields"], b"by a form", "C:\\me\\größe 1+2.txt"))
    assert (status, body, headers["etag"]) == (204, b"", f'"{md5(b"by a form")}"')
    got = s3.get_object(Bucket=bucket, Key="docs/größe 1+2.txt", ChecksumMode="ENABLED")
    assert got["Body"].read() == b"by a form"
    assert (got["ContentType"], got["Metadata"]) == ("text/plain", {"colour": "blue"})
    assert "ChecksumCRC64NVME" in got


def test_a_form_is_told_when_its_file_expires(s3: S3Client, bucket: str, presign: Presign) -> None:
    rule: Any = {"ID": "soon", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 1}}
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    for key, expires in (("logs/a", True), ("docs/a", False)):
        made = presign(key)
        status, headers, _ = post(made["url"], form(made["fields"], b"by a form"))
        assert (status, 'rule-id="soon"' in headers.get("x-amz-expiration", "")) == (204, expires)


@pytest.mark.parametrize(("asked", "status"), [("200", 200), ("201", 201), ("204", 204), ("404", 204), ("", 204)])
def test_the_form_chooses_among_three_statuses(bucket: str, presign: Presign, asked: str, status: int) -> None:
    field = {"success_action_status": asked}
    made = presign("k", Fields=field, Conditions=[field])
    answer = post(made["url"], form(made["fields"], b"x"))
    assert answer[0] == status
    assert answer[1]["location"].endswith(f"/{bucket}/k")
    if status == 201:
        assert re.search(rb"<PostResponse><Location>[^<]+</Location><Bucket>[^<]+</Bucket><Key>k</Key>", answer[2])


def test_a_redirect_says_what_was_stored(bucket: str, presign: Presign) -> None:
    for url, status in (("https://example.com/done?x=1", 303), ("javascript:alert(1)", 204)):
        field = {"success_action_redirect": url}
        made = presign("a key", Fields=field, Conditions=[field])
        answer = post(made["url"], form(made["fields"], b"x"))
        assert answer[0] == status
        if status == 303:
            etag = f"%22{md5(b'x')}%22"
            assert answer[1]["location"] == f"{url}&bucket={bucket.replace('-', '%2D')}&key=a%20key&etag={etag}"


def test_what_the_policy_does_not_say_is_refused(s3: S3Client, bucket: str, presign: Presign) -> None:
    made = presign("user/k", Conditions=[["content-length-range", 3, 10]])
    fields, url = made["fields"], made["url"]
    refused: list[tuple[bytes, tuple[int, str]]] = [
        (form(fields | {"key": "admin/k"}, b"four"), (403, "AccessDenied")),
        (form(fields | {"x-amz-meta-a": "1"}, b"four"), (403, "AccessDenied")),
        (form(fields, b"x"), (400, "EntityTooSmall")),
        (form(fields, b"x" * 11), (400, "EntityTooLarge")),
        (form(fields, noise(1, 3 * MIB)), (400, "EntityTooLarge")),
        (form(fields, None), (400, "InvalidArgument")),
        (form({name: value for name, value in fields.items() if name != "key"}, b"four"), (400, "InvalidArgument")),
        (form(fields | {"policy": fields["policy"][:-8]}, b"four"), (400, "InvalidPolicyDocument")),
        (form({"key": "user/k"}, b"four"), (403, "AccessDenied")),
        (form(fields | {"x-ignore": "x" * 21_000}, b"four"), (400, "MaxPostPreDataLengthExceededError")),
        (form(fields, b"four", cut=8), (400, "IncompleteBody")),
    ]
    signature = "x-amz-signature" if "x-amz-signature" in fields else "signature"
    wrong = fields | {signature: fields[signature][::-1]}
    refused.append((form(wrong, b"four"), (403, "SignatureDoesNotMatch")))
    for body, expected in refused:
        assert code(post(url, body)) == expected, body[-200:]
    assert code(post(url, b"key=user/k", "application/x-www-form-urlencoded")) == (412, "PreconditionFailed")
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    assert post(url, form(fields, b"four"))[0] == 204


def test_the_condition_that_failed_is_told_in_plain_quotes(presign: Presign) -> None:
    made = presign("user/k")
    answer = post(made["url"], form(made["fields"] | {"key": "admin/k"}, b"x"))
    assert b'Policy Condition failed: ["eq", "$key", "user/k"]' in answer[2]


def test_an_expired_policy_is_refused(presign: Presign) -> None:
    made = presign("k", ExpiresIn=-10)
    assert code(post(made["url"], form(made["fields"], b"x"))) == (403, "AccessDenied")


def test_a_large_file_is_streamed(s3: S3Client, bucket: str, presign: Presign) -> None:
    content = noise(5, 40 * MIB)
    made = presign("large")
    assert post(made["url"], form(made["fields"], content))[0] == 204
    assert s3.head_object(Bucket=bucket, Key="large")["ETag"] == f'"{md5(content)}"'
    assert s3.get_object(Bucket=bucket, Key="large")["Body"].read() == content


def test_a_user_may_only_sign_forms_for_what_the_user_may_do(new_server: NewServer) -> None:
    server = new_server()
    server.environment["READER_SECRET"] = "reader-secret-0123456789"
    server.more_config = (
        '[[users]]\nname = "reader"\naccess_key_id = "AKIAREADER0000000000"\n'
        'secret_access_key = "env:READER_SECRET"\npolicy = "readonly"\n'
    )
    server.start()
    s3_client(server.endpoint).create_bucket(Bucket="delta-00")
    reader = s3_client(server.endpoint, "AKIAREADER0000000000", "reader-secret-0123456789")
    made = reader.generate_presigned_post("delta-00", "k")
    assert code(post(made["url"], form(made["fields"], b"x"))) == (403, "AccessDenied")

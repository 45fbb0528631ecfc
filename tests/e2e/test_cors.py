"""Cross-origin requests: what a browser asks first, and what it may then read."""

from __future__ import annotations

import http.client

from outside.clients import S3Client, s3_client
from outside.failure import error_code

RULES = {
    "CORSRules": [
        {
            "ID": "uploads",
            "AllowedOrigins": ["https://*.example.com"],
            "AllowedMethods": ["PUT", "GET"],
            "AllowedHeaders": ["*"],
            "ExposeHeaders": ["ETag"],
            "MaxAgeSeconds": 600,
        },
        {"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]},
    ]
}


def browse(url: str, method: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, dict[str, str]]:
    """A request as a browser sends it; the status and the headers of the answer, names in lower case."""
    host, _, target = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request(method, f"/{target}", body or None, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}


def test_rules_are_set_read_and_removed(s3: S3Client, bucket: str) -> None:
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration=RULES)
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == RULES["CORSRules"]
    wrong = {"CORSRules": [{"AllowedOrigins": ["*"], "AllowedMethods": ["BREW"]}]}
    assert error_code(s3.put_bucket_cors, Bucket=bucket, CORSConfiguration=wrong) == (400, "InvalidRequest")
    assert len(s3.get_bucket_cors(Bucket=bucket)["CORSRules"]) == 2
    s3.delete_bucket_cors(Bucket=bucket)
    assert error_code(s3.get_bucket_cors, Bucket=bucket) == (404, "NoSuchCORSConfiguration")


def test_a_browser_uploads_and_reads_through_a_presigned_url(endpoint: str, s3: S3Client, bucket: str) -> None:
    page = "https://www.example.com"
    v4 = s3_client(endpoint, signature_version="s3v4")
    upload = v4.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "k"})
    asking = {"Origin": page, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type"}
    assert browse(upload, "OPTIONS", asking)[0] == 403
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration=RULES)
    status, headers = browse(upload, "OPTIONS", asking)
    assert (status, headers["access-control-allow-origin"]) == (200, page)
    assert headers["access-control-allow-methods"] == "PUT, GET"
    assert headers["access-control-allow-headers"] == "content-type"
    assert headers["access-control-max-age"] == "600"
    status, headers = browse(upload, "PUT", {"Origin": page, "Content-Type": "text/plain"}, b"by a browser")
    assert (status, headers["access-control-allow-origin"]) == (200, page)
    assert headers["access-control-expose-headers"] == "ETag"
    assert "Origin" in headers["vary"]
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"by a browser"
    missing = v4.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "none"})
    status, headers = browse(missing, "GET", {"Origin": page})
    assert (status, headers["access-control-allow-origin"]) == (404, page), "a script may read an error, too"


def test_an_origin_that_no_rule_allows_learns_nothing(s3: S3Client, endpoint: str, bucket: str) -> None:
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration=RULES)
    url = f"{endpoint}/{bucket}/k"
    asking = {"Origin": "https://evil.test", "Access-Control-Request-Method": "PUT"}
    status, headers = browse(url, "OPTIONS", asking)
    assert (status, "access-control-allow-origin" in headers) == (403, False)
    status, headers = browse(url, "GET", {"Origin": "https://evil.test"})
    assert (status, headers["access-control-allow-origin"]) == (403, "*"), "the second rule is for anybody's GET"
    status, headers = browse(url, "DELETE", {"Origin": "https://evil.test"})
    assert (status, "access-control-allow-origin" in headers) == (403, False)
    assert browse(url, "OPTIONS", {"Origin": "https://www.example.com"})[0] == 400
    assert browse(f"{endpoint}/never-made-bucket/k", "OPTIONS", asking)[0] == 403

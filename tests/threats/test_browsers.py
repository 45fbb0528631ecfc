"""What a web page of somebody else's can do with a bucket or the console (C81, C82, C135)."""

from __future__ import annotations

import http.client
import urllib.request

from e2e.test_cors import RULES, browse
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client

PAGE = b"<html><script>document.title = document.cookie</script></html>"
DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'


def test_only_a_site_that_a_rule_names_is_given_credentials(s3: S3Client, endpoint: str, bucket: str) -> None:
    rules = [RULES["CORSRules"][0], {"AllowedOrigins": ["https://*"], "AllowedMethods": ["GET", "HEAD"]}]
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": rules})
    reflected = 0
    for origin in ("https://www.example.com", "https://evil.test", "null", "https://www.example.com.evil.test"):
        for method in ("OPTIONS", "GET", "HEAD", "PUT"):
            asking = {"Origin": origin, "Cookie": "session=1", "Access-Control-Request-Method": "GET"}
            _, headers = browse(f"{endpoint}/{bucket}/k", method, asking)
            named = origin == "https://www.example.com"
            assert named or "access-control-allow-credentials" not in headers, (origin, method)
            reflected += headers.get("access-control-allow-origin") == origin
    assert reflected, "origins are reflected where a rule says so"


def test_no_object_is_shown_in_the_consoles_origin(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    for key, content, kind in (("p.html", PAGE, "text/html"), ("d.svg", DRAWING, "image/svg+xml")):
        s3.put_object(Bucket="off-00", Key=key, Body=content, ContentType=kind)
    paths = [f"{prefix}{key}" for key in ("p.html", "d.svg") for prefix in ("/", "/off-00/", "/api/v1/objects/off-00/")]
    for path in (*paths, "/api/v1/explain?bucket=off-00&key=p.html", "/", "/console.js", "/console.css"):
        connection = http.client.HTTPConnection("127.0.0.1", server.admin_port, timeout=20)
        connection.request("GET", path, headers={"Authorization": f"Bearer {server.admin_token}"})
        answer = connection.getresponse()
        told = answer.read()
        connection.close()
        assert PAGE not in told and DRAWING not in told, path
        assert answer.getheader("x-content-type-options") == "nosniff", path
        kind = answer.getheader("content-type") or ""
        if kind.startswith("text/html") or path == "/":
            policy = answer.getheader("content-security-policy") or ""
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        else:
            assert "svg" not in kind, path
    # The bucket's own origin is another one, and a browser guesses no type there either.
    with urllib.request.urlopen(
        s3.generate_presigned_url("get_object", {"Bucket": "off-00", "Key": "p.html"})
    ) as answer:
        assert answer.read() == PAGE

"""Our bendable signer against botocore's: the good requests of the bad-input tests are really good."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from outside.sigv4 import EMPTY_SHA256, Scope, authorize, presign

NOW = datetime(2026, 11, 20, 15, 42, 59, tzinfo=UTC)
TARGET = "/bucket/a%20key/%C3%BC?list-type=2&prefix=a%2Fb&empty="


@pytest.fixture(autouse=True)
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore signs for one moment."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: NOW.replace(tzinfo=None))


def request() -> Any:
    return AWSRequest("GET", f"http://127.0.0.1:9000{TARGET}", headers={"x-amz-meta-a": "b  c"})


def test_a_header_signature_equals_botocores() -> None:
    theirs = request()
    S3SigV4Auth(Credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY), "s3", REGION).add_auth(theirs)
    headers = [("Host", "127.0.0.1:9000"), ("x-amz-meta-a", "b  c")]
    ours, _ = authorize(Scope(time=NOW), "GET", TARGET, headers, EMPTY_SHA256)
    assert dict(ours)["Authorization"] == theirs.headers["Authorization"]


def test_a_presigned_url_equals_botocores() -> None:
    theirs = AWSRequest("GET", f"http://127.0.0.1:9000{TARGET}")
    S3SigV4QueryAuth(Credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY), "s3", REGION, expires=600).add_auth(theirs)
    ours = presign(Scope(time=NOW), "GET", TARGET, [("Host", "127.0.0.1:9000")])
    assert ours.rsplit("=", 1)[1] == theirs.url.rsplit("=", 1)[1]

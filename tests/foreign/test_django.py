"""django-storages: Django's files in a bucket, with its own names, URLs and overwrites."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
from django.conf import settings
from django.core.files.base import ContentFile
from storages.backends.s3 import S3Storage

from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

pytestmark = pytest.mark.long


def storage(endpoint: str, bucket: str, **more: Any) -> Any:
    """A storage as an application configures it."""
    if not settings.configured:
        settings.configure(USE_TZ=True)
    return S3Storage(
        access_key=ACCESS_KEY_ID,
        secret_key=SECRET_ACCESS_KEY,
        bucket_name=bucket,
        endpoint_url=endpoint,
        region_name=REGION,
        **more,
    )


def test_files_are_saved_opened_listed_and_deleted(endpoint: str, bucket: str) -> None:
    files = storage(endpoint, bucket)
    assert files.save("docs/größe 1+2.txt", ContentFile(b"text")) == "docs/größe 1+2.txt"
    large = noise(1, 9 * MIB)
    files.save("docs/large", ContentFile(large))
    with files.open("docs/large") as opened:
        assert opened.read() == large
    with files.open("docs/written", "wb") as opened:
        opened.write(large)
        opened.write(b"and more")
    assert files.size("docs/written") == len(large) + 8
    assert sorted(files.listdir("docs")[1]) == ["größe 1+2.txt", "large", "written"]
    assert files.exists("docs/large") and not files.exists("docs/none")
    assert files.get_modified_time("docs/large").year >= 2026
    files.delete("docs/large")
    assert not files.exists("docs/large")


def test_a_file_is_not_overwritten_where_the_application_says_so(endpoint: str, bucket: str) -> None:
    files = storage(endpoint, bucket, file_overwrite=False)
    first = files.save("name.txt", ContentFile(b"1"))
    second = files.save("name.txt", ContentFile(b"2"))
    assert first == "name.txt" != second
    with files.open(first) as opened:
        assert opened.read() == b"1"


@pytest.mark.parametrize("version", [None, "s3v4"], ids=["default", "s3v4"])
def test_its_urls_are_signed_and_public_ones_need_no_signature(endpoint: str, bucket: str, version: str | None) -> None:
    signed = storage(endpoint, bucket, **({"signature_version": version} if version else {}))
    signed.save("private.txt", ContentFile(b"private"))
    with urllib.request.urlopen(signed.url("private.txt"), timeout=20) as answer:
        assert answer.read() == b"private"
    public = storage(endpoint, bucket, default_acl="public-read", querystring_auth=False, gzip=True)
    public.save("public.css", ContentFile(b"body {}" * 100))
    assert "?" not in public.url("public.css")
    with urllib.request.urlopen(public.url("public.css"), timeout=20) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Content-Type"] == "text/css"

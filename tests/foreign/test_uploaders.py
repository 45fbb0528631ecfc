"""Uppy and FilePond in Chromium: pages of another origin upload by a form, by a PUT and in parts that the page signs
with temporary keys, all under the bucket's CORS rules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outside.clients import S3Client, sts_client
from outside.content import MIB
from outside.server import REGION, free_port
from outside.tools import chromium

pytestmark = pytest.mark.long

HERE = Path(__file__).parent / "uploaders"


def content(length: int) -> bytes:
    """The bytes of which page.html makes files."""
    return bytes((n * 31 + (n >> 8)) & 255 for n in range(length))


@pytest.fixture(scope="module")
def packages() -> Path:
    """The uploaders, installed from their lock file."""
    install = ["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return HERE


def uploaded(where: Path, port: int, *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What the page's functions returned, called in order in one browser."""
    told = json.dumps({"chromium": chromium(), "port": port, "calls": calls})
    done = subprocess.run(
        ["node", "drive.mjs"], cwd=where, input=told, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert [one["failed"] for one in found] == [[]] * len(calls), f"{found}\n{done.stderr}"
    return found


@pytest.fixture
def origin(s3: S3Client, bucket: str) -> int:
    """The port of a page whose scripts the bucket lets in."""
    port = free_port()
    rule = {
        "AllowedOrigins": [f"http://127.0.0.1:{port}"],
        "AllowedMethods": ["GET", "PUT", "POST", "DELETE"],
        "AllowedHeaders": ["*"],
        "ExposeHeaders": ["ETag", "Location"],
    }
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    return port


def test_a_page_uploads_by_a_form(packages: Path, s3: S3Client, bucket: str, origin: int) -> None:
    def form(key: str) -> dict[str, Any]:
        conditions: list[Any] = [["starts-with", "$key", "forms/"], {"success_action_status": "201"}]
        fields = {"success_action_status": "201"}
        made = s3.generate_presigned_post(bucket, f"forms/{key}-${{filename}}", Fields=fields, Conditions=conditions)
        return {"url": made["url"], "fields": made["fields"], "name": "a file.txt", "length": 70_000}

    found = uploaded(packages, origin, ("uppyForm", form("uppy")), ("filePondForm", form("pond")))
    assert [one["successful"] for one in found] == [1, 1]
    for key in ("forms/uppy-a file.txt", "forms/pond-a file.txt"):
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == content(70_000)


def test_a_page_signs_uploads_with_temporary_keys(
    packages: Path, endpoint: str, s3: S3Client, bucket: str, origin: int
) -> None:
    keys = sts_client(endpoint).get_session_token(DurationSeconds=900)["Credentials"]
    told = {
        "endpoint": f"{endpoint}/{bucket}",
        "region": REGION,
        "credentials": {
            "accessKeyId": keys["AccessKeyId"],
            "secretAccessKey": keys["SecretAccessKey"],
            "sessionToken": keys["SessionToken"],
            "expiration": keys["Expiration"].isoformat(),
        },
    }
    small = told | {"name": "small.txt", "length": 70_000, "parts": False}
    large = told | {"name": "large.txt", "length": 11 * MIB, "parts": True}
    uploaded(packages, origin, ("uppySigned", small), ("uppySigned", large))
    assert s3.get_object(Bucket=bucket, Key="small.txt")["Body"].read() == content(70_000)
    got = s3.get_object(Bucket=bucket, Key="large.txt")
    assert got["ETag"].endswith('-3"')
    assert got["Body"].read() == content(11 * MIB)


@pytest.mark.usefixtures("origin")
def test_a_page_of_another_origin_is_kept_out(packages: Path, s3: S3Client, bucket: str) -> None:
    made = s3.generate_presigned_post(bucket, "k")
    call = {"url": made["url"], "fields": made["fields"], "name": "k", "length": 10}
    with pytest.raises(AssertionError, match="CORS"):
        uploaded(packages, free_port(), ("uppyForm", call))

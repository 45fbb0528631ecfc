"""minio-go's functional tests, signature version 2 and 4: the client with which most Go programs speak to S3. They lie
in its module; `go build` makes a program of them, which takes minutes to compile."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from outside.server import ACCESS_KEY_ID, ROOT, SECRET_ACCESS_KEY

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

MODULE = "github.com/minio/minio-go/v7@v7.0.95"

PASSED_MIN = 119

MINIOS_OWN = {
    "testCors_11": "an object that a stranger wrote is the stranger's, so the bucket's policy does not open it",
    "testListMultipartUpload": "MinIO lists the key of a marker again, and no storage class",
    "testGetObjectAttributesErrorCases": "a version id of no known form is InvalidArgument, as in S3",
    "testMakeBucketError": "it makes buckets in other regions",
    "testMakeBucketRegions": "it makes buckets in other regions",
    "testPresignedPostPolicyEmptyFileName": "a form without a file is InvalidArgument, as in S3",
    "testGetObjectACLContext": "MinIO keeps no list of grants, so that every object is private",
}
"""Cases that hold for MinIO and not for S3, or need another configuration."""


@pytest.fixture(scope="module")
def program() -> Path:
    """The tests, built."""
    built = ROOT / ".tools" / f"minio-go-tests-{MODULE.rpartition('@')[2]}"
    if built.exists():
        return built
    told = subprocess.run(["go", "mod", "download", "-json", MODULE], capture_output=True, text=True, check=True)
    folder = json.loads(told.stdout)["Dir"]
    command = ["go", "build", "-mod=mod", "-o", str(built), "functional_tests.go"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


def test_every_case_passes_but_those_about_minio_itself(program: Path, endpoint: str, tmp_path: Path) -> None:
    settings = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "SERVER_ENDPOINT": endpoint.removeprefix("http://"),
        "ACCESS_KEY": ACCESS_KEY_ID,
        "SECRET_KEY": SECRET_ACCESS_KEY,
        "ENABLE_HTTPS": "0",
        "MINT_MODE": "full",
        "RUN_ON_FAIL": "1",
    }
    done = subprocess.run([program], cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    passed = [each for each in told if each["status"] == "PASS"]
    failed = [each for each in told if each["status"] == "FAIL"]
    unexpected = [each for each in failed if not any(name in each["name"] for name in MINIOS_OWN)]
    reasons = [f"{each['name']}: {each.get('message')} {each.get('error')}" for each in unexpected]
    assert not unexpected, "\n".join(reasons)
    assert len(passed) >= PASSED_MIN, done.stderr[-2000:]

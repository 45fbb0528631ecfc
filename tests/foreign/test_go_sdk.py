"""The AWS SDK for Go v2: default checksums, trailing checksums of streams, presigned requests, paginators, waiters,
typed errors. A module of its own (`tests/go-sdk/`), because it takes minutes to compile; each of its steps says what it
tries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from outside.server import ACCESS_KEY_ID, REGION, ROOT, SECRET_ACCESS_KEY

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MODULE = ROOT / "tests" / "go-sdk"
STEPS = 8


@pytest.fixture(scope="module")
def program() -> Path:
    """The module, built."""
    built = ROOT / ".tools" / "go-sdk"
    done = subprocess.run(["go", "build", "-o", built, "."], cwd=MODULE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


def test_every_step_of_the_sdk_gets_what_it_expects(program: Path, endpoint: str, tmp_path: Path) -> None:
    settings = {
        "HOME": str(tmp_path),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [str(program), f"go-sdk-{os.getpid()}"]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert len(done.stdout.splitlines()) == STEPS

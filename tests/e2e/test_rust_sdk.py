"""The AWS SDK for Rust as a client. It is a crate of its own, because the SDK takes longer to compile than we do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from outside.buckets import MakeBucket
from outside.server import ACCESS_KEY_ID, DELTA, DELTA_SEALED, REGION, ROOT, SECRET_ACCESS_KEY, Mode

CRATE = ROOT / "tests" / "rust-sdk"


@pytest.fixture(scope="session")
def program() -> Path:
    """The crate, built."""
    command = ["cargo", "build", "--quiet", "--locked", "--target-dir", str(CRATE / "target")]
    done = subprocess.run(command, cwd=CRATE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return CRATE / "target" / "debug" / "rust-sdk"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
@pytest.mark.parametrize("check", ["objects", "checksums", "multipart", "listing", "conditions", "copy"])
def test_the_sdk_gets_what_it_expects(
    program: Path, endpoint: str, make_bucket: MakeBucket, check: str, mode: Mode
) -> None:
    arguments = [endpoint, REGION, ACCESS_KEY_ID, SECRET_ACCESS_KEY, make_bucket(mode), check]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

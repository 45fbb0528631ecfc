"""Programs that stand beside the tests, and what they are told of the server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from outside.server import ACCESS_KEY_ID, REGION, ROOT, SECRET_ACCESS_KEY


def go_program(name: str) -> Path:
    """The Go module `tests/NAME`, built."""
    built = ROOT / ".tools" / name
    build = ["go", "build", "-o", str(built), "."]
    done = subprocess.run(build, cwd=ROOT / "tests" / name, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


def sdk_environment(home: Path, endpoint: str | None = None) -> dict[str, str]:
    """The variables that an SDK of AWS reads: keys and region, a home of its own, and the server's address, unless the
    program is told of it otherwise."""
    common = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_REGION": REGION,
    }
    if endpoint is None:
        return common
    return {**common, "AWS_ENDPOINT_URL": endpoint, "AWS_EC2_METADATA_DISABLED": "true"}

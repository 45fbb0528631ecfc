"""The AWS SDK for Go v2: default checksums, trailing checksums of streams, presigned requests, paginators, waiters,
typed errors. A module of its own (`tests/go-sdk/`), because it takes minutes to compile; each of its steps says what it
tries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from foreign.programs import go_program, sdk_environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

STEPS = 8


@pytest.fixture(scope="module")
def program() -> Path:
    """The module, built."""
    return go_program("go-sdk")


def test_every_step_of_the_sdk_gets_what_it_expects(program: Path, endpoint: str, tmp_path: Path) -> None:
    settings = sdk_environment(tmp_path, endpoint)
    command = [str(program), f"go-sdk-{os.getpid()}"]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert len(done.stdout.splitlines()) == STEPS

"""The AWS SDK for Java v2 with its transfer manager: default checksums, streams of known and unknown length, uploads in
parts that are paused and resumed, presigned requests, paginators, waiters, typed errors. Maven brings its jars, and the
program runs from its source (`tests/java-sdk/`); each of its steps says what it tries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from foreign.programs import sdk_environment
from outside.server import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

MODULE = ROOT / "tests" / "java-sdk"
JARS = ROOT / ".tools" / "java-sdk"
STEPS = 9


@pytest.fixture(scope="module")
def jars() -> Path:
    """The SDK and what it needs."""
    assert shutil.which("mvn") and shutil.which("java"), "tests/setup.sh installs Maven and Java"
    wanted = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={JARS}")
    done = subprocess.run(["mvn", "-q", "-B", *wanted], cwd=MODULE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return JARS


def test_every_step_of_the_sdk_gets_what_it_expects(jars: Path, endpoint: str, tmp_path: Path) -> None:
    settings = sdk_environment(tmp_path, endpoint)
    program = ["java", "-cp", f"{jars}/*", str(MODULE / "JavaSdk.java"), f"java-sdk-{os.getpid()}", str(tmp_path)]
    done = subprocess.run(program, env=settings, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert len(done.stdout.splitlines()) == STEPS

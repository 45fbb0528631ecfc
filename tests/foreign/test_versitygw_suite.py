"""versitygw's integration suite: raw requests and the SDK for Go against every operation, signature, checksum and
header. A module of its own (`tests/versitygw-suite/`) runs its cases in one process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from foreign.programs import go_program, sdk_environment
from outside.buckets import NewServer
from outside.server import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

MODULE = ROOT / "tests" / "versitygw-suite"
RIGHT_MIN = 575
"""Cases with the right code and status at least, whatever the words."""
WORDS = "expected error message to be"
"""How a case ends that got the right code and status, in other words than versitygw's."""
OWN_COMMAND = "./versitygw"
"""How one ends that makes users with versitygw's own command."""


def known() -> set[str]:
    """Cases that fail, each listed under its reason."""
    lines = (MODULE / "known.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


@pytest.fixture(scope="module")
def program() -> Path:
    """The module, built."""
    return go_program("versitygw-suite")


def test_every_case_passes_but_those_that_are_known(program: Path, new_server: NewServer, tmp_path: Path) -> None:
    server = new_server(limits={"auth_failures_per_second": 1000}).start()
    settings = sdk_environment(tmp_path)
    results = tmp_path / "results.jsonl"
    command = [str(program), server.endpoint, str(results)]
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in results.read_text().splitlines()]
    failed = {
        each["name"]: each["error"]
        for each in told
        if each["error"] and WORDS not in each["error"] and OWN_COMMAND not in each["error"]
    }
    unexpected = {name: error for name, error in failed.items() if name not in known()}
    assert not unexpected, "\n".join(f"{name}: {error}" for name, error in unexpected.items())
    right = sum(not each["error"] or WORDS in each["error"] for each in told)
    assert right >= RIGHT_MIN, f"{right} of {len(told)}"

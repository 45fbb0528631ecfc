"""Runs campaigns that are tests of the workspace's crates, and reads the lines of JSON that they print."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outside.features import FEATURES

ROOT = Path(__file__).resolve().parent.parent.parent
WORKSPACE = ("--workspace", *FEATURES)
"""All crates, with the features of `make test`: what its build has compiled is there."""
OPTIMIZED = ("--profile", "campaign", *WORKSPACE)
"""The same, optimised, with the assertions of a debug build: for hours that compiling minutes longer makes shorter."""


def lines_of(
    *cargo: str,
    variables: Mapping[str, object],
    arguments: tuple[str, ...] = (),
    timeout_s: float = 3500,
    preexec: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """The lines that `cargo test …cargo -- …arguments` prints with the `variables` in its environment, printed again.
    Fails where a test does."""
    command = ["cargo", "test", "--locked", "-q", *cargo]
    subprocess.run([*command, "--no-run"], cwd=ROOT, check=True)
    run = subprocess.run(
        [*command, "--", "--nocapture", *arguments],
        cwd=ROOT,
        env=os.environ | {name: str(value) for name, value in variables.items()},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        preexec_fn=preexec,
        check=False,
    )
    # The dots of the tests before stand in front of a line.
    told = [line.lstrip(".") for line in run.stdout.splitlines()]
    lines = [json.loads(line) for line in told if line.startswith('{"')]
    for line in lines:
        print(json.dumps(line))
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-8000:]
    return lines

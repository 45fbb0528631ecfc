"""Runs every check of the repository, one after another, and sums up: what `make test` and `make test-all` are.

Each step prints its name and duration; a failing one does not keep the others from running, except setup and build,
without which nothing else means anything. The last line is `N passed, N failed`, counting each test and each check.
Needs nothing but Python itself, because setup is its first step.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outside.features import FEATURES

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv" / "bin"

DENY = ("bans", "licenses", "sources")  # advisories need the database's git repository: `make audit`

OTHER_MODES = [
    f"{compression}-{encryption}-{catalog}"
    for catalog in ("sqlite", "postgresql")
    for compression in ("delta", "off")
    for encryption in ("off", "aes256")
][1:]
"""The modes of the conformance suite (outside/conformance.py) after the first."""

SIDE_BY_SIDE = ("-n", "3", "--dist", "loadscope", "--no-loadscope-reorder")
"""Three files at a time, each process with a shared server of its own: much of a test is waiting."""

CARGO_RESULT = re.compile(r"^test result: \w+\. (?P<passed>\d+) passed; (?P<failed>\d+) failed")
PYTEST_RESULT = re.compile(r"^(?:=+ )?(?P<counts>\d+ (?:passed|failed|error)[^=]*) in [\d.]+s")
PYTEST_COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")


@dataclass(frozen=True)
class Step:
    """One command: where it runs, how long it may take, and whether the rest can go on without it."""

    name: str
    command: Sequence[str]
    timeout_s: int = 600
    folder: Path = ROOT
    essential: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    """More of the environment."""


@dataclass
class Count:
    """Checks that passed and failed."""

    passed: int = 0
    failed: int = 0

    def read(self, line: str) -> None:
        """Takes the figures of a runner's summary line, cargo's or pytest's."""
        if found := CARGO_RESULT.match(line):
            self.passed += int(found["passed"])
            self.failed += int(found["failed"])
        elif found := PYTEST_RESULT.match(line):
            for number, word in PYTEST_COUNT.findall(found["counts"]):
                if word == "passed":
                    self.passed += int(number)
                else:
                    self.failed += int(number)


def steps(long: bool) -> list[Step]:
    """What is checked, cheapest first; `long` adds the campaigns of minutes and gigabytes."""
    locked = ("--workspace", "--locked", *FEATURES)
    pytest = (str(VENV / "python"), "-m", "pytest", "--color=no")
    plan = [
        Step("setup", ("tests/setup.sh",), timeout_s=900, essential=True),
        Step("rustfmt", ("cargo", "fmt", "--all", "--check")),
        Step("rustfmt rust-sdk", ("cargo", "fmt", "--check"), folder=ROOT / "tests" / "rust-sdk"),
        Step("clippy", ("cargo", "clippy", *locked, "--all-targets", "--", "-D", "warnings"), timeout_s=1200),
        Step("cargo deny", (str(ROOT / ".tools" / "bin" / "cargo-deny"), "--locked", "--all-features", "check", *DENY)),
        Step("ruff", (str(VENV / "ruff"), "check", "tests", "docs", "grafana", "release")),
        Step("mypy tests", (str(VENV / "mypy"), "tests")),
        Step("mypy docs/format", (str(VENV / "mypy"), "docs/format")),
        Step("mypy grafana", (str(VENV / "mypy"), "grafana")),
        Step("mypy release", (str(VENV / "mypy"), "release/sbom.py")),
        Step("mypy docs/benchmark", (str(VENV / "mypy"),), folder=ROOT / "docs" / "benchmark"),
        Step("threats", (str(VENV / "python"), "-m", "threats"), folder=ROOT / "tests"),
        # The server, too: as a step of its own it would have other features, and half of the crates be compiled twice.
        Step("build", ("cargo", "test", *locked, "--no-run"), timeout_s=1500, essential=True),
        Step("cargo test", ("cargo", "test", *locked, "--no-fail-fast"), timeout_s=1200),
        Step("build rust-sdk", ("cargo", "build", "--locked"), timeout_s=900, folder=ROOT / "tests" / "rust-sdk"),
        Step("pytest docs/format", (*pytest, "docs/format")),
        Step("pytest docs/benchmark", (*pytest, *SIDE_BY_SIDE, "tests"), folder=ROOT / "docs" / "benchmark"),
        Step("pytest tests", (*pytest, *SIDE_BY_SIDE, "-m", "not long", "--durations=15", "tests"), timeout_s=2400),
        Step(
            "pytest tests/e2e through nginx and three replicas",
            (str(VENV / "python"), "-m", "cluster", *pytest, *SIDE_BY_SIDE, "-m", "not long", "e2e"),
            folder=ROOT / "tests",
        ),
    ]
    plan += conformance(long, pytest)
    if long:
        plan.append(Step("pytest tests, long", (*pytest, "-m", "long", "tests"), timeout_s=7200))
    return plan


def conformance(long: bool, pytest: Sequence[str]) -> list[Step]:
    """The conformance suite in every mode but the first, which "pytest tests" runs: the cases that move content, or
    with `long` all."""
    cases = "conformance" if long else "conformance and data_path and not long"
    return [
        Step(
            f"conformance {mode}",
            (*pytest, "-m", cases, "tests/e2e", "tests/conformance"),
            timeout_s=1800,
            settings={"DELTAWEIR_TEST_MODE": mode},
        )
        for mode in OTHER_MODES
    ]


def environment() -> dict[str, str]:
    """The caller's environment without what would make a run differ from one machine to the next."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("DELTAWEIR_", "AWS_", "RUSTFLAGS"))
    }
    return kept | {
        "CARGO_TERM_COLOR": "never",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def run(step: Step, total: Count) -> bool:
    """Runs one step in a process group of its own, passes its output on, ends whatever it leaves behind."""
    print(f"\n=== {step.name}: {' '.join(map(str, step.command))}", flush=True)
    started, cpu_before_s = time.monotonic(), cpu_of_children_s()
    count = Count()
    process = subprocess.Popen(
        step.command,
        cwd=step.folder,
        env=environment() | step.settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    too_long = threading.Timer(step.timeout_s, end, (process.pid,))
    too_long.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            count.read(line)
        code = process.wait()
    finally:
        timed_out = not too_long.is_alive()
        too_long.cancel()
        end(process.pid)
    took_s, cpu_s = time.monotonic() - started, cpu_of_children_s() - cpu_before_s
    good = code == 0 and count.failed == 0
    if count.passed + count.failed == 0 or (not good and count.failed == 0):
        count.passed, count.failed = (count.passed + 1, 0) if good else (count.passed, 1)
    total.passed += count.passed
    total.failed += count.failed
    verdict = "ok" if good else f"FAILED (exit {code}{', timed out' if timed_out else ''})"
    print(f"--- {step.name}: {verdict}, {took_s:.1f} s, {cpu_s:.0f} s of CPU", flush=True)
    return good


def cpu_of_children_s() -> float:
    """CPU seconds of every child that has ended, and of theirs that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def end(group: int) -> None:
    """Ends a step's process group; that it has ended already is the usual case."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="also the campaigns of minutes and gigabytes")
    parser.add_argument("--only", help="only steps whose name contains this; setup always runs")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    total = Count()
    failed: list[str] = []
    for step in steps(arguments.long):
        if arguments.only and arguments.only not in step.name and step.name != "setup":
            continue
        if not run(step, total):
            failed.append(step.name)
            if step.essential:
                break
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    print(f"\ntook {time.monotonic() - started:.0f} s")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

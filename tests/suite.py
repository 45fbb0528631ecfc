"""Runs every check of the repository and sums up: what `make test` and `make test-all` are.

Steps that leave a core idle run beside others, in lanes. Each step prints its name and duration; a failing one does not
keep the others from running, except setup and build, without which nothing else means anything. The last line is
`N passed, N failed`, counting each test and each check. Needs nothing but Python itself, because setup is among its
first steps.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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

RUNNING: set[int] = set()
"""The process groups of the steps under way."""
STOPPED = threading.Event()
"""Nobody waits for the rest."""

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


Lane = list[Step]
"""Steps that run one after another."""


def stages(long: bool) -> list[list[Lane]]:
    """What is checked, cheapest first: stages one after another, each with lanes that run beside each other. The first
    lane of a stage prints what it says at once, another when a step of it has ended. `long` adds the campaigns of
    minutes and gigabytes."""
    locked = ("--workspace", "--locked", *FEATURES)
    pytest = (str(VENV / "python"), "-m", "pytest", "--color=no")
    written = [
        Step("cargo deny", (str(ROOT / ".tools" / "bin" / "cargo-deny"), "--locked", "--all-features", "check", *DENY)),
        Step("ruff", (str(VENV / "ruff"), "check", "tests", "docs", "grafana", "release")),
        Step("mypy tests", (str(VENV / "mypy"), "tests")),
        Step("mypy docs/format", (str(VENV / "mypy"), "docs/format")),
        Step("mypy grafana", (str(VENV / "mypy"), "grafana")),
        Step("mypy release", (str(VENV / "mypy"), "release/sbom.py")),
        Step("mypy docs/benchmark", (str(VENV / "mypy"),), folder=ROOT / "docs" / "benchmark"),
        Step("threats", (str(VENV / "python"), "-m", "threats"), folder=ROOT / "tests"),
    ]
    compiled = [
        Step("rustfmt", ("cargo", "fmt", "--all", "--check")),
        Step("rustfmt rust-sdk", ("cargo", "fmt", "--check"), folder=ROOT / "tests" / "rust-sdk"),
        Step("clippy", ("cargo", "clippy", *locked, "--all-targets", "--", "-D", "warnings"), timeout_s=1800),
    ]
    # The server, too: as a step of its own it would have other features, and half of the crates be compiled twice.
    build = [Step("build", ("cargo", "test", *locked, "--no-run"), timeout_s=1500, essential=True)]
    # Much of a test is waiting: those within a process and those from outside run beside each other.
    in_process = [Step("cargo test", ("cargo", "test", *locked, "--no-fail-fast"), timeout_s=2400)]
    beside = [
        Step("pytest docs/format", (*pytest, "docs/format")),
        Step("pytest docs/benchmark", (*pytest, *SIDE_BY_SIDE, "tests"), folder=ROOT / "docs" / "benchmark"),
        *conformance(long, pytest),
    ]
    outside = [
        Step("pytest tests", (*pytest, *SIDE_BY_SIDE, "-m", "not long", "--durations=15", "tests"), timeout_s=2400),
        Step(
            "pytest tests/e2e through nginx and three replicas",
            (str(VENV / "python"), "-m", "cluster", *pytest, *SIDE_BY_SIDE, "-m", "not long", "e2e"),
            folder=ROOT / "tests",
        ),
    ]
    campaigns = [Step("pytest tests, long", (*pytest, "-m", "long", "tests"), timeout_s=7200)]
    # A compiler for C is among the packages.
    packages = [Step("setup of packages", ("tests/setup.sh", "packages"), timeout_s=900, essential=True)]
    setup = Step("setup", ("tests/setup.sh",), timeout_s=900, essential=True)
    tests = [outside, in_process, beside]
    return [[packages], [[setup, *written], compiled], [build], tests, *([[campaigns]] if long else [])]


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


@dataclass(frozen=True)
class Result:
    """How a step ended."""

    step: Step
    good: bool
    count: Count


def run(step: Step, say: Callable[[str], None]) -> Result:
    """Runs one step in a process group of its own, passes its output on, ends whatever it leaves behind."""
    say(f"\n=== {step.name}: {' '.join(map(str, step.command))}\n")
    started = time.monotonic()
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
    RUNNING.add(process.pid)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            say(line)
            count.read(line)
        # Of this child and of those that it waited for: others run beside it.
        _, status, used = os.wait4(process.pid, 0)
        code = process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        timed_out = not too_long.is_alive()
        too_long.cancel()
        end(process.pid)
        RUNNING.discard(process.pid)
    took_s, cpu_s = time.monotonic() - started, used.ru_utime + used.ru_stime
    good = code == 0 and count.failed == 0
    if count.passed + count.failed == 0 or (not good and count.failed == 0):
        count.passed, count.failed = (count.passed + 1, 0) if good else (count.passed, 1)
    verdict = "ok" if good else f"FAILED (exit {code}{', timed out' if timed_out else ''})"
    say(f"--- {step.name}: {verdict}, {took_s:.1f} s, {cpu_s:.0f} s of CPU\n")
    return Result(step, good, count)


def run_lane(lane: Lane, at_once: bool) -> list[Result]:
    """Runs steps one after another, up to an essential one that fails. Prints what a step says `at_once`, or when the
    step has ended."""
    results = []
    for step in lane:
        said: list[str] = []
        result = run(step, write if at_once else said.append)
        write("".join(said))
        results.append(result)
        if STOPPED.is_set() or (step.essential and not result.good):
            break
    return results


def write(text: str) -> None:
    """In one piece, so that lanes do not cut each other's lines."""
    sys.stdout.write(text)
    sys.stdout.flush()


def end(group: int) -> None:
    """Ends a step's process group; that it has ended already is the usual case."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def stop() -> None:
    """Ends the steps under way, and no other begins."""
    STOPPED.set()
    for group in list(RUNNING):
        end(group)


def is_wanted(step: Step, only: str | None) -> bool:
    """Whether its name contains `only`; setup is always wanted."""
    return not only or only in step.name or step.name.startswith("setup")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="also the campaigns of minutes and gigabytes")
    parser.add_argument("--only", help="only steps whose name contains this; setup always runs")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    total = Count()
    failed: list[str] = []
    for stage in stages(arguments.long):
        lanes = [[step for step in lane if is_wanted(step, arguments.only)] for lane in stage]
        with ThreadPoolExecutor(len(lanes)) as beside:
            try:
                ended = list(beside.map(run_lane, lanes, [number == 0 for number in range(len(lanes))]))
            except (KeyboardInterrupt, SystemExit):
                stop()
                raise
        results = [result for lane in ended for result in lane]
        total.passed += sum(result.count.passed for result in results)
        total.failed += sum(result.count.failed for result in results)
        bad = [result.step for result in results if not result.good]
        failed += [step.name for step in bad]
        if any(step.essential for step in bad):
            break
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    print(f"\ntook {time.monotonic() - started:.0f} s")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m speedbench run|compare`: measure this build, then hold it against the committed baseline."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path

from speedbench import console, macro, micro, verdict
from speedbench.results import Measurement, Results, merge
from taxbench import machine
from taxbench.bundle import write_json
from taxbench.client.pool import WorkerPool
from taxbench.commands.compare import print_comparison
from taxbench.progress import Reporter
from taxbench.servers.deltaweir import REPOSITORY
from taxbench.servers.target import TargetError
from taxbench.studies.bench import StudyError

BASELINE = REPOSITORY / "docs" / "benchmark" / "baseline" / "speed.json"
RESULTS = REPOSITORY / "results" / "speed" / "results.json"
SEED = 20_260_101


def main(arguments: list[str] | None = None) -> int:
    """0 when all went well, 1 when something is worse than the baseline, 2 when it could not be said."""
    options = parser().parse_args(arguments)
    try:
        return run(options) if options.command == "run" else compare(options)
    except (micro.MicroError, TargetError, StudyError, OSError, ValueError) as error:
        print(f"speedbench: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="speedbench", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    run_ = commands.add_parser("run", help="measure this build and write the results as JSON")
    run_.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    run_.add_argument("--runs", type=int, default=1, help="whole runs to merge; a baseline takes more than one")
    run_.add_argument("--rounds", type=int, default=5, help="rounds of the server per run")
    run_.add_argument("--only", choices=("micro", "macro", "console"), help="one part of it")
    objects = f"objects of the store that the console is opened over (default: {console.OBJECTS})"
    run_.add_argument("--objects", type=int, default=console.OBJECTS, help=objects)
    run_.add_argument("--binary", default="", help="the server to drive (default: the release build)")
    run_.add_argument("--json", action="store_true", help="no progress")
    compare_ = commands.add_parser("compare", help="ratios against the baseline; exit code 1 when something is worse")
    compare_.add_argument("results", type=Path, nargs="?", default=RESULTS)
    compare_.add_argument("--baseline", type=Path, default=BASELINE)
    compare_.add_argument("--json", action="store_true", help="print one JSON document")
    return top


def run(options: argparse.Namespace) -> int:
    reporter = Reporter(options.json)
    results = merge([measure(options, reporter) for _ in range(options.runs)])
    write_json(options.out, results)
    reporter.say(f"{len(results.measurements)} measurements: {options.out}")
    return 0


def measure(options: argparse.Namespace, reporter: Reporter) -> Results:
    """One whole run."""
    noise = machine.NoiseMeter.begin()
    ours_s = _children_cpu_s()
    measurements: list[Measurement] = []
    server: dict[str, str] = {}
    if options.only in (None, "micro"):
        measurements += micro.run(reporter)
    if options.only in (None, "macro"):
        measured, server = macro.run(reporter, options.binary, options.rounds, SEED, macro.Load())
        measurements += measured
    if options.only in (None, "console"):
        opened = console.run(reporter, options.binary, options.objects)
        for line in console.slow(opened):
            reporter.say(line)
        measurements += opened
    noise.add_ours(_children_cpu_s() - ours_s)
    return Results(
        commit=_commit(),
        server=server,
        machine=machine.facts(REPOSITORY),
        noise=noise.read(),
        measurements=measurements,
    )


def compare(options: argparse.Namespace) -> int:
    for path, advice in ((options.baseline, "make bench-baseline"), (options.results, "make bench")):
        if not path.is_file():
            raise ValueError(f"there is no {path}; `{advice}` writes it")
    baseline, results = Results.read(options.baseline), Results.read(options.results)
    comparison = verdict.compare(baseline, results)
    if options.json:
        print(comparison.model_dump_json())
    else:
        print_comparison(comparison)
        for name in verdict.missing(baseline, results):
            print(f"not measured: {name}")
        if not verdict.quiet(results.noise):
            print("the machine was busy: speeds are shown, not judged")
    return 1 if comparison.regressed else 0


def _children_cpu_s() -> float:
    """CPU seconds of ours and of every process that was ours and has ended, the client's workers included."""
    seconds = WorkerPool.ended_cpu_s
    for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(whose)
        seconds += usage.ru_utime + usage.ru_stime
    return seconds


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


if __name__ == "__main__":
    sys.exit(main())

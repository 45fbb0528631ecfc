"""`pin`: keep a run in the repository, and write its ratios into READMEs, so that no number there is typed by hand."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from taxbench import summarize
from taxbench.bundle import Bundle, BundleError, opened
from taxbench.report import markdown
from taxbench.runner import UsageError
from taxbench.summary import Finding, Summary

BEGIN, END = "<!-- taxbench:begin -->", "<!-- taxbench:end -->"
LEFT_OUT = ("report.html",)
"""Large and drawn again in a second: `taxbench html-report`."""


def add(commands: Any) -> None:
    parser = commands.add_parser("pin", help="keep a run's bundle and write its ratios into READMEs")
    parser.add_argument("bundle", type=Path, help="results directory or archive")
    parser.add_argument("--into", type=Path, help="directory that keeps the bundle as <run-id>.tgz")
    parser.add_argument("--readme", type=Path, action="append", default=[], help=f"file with a {BEGIN} block")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a README says something else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with opened(options.bundle) as bundle:
        summary = summarize.summarize(bundle)
        if summary.fatal:
            raise UsageError(f"{options.bundle} has fatal findings: its numbers may not be used")
        if options.into is not None and not options.check:
            print(keep(bundle, options.into))
    stale = []
    for readme in options.readme:
        before = readme.read_text()
        after = with_block(before, block(summary), readme)
        if before != after:
            stale.append(readme)
            if not options.check:
                readme.write_text(after)
    for readme in stale:
        print(f"{readme}: {'says something else than the run' if options.check else 'written'}")
    return 1 if options.check and stale else 0


def keep(bundle: Bundle, into: Path) -> Path:
    """Packs the bundle without its page into `into`; gives the archive."""
    into.mkdir(parents=True, exist_ok=True)
    name = bundle.environment().run_id
    with tempfile.TemporaryDirectory(prefix="taxbench-pin-") as scratch:
        copy = Path(scratch) / name
        shutil.copytree(bundle.root, copy, ignore=shutil.ignore_patterns(*LEFT_OUT, "*.tgz", "manifest.sha256"))
        return Path(shutil.copy(Bundle(copy).seal(), into / f"{name}.tgz"))


def block(summary: Summary) -> str:
    """What a README says of a run: where it ran, its conditions, and ratios. No absolute speed."""
    environment = summary.environment
    build = {facts.get("build", "") for facts in environment.servers.values()} - {""}
    machine = f"{environment.machine.cpu_model}, {environment.machine.cpu_count} CPUs"
    lines = [
        f"Run `{summary.run_id}`, {environment.started_at[:10]}, {machine}, "
        f"{', '.join(sorted(build)) or 'unknown'} build, {environment.trials} trials "
        f"over {summary.artifacts} objects ({summary.logical_bytes / 1e6:.0f} MB).",
    ]
    lines += conditions(summary)
    lines += [
        "",
        "Speeds relative to passthrough, stored bytes relative to logical ones; medians with 95 % intervals.",
        "",
    ]
    return "\n".join([*lines, *markdown.headline_table(summary.headline)])


def conditions(summary: Summary) -> list[str]:
    """A sentence for each kind of finding a reader of ratios must know; where it is one of a cell, with the cells."""
    by_code: dict[str, list[Finding]] = {}
    for finding in summary.findings:
        if finding.severity in ("unpublishable", "label"):
            by_code.setdefault(finding.code, []).append(finding)
    sentences = []
    for code, same in by_code.items():
        cells = list(dict.fromkeys(finding.where for finding in same if finding.where))
        if len(cells) > 1:
            sentences.append(f"*Labelled `{code}`: {', '.join(cells)}.*")
        else:
            sentences += [f"*{message[0].upper()}{message[1:]}.*" for message in dict.fromkeys(f.message for f in same)]
    return sentences


def with_block(text: str, content: str, name: Path) -> str:
    """The text with what stands between its markers replaced.

    # Errors
    `BundleError` when the markers are not there, once and in order.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in tail:
        raise BundleError(f"{name} has no single {BEGIN} … {END} block")
    return f"{head}{BEGIN}\n{content}\n{END}{tail}"

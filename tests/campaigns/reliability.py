"""Runs the campaigns one after another, and makes docs/reliability.md of the JSON lines that they print.

    python -m campaigns.reliability run [--share 0.1] [NAME…]   runs, notes the lines, writes the page
    python -m campaigns.reliability page                        writes the page again

A campaign that could not run is listed as that, never as passed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaigns import promises

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
COUNTS = ("ops", "uploads", "healed")
"""How often something was injected or tried, as campaigns call it."""
HARM = (
    "lost",
    "torn",
    "resurrected",
    "wrong",
    "disorder",
    "acked_unsynced",
    "stuck",
    "not_taken",
    "bytes_over_memory",
    "error_read_as_absent",
    "unexpected",
    "overwritten",
    "orphans",
    "errors",
    "panics",
    "probes_failed",
    "hits",
)
"""What must come out as zero."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Campaign:
    """What is run, and what it does to the store."""

    name: str
    injected: str
    select: tuple[str, ...]
    build: tuple[str, ...] = ()
    """What cargo builds for it, besides the program."""
    is_whole: bool = False
    """Whether all of it runs, whatever share was asked for."""


HERE = "tests/campaigns"
CAMPAIGNS = (
    Campaign(
        "forked catalog",
        "a database fails over to a standby 40 writes behind, or is put back from a copy, under two replicas; then "
        "both histories are merged",
        (f"{HERE}/test_forked_catalog.py",),
        is_whole=True,
    ),
    Campaign(
        "catalog rot",
        "one flipped bit in the catalog's file, every second one in a blob's id",
        (f"{HERE}/test_rot.py", "-k", "flipped_bits"),
    ),
    Campaign(
        "damaged units",
        "one damaged stored unit: a flipped bit, or one with its dependents",
        (f"{HERE}/test_rot.py", "-k", "damaged_units"),
    ),
    Campaign(
        "failing store",
        "errors, throttling, timeouts, resets, short bodies, lost answers, repeated requests, stale listings",
        (f"{HERE}/test_faulty_backend.py",),
    ),
    Campaign(
        "full disk", "a disk is filled to its last byte or inode under a running server", (f"{HERE}/test_full_disk.py",)
    ),
    Campaign(
        "slow uploads",
        "uploads of twenty users at 8 kB/s for ten minutes, memory bounded",
        (f"{HERE}/test_slow_uploads.py",),
    ),
    Campaign(
        "linearizability",
        "replicas are killed and stopped, the database restarts, the store dies, while clients write the same keys",
        (f"{HERE}/linearizability/test_runs.py", "-k", "linearizable or stale_cache"),
        ("--features", "mutant-stale-cache", "--bin", "deltaweir-mutant"),
    ),
    Campaign(
        "models",
        "every order of what collector, job leases and journal do, small bounds made whole",
        (f"{HERE}/test_models.py",),
        is_whole=True,
    ),
    Campaign(
        "floods",
        "one user on one peer: idle connections, slow uploads, readers that hardly read, wrong signatures and tokens, "
        "thousands of open uploads, all at once",
        (f"{HERE}/test_floods.py",),
    ),
    Campaign(
        "canaries",
        "canaries in content, metadata, keys and tokens; backend, catalog, spool, log at TRACE, metrics and dumps are "
        "searched",
        (f"{HERE}/test_canaries.py",),
    ),
    Campaign(
        "forging",
        "documents that a recovery reads are forged: unsealed, replayed, cut, swapped, flipped, another store's, of a "
        "newer or a saturated generation",
        (f"{HERE}/test_forging.py",),
    ),
    Campaign("guessing", "one tenant guesses another's content", (f"{HERE}/test_guessing.py",)),
    Campaign(
        "simulator",
        "three replicas die, stand still and race over a store and a database that fail; the database goes back",
        (f"{HERE}/test_simulator.py", "-k", "seeds"),
    ),
    Campaign(
        "points",
        "a working process dies at each call to its store and its database, before it is carried out and after",
        (f"{HERE}/test_simulator.py", "-k", "death"),
    ),
    Campaign(
        "rotation",
        "the KEK is rotated over many blobs while clients read and write",
        (f"{HERE}/test_rotation.py",),
    ),
    Campaign(
        "heat",
        "a delta of a gigabyte is downloaded again and again in ranges, and then left alone",
        (f"{HERE}/test_heat.py",),
    ),
    Campaign(
        "failing syncs",
        "one fsync of a working server fails with EIO, then it is killed",
        (f"{HERE}/test_system_calls.py", "-k", "sync_failed"),
    ),
    Campaign(
        "failing system calls",
        "one write, open, link, removal or read of a working server fails, then it is killed",
        (f"{HERE}/test_system_calls.py", "-k", "tears"),
    ),
    Campaign("soak", "every job again and again under mixed load for two hours", (f"{HERE}/test_soak.py",)),
    Campaign(
        "lost files",
        "one file of a local store is removed: each blob, pack, copy, keyset and document of the recovery in turn, and "
        "the catalog",
        (f"{HERE}/test_lost_files.py",),
    ),
    Campaign(
        "idle store",
        "nothing: a store of a million blobs is restarted and left alone for an hour, and listings are counted",
        (f"{HERE}/test_idle_store.py",),
        ("--example", "fill_store"),
    ),
    Campaign("collector", "every object is deleted, and collected at once", (f"{HERE}/test_collector.py",)),
    Campaign(
        "conversion",
        "the server is killed while it opens the streams of releases",
        (f"{HERE}/test_conversion.py",),
    ),
    Campaign(
        "containers",
        "damaged, nested and overlapping zip, gzip and PNG files, and bombs",
        (f"{HERE}/test_mutated_containers.py",),
    ),
)


def json_lines(text: str) -> list[Line]:
    """The objects at the ends of lines of output; a test's name may stand before one. The source that pytest shows of
    a test that failed has others, and comes last."""
    found: list[Line] = []
    for line in text.partition("= FAILURES =")[0].splitlines():
        start = line.find('{"')
        try:
            value = json.loads(line[start:]) if start >= 0 else None
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def run(campaign: Campaign, share: float) -> Line:
    """One campaign, and what became of it."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-v", "-s", "-rs", "--color=no", "--timeout=3600", *campaign.select]
    if campaign.build:
        subprocess.run(["cargo", "build", "--locked", "-q", "-p", "proxy", *campaign.build], cwd=ROOT, check=True)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"CAMPAIGN_SHARE": str(share)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no output"
    outcome = "passed" if done.returncode == 0 and " passed" in last else "failed"
    if "passed" not in last and "failed" not in last and "skipped" in last:
        outcome = "not run"
    if outcome != "passed":
        print(done.stdout[-4000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {
        "campaign": campaign.name,
        "share": share,
        "outcome": outcome,
        "pytest": last.strip("= "),
        "seconds": round(time.monotonic() - began),
        "commit": commit.stdout.strip(),
        "day": datetime.now(UTC).date().isoformat(),
        "lines": json_lines(done.stdout),
    }


def results() -> list[Line]:
    """What was noted, in the order of the campaigns."""
    noted: list[Line] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    order = [campaign.name for campaign in CAMPAIGNS]
    return sorted(noted, key=lambda result: order.index(result["campaign"]))


def came_out(lines: list[Line]) -> str:
    """The sums of what must be zero, as far as the lines tell."""
    sums: Counter[str] = Counter()
    told = [name for name in HARM if any(name in line for line in lines)]
    for line in lines:
        sums.update({name: int(line.get(name, 0)) for name in told})
    return ", ".join(f"{name.replace('_', ' ')} {sums[name]}" for name in told) or "all whole"


def row(result: Line) -> str:
    """A line of the table."""
    campaign = next(campaign for campaign in CAMPAIGNS if campaign.name == result["campaign"])
    lines: list[Line] = result["lines"]
    counted = sum(int(line[name]) for line in lines for name in COUNTS if name in line)
    mutants = [line["mutant_detected"] for line in lines if "mutant_detected" in line]
    caught = f"{sum(mutants)} of {len(mutants)}" if mutants else "none is run"
    harm = came_out(lines) if lines else result["pytest"]
    outcome = harm if result["outcome"] == "passed" else f"**{result['outcome']}**: {harm}"
    share = f"{1.0 if campaign.is_whole else float(result['share']):.0%}".replace("%", " %")
    cells = [campaign.name, campaign.injected, f"{counted:,}", share, outcome, caught, f"`{result['commit']}`"]
    return f"| {' | '.join(cells)} |"


def page(noted: list[Line]) -> str:
    """The page."""
    missing = [campaign for campaign in CAMPAIGNS if campaign.name not in {result["campaign"] for result in noted}]
    text = [
        "# Reliability",
        "",
        "Each campaign breaks something on purpose, many times, and counts the damage. A mutant, which is a build",
        "with a deliberate bug, shows that the campaign would notice. `make reliability` runs the campaigns at a",
        "tenth of their size and makes this page; `make campaigns` runs all of each. The lines come from",
        "[reliability.json](reliability.json). If you do not find a commit, it was rebased after the run.",
        "",
        "| campaign | injected | how often | of its size | came out | mutants caught | commit |",
        "| --- | --- | ---: | ---: | --- | --- | --- |",
        *(row(result) for result in noted),
        *(f"| {campaign.name} | {campaign.injected} | 0 | 0 % | not run | none is run | |" for campaign in missing),
        "",
        *promises.table(),
        "## The lines",
        "",
        "```",
        *(json.dumps(line) for result in noted for line in result["lines"]),
        "```",
        "",
    ]
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("page", help="make the page of what was noted")
    running = actions.add_parser("run", help="run campaigns, all of them unless some are named")
    running.add_argument("--share", type=float, default=0.1, help="how much of each")
    running.add_argument("names", nargs="*", choices=[[], *(campaign.name for campaign in CAMPAIGNS)])
    arguments = parser.parse_args()
    failed = False
    if arguments.action == "run":
        for campaign in CAMPAIGNS:
            if arguments.names and campaign.name not in arguments.names:
                continue
            result = run(campaign, arguments.share)
            print(json.dumps(result), flush=True)
            failed |= result["outcome"] == "failed"
            kept = [other for other in results() if other["campaign"] != campaign.name]
            RESULTS.write_text(json.dumps([*kept, result], indent=1) + "\n")
    RESULTS.write_text(json.dumps(results(), indent=1) + "\n")
    PAGE.write_text(page(results()))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

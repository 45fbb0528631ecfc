"""`artifacts`: make or fetch the objects of a study and pin them in a manifest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from taxbench.artifacts import sources
from taxbench.commands import flags
from taxbench.profiles import PROFILES
from taxbench.progress import Reporter
from taxbench.report.numbers import size


def add(commands: Any) -> None:
    parser = commands.add_parser("artifacts", help="make or fetch the objects and write their manifest")
    flags.add_artifact_flags(parser)
    parser.add_argument("--profile", choices=sorted(PROFILES), default="quick", help="size of synthetic artifacts")
    parser.add_argument("--seed", type=int, default=20_231_107, help="seed of synthetic artifacts")
    flags.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    reporter = Reporter(quiet=options.json)
    place = options.data_dir or Path(".bench-data") / options.artifact_source
    manifest, root = sources.prepare(options, place, reporter)
    if options.json:
        print(manifest.model_dump_json())
        return 0
    for family, members in manifest.families.items():
        total = sum(a.size for a in members)
        print(f"{family}: {len(members)} versions, {size(total)}, {members[0].expectation}")
    print(
        f"{len(manifest.artifacts)} artifacts, {size(manifest.logical_bytes)}, digest "
        f"{manifest.digest()[:16]} in {root}"
    )
    return 0

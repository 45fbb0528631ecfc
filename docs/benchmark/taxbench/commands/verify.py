"""`verify`: is a bundle whole, and does its summary follow from its raw files?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from taxbench import summarize
from taxbench.bundle import Bundle, BundleError, opened
from taxbench.commands import flags
from taxbench.progress import Reporter


def add(commands: Any) -> None:
    parser = commands.add_parser("verify", help="check a bundle's digests and compute its summary again")
    parser.add_argument("bundle", type=Path, help="results directory or archive")
    flags.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with Reporter(options.json).steps_bar("verifying", 1) as bar, opened(options.bundle) as bundle:
        wrong = problems(bundle)
        bar.advance(1)
    if options.json:
        print(json.dumps({"bundle": str(options.bundle), "problems": wrong}))
    else:
        for line in wrong:
            print(line)
        print("bundle is whole and says what its raw files say" if not wrong else f"{len(wrong)} problems")
    return 1 if wrong else 0


def problems(bundle: Bundle) -> list[str]:
    """Everything that is wrong with a bundle: digests, schema, and a summary that does not follow."""
    wrong = bundle.check_digests()
    try:
        computed = summarize.summarize(bundle).model_dump_json()
    except (BundleError, ValidationError) as error:
        return [*wrong, f"the raw files cannot be read: {str(error)[:300]}"]
    stored = bundle.root / "summary.json"
    if not stored.is_file():
        return [*wrong, "summary.json is missing"]
    for path in differences(json.loads(stored.read_text()), json.loads(computed)):
        wrong.append(f"summary.json does not follow from the raw files at {path}")
    return wrong


def differences(stored: Any, computed: Any, path: str = "$") -> list[str]:
    """Paths at which two JSON values differ; numbers may differ in their last digits between library versions."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        return [
            d
            for k in sorted(stored.keys() | computed.keys())
            for d in differences(stored.get(k), computed.get(k), f"{path}.{k}")
        ]
    if isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        return [
            d for n, (s, c) in enumerate(zip(stored, computed, strict=True)) for d in differences(s, c, f"{path}[{n}]")
        ]
    numbers = isinstance(stored, (int, float)) and isinstance(computed, (int, float))
    if numbers and abs(stored - computed) <= 1e-6 * max(abs(stored), abs(computed), 1e-9):
        return []
    return [] if stored == computed else [path]

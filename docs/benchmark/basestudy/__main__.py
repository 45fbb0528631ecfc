"""`python -m basestudy`: fetch, shuffle, put, judge; writes result.json and report.md.

Unfair about it: packages are whole families by design, so most objects have a good base somewhere; names are the
registries' own, which helps a choice by name (`--opaque` takes that away); and the best choice is found with one window
of at most 128 MiB, as the engine has it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from basestudy.data import Object, fetch
from basestudy.study import Put, Verdict, judge, worst

ROOT = Path(__file__).resolve().parents[3]


def machine_facts() -> dict[str, object]:
    """What the times depend on; the sizes depend on nothing but data, seed and commit."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def keyed(objects: list[Object], opaque: bool) -> list[tuple[str, str, Path]]:
    """Package, key and path. Opaque keys say nothing: only content leads to a base."""
    if not opaque:
        return [(item.package, item.key, item.path) for item in objects]
    return [(item.package, f"{index * 2654435761 % 2**32:08x}/data", item.path) for index, item in enumerate(objects)]


def run(example: Path, objects: list[tuple[str, str, Path]]) -> list[Put]:
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as listing:
        listing.writelines(f"{package}\t{key}\t{path}\n" for package, key, path in objects)
        listing.flush()
        puts: list[Put] = []
        with subprocess.Popen([str(example), listing.name], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                puts.append(Put.parse(json.loads(line)))
                print(f"\r{len(puts)} of {len(objects)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        if process.returncode != 0:
            raise SystemExit(f"{example.name} ended with {process.returncode}")
        return puts


def markdown(verdict: Verdict, puts: list[Put], machine: dict[str, object], seed: int, opaque: bool) -> str:
    lines = [
        f"# Base choice: {verdict.objects} objects of {verdict.packages} packages",
        "",
        f"Shuffled with seed {seed} into one bucket, {'opaque keys' if opaque else 'the registries names as keys'}; "
        + ", ".join(f"{name} {value}" for name, value in machine.items())
        + ".",
        "",
        "| | bytes | stored is so many times it |",
        "| --- | ---: | ---: |",
        f"| logical | {verdict.logical_bytes:,} | {verdict.stored_bytes / verdict.logical_bytes:.4f} |",
        f"| each alone (zstd or raw) | {verdict.alone_bytes:,} | {verdict.stored_bytes / verdict.alone_bytes:.4f} |",
        f"| **stored by the engine** | {verdict.stored_bytes:,} | 1 |",
        f"| best of what the engine held whole | {verdict.best_held_bytes:,} | {verdict.over_best_held:.4f} |",
        f"| best with depth 1, every choice tried | {verdict.best_whole_bytes:,} | {verdict.over_best_whole:.4f} |",
        f"| best of every earlier object, any depth | {verdict.best_any_bytes:,} | {verdict.over_best_any:.4f} |",
        "",
        "Stored bytes include headers, tables and sketches; the sizes beside them are codec output alone.",
        "",
        "Most lost against the best of every earlier object:",
        "",
        "| key | form | reason | stored | best | alone |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for loss, put in worst(puts, 12):
        best = put.stored_bytes - loss
        lines.append(
            f"| {put.key} | {put.form} | {put.reason} | {put.stored_bytes:,} | {best:,} | {put.alone_bytes:,} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="basestudy", description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / ".bench-data" / "bases", help="where fetched files stay")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "bases")
    parser.add_argument("--example", type=Path, default=ROOT / "target" / "release" / "examples" / "base_study")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--opaque", action="store_true", help="keys that say nothing: only content leads to a base")
    options = parser.parse_args()
    objects = fetch(options.data)
    random.Random(options.seed).shuffle(objects)
    puts = run(options.example, keyed(objects, options.opaque))
    verdict, machine = judge(puts), machine_facts()
    name = "opaque" if options.opaque else "named"
    options.results.mkdir(parents=True, exist_ok=True)
    figures = {
        **asdict(verdict),
        "over_best_held": verdict.over_best_held,
        "over_best_whole": verdict.over_best_whole,
        "over_best_any": verdict.over_best_any,
    }
    document = {"seed": options.seed, "keys": name, "machine": machine, "verdict": figures}
    document["puts"] = [asdict(put) for put in puts]
    (options.results / f"{name}.json").write_text(json.dumps(document) + "\n", encoding="utf-8")
    report = markdown(verdict, puts, machine, options.seed, options.opaque)
    (options.results / f"{name}.md").write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()

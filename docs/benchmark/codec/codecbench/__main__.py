"""`python -m codecbench`: fetch, run, write results.json and report.md.

Running is apart from reporting: `--report-only` makes the report again from the raw results. `--add` measures some
cells and keeps the others: the slow peers need not run again for every change of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from codecbench.codecs import OURS, PAPERS, PEERS, SECONDS_MAX, Result, TooSlowError, run_ours, run_peer
from codecbench.pairs import RECIPES
from codecbench.report import markdown

ROOT = Path(__file__).resolve().parents[4]


def machine_facts() -> dict[str, object]:
    """What the figures depend on."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    versions = {}
    for command in (["zstd", "--version"], ["xdelta3", "-V"], ["rustc", "--version"]):
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            versions[command[0]] = (done.stdout + done.stderr).strip().splitlines()[0]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "load_before": os.getloadavg()[0],
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        **versions,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="codecbench", description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / ".bench-data" / "codec", help="where fetched files stay")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "codec")
    parser.add_argument("--example", type=Path, default=ROOT / "target" / "release" / "examples" / "bench_codec")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pairs", nargs="*", help="only these pairs")
    parser.add_argument("--codecs", nargs="*", help="only these codecs")
    parser.add_argument("--add", action="store_true", help="keep what results.json says of other pairs and codecs")
    parser.add_argument("--report-only", action="store_true", help="make the report again from results.json")
    return parser.parse_args()


def run(options: argparse.Namespace, keep: Callable[[list[Result], dict[str, object]], None]) -> None:
    """Every wanted codec on every wanted pair; `keep` is given what there is after each pair."""
    machine = machine_facts()
    recipes = [recipe for recipe in RECIPES if not options.pairs or recipe.name in options.pairs]
    peers = {peer.name: peer for peer in PEERS}
    wanted = options.codecs or [*OURS, *PAPERS, *peers]
    missing = [name for name in wanted if name in peers and not peers[name].available]
    if missing:
        print(f"left out, not installed: {', '.join(missing)}", file=sys.stderr)
        machine["left_out"] = missing
    results: list[Result] = []
    too_slow: list[str] = []
    with tempfile.TemporaryDirectory(prefix="codecbench-") as scratch:
        for number, recipe in enumerate(recipes, 1):
            pair = recipe.pair(options.data)
            for codec in wanted:
                if codec in missing:
                    continue
                print(f"[{number}/{len(recipes)}] {pair.name}: {codec}", file=sys.stderr, flush=True)
                repeats = 1 if codec == "max" else options.repeats
                try:
                    if codec in peers:
                        result = run_peer(peers[codec], pair, repeats, Path(scratch))
                    else:
                        result = run_ours(options.example, codec, pair, repeats)
                except TooSlowError as error:
                    print(f"{error} on {pair.name}: left out after {SECONDS_MAX} s", file=sys.stderr)
                    too_slow.append(f"{codec} on {pair.name}")
                    machine["left_out_too_slow"] = too_slow
                    continue
                results.append(replace(result, commit=str(machine["commit"])))
            keep(results, machine)


def merged(earlier: list[Result], results: list[Result]) -> list[Result]:
    """The results, and the earlier ones of other cells; in the order of the recipes and codecs."""
    cells = {(result.pair, result.codec): result for result in [*earlier, *results]}
    pairs = [recipe.name for recipe in RECIPES]
    codecs = [*OURS, *PAPERS, *(peer.name for peer in PEERS)]
    return [cells[pair, codec] for pair in pairs for codec in codecs if (pair, codec) in cells]


def load(path: Path) -> tuple[list[Result], dict[str, object]]:
    raw = json.loads(path.read_text(encoding="utf-8"))
    names = {field.name for field in fields(Result)}
    results = [Result(**{name: value for name, value in row.items() if name in names}) for row in raw["results"]]
    return results, raw["machine"]


def main() -> int:
    options = arguments()
    options.results.mkdir(parents=True, exist_ok=True)
    raw_path = options.results / "results.json"
    if not options.report_only:
        earlier = load(raw_path)[0] if options.add and raw_path.exists() else []

        def keep(results: list[Result], machine: dict[str, object]) -> None:
            rows = [result.as_json() for result in merged(earlier, results)]
            raw_path.write_text(json.dumps({"machine": machine, "results": rows}, indent=1) + "\n", encoding="utf-8")

        run(options, keep)
    results, machine = load(raw_path)
    report = markdown(results, machine)
    (options.results / "report.md").write_text(report, encoding="utf-8")
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Fetches the drawn pairs, measures each, and writes raw values and a report.

python -m compressedbench [--seed N] [--families pypi npm …] [--report-only]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from compressedbench.fetch import pair
from compressedbench.lists import SEED, Draw, draw
from compressedbench.report import render

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT / ".bench-data" / "compressed"
OUT = ROOT / "results" / "compressed"
STUDY = ROOT / "target" / "release" / "examples" / "view_study"
PAIR_S_MAX = 900


def measure(one: Draw) -> dict[str, object]:
    """One pair's figures, or why there are none."""
    row: dict[str, object] = {"family": one.family, "package": one.package, "tuned": one.tuned}
    try:
        files = pair(one, DATA)
        row["versions"] = [file.name for file in files]
        done = subprocess.run([STUDY, *files], check=True, capture_output=True, text=True, timeout=PAIR_S_MAX)
    except (OSError, ValueError, subprocess.SubprocessError, StopIteration) as error:
        return row | {"error": f"{type(error).__name__}: {error}"[:200].replace(str(ROOT), "")}
    return row | dict(json.loads(done.stdout))


def main() -> int:
    """Exit code 1 when a pair could not be measured: it is named in the report all the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--families", nargs="*", default=[])
    parser.add_argument("--report-only", action="store_true")
    asked = parser.parse_args()
    raw = OUT / "results.json"
    OUT.mkdir(parents=True, exist_ok=True)
    if not asked.report_only:
        print(f"seed {asked.seed}")
        rows = []
        for one in draw(asked.seed):
            if not asked.families or one.family in asked.families:
                rows.append(measure(one))
                print(rows[-1].get("error") or f"{one.family} {one.package}", flush=True)
        raw.write_text(json.dumps({"seed": asked.seed, "pairs": rows}, indent=1) + "\n")
    results = json.loads(raw.read_text())
    (OUT / "report.md").write_text(render(results))
    print((OUT / "report.md").read_text())
    return int(any("error" in row for row in results["pairs"]))


if __name__ == "__main__":
    sys.exit(main())

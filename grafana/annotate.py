"""Draws a benchmark run into Grafana: one annotation for the run, one for each phase, as regions.

    python grafana/annotate.py docs/benchmark/runs/RUN --grafana http://127.0.0.1:3000

The token of a service account with the right to write annotations is read from GRAFANA_TOKEN. Nothing but Python's own
library is needed. A run is drawn again when this is called again: delete the first drawing by its tag `RUN_ID`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

Annotation = dict[str, Any]


class ClockError(ValueError):
    """The bundle does not say when it was made, only how long things took."""


def drawing(results: Path) -> list[Annotation]:
    """What to draw of a results directory: times in milliseconds since 1970.

    Raises `ClockError` for bundles of before `epoch_s` was written.
    """
    run_id = json.loads((results / "environment.json").read_text())["run_id"]
    series = json.loads((results / "resource_timeseries.json").read_text())
    epoch_s, markers = series.get("epoch_s") or 0, series["markers"]
    if epoch_s <= 0:
        raise ClockError(f"{results}: resource_timeseries.json has no epoch_s")

    def region(begin_s: float, end_s: float, text: str, *tags: str) -> Annotation:
        begin_ms, end_ms = (round((epoch_s + at_s) * 1000) for at_s in (begin_s, end_s))
        return {"time": begin_ms, "timeEnd": end_ms, "text": text, "tags": ["taxbench", *tags, run_id]}

    drawn: list[Annotation] = []
    if markers:
        times = [marker["t_s"] for marker in markers]
        drawn.append(region(min(times), max(times), run_id, "run"))
    begun: dict[tuple[Any, ...], float] = {}
    for marker in markers:
        of = (marker["trial"], marker["mode"], marker["concurrency"], marker["phase"])
        if marker["event"] == "begin":
            begun[of] = marker["t_s"]
        elif of in begun:
            trial, mode, concurrency, phase = of
            text = f"{phase}: {mode}, {concurrency} at once, trial {trial}"
            drawn.append(region(begun.pop(of), marker["t_s"], text, "phase", phase, mode))
    return drawn


def post(grafana: str, token: str, annotation: Annotation) -> None:
    """Writes one annotation."""
    request = urllib.request.Request(
        f"{grafana.rstrip('/')}/api/annotations",
        data=json.dumps(annotation).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the run's directory")
    parser.add_argument("--grafana", default="http://127.0.0.1:3000", help="its address")
    given = parser.parse_args(arguments)
    token = os.environ.get("GRAFANA_TOKEN", "")
    if not token:
        print("GRAFANA_TOKEN is not set", file=sys.stderr)
        return 2
    try:
        drawn = drawing(given.results)
        for annotation in drawn:
            post(given.grafana, token, annotation)
    except (ClockError, urllib.error.URLError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(drawn)} annotations drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The criterion benches of the crates: run, and read back what they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from speedbench.results import Measurement
from taxbench.progress import Reporter
from taxbench.servers.deltaweir import REPOSITORY
from taxbench.statistics import Interval

BENCHES = {"delta-codec": "codec", "object-format": "blob", "s3-wire": "wire", "catalog": "catalog"}
"""Bench target by crate."""
SETTINGS = ("--noplot", "--warm-up-time", "0.3", "--measurement-time", "1", "--sample-size", "20")
"""About two seconds a bench: the interval tells what that was too short for."""
TIMEOUT_S = 900.0


class MicroError(RuntimeError):
    """A bench did not build or did not end well."""


def run(reporter: Reporter) -> list[Measurement]:
    """Builds and runs every bench.

    # Errors
    `MicroError` with the end of cargo's output.
    """
    measurements: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="criterion-") as home, reporter.steps_bar("hot paths", len(BENCHES)) as bar:
        for crate, bench in BENCHES.items():
            reporter.step(f"cargo bench -p {crate} --bench {bench}")
            place = Path(home) / crate
            _cargo(crate, bench, place)
            found = list(read(place))
            if not found:
                raise MicroError(f"{crate}: the bench {bench} measured nothing")
            measurements += found
            bar.advance(1)
    return measurements


def read(home: Path) -> Iterator[Measurement]:
    """The newest estimates below a directory of criterion's, in the order of their names."""
    for facts in sorted(home.glob("**/new/benchmark.json")):
        name = str(json.loads(facts.read_text())["full_id"])
        place = facts.parent
        median = json.loads((place / "estimates.json").read_text())["median"]
        sample = json.loads((place / "sample.json").read_text())
        bounds = median["confidence_interval"]
        per_call = [time / calls for time, calls in zip(sample["times"], sample["iters"], strict=True)]
        interval = Interval(
            median=float(median["point_estimate"]),
            low=float(bounds["lower_bound"]),
            high=float(bounds["upper_bound"]),
            values=[round(value, 3) for value in per_call],
        )
        # One thread that waits for nobody, but for the catalog, which hands every call to a thread of its own.
        kind = "wall" if name.startswith("catalog/") else "cpu"
        yield Measurement(name=f"micro/{name}", unit="ns", kind=kind, higher_is_better=False, interval=interval)


def _cargo(crate: str, bench: str, home: Path) -> None:
    command = ["cargo", "bench", "--locked", "--quiet", "-p", crate, "--bench", bench, "--", *SETTINGS]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "CRITERION_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise MicroError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-2000:]}")

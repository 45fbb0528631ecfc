"""The files of a run: written as the run goes on, read back by everything that reports."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from taxbench.artifacts.manifest import Manifest
from taxbench.client.operation import Sample
from taxbench.names import csv_name
from taxbench.records import CellFacts, Environment, Timeseries

DIGESTS = "manifest.sha256"


class BundleError(RuntimeError):
    """The bundle is not one, or is not whole."""


class Bundle:
    """A results directory. Paths: `<mode>/c<N>/…` for cells, the rest at the top."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def cell_dir(self, mode: str, concurrency: int) -> Path:
        return self.root / mode / f"c{concurrency}"

    # Writing

    def append_samples(self, samples: list[Sample]) -> None:
        """Adds rows to the CSV file of their mode, concurrency and phase."""
        by_file: dict[Path, list[Sample]] = {}
        for sample in samples:
            stem = csv_name(re.sub(r"_(setup|check)$", "", sample.phase))
            by_file.setdefault(self.cell_dir(sample.mode, sample.concurrency) / f"{stem}.csv", []).append(sample)
        for path, rows in by_file.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = not path.exists()
            with path.open("a", newline="") as file:
                writer = csv.writer(file)
                if fresh:
                    writer.writerow(Sample.columns())
                writer.writerows(sample.to_row() for sample in rows)

    def write_cell(self, cell: CellFacts) -> None:
        write_json(self.cell_dir(cell.mode, cell.concurrency) / f"cell_t{cell.trial:03d}.json", cell)

    def write_text(self, relative: str, text: str) -> None:
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    # Reading

    def environment(self) -> Environment:
        return Environment.model_validate_json(self._read("environment.json"))

    def manifest(self) -> Manifest:
        return Manifest.model_validate_json(self._read("artifacts.json"))

    def timeseries(self) -> Timeseries:
        return Timeseries.model_validate_json(self._read("resource_timeseries.json"))

    def cells(self) -> list[CellFacts]:
        """Every cell's facts, by mode, concurrency and trial."""
        found = [
            CellFacts.model_validate_json(path.read_text()) for path in sorted(self.root.glob("*/c*/cell_t*.json"))
        ]
        return sorted(found, key=lambda c: (c.mode, c.concurrency, c.trial))

    def samples(self, mode: str, concurrency: int) -> list[Sample]:
        """Every row of one mode and concurrency, all phases, all trials."""
        rows: list[Sample] = []
        for path in sorted(self.cell_dir(mode, concurrency).glob("*.csv")):
            with path.open(newline="") as file:
                try:
                    rows += [Sample.from_row(row) for row in csv.DictReader(file)]
                except (KeyError, ValueError, TypeError) as error:
                    raise BundleError(f"{path.relative_to(self.root)}: {error}") from error
        return rows

    def study(self, name: str) -> dict[str, Any] | None:
        """A study's JSON, or `None` when it was not run."""
        path = self.root / "studies" / f"{name}.json"
        if not path.is_file():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def _read(self, name: str) -> str:
        path = self.root / name
        if not path.is_file():
            raise BundleError(f"{self.root} has no {name}: not a result bundle, or a run that did not end")
        return path.read_text()

    # Sealing

    def files(self) -> list[Path]:
        """Every file of the bundle but the digests themselves, in order."""
        return sorted(p for p in self.root.rglob("*") if p.is_file() and p.name != DIGESTS and p.suffix != ".tgz")

    def seal(self) -> Path:
        """Writes `manifest.sha256` and packs everything into `<run-id>.tgz` beside the files."""
        lines = [f"{_sha256(path)}  {path.relative_to(self.root).as_posix()}" for path in self.files()]
        (self.root / DIGESTS).write_text("\n".join(lines) + "\n")
        archive = self.root / f"{self.root.name}.tgz"
        members = [*self.files(), self.root / DIGESTS]
        with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
            for path in members:
                info = tarfile.TarInfo(f"{self.root.name}/{path.relative_to(self.root).as_posix()}")
                content = path.read_bytes()
                info.size, info.mode = len(content), 0o644
                tar.addfile(info, io.BytesIO(content))
        return archive

    def check_digests(self) -> list[str]:
        """Names files that are missing, changed, or not listed."""
        path = self.root / DIGESTS
        if not path.is_file():
            return [f"{DIGESTS} is missing"]
        listed: dict[str, str] = {}
        for line in path.read_text().splitlines():
            digest, _, name = line.partition("  ")
            listed[name] = digest
        present = {p.relative_to(self.root).as_posix(): p for p in self.files()}
        wrong = [f"{name}: missing" for name in sorted(listed.keys() - present.keys())]
        wrong += [f"{name}: not listed in {DIGESTS}" for name in sorted(present.keys() - listed.keys())]
        return wrong + [
            f"{name}: changed" for name, file in present.items() if name in listed and _sha256(file) != listed[name]
        ]


def write_json(path: Path, value: BaseModel | dict[str, Any]) -> None:
    """Writes JSON by rename, so that a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (
        value.model_dump_json(indent=1) if isinstance(value, BaseModel) else json.dumps(value, indent=1, sort_keys=True)
    )
    partial = path.with_name(path.name + ".part")
    partial.write_text(text + "\n")
    partial.rename(path)


@contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """A bundle given as a directory or as a `.tgz`.

    # Errors
    `BundleError` when it is neither.
    """
    if path.is_dir():
        yield Bundle(path)
        return
    if not (path.is_file() and tarfile.is_tarfile(path)):
        raise BundleError(f"{path} is neither a results directory nor a bundle archive")
    with tempfile.TemporaryDirectory(prefix="taxbench-bundle-") as scratch:
        with tarfile.open(path) as tar:
            tar.extractall(scratch, filter="data")
        roots = [p.parent for p in Path(scratch).rglob("environment.json")]
        if len(roots) != 1:
            raise BundleError(f"{path} holds {len(roots)} runs, one was expected")
        yield Bundle(roots[0])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

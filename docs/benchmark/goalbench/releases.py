"""Line 11: five successive releases of native packages as plain tars, in a bucket with its default settings.

The first release of each has nothing to rest on, so zstd makes of a fifth of the bytes what it can. `pip` fetches
the packages, which stay in `.bench-data/native`.
"""

from __future__ import annotations

from pathlib import Path

from goalbench.served import DELTA, Figures, Round, ask, serving
from taxbench.artifacts import packages
from taxbench.artifacts.manifest import Artifact
from taxbench.servers.deltaweir import REPOSITORY
from taxbench.studies.bench import Content

PLACE = REPOSITORY / ".bench-data" / "native"
RELEASES = 5
PACKAGES = {
    "duckdb": ("1.5.4", "1.5.5", "1.5.6", "2.0.0", "2.0.1"),
    "ruff": ("0.17.2", "0.17.3", "0.17.4", "0.17.5", "0.17.6"),
    "pyarrow": ("24.0.0", "25.0.0", "25.0.1", "26.0.0", "26.0.1"),
    "scipy": ("1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1"),
    "grpcio": ("1.84.1", "1.84.2", "1.85.0", "1.85.1", "1.85.3"),
    "lxml": ("6.0.4", "6.1.0", "6.1.1", "6.1.2", "6.1.3"),
    "cryptography": ("48.0.1", "49.0.0", "50.0.0", "50.0.1", "50.0.2"),
    "pydantic-core": ("2.50.1", "2.50.2", "2.50.3", "2.50.4", "2.50.5"),
}
"""On PyPI, made by g++, gcc, gfortran, rustc and Cython: the newest five on 27 November 2026, before any was stored."""


def stored(round_: Round) -> Figures:
    """Line 11. All packages share a bucket, each release is put when the one before has settled."""
    logical = 0
    fetched = [found for package in PACKAGES for found in tars(PLACE, package)]
    with serving(round_, 1, max(artifact.size for artifact in fetched)) as served:
        for artifact in fetched:
            content = Content(PLACE / artifact.path, artifact.size, artifact.sha256, artifact.md5)
            served.all_well([ask("put", content, DELTA, f"{artifact.family}/{artifact.name}")])
            served.settle()
            logical += artifact.size
        yield "stored", served.stored_in(DELTA) / logical


def tars(place: Path, package: str) -> list[Artifact]:
    """The releases of a package, oldest first.

    # Errors
    `SourceError` when one cannot be fetched.
    """
    pypi = packages.ECOSYSTEMS["pypi"]
    return packages.build(pypi, package, place, RELEASES, list(PACKAGES[package]), reuse=True).artifacts

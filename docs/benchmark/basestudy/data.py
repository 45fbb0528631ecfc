"""The objects: pinned releases of packages as plain tars, fetched by the registries' own clients and kept."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from taxbench.artifacts.manifest import write_whole
from taxbench.artifacts.packages import ECOSYSTEMS

PACKAGES = Path(__file__).with_name("packages.json")


@dataclass(frozen=True)
class Object:
    """One object of the study."""

    package: str
    version: str
    key: str
    path: Path


def pinned() -> list[tuple[str, str, str]]:
    """Ecosystem, package and version of every object, packages in name order, versions oldest first."""
    ecosystems: dict[str, dict[str, list[str]]] = json.loads(PACKAGES.read_text())
    return [
        (ecosystem, package, version)
        for ecosystem, packages in ecosystems.items()
        for package, versions in sorted(packages.items())
        for version in versions
    ]


def fetch(data: Path) -> list[Object]:
    """Every object, from the directory where it is already there, else from its registry."""
    objects = []
    for ecosystem, package, version in pinned():
        family = re.sub(r"[^A-Za-z0-9.]+", "-", f"{ecosystem}-{package}").strip("-")
        path = data / family / f"{family}-{version}.tar"
        if not path.is_file():
            print(f"fetching {package} {version}", flush=True)
            client = ECOSYSTEMS[ecosystem]
            with tempfile.TemporaryDirectory(prefix="basestudy-") as scratch:
                write_whole(path, [client.unpack(client.download(package, version, Path(scratch)))])
        objects.append(Object(package=family, version=version, key=f"{family}/{path.name}", path=path))
    return objects

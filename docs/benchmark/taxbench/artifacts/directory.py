"""Artifacts that are already on disk: a directory of files, families told from their names."""

from __future__ import annotations

import re
from pathlib import Path

from taxbench.artifacts.index import SourceError
from taxbench.artifacts.manifest import Artifact, Manifest, describe, natural_order

VERSION_IN_NAME = re.compile(r"[-_]?v?\d+(?:\.\d+)*(?:[-_.]?(?:rc|alpha|beta)\d*)?")


def family_of(path: Path, root: Path) -> str:
    """Names that differ only in their numbers are one family: `app-1.2.tar` and `app-1.10.tar` are both `app.tar`."""
    parent = path.parent.relative_to(root).as_posix()
    stem = VERSION_IN_NAME.sub("", path.name) or "unnamed"
    return stem if parent == "." else f"{parent}/{stem}".replace("/", "-")


def build(root: Path, extension: str = "", count: int = 0) -> Manifest:
    """Describes the files below `root` in place; nothing is copied. `count` limits each family to its newest.

    # Errors
    `SourceError` when there are no such files.
    """
    families: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        wanted = path.is_file() and path.name.endswith(extension) and not path.name.endswith(".part")
        if wanted and path.name != "manifest.json":
            families.setdefault(family_of(path, root), []).append(path)
    artifacts: list[Artifact] = []
    seen: set[str] = set()
    for family, paths in sorted(families.items()):
        ordered = sorted(paths, key=lambda p: natural_order(p.name))[-count:]
        for order, path in enumerate(ordered):
            entry = describe(root, path, family, path.stem, order)
            if entry.name in seen:
                entry = entry.model_copy(update={"name": entry.path.replace("/", "__")})
            seen.add(entry.name)
            artifacts.append(entry)
    if not artifacts:
        raise SourceError(f"no files ending in {extension!r} below {root}")
    return Manifest(source="local", parameters={"root": str(root.name), "extension": extension}, artifacts=artifacts)

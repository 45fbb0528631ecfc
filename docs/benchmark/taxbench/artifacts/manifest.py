"""The manifest: which artifacts a run stores, with their digests, families and version order."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from taxbench.names import Role

MANIFEST_NAME = "manifest.json"
HASH_READ_BYTES = 1 << 20

Expectation = Literal["similar", "compressible", "incompressible", "duplicate", "small", "open"]
"""What a reducing store should make of a family, so that guards know what to demand.

`similar`: later versions must shrink. `compressible`: whole objects must shrink. `incompressible`: must not grow
beyond tolerance. `duplicate`: repeats must cost next to nothing. `small`: measured for latency, no demand on size.
`open`: real data about which nothing is promised; it must not grow either.
"""


class Artifact(BaseModel):
    """One object to store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="unique within the manifest; also the last part of the object's key")
    path: str = Field(description="relative to the manifest's directory")
    size: int = Field(ge=0, description="bytes")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    md5: str = Field(pattern=r"^[0-9a-f]{32}$", description="the ETag a whole PUT must answer with")
    family: str
    version: str = ""
    version_order: int = Field(ge=0, description="position in the family, 0 is the oldest")
    expectation: Expectation = "open"

    @property
    def role(self) -> Role:
        return "base" if self.version_order == 0 else "delta"


class Manifest(BaseModel):
    """All artifacts of a run, in upload order: by family, oldest version first."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    source: str
    parameters: dict[str, str] = Field(
        default_factory=dict, description="what to ask the source for to get the same again"
    )
    artifacts: list[Artifact]

    @property
    def logical_bytes(self) -> int:
        return sum(artifact.size for artifact in self.artifacts)

    @property
    def families(self) -> dict[str, list[Artifact]]:
        """Artifacts by family, each in version order."""
        found: dict[str, list[Artifact]] = {}
        for artifact in self.artifacts:
            found.setdefault(artifact.family, []).append(artifact)
        return {name: sorted(members, key=lambda a: a.version_order) for name, members in found.items()}

    @property
    def largest_bytes(self) -> int:
        return max((artifact.size for artifact in self.artifacts), default=0)

    def digest(self) -> str:
        """Identifies the data set: two runs with the same digest stored the same bytes under the same names."""
        lines = sorted(f"{a.name} {a.size} {a.sha256} {a.family} {a.version_order}" for a in self.artifacts)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def write(self, directory: Path) -> Path:
        """Writes `manifest.json` into the directory, by rename."""
        target = directory / MANIFEST_NAME
        partial = target.with_name(target.name + ".part")
        partial.write_text(self.model_dump_json(indent=1) + "\n")
        partial.rename(target)
        return target

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Reads `manifest.json`.

        # Errors
        `FileNotFoundError` when there is none; pydantic's `ValidationError` when it is not a manifest.
        """
        return cls.model_validate_json((directory / MANIFEST_NAME).read_text())

    def verify(self, directory: Path) -> list[str]:
        """Names what is missing or has changed on disk since the manifest was written."""
        wrong = []
        for artifact in self.artifacts:
            path = directory / artifact.path
            if not path.is_file():
                wrong.append(f"{artifact.name}: missing")
            elif path.stat().st_size != artifact.size or digests(path).sha256 != artifact.sha256:
                wrong.append(f"{artifact.name}: content changed")
        return wrong


class Digests(BaseModel):
    """Size and digests of one file, from one pass."""

    size: int
    sha256: str
    md5: str


def digests(path: Path) -> Digests:
    """Reads a file once. Cost: the slower of MD5 and SHA-256, about half a second per gigabyte and core."""
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with path.open("rb") as file:
        while data := file.read(HASH_READ_BYTES):
            sha256.update(data)
            md5.update(data)
            size += len(data)
    return Digests(size=size, sha256=sha256.hexdigest(), md5=md5.hexdigest())


def describe(
    directory: Path, path: Path, family: str, version: str, version_order: int, expectation: Expectation = "open"
) -> Artifact:
    """The manifest entry of a finished file."""
    found = digests(path)
    return Artifact(
        name=path.name,
        path=str(path.relative_to(directory)),
        size=found.size,
        sha256=found.sha256,
        md5=found.md5,
        family=family,
        version=version,
        version_order=version_order,
        expectation=expectation,
    )


def write_whole(path: Path, chunks: Iterable[bytes]) -> Path:
    """Writes to `<path>.part`, syncs, renames: a file with its final name is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    return path


def natural_order(text: str) -> list[tuple[int, int, str]]:
    """A sort key that puts 1.9 before 1.10 and release candidates before their release."""
    key: list[tuple[int, int, str]] = []
    for piece in re.findall(r"\d+|[^\d]+", text):
        if piece.isdigit():
            key.append((1, int(piece), ""))
        else:
            prerelease = re.search(r"rc|alpha|beta|pre", piece.lower()) is not None
            key.append((-1 if prerelease else 0, 0, piece))
    key.append((-1, 1, ""))  # an end sorts after a pre-release suffix and before everything else
    return key

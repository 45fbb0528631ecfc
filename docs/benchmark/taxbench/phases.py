"""The operations of every phase. Pure: artifacts in, operations out, the same ones for the same seed.

Each builder's docstring says what the phase measures and what it is unfair about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from taxbench.artifacts.manifest import Artifact, Manifest
from taxbench.client.operation import Expected, Kind, Operation

KIB, MIB = 1 << 10, 1 << 20
MIXED_GET, MIXED_PUT = 0.7, 0.2
MULTIPART_OBJECTS_MAX = 6
RANGE_OBJECTS_MAX = 60


@dataclass(frozen=True, slots=True)
class CellKeys:
    """Where one cell keeps its objects. `prefix` is unique per run, trial, mode and concurrency."""

    bucket: str
    prefix: str
    artifacts_dir: Path

    def object_key(self, artifact: Artifact, group: str = "objects") -> str:
        return f"{self.prefix}/{group}/{artifact.family}/{artifact.name}"

    def operation(self, kind: Kind, phase: str, artifact: Artifact, key: str) -> Operation:
        return Operation(
            kind=kind,
            phase=phase,
            bucket=self.bucket,
            key=key,
            artifact=artifact.name,
            family=artifact.family,
            role=artifact.role,
            version_order=artifact.version_order,
            content_path=str(self.artifacts_dir / artifact.path),
            size=artifact.size,
            sha256=artifact.sha256,
            md5=artifact.md5,
        )


def put_base(manifest: Manifest, keys: CellKeys) -> list[Operation]:
    """The first version of every family: nothing similar is stored yet, so a delta store can only compress it.

    Unfair to delta stores when quoted alone, since most of a store's objects are not first versions.
    """
    return [keys.operation("put", "put_base", a, keys.object_key(a)) for a in manifest.artifacts if a.role == "base"]


def put_delta(manifest: Manifest, keys: CellKeys) -> list[Operation]:
    """Every later version, oldest first: what a delta store is for.

    Unfair to plain stores only in name; they store these like any other object.
    """
    return [keys.operation("put", "put_delta", a, keys.object_key(a)) for a in manifest.artifacts if a.role == "delta"]


def get_all(manifest: Manifest, keys: CellKeys, phase: str) -> list[Operation]:
    """Every object once, whole. `cold_get` runs it after caches were dropped (see `ColdFacts`), `warm_get` right
    after that.

    Warm reads of a plain store come from the page cache by `sendfile`; nothing that authenticates bytes can match that.
    """
    return [keys.operation("get", phase, a, keys.object_key(a)) for a in manifest.artifacts]


def range_get(manifest: Manifest, keys: CellKeys) -> list[Operation]:
    """First, middle and last KiB, and one MiB from the middle, of every object that has them.

    Measures read amplification: a store of deltas must fetch, check and decode more than it sends.
    """
    operations = []
    for artifact in _spread(manifest.artifacts, RANGE_OBJECTS_MAX):
        if artifact.size < 4 * KIB:
            continue
        middle = artifact.size // 2
        windows = [(0, KIB), (middle, KIB), (artifact.size - KIB, KIB)]
        if artifact.size >= 2 * MIB:
            windows.append((middle - MIB // 2, MIB))
        for offset, length in windows:
            op = keys.operation("range", "range_get", artifact, keys.object_key(artifact))
            operations.append(replace(op, offset=offset, length=length))
    return operations


def head_all(manifest: Manifest, keys: CellKeys, phase: str = "head") -> list[Operation]:
    """HEAD of every object: size and ETag must be the logical ones."""
    return [keys.operation("head", phase, a, keys.object_key(a)) for a in manifest.artifacts]


def list_all(manifest: Manifest, keys: CellKeys, checked_etags: bool, repeats: int = 3) -> list[Operation]:
    """LIST of the cell's objects, all pages, compared entry by entry with what was stored."""
    expected = {keys.object_key(a): Expected(a.size, a.md5 if checked_etags else "") for a in manifest.artifacts}
    prefix = f"{keys.prefix}/objects/"
    return [
        Operation(kind="list", phase="list", bucket=keys.bucket, key=prefix, expected_listing=expected)
        for _ in range(repeats)
    ]


def multipart_put(manifest: Manifest, keys: CellKeys, part_size: int) -> list[Operation]:
    """Create, parts one after another, complete. SDKs send parts in parallel; this is the worst of it for latency."""
    large = [a for a in manifest.artifacts if a.size > part_size]
    operations = []
    for artifact in large[:MULTIPART_OBJECTS_MAX]:
        op = keys.operation("multipart", "multipart_put", artifact, keys.object_key(artifact, "multipart"))
        operations.append(replace(op, part_size=part_size))
    return operations


def overwrite(manifest: Manifest, keys: CellKeys) -> tuple[list[Operation], list[Operation], list[Operation]]:
    """(set-up, timed, read-back): one key per family gets its first version untimed, then its second, timed.

    What it measures beyond `put_delta`: replacing a row, and leaving a tombstone or a base behind.
    """
    before, timed, after = [], [], []
    for family, members in manifest.families.items():
        if len(members) < 2 or members[0].expectation == "small":
            continue
        key = f"{keys.prefix}/overwrite/{family}"
        before.append(keys.operation("put", "overwrite_setup", members[0], key))
        timed.append(keys.operation("put", "overwrite", members[1], key))
        after.append(keys.operation("get", "overwrite_check", members[1], key))
    return before, timed, after


def mixed(manifest: Manifest, keys: CellKeys, seed: int, count: int) -> list[Operation]:
    """70 % GET, 20 % PUT to new keys, 10 % HEAD, drawn from the seed: readers and writers in each other's way."""
    rng = np.random.default_rng([seed, 7])
    operations = []
    for number in range(count):
        artifact = manifest.artifacts[int(rng.integers(0, len(manifest.artifacts)))]
        draw = float(rng.random())
        key = keys.object_key(artifact)
        if draw < MIXED_GET:
            operations.append(keys.operation("get", "mixed", artifact, key))
        elif draw < MIXED_GET + MIXED_PUT:
            operations.append(
                keys.operation("put", "mixed", artifact, f"{keys.prefix}/mixed/{number:06d}-{artifact.name}")
            )
        else:
            operations.append(keys.operation("head", "mixed", artifact, key))
    return operations


def delete_all(stored: list[Operation]) -> list[Operation]:
    """DELETE of every key the cell stored.

    Space comes back later, in the background; this is only the answer's time.
    """
    seen = dict.fromkeys((op.bucket, op.key) for op in stored if op.kind in ("put", "multipart"))
    return [Operation(kind="delete", phase="delete", bucket=bucket, key=key) for bucket, key in seen]


def _spread(artifacts: list[Artifact], count: int) -> list[Artifact]:
    """At most `count` artifacts, evenly from the whole list."""
    if len(artifacts) <= count:
        return artifacts
    return [artifacts[round(i * (len(artifacts) - 1) / (count - 1))] for i in range(count)]

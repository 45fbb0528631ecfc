"""What every study needs: a server of its own, a pair of similar contents, one timed upload."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taxbench.artifacts import synthetic
from taxbench.client.operation import Operation, Sample
from taxbench.client.pool import Batch, WorkerPool
from taxbench.processes import process_usage
from taxbench.profiles import Profile
from taxbench.servers.target import Target

MakeServer = Callable[[Path, dict[str, tuple[str, str, str]]], Target]
"""Starts nothing yet: (data directory, bucket name -> (compression, encryption, effort))."""


class StudyError(RuntimeError):
    """A study could not be finished: an upload failed, or its bytes came back wrong."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file to upload, with its digests."""

    path: Path
    size: int
    sha256: str
    md5: str

    @classmethod
    def write(cls, path: Path, data: bytes) -> Content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return cls(
            path, len(data), hashlib.sha256(data).hexdigest(), hashlib.md5(data, usedforsecurity=False).hexdigest()
        )

    def operation(self, kind: str, bucket: str, key: str, phase: str, pace_bytes_per_s: float = 0.0) -> Operation:
        return Operation(
            kind="put" if kind == "put" else "get" if kind == "get" else "head",
            phase=phase,
            bucket=bucket,
            key=key,
            artifact=key,
            content_path=str(self.path),
            size=self.size,
            sha256=self.sha256,
            md5=self.md5,
            pace_bytes_per_s=pace_bytes_per_s,
        )


@dataclass(frozen=True)
class StudyBench:
    """Where and on what a study runs."""

    profile: Profile
    seed: int
    make_server: MakeServer
    binary: Path | None


def versions(seed: int, family: str, size: int, count: int, place: Path) -> list[Content]:
    """The first `count` versions of a synthetic family at about `size` bytes each."""
    rng = np.random.default_rng([seed, *family.encode()])
    generate = synthetic.family_named(family).generate
    return [Content.write(place / f"{family}-{n}", data) for n, data in enumerate(generate(rng, size, count))]


def run_checked(pool: WorkerPool, target: Target, operations: list[Operation]) -> Batch:
    """Runs operations of which none may fail or come back wrong.

    # Errors
    `StudyError` with the first failure.
    """
    batch = pool.run(target.endpoint, operations)
    for sample in batch.samples:
        if sample.failed or sample.verdict == "mismatch":
            raise StudyError(f"{sample.kind} {sample.key}: {sample.error or 'wrong bytes'}")
    return batch


def settle_s(target: Target, timeout_s: float = 120.0) -> float:
    """Waits for background work where there is an admin API; gives the seconds it took.

    # Errors
    `StudyError` when it was not done in time: sizes would not be final.
    """
    started = time.perf_counter()
    if target.admin is not None and not target.admin.settle(timeout_s):
        raise StudyError(f"background work was not done after {timeout_s:.0f} s")
    return time.perf_counter() - started


def cpu_s(target: Target) -> float:
    """CPU seconds of the server so far; 0.0 when its processes cannot be seen."""
    usage = process_usage(target.process_ids())
    return usage.cpu_s if usage else 0.0


def stored_bytes(pool: WorkerPool, target: Target, heads: list[Operation]) -> int | None:
    """What the objects add to the store, by their headers; `None` when one does not say."""
    samples: list[Sample] = run_checked(pool, target, heads).samples
    return sum(s.stored_bytes for s in samples) if all(s.stored_bytes >= 0 for s in samples) else None

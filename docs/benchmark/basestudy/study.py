"""The verdict: what the engine stored, beside what the best choice of an earlier object would have given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DELTA_SHARE_MAX = 5 / 8
"""The engine's own rule: a delta is kept when it takes at most this share of what the object takes alone."""


@dataclass(frozen=True)
class Put:
    """One object as the engine stored it, and what it takes otherwise."""

    package: str
    key: str
    size: int
    stored_bytes: int
    form: str
    reason: str
    bases: tuple[str, ...]
    alone_bytes: int
    against_bytes: dict[str, int]
    """Against each earlier object of the package, by key."""
    put_s: float

    @classmethod
    def parse(cls, row: dict[str, Any]) -> Put:
        return cls(**{**row, "bases": tuple(row["bases"])})


@dataclass(frozen=True)
class Verdict:
    """Totals over all objects, in stored bytes."""

    objects: int
    packages: int
    logical_bytes: int
    stored_bytes: int
    alone_bytes: int
    best_any_bytes: int
    """Every object against the best of all earlier ones, whether or not the store holds that one whole."""
    best_whole_bytes: int
    """Every object against the best of those earlier ones that a store with deltas of depth one holds whole, by the
    engine's rule."""
    best_held_bytes: int
    """Every delta against the best of what the engine itself held whole; what it stored whole as it is."""

    @property
    def over_best_any(self) -> float:
        return self.stored_bytes / self.best_any_bytes

    @property
    def over_best_whole(self) -> float:
        return self.stored_bytes / self.best_whole_bytes

    @property
    def over_best_held(self) -> float:
        return self.stored_bytes / self.best_held_bytes


def best_any(puts: list[Put]) -> int:
    return sum(min([put.alone_bytes, *put.against_bytes.values()]) for put in puts)


def best_whole(puts: list[Put]) -> int:
    """Greedy, in the order of the puts, with an oracle that knows every size."""
    wholes: set[str] = set()
    total = 0
    for put in puts:
        deltas = [size for key, size in put.against_bytes.items() if key in wholes]
        if deltas and min(deltas) <= DELTA_SHARE_MAX * put.alone_bytes:
            total += min(deltas)
        else:
            wholes.add(put.key)
            total += put.alone_bytes
    return total


def best_held(puts: list[Put]) -> int:
    wholes: set[str] = set()
    total = 0
    for put in puts:
        deltas = [size for key, size in put.against_bytes.items() if key in wholes]
        if put.form == "delta":
            total += min([put.alone_bytes, *deltas])
        else:
            wholes.add(put.key)
            total += put.stored_bytes
    return total


def judge(puts: list[Put]) -> Verdict:
    return Verdict(
        objects=len(puts),
        packages=len({put.package for put in puts}),
        logical_bytes=sum(put.size for put in puts),
        stored_bytes=sum(put.stored_bytes for put in puts),
        alone_bytes=sum(put.alone_bytes for put in puts),
        best_any_bytes=best_any(puts),
        best_whole_bytes=best_whole(puts),
        best_held_bytes=best_held(puts),
    )


def worst(puts: list[Put], count: int) -> list[tuple[int, Put]]:
    """The objects that lost most against the best of all earlier ones, with how much."""
    losses = [(put.stored_bytes - min([put.alone_bytes, *put.against_bytes.values()]), put) for put in puts]
    return sorted(losses, key=lambda loss: -loss[0])[:count]

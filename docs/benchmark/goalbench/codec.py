"""Lines 9 and 10: the codec alone, beside zstd and bsdiff, on two releases of sixteen native packages.

They are the native pairs of `make bench-codec`, which has every codec, other kinds of files and reports of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from codecbench.codecs import PEERS, Peer, run_ours, run_peer
from codecbench.pairs import RECIPES, Pair


class NotHereError(RuntimeError):
    """A program that the line needs is not here."""


def pairs(data: Path) -> list[Pair]:
    """Two releases of each native package, fetched where they are not there yet.

    # Errors
    `CalledProcessError` when a package cannot be fetched.
    """
    return [recipe.pair(data) for recipe in RECIPES if recipe.family == "native"]


def against_zstd(example: Path, pairs: list[Pair], place: Path) -> Iterator[tuple[str, float]]:
    """Line 9: geometric means over the pairs of speed and ratio, ours over zstd's.

    # Errors
    `NotHereError` when a program is not here; so in the next.
    """
    peer = installed("zstd-1", example)
    results = [(run_ours(example, "balanced", pair, 3), run_peer(peer, pair, 3, place)) for pair in pairs]
    yield "speed", mean([ours.encode_mb_s / theirs.encode_mb_s for ours, theirs in results])
    yield "ratio", mean([ours.ratio / theirs.ratio for ours, theirs in results])


def against_bsdiff(example: Path, pairs: list[Pair], place: Path) -> Iterator[tuple[str, float]]:
    """Line 10: the worst pair counts."""
    peer = installed("bsdiff", example)
    results = [(run_ours(example, "max", pair, 1), run_peer(peer, pair, 1, place)) for pair in pairs]
    yield "ratio", min(ours.ratio / theirs.ratio for ours, theirs in results)


def installed(name: str, example: Path) -> Peer:
    """What to compare with, when both sides are here."""
    peer = next(peer for peer in PEERS if peer.name == name)
    if not peer.available:
        raise NotHereError(f"{name.partition('-')[0]} is not installed")
    if not example.is_file():
        raise NotHereError(f"{example.name} is not built")
    return peer


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))

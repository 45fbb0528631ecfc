"""Counting stored bytes independently, and looking for plaintext where none may be."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from taxbench.admin import Stats
from taxbench.cold import files_below
from taxbench.prometheus import Scrape
from taxbench.records import CanaryFacts, StorageCounts

BUCKET_STORED = "deltaweir_bucket_stored_bytes"
CANARY_BYTES = 256 << 10
CANARY_SMALL_BYTES = 2 << 10
NEEDLE_BYTES = 40
NEEDLES = 8


@dataclass(frozen=True, slots=True)
class Listing:
    """Files and bytes found below the blob directories."""

    files: int
    total_bytes: int


def list_backend(roots: list[Path]) -> Listing | None:
    """Counts what is really there, by name and size; `None` when the directories cannot be seen."""
    if not any(root.is_dir() for root in roots):
        return None
    sizes = [path.stat().st_size for path in files_below(roots)]
    return Listing(len(sizes), sum(sizes))


def count(
    bucket: str,
    objects: int,
    logical_bytes: int,
    stats: Stats | None,
    scrape: Scrape | None,
    listing: Listing | None,
    header_total: int | None,
) -> StorageCounts:
    """Puts the independent counts of one bucket side by side. It compares nothing: the guard does."""
    counts = StorageCounts(objects=objects, logical_bytes=logical_bytes, header_total=header_total)
    if stats is not None:
        account, totals = stats.bucket(bucket).stored, stats.totals.stored
        counts.account_total, counts.store_total = account.total, totals.total
        counts.account_parts = {k: v for k, v in account.model_dump().items() if k != "total"}
        counts.store_parts = {k: v for k, v in totals.model_dump().items() if k != "total"}
        counts.backend_said = sum(b.stored_bytes for b in stats.backends) if stats.backends else None
    if scrape is not None and scrape.has(BUCKET_STORED):
        parts = scrape.by_label(BUCKET_STORED, "kind", bucket=bucket)
        counts.metrics_parts = {kind: int(value) for kind, value in parts.items()}
        counts.metrics_total = sum(counts.metrics_parts.values()) if parts else None
    if listing is not None:
        counts.backend_listed, counts.backend_blobs = listing.total_bytes, listing.files
    return counts


@dataclass(frozen=True, slots=True)
class Canary:
    """Known content under a known name. Random, so that no compressor can hide it; derived from the run, so that no
    other run's leftovers can be taken for it."""

    key: str
    content: bytes

    @property
    def needles(self) -> list[bytes]:
        """Slices to look for, at odd offsets, so that wherever chunks are cut some slice stays whole."""
        if len(self.content) <= NEEDLE_BYTES:
            return [self.content]
        last = len(self.content) - NEEDLE_BYTES
        return [self.content[at : at + NEEDLE_BYTES] for at in np.linspace(17, last, NEEDLES).astype(int)]


def canaries(prefix: str) -> list[Canary]:
    """A large and a small canary: what goes to blobs and what may be kept inline go different ways."""
    seed = np.frombuffer(hashlib.sha256(prefix.encode()).digest(), dtype=np.uint32)
    rng = np.random.default_rng(list(seed))
    name = rng.bytes(12).hex()
    return [
        Canary(f"{prefix}/canary-{name}-large", rng.bytes(CANARY_BYTES)),
        Canary(f"{prefix}/canary-{name}-small", rng.bytes(CANARY_SMALL_BYTES)),
    ]


def scan(planted: list[Canary], private_roots: list[Path], blob_roots: list[Path]) -> CanaryFacts:
    """Looks for the canaries' content in everything the server wrote, and for their names among the blobs.

    Names stay out of the search below `private_roots`: the catalog keeps them in plain, because LIST is ordered.
    """
    needles = [needle for canary in planted for needle in canary.needles]
    names = [canary.key.rpartition("/")[2].encode() for canary in planted]
    content_found: list[str] = []
    name_found: list[str] = []
    scanned_bytes, scanned_files = 0, 0
    for root in private_roots:
        for path in files_below([root]):
            size = path.stat().st_size
            scanned_files += 1
            scanned_bytes += size
            is_blob = any(path.is_relative_to(blobs) for blobs in blob_roots)
            if is_blob and any(name in str(path).encode() for name in names):
                name_found.append(str(path.relative_to(root)))
            if not size:
                continue
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if any(content.find(needle) >= 0 for needle in needles):
                    content_found.append(str(path.relative_to(root)))
                known = str(path.relative_to(root)) in name_found
                if is_blob and not known and any(content.find(name) >= 0 for name in names):
                    name_found.append(str(path.relative_to(root)))
    return CanaryFacts(
        scanned_bytes=scanned_bytes,
        scanned_files=scanned_files,
        content_found=content_found,
        name_found=name_found,
        skipped="" if scanned_files else "nothing the server wrote can be seen from here",
    )

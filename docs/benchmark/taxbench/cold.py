"""Making reads cold, and measuring how cold they became."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

SAMPLE_FILES_MAX = 200
SAMPLE_PAGES_PER_FILE = 16
RESIDENT_FRACTION_WANTED = 0.05
DROPS_MAX = 5

KernelCache = Literal["drop_caches", "fadvise", "untouched", "unknown"]


def files_below(roots: Iterable[Path]) -> Iterator[Path]:
    """Regular files below the roots, in a steady order."""
    for root in roots:
        if root.is_dir():
            yield from sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def make_cold(roots: list[Path]) -> tuple[KernelCache, float | None]:
    """Takes the stored files out of the page cache; says how, and which fraction of sampled pages is still there.

    File by file first: that harms nobody else on the machine. Only when too much stays is everything dropped.
    """
    if not any(root.is_dir() for root in roots):
        return "unknown", None
    os.sync()  # dirty pages cannot be dropped
    done: KernelCache = "fadvise" if _advise(roots) else "untouched"
    fraction = resident_fraction(roots)
    for _ in range(DROPS_MAX):
        if fraction is None or fraction <= RESIDENT_FRACTION_WANTED:
            break
        # Pages that are being written, or that a processor has yet to enter into the kernel's lists, stay for once.
        os.sync()
        with contextlib.suppress(OSError):
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
            done, fraction = "drop_caches", resident_fraction(roots)
    return done, fraction


def _advise(roots: list[Path]) -> bool:
    advised = False
    for path in files_below(roots):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                advised = True
            finally:
                os.close(file)
    return advised


def resident_fraction(roots: list[Path]) -> float | None:
    """The fraction of sampled pages of stored files that the page cache still holds; `None` without files.

    A read with RWF_NOWAIT gives data only when it needs no disk. Sampling reads nothing in, so it changes nothing.
    """
    buffer = bytearray(1)
    resident, sampled = 0, 0
    paths = list(files_below(roots))
    step = max(1, len(paths) // SAMPLE_FILES_MAX)
    for path in paths[::step]:
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY)
            try:
                pages = -(-os.fstat(file).st_size // mmap.PAGESIZE)
                for page in range(0, pages, max(1, pages // SAMPLE_PAGES_PER_FILE)):
                    sampled += 1
                    try:
                        os.preadv(file, [buffer], page * mmap.PAGESIZE, os.RWF_NOWAIT)
                        resident += 1
                    except BlockingIOError:
                        pass
            finally:
                os.close(file)
    return resident / sampled if sampled else None

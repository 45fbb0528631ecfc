"""Small disks that fill up: mounted for a test, filled to the last byte or the last inode, and given back."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Disk:
    """A file system of its own."""

    path: Path

    @property
    def filler(self) -> Path:
        """What somebody else has on it."""
        return self.path / "filler"

    def fill(self) -> None:
        """Takes every byte that is free."""
        self.filler.mkdir(exist_ok=True)
        with (self.filler / f"{len(list(self.filler.iterdir()))}").open("wb", buffering=0) as file:
            for size in (MIB, 64 << 10, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(os.urandom(size))
        assert os.statvfs(self.path).f_bavail == 0

    def fill_inodes(self) -> None:
        """Takes every inode that is free."""
        self.filler.mkdir(exist_ok=True)
        taken = len(list(self.filler.iterdir()))
        with contextlib.suppress(OSError):
            for number in range(taken, 1 << 20):
                (self.filler / str(number)).touch()
        assert os.statvfs(self.path).f_favail == 0

    def empty(self) -> None:
        """Somebody else tidies up."""
        for file in self.filler.iterdir():
            file.unlink()


@contextlib.contextmanager
def mounted(path: Path, size: int, inodes: int = 20_000, file_system: str = "tmpfs") -> Iterator[Disk]:
    """A disk at `path`; `file_system` is tmpfs, or one that `mkfs` makes in a file beside it."""
    path.mkdir(parents=True)
    if file_system == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={inodes}", "tmpfs", path], check=True)
    else:
        image = path.with_suffix(".image")
        with image.open("wb") as file:
            file.truncate(size)
        subprocess.run([f"mkfs.{file_system}", "-q", "-N", str(inodes), image], check=True)
        subprocess.run(["mount", "-o", "loop", image, path], check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)

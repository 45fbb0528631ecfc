"""What the kernel counts of a process: figures that a busy machine moves less than seconds."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts of a process since its start, or between two looks."""

    faults: int
    """Pages of memory that were fresh when they were touched."""
    switches: int
    """Times that a thread waited. Threads that have ended are not counted."""
    reads: int
    writes: int
    """Calls of `read`, `write` and their kin, on files and sockets; `recv` and `send` are others."""
    written: int
    """Bytes given to the disk."""

    def since(self, before: Seen) -> Seen:
        return Seen(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


def seen(process: int) -> Seen:
    """What has been counted of a process so far."""
    place = Path(f"/proc/{process}")
    faults = int((place / "stat").read_text().rsplit(")", 1)[1].split()[7])
    calls = dict(line.split(": ") for line in (place / "io").read_text().splitlines())
    switches = sum(switches_of(thread) for thread in (place / "task").iterdir())
    return Seen(faults, switches, int(calls["syscr"]), int(calls["syscw"]), int(calls["write_bytes"]))


def switches_of(thread: Path) -> int:
    try:
        [found] = re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", (thread / "status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found)

"""CPU, memory and disk of processes, read from the kernel."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """Cumulative counters and the present memory of a set of processes."""

    cpu_s: float
    rss_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads a process has or ever had, in nanosecond steps (`/proc` counts ticks of 10 ms).

    The clock id of another process is how the kernel's ABI spells it: clock_getcpuclockid(3).

    # Errors
    `OSError` when there is no such process.
    """
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def process_usage(pids: list[int]) -> Usage | None:
    """Sums over processes; `None` when none of them could be read."""
    cpu, rss, read, written, seen = 0.0, 0, 0, 0, False
    for pid in pids:
        with contextlib.suppress(psutil.Error, OSError):
            cpu += cpu_seconds(pid)
            rss += psutil.Process(pid).memory_info().rss
            seen = True
            with contextlib.suppress(psutil.Error, OSError):
                counters = psutil.Process(pid).io_counters()
                read += counters.read_bytes
                written += counters.write_bytes
    return Usage(cpu, rss, read, written) if seen else None


def reset_peak_rss(pids: list[int]) -> bool:
    """Sets the kernel's high-water mark of resident memory back to now, so that the next reading is this phase's
    peak.
    """
    done = bool(pids)
    for pid in pids:
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:
            done = False
    return done


def peak_rss_bytes(pids: list[int]) -> int | None:
    """The largest resident size since the mark was last reset, summed over processes."""
    total, seen = 0, False
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1]) * 1024
                    seen = True
    return total if seen else None

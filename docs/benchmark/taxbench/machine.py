"""Facts about the machine, and whether anything else used it."""

from __future__ import annotations

import os
import platform
import socket
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from taxbench.records import MachineFacts, Noise

LIBRARIES = ("botocore", "numpy", "plotly", "psutil", "pydantic")


def facts(data_dir: Path) -> MachineFacts:
    """Reads what `/proc` and the standard library know. Nothing that identifies the machine or its owner."""
    return MachineFacts(
        cpu_model=_cpu_model(),
        cpu_count=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        os=_os_name(),
        filesystem=_filesystem(data_dir),
        virtualized=_hypervisor(),
        python=platform.python_version(),
        libraries={name: metadata.version(name) for name in LIBRARIES},
    )


def is_this_machine(host: str) -> bool:
    """Whether a host name is loopback or one of this machine's own addresses."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {address.address for interface in psutil.net_if_addrs().values() for address in interface}
    return any(address.startswith("127.") or address == "::1" or address in own for address in addresses)


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU seconds of the whole machine since boot, and the moment they were read."""

    at_s: float
    busy_s: float
    steal_s: float
    swap_in_pages: int

    @classmethod
    def now(cls) -> CpuTimes:
        times = psutil.cpu_times()
        steal = float(getattr(times, "steal", 0.0))
        idle = times.idle + float(getattr(times, "iowait", 0.0))
        busy = (
            sum(times) - idle - steal - float(getattr(times, "guest", 0.0)) - float(getattr(times, "guest_nice", 0.0))
        )
        return cls(time.monotonic(), busy, steal, _swap_in_pages())


@dataclass(slots=True)
class NoiseMeter:
    """Counts CPU time that belonged to nobody we know, between its making and `read`."""

    begun: CpuTimes
    load_before: float
    ours_s: float = 0.0

    @classmethod
    def begin(cls) -> NoiseMeter:
        return cls(CpuTimes.now(), os.getloadavg()[0])

    def add_ours(self, cpu_s: float) -> None:
        """CPU seconds the client or the measured server are known to have used."""
        self.ours_s += cpu_s

    def read(self) -> Noise:
        now = CpuTimes.now()
        capacity_s = max((now.at_s - self.begun.at_s) * (os.cpu_count() or 1), 1e-9)
        foreign = now.busy_s - self.begun.busy_s - self.ours_s
        return Noise(
            steal_fraction=round(max(0.0, (now.steal_s - self.begun.steal_s) / capacity_s), 5),
            foreign_fraction=round(max(0.0, foreign / capacity_s), 5),
            load_before=round(self.load_before, 2),
            swap_in_pages=max(0, now.swap_in_pages - self.begun.swap_in_pages),
        )


def _swap_in_pages() -> int:
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("pswpin "):
            return int(line.split()[1])
    return 0


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _filesystem(path: Path) -> str:
    """The type of the file system a path lies on."""
    target = path.resolve()
    best, kind = "", ""
    for partition in psutil.disk_partitions(all=True):
        mount = partition.mountpoint
        if (str(target) + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(best):
            best, kind = mount, partition.fstype
    return kind


def _hypervisor() -> str:
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    return "virtual machine" if " hypervisor" in flags else "bare metal or container host"

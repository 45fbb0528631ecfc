"""CPU, memory, disk and network of the measured server: exact at phase edges, sampled in between."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from taxbench import prometheus
from taxbench.machine import CpuTimes
from taxbench.processes import process_usage
from taxbench.records import Marker, Point, Timeseries

DEFAULT_INTERVAL_S = 0.25
REMOTE_INTERVAL_MIN_S = 1.0


def network_bytes() -> int:
    """Bytes through every interface, loopback included, both directions counted once."""
    return sum(counters.bytes_recv for counters in psutil.net_io_counters(pernic=True).values())


@dataclass
class Observed:
    """What the sampler should look at now. Swapped as a whole when a cell begins."""

    server_pids: Callable[[], list[int]] = list
    client_pids: list[int] = field(default_factory=list)
    metrics: Callable[[], str] | None = None


class Sampler:
    """A thread that writes down resource use at a steady interval, and where phases begin and end.

    An interval of 0 takes no samples; markers are kept all the same.
    """

    def __init__(self, interval_s: float = DEFAULT_INTERVAL_S, external: Callable[[], str] | None = None) -> None:
        self.interval_s = interval_s
        self.observed = Observed()
        self._external = external
        self._samples: list[Point] = []
        self._markers: list[Marker] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        if self.interval_s > 0:
            self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def mark(self, marker: Marker) -> None:
        self._markers.append(marker)

    def window(self, begin_s: float, end_s: float) -> list[Point]:
        """The samples taken between two moments."""
        return [p for p in self._samples if begin_s <= p.t_s <= end_s]

    def timeseries(self) -> Timeseries:
        return Timeseries(
            interval_s=self.interval_s,
            epoch_s=round(time.time() - time.perf_counter(), 3),
            samples=list(self._samples),
            markers=list(self._markers),
        )

    def _loop(self) -> None:
        while not self._ended.wait(self.interval_s):
            self._samples.append(self._sample())

    def _sample(self) -> Point:
        observed = self.observed
        usage = process_usage(observed.server_pids())
        client = process_usage(observed.client_pids)
        machine = CpuTimes.now()
        point = Point(
            t_s=time.perf_counter(),
            machine_busy_s=round(machine.busy_s, 3),
            machine_steal_s=round(machine.steal_s, 3),
            network_bytes=network_bytes(),
            client_cpu_s=client.cpu_s if client else None,
        )
        if usage is not None:
            point.server_cpu_s, point.server_rss_bytes = usage.cpu_s, usage.rss_bytes
            point.server_disk_read_bytes, point.server_disk_write_bytes = usage.disk_read_bytes, usage.disk_write_bytes
        elif observed.metrics is not None:
            with contextlib.suppress(Exception):  # a server being restarted has no metrics to show
                scrape = prometheus.parse(observed.metrics())
                if scrape.has("process_cpu_seconds_total"):
                    point.server_cpu_s = scrape.total("process_cpu_seconds_total")
                    point.server_rss_bytes = int(scrape.total("process_resident_memory_bytes"))
        if self._external is not None:
            with contextlib.suppress(Exception):  # an operator's script may fail for one sample without ending the run
                found = json.loads(self._external())
                point.external = {str(k): float(v) for k, v in found.items() if isinstance(v, (int, float))}
        return point

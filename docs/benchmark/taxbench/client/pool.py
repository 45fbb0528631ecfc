"""The workers of one cell: as many processes as the concurrency, started together, timed together."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import ClassVar

from taxbench.client import worker
from taxbench.client.endpoint import Endpoint
from taxbench.client.operation import Operation, Sample
from taxbench.processes import cpu_seconds

START_TIMEOUT_S = 60.0
BUFFER_SLACK_BYTES = 1 << 20

OnProgress = Callable[[int, int], None]
"""Called with (operations, payload bytes) finished since the last call."""


class WorkerDiedError(RuntimeError):
    """A worker process ended while it was needed. Nothing it measured may be used."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What the workers did between one starting signal and the last of their answers."""

    samples: list[Sample]
    client_cpu_s: float

    @property
    def wall_s(self) -> float:
        """From the first request's start to the last byte of the last answer."""
        if not self.samples:
            return 0.0
        first = min(s.start_s for s in self.samples)
        return max(s.start_s + s.total_s for s in self.samples) - first

    @property
    def payload_bytes(self) -> int:
        return sum(s.payload_bytes for s in self.samples)


class WorkerPool:
    """Worker processes with one connection each. A context manager: leaving it ends them.

    They are forked from a server process that has imported what they need and nothing else: no thread, no lock and no
    buffer of ours comes along, and starting one costs milliseconds.
    """

    ended_cpu_s: ClassVar[float] = 0.0
    """CPU seconds of all workers that have ended: they are not our children, so the kernel does not add theirs."""

    def __init__(self, workers: int, object_bytes_max: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([worker.__name__])
        self._channels: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=worker.serve, args=(number, object_bytes_max + BUFFER_SLACK_BYTES, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._channels.append(ours)
            self._processes.append(process)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.pids:
            with contextlib.suppress(OSError):
                WorkerPool.ended_cpu_s += cpu_seconds(pid)
        for channel in self._channels:
            with contextlib.suppress(OSError, ValueError):
                channel.send(worker.Stop())
        for process in self._processes:
            process.join(timeout=2 if error is None else 0.2)
            if process.is_alive():
                process.terminate()
                process.join(timeout=5)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid is not None]

    def run(self, endpoint: Endpoint, operations: Sequence[Operation], on_progress: OnProgress | None = None) -> Batch:
        """Runs the operations spread over the workers and gives back every sample.

        Each worker keeps the order it was given, so a family's versions stay in order.

        # Errors
        `WorkerDiedError` when a worker process ended.
        """
        shares = share(operations, len(self._channels))
        busy = [(channel, ops) for channel, ops in zip(self._channels, shares, strict=True) if ops]
        for channel, ops in busy:
            channel.send(worker.Prepare(ops, endpoint))
        for channel, _ in busy:
            self._await_ready(channel)
        for channel, _ in busy:
            channel.send(worker.Go())
        samples, cpu_s = self._collect([channel for channel, _ in busy], on_progress)
        return Batch(samples, cpu_s)

    def disconnect(self) -> None:
        """Closes every worker's connection, so that a restart of the server is not seen as a broken one."""
        for channel in self._channels:
            channel.send(worker.Disconnect())
        for channel in self._channels:
            self._await_ready(channel)

    def _await_ready(self, channel: Connection) -> None:
        try:
            if not channel.poll(START_TIMEOUT_S):
                raise WorkerDiedError(f"a client worker was not ready within {START_TIMEOUT_S:.0f} s")
            channel.recv()
        except (EOFError, ConnectionError) as error:
            raise WorkerDiedError("a client worker ended before it was ready") from error

    def _collect(self, waiting: list[Connection], on_progress: OnProgress | None) -> tuple[list[Sample], float]:
        samples: list[Sample] = []
        cpu_s = 0.0
        pending = list(waiting)
        while pending:
            for ready in wait(pending):
                assert isinstance(ready, Connection)
                try:
                    message = ready.recv()
                except (EOFError, ConnectionError) as error:
                    raise WorkerDiedError("a client worker ended in the middle of a phase") from error
                if isinstance(message, worker.Progress):
                    if on_progress is not None:
                        on_progress(message.operations, message.payload_bytes)
                elif isinstance(message, worker.Finished):
                    samples.extend(message.samples)
                    cpu_s += message.cpu_s
                    pending.remove(ready)
        return samples, cpu_s


def share(operations: Sequence[Operation], workers: int) -> list[list[Operation]]:
    """Spreads operations over workers by bytes: each goes to the least loaded worker, in the given order."""
    shares: list[list[Operation]] = [[] for _ in range(workers)]
    load = [0.0] * workers
    request_cost_bytes = 64 << 10  # about what a request costs besides its body, so that empty ones spread as well
    for op in operations:
        least = load.index(min(load))
        shares[least].append(op)
        load[least] += op.moved_bytes + request_cost_bytes
    return shares

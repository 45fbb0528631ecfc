"""`Target`: something that takes PUT and GET, and whatever it lets us see of itself."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from taxbench.admin import AdminClient
from taxbench.client.connection import ExchangeError, TimedConnection
from taxbench.client.endpoint import Endpoint
from taxbench.client.sigv4 import sign

Feature = Literal["list", "multipart", "restart"]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


class TargetError(RuntimeError):
    """The server could not be started, stopped or prepared. The message holds the end of its log."""


class Target(abc.ABC):
    """A server under measurement. `start` before anything else; `stop` always, also after a failure."""

    name: str
    endpoint: Endpoint
    features: frozenset[Feature]
    admin: AdminClient | None = None
    metrics_url: str = ""
    kills: int = 0
    """How often it did not stop when it was asked to, and was killed."""
    spawned: bool = True
    """Whether its processes are our children, whose CPU time the kernel adds to ours when they end."""

    @property
    def metrics_token(self) -> str:
        """The admin token when the metrics are the admin listener's own; somebody else's URL is not shown it."""
        ours = self.admin is not None and self.metrics_url.startswith(f"{self.admin.url.rstrip('/')}/")
        return self.admin.token if self.admin is not None and ours else ""

    @abc.abstractmethod
    def start(self) -> None:
        """Brings the server up and returns when it answers."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Takes the server down. Repeatable."""

    def restart(self) -> None:
        """A new process over the same data."""
        self.stop()
        self.start()

    def process_ids(self) -> list[int]:
        """Processes whose CPU and memory are the server's. Empty when they are not on this machine."""
        return []

    def blob_roots(self) -> list[Path]:
        """Directories whose files are the stored objects. Empty when they cannot be seen."""
        return []

    def private_roots(self) -> list[Path]:
        """Everything the server writes: where an encrypted mode must not leave plaintext."""
        return self.blob_roots()

    def facts(self) -> dict[str, str]:
        """What to record about it: version, configuration, durability."""
        return {}

    def ensure_bucket(self, bucket: str) -> None:
        """Creates the bucket when it is not there.

        # Errors
        `TargetError` when the server says anything but "created" or "already yours".
        """
        connection = TimedConnection(self.endpoint)
        try:
            path = self.endpoint.path(bucket)
            if connection.exchange(sign(self.endpoint, "HEAD", path)).status == 200:
                return
            answer = connection.exchange(sign(self.endpoint, "PUT", path))
        except ExchangeError as error:
            raise TargetError(f"{self.name}: {error}") from error
        finally:
            connection.close()
        if answer.status not in (200, 409):
            text = answer.small_body[:300].decode("utf-8", "replace")
            raise TargetError(f"{self.name}: creating bucket {bucket} answered {answer.status}: {text}")

    def __enter__(self) -> Target:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass
class LocalProcess:
    """A child process with a log, started in its own session so that only it and its children are ever signalled."""

    arguments: list[str]
    log_path: Path
    environment: dict[str, str] = field(default_factory=dict)
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def spawn(self) -> None:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            try:
                self._child = subprocess.Popen(
                    self.arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self.environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise TargetError(f"cannot start {self.arguments[0]}: {error}") from error

    def check_alive(self) -> None:
        """# Errors
        `TargetError` with the end of the log when the process has ended.
        """
        if self._child is None or self._child.poll() is not None:
            code = None if self._child is None else self._child.returncode
            raise TargetError(f"{Path(self.arguments[0]).name} ended (exit {code}). Log: {self.log_tail()}")

    def log_tail(self, bytes_max: int = 2000) -> str:
        if not self.log_path.is_file():
            return "(no log)"
        return self.log_path.read_bytes()[-bytes_max:].decode("utf-8", "replace").strip()

    def pids(self) -> list[int]:
        if self._child is None or self._child.poll() is not None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self._child.pid, *(c.pid for c in psutil.Process(self._child.pid).children(recursive=True))]
        return []

    def terminate(self) -> bool:
        """SIGTERM, a bounded wait, then SIGKILL: to this process's own session only. True when it took the latter."""
        child, self._child = self._child, None
        if child is None or child.poll() is not None:
            return False
        child.terminate()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return True
        return False


def free_port() -> int:
    """A loopback port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def await_port(host: str, port: int, process: LocalProcess | None, timeout_s: float = START_TIMEOUT_S) -> None:
    """Waits until something accepts connections.

    # Errors
    `TargetError` after the timeout, or as soon as the process has ended.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if process is not None:
            process.check_alive()
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                log = process.log_tail() if process else ""
                raise TargetError(f"nothing listens on {host}:{port} after {timeout_s:.0f} s. {log}") from error
            time.sleep(0.02)


class LocalTarget(Target):
    """A server of one process on loopback over `data_dir`, which keeps objects as files below that."""

    data_dir: Path
    _port: int
    _process: LocalProcess | None = None

    @property
    def files(self) -> Path:
        """Where objects lie."""
        return self.data_dir / "files"

    def launch(self, arguments: list[str], environment: dict[str, str] | None = None) -> None:
        """Starts the process and returns when it listens."""
        self._process = LocalProcess(arguments, self.data_dir / "server.log", environment or {})
        self._process.spawn()
        await_port("127.0.0.1", self._port, self._process)

    def stop(self) -> None:
        if self._process is not None:
            self.kills += self._process.terminate()
            self._process = None

    def process_ids(self) -> list[int]:
        return self._process.pids() if self._process else []

    def blob_roots(self) -> list[Path]:
        return [self.files]

"""An endpoint somebody else runs: `run` against production-like set-ups, and comparators named by URL."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from taxbench.admin import AdminClient, AdminError, fetch_text
from taxbench.client.connection import ExchangeError, TimedConnection
from taxbench.client.endpoint import Endpoint
from taxbench.client.sigv4 import sign
from taxbench.servers.target import Feature, Target, TargetError

COMMAND_TIMEOUT_S = 600.0
READY_TIMEOUT_S = 120.0


@dataclass
class Remote(Target):
    """An S3 endpoint by URL.

    Restarting, metrics and the stored bytes are available as far as the operator names them.
    """

    endpoint: Endpoint
    name: str = "remote"
    admin: AdminClient | None = None
    metrics_url: str = ""
    health_url: str = ""
    restart_command: str = ""
    backend_dirs: list[Path] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    lists: bool = True

    def __post_init__(self) -> None:
        self.spawned = False
        features: set[Feature] = {"list", "multipart"} if self.lists else set()
        if self.restart_command:
            features.add("restart")
        self.features = frozenset(features)
        if self.admin is not None and not self.metrics_url:
            self.metrics_url = f"{self.admin.url.rstrip('/')}/metrics"

    def start(self) -> None:
        """Nothing to start; whether it answers is found out by the first request."""

    def stop(self) -> None:
        """Nothing of ours to stop."""

    def restart(self) -> None:
        if not self.restart_command:
            raise TargetError(f"{self.name} was not given a --restart-command")
        run_operator_command(self.restart_command, "restart")
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._ready():
            if time.monotonic() > deadline:
                raise TargetError(f"{self.name} is not ready {READY_TIMEOUT_S:.0f} s after its restart")
            time.sleep(0.1)

    def _ready(self) -> bool:
        """By the health URL where there is one, else by the admin API, else by any answer at all."""
        if self.health_url:
            try:
                fetch_text(self.health_url)
            except AdminError:
                return False
            return True
        if self.admin is not None:
            return self.admin.ready()
        connection = TimedConnection(self.endpoint)
        try:
            connection.exchange(sign(self.endpoint, "GET", "/"))
        except ExchangeError:
            return False
        finally:
            connection.close()
        return True

    def process_ids(self) -> list[int]:
        return list(self.pids)

    def blob_roots(self) -> list[Path]:
        return list(self.backend_dirs)

    def ensure_bucket(self, bucket: str) -> None:
        if self.endpoint.signing == "sigv4":
            super().ensure_bucket(bucket)

    def facts(self) -> dict[str, str]:
        return {"server": f"endpoint {self.endpoint.url}", "durable": "unknown"}


def run_operator_command(command: str, purpose: str) -> str:
    """Runs a shell command the operator gave on the command line and gives back its output.

    # Errors
    `TargetError` when it fails or takes longer than ten minutes.
    """
    try:
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TargetError(f"the {purpose} command took more than {COMMAND_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise TargetError(f"the {purpose} command exited {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout

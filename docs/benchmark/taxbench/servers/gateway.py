"""Other people's S3 servers over a directory on loopback: what those that stand beside us have in common."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from taxbench.client.connection import TimedConnection
from taxbench.client.endpoint import Endpoint, PayloadHash
from taxbench.client.sigv4 import sign
from taxbench.servers.deltaweir import REPOSITORY
from taxbench.servers.target import START_TIMEOUT_S, LocalTarget, TargetError, free_port


def find_tool(name: str, given: str = "") -> str:
    """A program: the one given, the repository's tools, the PATH, or an empty string."""
    tool = REPOSITORY / ".tools" / "bin" / name
    return given or (str(tool) if tool.is_file() else shutil.which(name) or "")


@dataclass
class Gateway(LocalTarget):
    """A server of S3 that keeps objects as files below `data_dir`. Most do not sync them; the report says which do."""

    command: str
    data_dir: Path
    payload_hash: PayloadHash = "precomputed"
    timeout_s: float = 120.0
    name: str = "gateway"

    def __post_init__(self) -> None:
        self.data_dir = self.data_dir.resolve()
        self.features = frozenset({"list", "multipart", "restart"})
        self._port = free_port()
        url, secret = f"http://127.0.0.1:{self._port}", secrets.token_hex(16)
        self.endpoint = Endpoint(url, "bench", secret, "us-east-1", "sigv4", self.payload_hash, self.timeout_s)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    def arguments(self) -> list[str]:
        """What it is started with, its command first."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """What it is told by variables."""
        return {}

    def told(self, *asked: str) -> list[str]:
        """What its command prints when it is asked for so much, by lines."""
        done = subprocess.run([self.command, *asked], capture_output=True, text=True, timeout=20, check=False)
        return done.stdout.splitlines()

    def start(self) -> None:
        self.files.mkdir(parents=True, exist_ok=True)
        self.launch(self.arguments(), self.environment())
        self._await_answer()

    def _await_answer(self) -> None:
        """Some listen before they serve, and answer 503 until then."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            connection = TimedConnection(self.endpoint)
            try:
                status = connection.exchange(sign(self.endpoint, "GET", "/")).status
            finally:
                connection.close()
            if status < 500:
                return
            if time.monotonic() > deadline:
                raise TargetError(f"{self.name} still answers {status} after {START_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

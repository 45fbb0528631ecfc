"""Other people's S3 servers over a directory on loopback: what those that stand beside us have in common."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from taxbench.client.endpoint import Endpoint, PayloadHash
from taxbench.servers.deltaweir import REPOSITORY
from taxbench.servers.target import LocalProcess, Target, await_port, free_port


def find_tool(name: str, given: str = "") -> str:
    """A program: the one given, the repository's tools, the PATH, or an empty string."""
    tool = REPOSITORY / ".tools" / "bin" / name
    return given or (str(tool) if tool.is_file() else shutil.which(name) or "")


@dataclass
class Gateway(Target):
    """A server of S3 that keeps objects as files below `data_dir`. It does not sync them; the report says so."""

    command: str
    data_dir: Path
    payload_hash: PayloadHash = "precomputed"
    timeout_s: float = 120.0
    name: str = "gateway"
    _process: LocalProcess | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.data_dir = self.data_dir.resolve()
        self.features = frozenset({"list", "multipart", "restart"})
        self._port = free_port()
        url, secret = f"http://127.0.0.1:{self._port}", secrets.token_hex(16)
        self.endpoint = Endpoint(url, "bench", secret, "us-east-1", "sigv4", self.payload_hash, self.timeout_s)

    @property
    def files(self) -> Path:
        """Where objects lie."""
        return self.data_dir / "files"

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    def arguments(self) -> list[str]:
        """What it is started with, its command first."""
        raise NotImplementedError

    def start(self) -> None:
        self.files.mkdir(parents=True, exist_ok=True)
        self._process = LocalProcess(self.arguments(), self.data_dir / "server.log")
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

"""versitygw over a directory: another S3 server on the same disk, signatures and all, without reduction."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from taxbench.client.endpoint import Endpoint, PayloadHash
from taxbench.servers.deltaweir import REPOSITORY
from taxbench.servers.target import LocalProcess, Target, await_port, free_port


def find_versitygw(given: str = "") -> str:
    """The versitygw command: the one given, the repository's tools, the PATH, or an empty string."""
    tool = REPOSITORY / ".tools/bin/versitygw"
    return given or (str(tool) if tool.is_file() else shutil.which("versitygw") or "")


@dataclass
class Versitygw(Target):
    """versitygw's posix backend on loopback. It does not sync what it stores; the report says so."""

    command: str
    data_dir: Path
    payload_hash: PayloadHash = "precomputed"
    timeout_s: float = 120.0
    name: str = "versitygw"
    _process: LocalProcess | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.data_dir = self.data_dir.resolve()
        self.features = frozenset({"list", "multipart", "restart"})
        self._port = free_port()
        self.endpoint = Endpoint(
            f"http://127.0.0.1:{self._port}",
            "bench",
            secrets.token_hex(16),
            "us-east-1",
            "sigv4",
            self.payload_hash,
            self.timeout_s,
        )

    def start(self) -> None:
        (self.data_dir / "files").mkdir(parents=True, exist_ok=True)
        metadata = [] if _has_extended_attributes(self.data_dir) else ["--sidecar", str(self.data_dir / "sidecar")]
        if metadata:
            (self.data_dir / "sidecar").mkdir(exist_ok=True)
        arguments = [
            self.command,
            "--port",
            f"127.0.0.1:{self._port}",
            "--access",
            self.endpoint.access_key_id,
            "--secret",
            self.endpoint.secret_access_key,
            "--region",
            self.endpoint.region,
            "--quiet",
            "--keep-alive",
            "posix",
            *metadata,
            str(self.data_dir / "files"),
        ]
        self._process = LocalProcess(arguments, self.data_dir / "server.log")
        self._process.spawn()
        await_port("127.0.0.1", self._port, self._process)

    def stop(self) -> None:
        if self._process is not None:
            self.kills += self._process.terminate()
            self._process = None

    def process_ids(self) -> list[int]:
        return self._process.pids() if self._process else []

    def blob_roots(self) -> list[Path]:
        return [self.data_dir / "files"]

    def facts(self) -> dict[str, str]:
        done = subprocess.run([self.command, "--version"], capture_output=True, text=True, timeout=20, check=False)
        version = next((line.partition(":")[2].strip() for line in done.stdout.splitlines() if "ersion" in line), "")
        return {"server": f"versitygw {version}".strip(), "durable": "nothing yet (page cache)"}


def _has_extended_attributes(directory: Path) -> bool:
    """Where a file system has none, versitygw keeps its metadata in a directory beside the objects."""
    probe = directory / ".xattr-probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.taxbench", b"1")
    except OSError:
        return False
    finally:
        probe.unlink()
    return True

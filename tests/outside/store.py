"""Somebody else's S3 server, versitygw on a directory: the store that deltaweir keeps its blobs in."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outside.clients import S3Client, s3_client
from outside.server import ACCESS_KEY_ID, ROOT, SECRET_ACCESS_KEY, Value, free_port, until

BINARY = ROOT / ".tools" / "bin" / "versitygw"


@dataclass
class Store:
    """One versitygw process."""

    folder: Path
    port: int = field(default_factory=free_port)
    tls: tuple[Path, Path] | None = None
    """Certificate and key, when it speaks TLS."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Its S3 endpoint."""
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    def client(self) -> S3Client:
        """boto3 on it."""
        return s3_client(self.endpoint, verify=None if self.tls is None else self.tls[0])

    def start(self) -> Store:
        """Starts it and waits until it answers."""
        objects = self.folder / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        tls = [] if self.tls is None else ["--cert", str(self.tls[0]), "--key", str(self.tls[1])]
        command = [str(BINARY), "--port", f"127.0.0.1:{self.port}", *tls, "posix", str(objects)]
        return self.run(command, {"ROOT_ACCESS_KEY": ACCESS_KEY_ID, "ROOT_SECRET_KEY": SECRET_ACCESS_KEY})

    def run(self, command: Sequence[str], settings: Mapping[str, str], timeout_s: float = 20) -> Store:
        """Runs a server in the folder, its settings in the environment, and waits until it answers."""
        program = Path(command[0]).name
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{program}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=os.environ | settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers, timeout_s, f"{program} answers")
        return self

    def _answers(self) -> bool:
        try:
            self.client().list_buckets()
        except Exception:
            return False
        return True

    def stop(self) -> None:
        """Ends it; nothing happens when it has ended already."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)

    def table(self) -> dict[str, Value]:
        """The configuration of its bucket `blobs`."""
        return {
            "type": "s3",
            "endpoint": self.endpoint,
            "bucket": "blobs",
            "prefix": "blobs/",
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET_ACCESS_KEY,
        }

    def tables(self) -> dict[str, dict[str, Value]]:
        """The configuration that keeps every blob there."""
        return {"backends.cloud": self.table(), "storage": {"backend": "cloud"}}

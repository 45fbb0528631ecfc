"""versitygw over a directory: another S3 server on the same disk, signatures and all, without reduction."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from taxbench.servers.gateway import Gateway


@dataclass
class Versitygw(Gateway):
    """versitygw's posix backend."""

    name: str = "versitygw"

    def arguments(self) -> list[str]:
        metadata = [] if _has_extended_attributes(self.data_dir) else ["--sidecar", str(self.data_dir / "sidecar")]
        if metadata:
            (self.data_dir / "sidecar").mkdir(exist_ok=True)
        keys = ["--access", self.endpoint.access_key_id, "--secret", self.endpoint.secret_access_key]
        served = ["--port", self.address, *keys, "--region", self.endpoint.region, "--quiet", "--keep-alive"]
        return [self.command, *served, "posix", *metadata, str(self.files)]

    def facts(self) -> dict[str, str]:
        version = next((line.partition(":")[2].strip() for line in self.told("--version") if "ersion" in line), "")
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

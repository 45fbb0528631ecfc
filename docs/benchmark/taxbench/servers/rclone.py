"""`rclone serve s3` over a directory: an S3 server that many have already, signatures and all, without reduction."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from taxbench.servers.gateway import Gateway, find_tool


def find_rclone(given: str = "") -> str:
    """An rclone that serves S3 (1.65 and later; Debian 12's does not), or an empty string."""
    command = find_tool("rclone", given)
    if not command:
        return ""
    asked = [command, "serve", "s3", "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False)
    return command if "--auth-key" in done.stdout else ""


@dataclass
class Rclone(Gateway):
    """rclone's gateway, without its cache."""

    name: str = "rclone"

    def arguments(self) -> list[str]:
        pair = f"{self.endpoint.access_key_id},{self.endpoint.secret_access_key}"
        served = ["serve", "s3", "--addr", self.address, "--auth-key", pair]
        quiet = ["--config", "/dev/null", "--vfs-cache-mode", "off", "--log-level", "ERROR"]
        return [self.command, *served, *quiet, str(self.files)]

    def facts(self) -> dict[str, str]:
        return {"server": (self.told("version") or ["rclone"])[0], "durable": "nothing yet (page cache)"}

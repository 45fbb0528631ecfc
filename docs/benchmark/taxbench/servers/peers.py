"""The S3 servers of others that a run can measure beside ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from taxbench.servers.gateway import Gateway, find_tool
from taxbench.servers.minio import Minio
from taxbench.servers.rclone import Rclone, find_rclone
from taxbench.servers.s3proxy import S3proxy, find_s3proxy
from taxbench.servers.versitygw import Versitygw


@dataclass(frozen=True, slots=True)
class Peer:
    """How one is found and started."""

    find: Callable[[str], str]
    """Its command, from the one given or an empty string; empty when it is not installed."""
    server: type[Gateway]
    help: str


PEERS: dict[str, Peer] = {
    "versitygw": Peer(
        partial(find_tool, "versitygw"), Versitygw, "versitygw binary (default: .tools/bin, else the PATH)"
    ),
    "rclone": Peer(find_rclone, Rclone, "rclone binary, 1.65 or later (default: .tools/bin, else the PATH)"),
    "minio": Peer(partial(find_tool, "minio"), Minio, "minio binary (default: .tools/bin, else the PATH)"),
    "s3proxy": Peer(find_s3proxy, S3proxy, "folder with s3proxy's jars (default: .tools/s3proxy); runs with java"),
}
"""By name, which is a flag of `local`, too."""

"""MinIO over one directory: the S3 server that many run themselves. AGPL: a process here, never a part."""

from __future__ import annotations

from dataclasses import dataclass

from taxbench.servers.gateway import Gateway


@dataclass
class Minio(Gateway):
    """One drive, without its console."""

    name: str = "minio"

    def arguments(self) -> list[str]:
        return [self.command, "server", "--quiet", "--address", self.address, str(self.files)]

    def environment(self) -> dict[str, str]:
        pair = {"MINIO_ROOT_USER": self.endpoint.access_key_id, "MINIO_ROOT_PASSWORD": self.endpoint.secret_access_key}
        return {**pair, "MINIO_REGION": self.endpoint.region, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}

    # A PUT of 3 MB under strace: O_DSYNC for xl.meta, one fdatasync for its part, none for a directory.
    def facts(self) -> dict[str, str]:
        return {"server": (self.told("--version") or ["minio"])[0], "durable": "sync of the file alone"}

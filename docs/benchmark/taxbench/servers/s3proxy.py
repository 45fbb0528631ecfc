"""s3proxy over a directory: a gateway in Java that stands before many kinds of storage."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from taxbench.servers.deltaweir import REPOSITORY
from taxbench.servers.gateway import Gateway

JAR = "s3proxy-*.jar"
BODY_MAX = 1 << 30
"""It refuses signed bodies over 32 MiB unless told otherwise."""


def find_s3proxy(given: str = "") -> str:
    """The folder with its jars, or an empty string when there is none, or no Java."""
    folder = Path(given or REPOSITORY / ".tools" / "s3proxy")
    return str(folder) if shutil.which("java") and any(folder.glob(JAR)) else ""


@dataclass
class S3proxy(Gateway):
    """Its file system backend."""

    name: str = "s3proxy"

    def arguments(self) -> list[str]:
        settings = self.data_dir / "s3proxy.properties"
        lines = {
            "s3proxy.endpoint": self.endpoint.url,
            "s3proxy.authorization": "aws-v4",
            "s3proxy.identity": self.endpoint.access_key_id,
            "s3proxy.credential": self.endpoint.secret_access_key,
            "s3proxy.v4-max-non-chunked-request-size": str(BODY_MAX),
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "unused",
            "jclouds.credential": "unused",
            "jclouds.filesystem.basedir": str(self.files),
        }
        settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return ["java", "-cp", f"{self.command}/*", "org.gaul.s3proxy.Main", "--properties", str(settings)]

    def facts(self) -> dict[str, str]:
        version = next((jar.stem for jar in Path(self.command).glob(JAR)), "s3proxy")
        return {"server": version.replace("-", " ", 1), "durable": "nothing yet (page cache)"}

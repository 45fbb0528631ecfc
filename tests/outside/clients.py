"""Other people's clients, each pointed at one endpoint: boto3, aws-cli, rclone."""

from __future__ import annotations

import io
import json
import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.client import Config

from outside.content import MIB
from outside.server import ACCESS_KEY_ID, REGION, ROOT, SECRET_ACCESS_KEY

S3Client: TypeAlias = Any
"""boto3's client: its calls are made from data at run time, so it has no types of its own."""

AWS = ROOT / ".venv" / "bin" / "aws"


def s3_client(
    endpoint: str,
    key_id: str = ACCESS_KEY_ID,
    secret: str = SECRET_ACCESS_KEY,
    token: str | None = None,
    verify: Path | None = None,
    **config: Any,
) -> S3Client:
    """boto3's client as it comes: signatures, addressing, retries and checksums are its own choice.

    `verify`: whom TLS trusts.
    """
    settings: dict[str, Any] = {"connect_timeout": 10, "read_timeout": 120, "max_pool_connections": 64}
    return new_client(
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        aws_session_token=token,
        verify=None if verify is None else str(verify),
        config=Config(**(settings | config)),
    )


SESSION = boto3.session.Session()
MAKING = threading.Lock()
"""A session makes one client at a time."""


def new_client(**settings: Any) -> S3Client:
    """boto3's client of S3. All of them share a session: each new one reads the descriptions of the API again, which
    takes forty times as long as making a client."""
    with MAKING:
        return SESSION.client("s3", **settings)


def blunt_client(endpoint: str, **config: Any) -> S3Client:
    """boto3's client that tries once, so that a failure shows where it happens: for servers that are meant to fail."""
    return s3_client(endpoint, **({"retries": {"total_max_attempts": 1}} | config))


def sts_client(
    endpoint: str,
    key: str = ACCESS_KEY_ID,
    word: str = SECRET_ACCESS_KEY,
    token: str | None = None,
    **config: Any,
) -> Any:
    """boto3's STS client as it comes."""
    session = boto3.session.Session(key, word, token, REGION)
    return session.client("sts", endpoint_url=endpoint, config=Config(**config))


def object_store_options(endpoint: str) -> dict[str, str]:
    """What programs over the Rust crate object_store are told of a server, as variables of their environment would."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }


def upload_parts(s3: S3Client, bucket: str, key: str, content: bytes) -> None:
    """boto3's `upload_fileobj` as people use it: parts of 8 MiB, several at once."""
    s3.upload_fileobj(io.BytesIO(content), bucket, key, Config=TransferConfig(multipart_chunksize=8 * MIB))


@dataclass(frozen=True)
class Command:
    """A client run as a command, with a home of its own so that nothing of the machine's reaches it."""

    endpoint: str
    home: Path

    def _run(self, *arguments: str, check: bool = True, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        self.home.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
        done = subprocess.run(
            arguments,
            env=kept | self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def environment(self) -> dict[str, str]:
        """Where the client finds the endpoint and the credentials."""
        return {
            "HOME": str(self.home),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_PAGER": "",
        }


class AwsCli(Command):
    """aws-cli from the repository's own environment."""

    def run(self, *arguments: str, check: bool = True, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """`aws ARGUMENTS`."""
        return self._run(str(AWS), *arguments, check=check, timeout_s=timeout_s)


class AwsCli2(Command):
    """Debian's aws-cli, which is version 2."""

    def run(self, *arguments: str, check: bool = True, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """`aws ARGUMENTS`. Version 2.9 knows no endpoint of the environment, so it is named each time."""
        named = ("/usr/bin/aws", "--endpoint-url", self.endpoint)
        return self._run(*named, *arguments, check=check, timeout_s=timeout_s)

    def json(self, *arguments: str) -> Any:
        """What a command of `s3api` or `sts` prints; nothing is `None`."""
        told = self.run("--output", "json", *arguments).stdout
        return json.loads(told) if told.strip() else None


class Restic(Command):
    """Debian's restic; the repository is a bucket."""

    def environment(self) -> dict[str, str]:
        return super().environment() | {"RESTIC_PASSWORD": "restic", "RESTIC_CACHE_DIR": str(self.home / "cache")}

    def run(self, bucket: str, *arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """`restic ARGUMENTS` on the repository in a bucket."""
        return self._run("restic", "-r", f"s3:{self.endpoint}/{bucket}", *arguments, timeout_s=timeout_s)


class Rclone(Command):
    """Debian's rclone, its remote `store:` set up by environment."""

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "RCLONE_CONFIG": str(self.home / "rclone.conf"),
            "RCLONE_CONFIG_STORE_TYPE": "s3",
            "RCLONE_CONFIG_STORE_PROVIDER": "Other",
            "RCLONE_CONFIG_STORE_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "RCLONE_CONFIG_STORE_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "RCLONE_CONFIG_STORE_ENDPOINT": self.endpoint,
            "RCLONE_CONFIG_STORE_REGION": REGION,
            "RCLONE_CONFIG_STORE_FORCE_PATH_STYLE": "true",
        }

    def run(self, *arguments: str, check: bool = True, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """`rclone ARGUMENTS`."""
        return self._run("rclone", *arguments, check=check, timeout_s=timeout_s)

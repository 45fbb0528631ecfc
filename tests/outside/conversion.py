"""Releases that the converter opens while something breaks, and the count of what is left of them."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError

from outside.archives import wheel
from outside.clients import S3Client, blunt_client
from outside.server import Server

FILES, FILE_LEN = 12, 60_000


@dataclass
class Releases:
    """Wheels whose next releases come in rounds, every one of which must stay what it was."""

    bucket: str
    kept: int = 4
    """How many of them there are at most."""
    contents: dict[str, bytes] = field(default_factory=dict)
    version: int = 0

    def add(self, s3: S3Client) -> None:
        """Two further releases; the oldest go, but for the first."""
        for _ in range(2):
            # No content twice: it would be a duplicate of what was stored before somebody broke in.
            content = wheel(5 + self.version // 24, FILES, FILE_LEN, self.version % 24)
            s3.put_object(Bucket=self.bucket, Key=f"package-1.{self.version}", Body=content)
            self.contents[f"package-1.{self.version}"] = content
            self.version += 1
        for key in list(self.contents)[1 : -self.kept]:
            s3.delete_object(Bucket=self.bucket, Key=key)
            del self.contents[key]

    def harm(self, server: Server) -> tuple[int, int]:
        """How many are lost, and how many have other bytes."""
        s3, lost, wrong = blunt_client(server.endpoint), 0, 0
        server.drop_caches()
        for key, content in self.contents.items():
            try:
                wrong += s3.get_object(Bucket=self.bucket, Key=key)["Body"].read() != content
            except (ClientError, BotoCoreError):
                lost += 1
        return lost, wrong

    def views(self, server: Server) -> int:
        """How many are stored over a base with their streams opened."""
        return sum(self._is_view(server, key) for key in self.contents)

    def _is_view(self, server: Server, key: str) -> bool:
        blobs = server.admin(f"/api/v1/explain?bucket={self.bucket}&key={key}")["blobs"]
        inspected = [server.admin(f"/api/v1/inspect?blob={blob['id']}") for blob in blobs]
        return any(segment["coding"] == "view" for blob in inspected for segment in blob["segments"])


@contextlib.contextmanager
def converting(server: Server, rng: random.Random) -> Iterator[None]:
    """What is inside happens at some moment of a conversion, whose end is awaited, however it ends."""

    def settle() -> None:
        with contextlib.suppress(Exception):
            server.settle(30)

    settling = threading.Thread(target=settle)
    settling.start()
    try:
        time.sleep(rng.uniform(0.0, 0.6))  # the moment of the failure, not a wait for a condition
        yield
    finally:
        settling.join()

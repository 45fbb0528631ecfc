"""A short life of a server: everything that a panel shows happens at least once, most of it in every round."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from outside.archives import wheel
from outside.clients import S3Client, s3_client
from outside.content import KIB, MIB, noise, release, text
from outside.server import Server, Value, until
from outside.sigv4 import Scope
from outside.store import Store
from outside.wire import Connection, signed

OFF, SEALED, ZSTD, DELTA, CLOUD = "live-off", "live-sealed", "live-zstd", "live-delta", "live-cloud"
LATER, SMALL = "live-later", "live-small"
"""What the converter encodes after its upload, and what is packed."""
PART = 5 * MIB
SMALL_OBJECTS = 12
"""Of a round."""
ROUND_OF_TROUBLE = 3
"""In this round the store below is gone."""


def tables(store: Store) -> dict[str, dict[str, Value]]:
    """Buckets of each kind, one of them in a store of somebody else's; a collector that does not wait."""

    def bucket(name: str, **settings: Value) -> tuple[str, dict[str, Value]]:
        return f'buckets."{name}"', settings

    return {
        "backends.cloud": store.table(),
        "gc": {"interval": "2s", "grace": "1s"},
        "convert": {"interval": "1h"},
        "storage": {"base_copies": 1},
        # Nobody listens there, so events wait.
        "notifications.webhooks.away": {"url": "http://127.0.0.1:9/"},
        **dict(
            (
                bucket(OFF, compression="off"),
                bucket(SEALED, compression="delta", encryption="aes256"),
                bucket(ZSTD, compression="zstd"),
                bucket(DELTA, compression="delta"),
                bucket(CLOUD, compression="off", backend="cloud"),
                bucket(LATER, compression="delta", effort="high"),
                bucket(SMALL, compression="delta"),
            )
        ),
    }


def flip(path: Path, at: int) -> None:
    """Changes one bit."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@dataclass
class Load:
    """Clients of one server."""

    server: Server
    store: Store
    rounds: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    """How often what had to fail did."""

    def __post_init__(self) -> None:
        self.s3: S3Client = s3_client(self.server.endpoint)
        self.stranger: S3Client = s3_client(self.server.endpoint, secret="not/the+secret0123456789ABCDEFabcdefghijk")
        for name in (OFF, SEALED, ZSTD, DELTA, CLOUD, LATER, SMALL, "live-unconfigured"):
            self.s3.create_bucket(Bucket=name)
        self.s3.put_object(Bucket="live-unconfigured", Key="k", Body=text(1, 100 * KIB))
        self.s3.create_multipart_upload(Bucket=ZSTD, Key="never completed")
        self.s3.put_bucket_notification_configuration(
            Bucket=DELTA,
            NotificationConfiguration={
                "QueueConfigurations": [{"QueueArn": "arn:aws:sqs:::away", "Events": ["s3:ObjectCreated:*"]}]
            },
        )
        self._spoil()

    def _spoil(self) -> None:
        """Damages one plain and one sealed object, and a third behind where its answer begins."""
        for bucket, key, size, at in (
            (OFF, "damaged", 300 * KIB, 150 * KIB),
            (SEALED, "damaged", 300 * KIB, 150 * KIB),
            (OFF, "damaged late", 13 * MIB, 12 * MIB),
        ):
            before = set(self.server.blob_files())
            self.s3.put_object(Bucket=bucket, Key=key, Body=noise(9000 + len(key) + len(bucket), size))
            (path,) = (path for path in self.server.blob_files() if path not in before)
            flip(path, at)

    @contextlib.contextmanager
    def _refused(self, what: str) -> Iterator[None]:
        """What must fail: an answer with an error, or one that is cut."""
        try:
            yield
        except (ClientError, BotoCoreError):
            self.refusals[what] = self.refusals.get(what, 0) + 1
            return
        raise AssertionError(f"{what}: it went well")

    def _read(self, bucket: str, key: str, **more: Any) -> bytes:
        body: bytes = self.s3.get_object(Bucket=bucket, Key=key, **more)["Body"].read()
        return body

    def for_seconds(self, seconds: float) -> None:
        """Rounds for so long, and at least as many as it takes to have the store gone and back."""
        until = time.monotonic() + seconds
        while time.monotonic() < until or self.rounds <= ROUND_OF_TROUBLE + 1:
            self.round()

    def round(self) -> None:
        """Each kind of thing once."""
        number, s3 = self.rounds, self.s3
        self.rounds += 1
        self._store_and_read(number)
        self._parts(number)
        self._cloud(number)
        self._errors()
        self._damage()
        self._background(number)
        s3.list_objects_v2(Bucket=DELTA, Prefix="app")
        s3.head_object(Bucket=DELTA, Key=f"app-{number}")
        if number >= 2:
            s3.delete_object(Bucket=DELTA, Key=f"app-{number - 1}")
            s3.delete_object(Bucket=ZSTD, Key=f"log-{number - 1}")
        presigned = s3.generate_presigned_url("head_object", Params={"Bucket": DELTA, "Key": f"app-{number}"})
        with Connection(self.server.port) as connection:
            target = presigned.removeprefix(self.server.endpoint)
            connection.send(f"HEAD {target} HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\n\r\n".encode())
            answer = connection.answer("HEAD")
            assert answer is not None
            assert answer.status == 200

    def _store_and_read(self, number: int) -> None:
        s3 = self.s3
        content = release(7, 5 * MIB, number)
        s3.put_object(Bucket=DELTA, Key=f"app-{number}", Body=content)
        s3.put_object(Bucket=DELTA, Key="again", Body=content)
        s3.put_object(Bucket=SEALED, Key=f"app-{number}", Body=content)
        s3.put_object(Bucket=ZSTD, Key=f"log-{number}", Body=text(number, MIB))
        s3.put_object(Bucket=OFF, Key="noise", Body=noise(number, 300 * KIB))
        if number % 2:
            self.server.drop_caches()
        assert self._read(DELTA, f"app-{number}") == content
        assert self._read(SEALED, f"app-{number}") == content
        assert self._read(ZSTD, f"log-{number}") == text(number, MIB)
        assert self._read(OFF, "noise") == noise(number, 300 * KIB)
        assert self._read(DELTA, "again", Range="bytes=1000-1999") == content[1000:2000]

    def _parts(self, number: int) -> None:
        parts = [noise(1000 + number, PART), noise(2000 + number, 100 * KIB)]
        ids = {"Bucket": ZSTD, "Key": "parts"}
        ids["UploadId"] = self.s3.create_multipart_upload(**ids)["UploadId"]
        done = [
            {"PartNumber": place, "ETag": self.s3.upload_part(**ids, PartNumber=place, Body=part)["ETag"]}
            for place, part in enumerate(parts, 1)
        ]
        self.s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": done})

    def _cloud(self, number: int) -> None:
        if number == ROUND_OF_TROUBLE:
            self.server.drop_caches()
            self.store.stop()
            with self._refused("a read while the store is gone"):
                self._read(CLOUD, "k")
            self.store.start()
        self.s3.put_object(Bucket=CLOUD, Key="k", Body=noise(number, 400 * KIB))
        assert self._read(CLOUD, "k") == noise(number, 400 * KIB)

    def _background(self, number: int) -> None:
        """Every job, and something for each of them to do."""
        self.s3.put_object(Bucket=LATER, Key=f"app-{number}", Body=release(11, MIB, number))
        for index in range(SMALL_OBJECTS):
            body = text(7, 8 * KIB) + text(1000 * number + index, KIB)
            self.s3.put_object(Bucket=SMALL, Key=f"{number}/{index}.log", Body=body)
        # A third of the base and much that is new: sketches leave doubt, a trial says.
        mixed = release(13, 4 * MIB, 0)
        self.s3.put_object(Bucket=DELTA, Key="mixed/base", Body=mixed)
        other = mixed[: 1536 * KIB] + noise(3000 + number, 4 * MIB)
        self.s3.put_object(Bucket=DELTA, Key=f"mixed/{number}", Body=other)
        # Its deflate streams are opened by the converter, but for those that both releases have.
        self.s3.put_object(Bucket=DELTA, Key=f"package-1.{number}", Body=wheel(3, 10, 60_000, number))
        self._job("copies")
        self._job("scrub", percent=20)
        self._job("backup")
        self.s3.put_object(Bucket=OFF, Key=f"plain/{number}", Body=text(2000 + number, 300 * KIB))
        self._job("convert", bucket=OFF, prefix="plain/", compression="zstd", effort="fast")
        self.server.settle()

    def _job(self, name: str, **parameters: Any) -> None:
        """Has a job run, from its start to its end."""
        before = self.server.admin(f"/api/v1/jobs/{name}")["run"]
        self.server.admin(f"/api/v1/jobs/{name}", "POST", body=parameters)

        def ended() -> bool:
            job = self.server.admin(f"/api/v1/jobs/{name}")
            return bool(job["run"] > before and not job["running"])

        until(ended, 60, f"the job {name} has ended")

    def _errors(self) -> None:
        with self._refused("a key that is not there"):
            self._read(DELTA, "none")
        with self._refused("a signature that is wrong"):
            self.stranger.list_buckets()
        with self._refused("a body that is not what it claims"):
            self.s3.put_object(Bucket=OFF, Key="k", Body=b"abc", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
        with Connection(self.server.port) as connection:
            late = Scope(time=datetime.now(UTC) - timedelta(hours=1))
            connection.send(signed(f"127.0.0.1:{self.server.port}", "GET", "/", scope=late))
            answer = connection.answer()
            assert answer is not None
            assert answer.code == "RequestTimeTooSkewed"

    def _damage(self) -> None:
        self.server.drop_caches()
        for bucket, key in ((OFF, "damaged"), (SEALED, "damaged"), (OFF, "damaged late")):
            with self._refused(f"{key} in {bucket}"):
                self._read(bucket, key)

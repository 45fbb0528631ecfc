"""Writers that work until the server is killed, and what may be there afterwards."""

from __future__ import annotations

import contextlib
import random
import threading
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError

from outside.clients import S3Client, blunt_client
from outside.content import MIB, noise, release, text
from outside.server import Server

BUCKETS = ("delta-00", "delta-aes256-00", "zstd-00", "off-00")


@dataclass
class Key:
    """What one key may hold. One writer owns it, so its operations follow one another."""

    bucket: str
    name: str
    acknowledged: bytes | None = None
    pending: list[bytes | None] = field(default_factory=list)
    """What it holds if an operation whose answer never came had its effect."""

    def allowed(self) -> list[bytes | None]:
        """Old or new, never torn."""
        return [self.acknowledged, *self.pending]


class Writers:
    """Eight threads that put, overwrite, upload by parts, copy and delete, each in keys of its own."""

    def __init__(self, seed: int, threads: int = 8, keys: int = 4) -> None:
        self.seed = seed
        self.keys = [
            [Key(BUCKETS[(thread + number) % len(BUCKETS)], f"app-{thread}/{number}") for number in range(keys)]
            for thread in range(threads)
        ]
        self.acknowledged = 0
        self.cut_off = 0
        self._count = threading.Lock()

    def content(self, rng: random.Random) -> bytes:
        """Releases of one file, text, noise; from nothing to a few segments."""
        size = rng.choice([0, 100, 5_000, 70_000, MIB, 3 * MIB, 5 * MIB])
        kind = rng.randrange(4)
        if kind == 0:
            return text(rng.randrange(1000), size)
        if kind == 1:
            return noise(rng.randrange(1000), size)
        return release(91, size, rng.randrange(6))

    def run(self, server: Server, round_number: int, stop: threading.Event, count_max: int) -> list[threading.Thread]:
        """Starts the threads; each ends at its first failed request, at `stop`, or after `count_max` operations."""
        threads = [
            threading.Thread(target=self._write, args=(server, round_number, thread, stop, count_max))
            for thread in range(len(self.keys))
        ]
        for thread in threads:
            thread.start()
        return threads

    def _write(self, server: Server, round_number: int, thread: int, stop: threading.Event, count_max: int) -> None:
        rng = random.Random(f"{self.seed}/{round_number}/{thread}")
        s3 = blunt_client(server.endpoint, read_timeout=30)
        for _ in range(count_max):
            if stop.is_set():
                return
            key = rng.choice(self.keys[thread])
            after = None if rng.random() < 0.1 else self.content(rng)
            key.pending.append(after)
            try:
                self._change(s3, key, after, rng.random())
            except (ClientError, BotoCoreError):
                with self._count:
                    self.cut_off += 1
                return
            key.acknowledged = after
            key.pending.clear()
            with self._count:
                self.acknowledged += 1

    def _change(self, s3: S3Client, key: Key, after: bytes | None, how: float) -> None:
        at = {"Bucket": key.bucket, "Key": key.name}
        if after is None:
            s3.delete_object(**at)
        elif how < 0.75:
            s3.put_object(**at, Body=after)
        else:
            ids = at | {"UploadId": s3.create_multipart_upload(**at)["UploadId"]}
            cut = 5 * MIB if len(after) > 5 * MIB else len(after)
            bodies = [after[:cut], after[cut:]] if len(after) > cut else [after]
            parts = [
                {"PartNumber": number, "ETag": s3.upload_part(**ids, PartNumber=number, Body=body)["ETag"]}
                for number, body in enumerate(bodies, 1)
            ]
            s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})

    def check(self, s3: S3Client) -> None:
        """Every key holds something it may hold, and LIST and GET agree; what it holds counts from now on."""
        listed: dict[tuple[str, str], tuple[int, str]] = {}
        for bucket in BUCKETS:
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                for found in page.get("Contents", []):
                    listed[bucket, found["Key"]] = (found["Size"], found["ETag"])
        for key in (key for keys in self.keys for key in keys):
            entry = listed.pop((key.bucket, key.name), None)
            holds: bytes | None = None
            with contextlib.suppress(s3.exceptions.NoSuchKey):
                got = s3.get_object(Bucket=key.bucket, Key=key.name)
                holds = got["Body"].read()
                assert entry == (len(holds), got["ETag"]), f"LIST and GET differ on {key.bucket}/{key.name}"
            assert (entry is None) == (holds is None), f"LIST and GET differ on {key.bucket}/{key.name}"
            if holds not in key.allowed():
                lengths = [None if one is None else len(one) for one in key.allowed()]
                size = None if holds is None else len(holds)
                raise AssertionError(f"{key.bucket}/{key.name} holds {size} bytes, allowed are {lengths}")
            key.acknowledged = holds
            key.pending.clear()
        assert listed == {}, "keys nobody wrote"

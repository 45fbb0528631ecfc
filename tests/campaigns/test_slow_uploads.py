"""Campaign B09: a thousand uploads of twenty users at 8 kB/s for ten minutes, and memory within its budget."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter

import numpy
import pytest

from campaigns.sizes import size
from e2e.test_memory import BUCKET, OTHERS
from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import MIB, noise, sha256
from outside.server import Server
from outside.sigv4 import UNSIGNED, Scope, authorize
from outside.users import key_id, secret
from outside.wire import Connection, encode

UPLOADS = size(1000)
SECONDS = max(60, size(600))
RATE = 8000
BESIDE = 150_000_000
"""What a process may hold besides `memory_bytes_max`."""
SMALL = 256 << 20
USERS = [f"sender{number:02}" for number in range(20)]
"""One user alone may send no more than `limits.uploads_per_user_max` at a time."""


def users() -> str:
    """The TOML of those who upload."""
    return "".join(
        f'[[users]]\nname = "{name}"\naccess_key_id = "{key_id(name)}"\nsecret_access_key = "{secret(name)}"\n'
        'policy = "readwrite"\n'
        for name in USERS
    )


class Slow:
    """One upload. Its bytes are made as they are sent, because those of a thousand do not fit into memory."""

    def __init__(self, server: Server, number: int) -> None:
        self.number, self.key = number, f"slow/{number:04}"
        self.digest = hashlib.sha256()
        self.connection = Connection(server.port, timeout_s=120)
        name = USERS[number % len(USERS)]
        headers = [("Host", self.connection.host), ("Content-Length", str(RATE * SECONDS))]
        target = f"/{BUCKET}/{self.key}"
        scope = Scope(key_id(name), secret(name))
        names = ["host", "x-amz-content-sha256", "x-amz-date"]
        complete, _ = authorize(scope, "PUT", target, headers, UNSIGNED, names)
        self.connection.send(encode("PUT", target, complete))

    def send(self, second: int) -> None:
        """The bytes of a second."""
        piece = numpy.random.default_rng((self.number, second)).bytes(RATE)
        self.digest.update(piece)
        self.connection.send(piece)

    def outcome(self, s3: S3Client) -> str:
        """Whether it was answered well and reads back as what was sent."""
        answer = self.connection.answer("PUT")
        self.connection.socket.close()
        if answer is None or answer.status != 200:
            return "not_taken"
        content: bytes = s3.get_object(Bucket=BUCKET, Key=self.key)["Body"].read()
        return "whole" if sha256(content) == self.digest.hexdigest() else "wrong"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("memory", "limit"), [("1GiB", 1 << 30), ("256MiB", SMALL)])
def test_a_thousand_slow_uploads_come_whole_and_within_memory(new_server: NewServer, memory: str, limit: int) -> None:
    server = new_server(limits={"memory_bytes_max": memory, "requests_max": 2 * UPLOADS})
    server.more_config = users()
    server.start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    content = noise(1, 9 * MIB)
    s3.put_object(Bucket=BUCKET, Key=OTHERS, Body=content)
    uploads = [Slow(server, number) for number in range(UPLOADS)]
    most = reads = late = 0
    began = time.monotonic()
    for second in range(SECONDS):
        for upload in uploads:
            upload.send(second)
        # What is read is asked of the store, not of a cache.
        server.drop_caches()
        assert s3.get_object(Bucket=BUCKET, Key=OTHERS)["Body"].read() == content
        reads += 1
        most = max(most, server.status_bytes("VmRSS"))
        rest = began + second + 1 - time.monotonic()
        late += rest < 0
        time.sleep(max(0.0, rest))
    took = time.monotonic() - began
    outcomes = Counter(upload.outcome(s3) for upload in uploads)
    line = {
        "campaign": "B09",
        "memory": memory,
        "uploads": UPLOADS,
        "users": len(USERS),
        "seconds": round(took),
        "whole": outcomes["whole"],
        "not_taken": outcomes["not_taken"],
        "wrong": outcomes["wrong"],
        "reads": reads,
        "rss": most,
        "bytes_over_memory": max(0, most - limit - BESIDE),
        "late_seconds": late,
    }
    if limit > SMALL and UPLOADS >= 1000:
        # The mutant: a server that takes four times the memory it is said to have.
        line["mutant_detected"] = most > SMALL + BESIDE
    print(json.dumps(line))
    assert line.get("mutant_detected", True)
    assert outcomes["whole"] == UPLOADS
    assert most <= limit + BESIDE

"""Campaign B09, scaled: a thousand uploads at 8 kB/s, a download each second, and memory within its budget."""

from __future__ import annotations

import json
import time

import pytest

from campaigns.sizes import size
from e2e.test_memory import BUCKET, OTHERS, Uploads, start
from outside.buckets import NewServer

UPLOADS = size(1000)
SECONDS = 60
RATE = 8000


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("memory", "limit"), [("1GiB", 1 << 30), ("256MiB", 256 << 20)])
def test_a_thousand_slow_uploads_come_whole_and_within_memory(new_server: NewServer, memory: str, limit: int) -> None:
    server, s3, content = start(new_server, memory_bytes_max=memory, requests_max=2 * UPLOADS)
    uploads = Uploads(server, UPLOADS, RATE * SECONDS)
    most = reads = 0
    began = time.monotonic()
    for second in range(SECONDS):
        uploads.send(RATE)
        server.drop_caches()
        assert s3.get_object(Bucket=BUCKET, Key=OTHERS)["Body"].read() == content
        reads += 1
        most = max(most, server.status_bytes("VmRSS"))
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))
    uploads.assert_stored(s3)
    line = {"campaign": "B09", "memory": memory, "uploads": UPLOADS, "whole": UPLOADS, "reads": reads, "rss": most}
    print(json.dumps(line))
    assert most <= limit + 150_000_000

"""The collector at scale: how many dead blobs it removes in a second."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from campaigns.sizes import size
from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.content import noise
from outside.server import Server

BUCKET = "off-00"
OBJECTS = size(10_000)
BYTES = 5_000
"""More than what lies in the catalog itself."""


def files_left(server: Server) -> int:
    """How many files of content lie on the disk."""
    return sum(path.is_file() for path in (server.data / "blobs/blobs").rglob("*"))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_dead_blob_is_removed_and_the_rate_is_printed(new_server: NewServer) -> None:
    server = new_server(gc={"grace": "0s", "interval": "1h"}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    body = noise(1, BYTES - 8)
    with ThreadPoolExecutor(16) as pool:
        put = [
            pool.submit(s3.put_object, Bucket=BUCKET, Key=f"{number:06}", Body=number.to_bytes(8, "big") + body)
            for number in range(OBJECTS)
        ]
        for done in put:
            done.result()
    for first in range(0, OBJECTS, 1000):
        keys = [{"Key": f"{number:06}"} for number in range(first, min(first + 1000, OBJECTS))]
        s3.delete_objects(Bucket=BUCKET, Delete={"Objects": keys, "Quiet": True})
    one = server.blob_files()[0]
    forgotten = one.read_bytes()
    began = time.monotonic()
    report = json.loads(server.run("gc", "--now", "--json", timeout_s=600).stdout)
    took_s = time.monotonic() - began
    left = files_left(server)
    # The mutant: a collector that forgets a file.
    one.parent.mkdir(parents=True, exist_ok=True)
    one.write_bytes(forgotten)
    line = {
        "campaign": "collector",
        "ops": OBJECTS,
        "deleted": report["deleted_blobs"],
        "errors": report["errors"],
        "seconds": round(took_s, 2),
        "deletes_per_second": round(OBJECTS / took_s),
        "orphans": left,
        "mutant_detected": files_left(server) > left,
    }
    print(json.dumps(line))
    assert (report["deleted_blobs"], report["errors"]) == (OBJECTS, 0)
    assert left == 0 and line["mutant_detected"]

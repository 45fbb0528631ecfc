"""A store of a million blobs is restarted and left alone for an hour: its files are listed once at most."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from campaigns.sizes import size
from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.server import Server, until

BUCKET = "off-00"
BLOBS = size(1_000_000)
IDLE_S = size(3_600)
BYTES = 5_000
"""More than what lies in the catalog itself."""
FILL_S_MAX = 7_200
LISTING = re.compile(r"^(?P<thread>\d+) +(?:<\.\.\. )?getdents64(?:\(\d+<(?P<place>[^>]+)>)?(?P<rest>.*)$")


def ended_listings(calls: str) -> Iterator[str]:
    """The directories that were read to their end, each as often; a call that another thread's interrupted in the
    output takes two lines, and the first one names the directory."""
    places: dict[str, str] = {}
    for line in calls.splitlines():
        found = LISTING.match(line)
        if found is None:
            continue
        place = found["place"] or places.get(found["thread"], "")
        places[found["thread"]] = place
        if found["rest"].endswith("= 0"):
            yield place


@contextmanager
def listed(server: Server) -> Iterator[Counter[str]]:
    """How often the server reads each directory of its blobs to its end; filled when the block is left."""
    assert server.process is not None
    output, said = server.folder / "listings", server.folder / "strace.log"
    command = ["strace", "-f", "-y", "-e", "trace=getdents64", "-o", str(output), "-p", str(server.process.pid)]
    times: Counter[str] = Counter()
    with said.open("wb") as log:
        tracer = subprocess.Popen(command, stderr=log)
    try:
        until(lambda: b"attached" in said.read_bytes(), 30, "strace is there")
        yield times
    finally:
        tracer.terminate()
        tracer.wait(60)
    place = str(server.blobs / "blobs")
    times.update(found for found in ended_listings(output.read_text(errors="replace")) if found.startswith(place))


def fill(server: Server) -> None:
    """Puts the blobs through the engine, without HTTP and without flushing."""
    program = server.binary.parent / "examples" / "fill_store"
    command = [str(program), str(server.config), BUCKET, str(BLOBS), str(BYTES)]
    subprocess.run(command, env=server.variables(), check=True, timeout=FILL_S_MAX, cwd=server.folder)


def cpu_s(server: Server) -> float:
    """The processor time of the process so far."""
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_a_restarted_store_lists_its_blobs_once_at_most_in_an_idle_hour(new_server: NewServer) -> None:
    server = new_server(storage={"second_copies": "none"}).start()
    blunt_client(server.endpoint).create_bucket(Bucket=BUCKET)
    assert server.stop() == 0
    fill(server)
    server.launch()
    with listed(server) as times:
        server.wait_ready(timeout_s=120)
        before_s = cpu_s(server)
        time.sleep(IDLE_S)
        idle_cpu_s = cpu_s(server) - before_s
    with listed(server) as again:
        # The mutant: whoever lists at each collection is seen.
        server.run("gc", "--sweep", timeout_s=FILL_S_MAX)
    listings, orphans = max(times.values(), default=0), len(server.blob_files()) - BLOBS
    mutant_detected = max(again.values(), default=0) > 0
    line = {
        "campaign": "idle store",
        "ops": BLOBS,
        "seconds": IDLE_S,
        "listings": listings,
        "cpu_s": round(idle_cpu_s, 1),
        "orphans": orphans,
        "mutant_detected": mutant_detected,
    }
    print(json.dumps(line))
    assert listings <= 1 and orphans == 0 and mutant_detected

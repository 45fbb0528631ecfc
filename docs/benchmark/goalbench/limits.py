"""`python -m goalbench.limits`: the largest uploads that S3 has: one PUT of 5 GiB, and 10,000 parts of 10 MiB.

Content is made while it is sent. A part repeats one of few, with a stamp in it, so that the store stays small; what is
unfair: a store of noise would write as many bytes as it gets.
"""

from __future__ import annotations

import argparse
import http.client
import re
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import numpy as np

from goalbench.size import CATALOG, MEMORY_BYTES_MAX
from taxbench.admin import AdminError
from taxbench.client.endpoint import Endpoint
from taxbench.client.sigv4 import UNSIGNED_PAYLOAD, sign
from taxbench.servers.deltaweir import BucketSettings, Deltaweir, find_binary
from taxbench.servers.target import TargetError
from taxbench.studies.bench import StudyError, cpu_s, settle_s

BUCKET = "large"
MIB, GIB = 1 << 20, 1 << 30
PARTS = 10_000
DISTINCT = 16
"""Different parts; the others are these again."""
STAMPED_EVERY = 64 << 10
SETTLE_S = 3600.0
TIMEOUT_S = 1800.0
CLIENTS = 4


@dataclass(frozen=True, slots=True)
class Row:
    """What an upload took."""

    work: str
    sent_bytes: int
    seconds: float
    cpu: float
    peak_bytes: int
    stored_bytes: int
    rows: int
    """Extents in the catalog."""
    last_s: float
    """Reading the last MiB of it, from the request to the last byte."""


@dataclass(slots=True)
class Contents:
    """Pieces of a MiB: noise of 4 KiB again and again, with the piece's number every 64 KiB."""

    seed: int
    pieces: list[bytearray] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, 12])
        self.pieces = [bytearray(rng.bytes(4096) * (MIB // 4096)) for _ in range(DISTINCT)]

    def piece(self, number: int, length: int) -> bytes:
        """Piece `number` of whatever there is, no longer than `length`."""
        piece = bytearray(self.pieces[number % DISTINCT])
        for at in range(0, MIB, STAMPED_EVERY):
            piece[at : at + 8] = number.to_bytes(8, "big")
        return bytes(piece[:length])

    def stream(self, first: int, length: int) -> Iterator[bytes]:
        for number in range(-(-length // MIB)):
            yield self.piece(first + number, length - number * MIB)


class Caller(threading.local):
    """A connection for each thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.connection = http.client.HTTPConnection(endpoint.authority, timeout=TIMEOUT_S)

    def call(
        self,
        method: str,
        key: str,
        query: str = "",
        body: Iterator[bytes] | bytes = b"",
        length: int = 0,
        headers: dict[str, str] | None = None,
    ) -> tuple[bytes, str]:
        """The answer's body and ETag.

        # Errors
        `StudyError` for any other status than 200 and 206.
        """
        path = self.endpoint.path(BUCKET, key)
        signed = sign(self.endpoint, method, path, query, headers, length, UNSIGNED_PAYLOAD)
        lines = signed.head.decode("latin-1").split("\r\n")[1:-2]
        sent = dict(line.split(": ", 1) for line in lines)
        self.connection.request(method, signed.target, body=body, headers=sent)
        answer = self.connection.getresponse()
        found = answer.read()
        if answer.status not in (200, 206):
            raise StudyError(f"{method} {key}: {answer.status} {found[:200]!r}")
        return found, answer.headers.get("ETag", "")


def put(caller: Caller, contents: Contents, key: str, length: int) -> None:
    caller.call("PUT", key, body=contents.stream(0, length), length=length)


def upload(caller: Caller, contents: Contents, key: str, length: int, parts: int) -> None:
    """Parts of equal length."""
    part = length // parts
    found, _ = caller.call("POST", key, "uploads=")
    [upload_id] = re.findall(r"<UploadId>(.+?)</UploadId>", found.decode())
    identified = f"uploadId={quote(upload_id, safe='')}"

    def send(number: int) -> str:
        # Of three parts, two are the same as one before.
        first = (number % DISTINCT if number % 3 else number) * (part // MIB + 1)
        _, etag = caller.call("PUT", key, f"partNumber={number}&{identified}", contents.stream(first, part), part)
        return etag

    with ThreadPoolExecutor(CLIENTS) as pool:
        etags = list(pool.map(send, range(1, parts + 1)))
    # It was idle while the parts went, longer than a server keeps a connection.
    caller.connection.close()
    listed = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{e}</ETag></Part>" for n, e in enumerate(etags, 1))
    xml = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    done, _ = caller.call("POST", key, identified, xml, len(xml))
    if b"<Error>" in done:
        raise StudyError(f"the upload was not completed: {done[:200]!r}")


def peak_bytes(server: Deltaweir) -> int:
    """The most that was resident since the server's start."""
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process_ids()[0]}/status").read_text())
    return int(peak) * 1024


def measure(server: Deltaweir, work: str, length: int, parts: int) -> Row:
    """An upload in so many parts; in none, one PUT."""
    caller, contents = Caller(server.endpoint), Contents(1)
    before_s, started = cpu_s(server), time.perf_counter()
    if parts:
        length = length // parts * parts
        upload(caller, contents, work, length, parts)
    else:
        put(caller, contents, work, length)
    seconds = time.perf_counter() - started
    took_s = cpu_s(server) - before_s
    started = time.perf_counter()
    last, _ = caller.call("GET", work, headers={"Range": f"bytes={length - MIB}-{length - 1}"})
    last_s = time.perf_counter() - started
    if len(last) != MIB:
        raise StudyError(f"{work}: {len(last)} bytes of its end came back")
    settle_s(server, SETTLE_S)
    assert server.admin is not None
    stored = server.admin.stats().bucket(BUCKET).stored.total
    catalog = sqlite3.connect(f"file:{server.data_dir / CATALOG}?mode=ro", uri=True)
    try:
        rows = int(catalog.execute("SELECT count(*) FROM extents").fetchone()[0])
    finally:
        catalog.close()
    return Row(work, length, seconds, took_s, peak_bytes(server), stored, rows, last_s)


def render(rows: list[Row]) -> str:
    lines = [
        "| work | GiB | s | MB/s | CPU s/GB | peak RSS MB | stored MB | extents | last MiB ms |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.work} | {row.sent_bytes / GIB:.1f} | {row.seconds:.0f} | {row.sent_bytes / 1e6 / row.seconds:.0f} "
        f"| {row.cpu / (row.sent_bytes / 1e9):.2f} | {row.peak_bytes / 1e6:.0f} | {row.stored_bytes / 1e6:.0f} "
        f"| {row.rows} | {row.last_s * 1000:.0f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="goalbench.limits", description=__doc__)
    parser.add_argument("--binary", default="", help="the server (default: the release build)")
    parser.add_argument("--put-gib", type=float, default=5.0, help="length of the object that is put at once")
    parser.add_argument("--parted-gib", type=float, default=100.0, help="length of the upload in parts")
    parser.add_argument("--parts", type=int, default=PARTS, help="how many; S3 wants 5 MiB of each but the last")
    parser.add_argument("--place", type=Path, help="where stores are made (default: the system's temporary directory)")
    options = parser.parse_args(arguments)
    limits = f'[limits]\nmemory_bytes_max = "{MEMORY_BYTES_MAX >> 20}MiB"'
    works = [("one PUT", options.put_gib, 0), (f"{options.parts:,} parts", options.parted_gib, options.parts)]
    found: list[Row] = []
    try:
        binary = find_binary(options.binary)
        for work, gib, parts in works:
            if not gib:
                continue
            with tempfile.TemporaryDirectory(prefix="goalbench-", dir=options.place) as scratch:
                settings = {BUCKET: BucketSettings("delta", "off")}
                server = Deltaweir(binary, Path(scratch) / "server", settings, extra_configuration=limits)
                with server:
                    server.ensure_bucket(BUCKET)
                    found.append(measure(server, work, int(gib * GIB), parts))
                print(render(found[-1:]), end="", file=sys.stderr, flush=True)
    except (TargetError, AdminError, StudyError, OSError) as error:
        print(f"goalbench.limits: {error}", file=sys.stderr)
        return 2
    print(render(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

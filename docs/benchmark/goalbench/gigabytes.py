"""Line 14: successive files of gigabytes, beside files of the same families at 180 MB.

A file of gigabytes is several of the small ones in a row, each with its bytes exchanged for others by a table of its
own: their changes and their statistics are the same, and none of them is like another.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from goalbench.served import BUCKETS, DELTA, Figures, Round, ask
from goalbench.size import MEMORY_BYTES_MAX, bound_bytes
from taxbench.artifacts import synthetic
from taxbench.client.pool import WorkerPool
from taxbench.servers.deltaweir import Deltaweir
from taxbench.studies.bench import Content, run_checked, settle_s

SMALL_BYTES = 180_000_000
LARGE_BYTES = 2 << 30
VERSIONS = 3
FAMILIES = {"disk": "disk", "dump": "sql"}
SETTLE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of the successors of one file."""

    share: float
    """Stored bytes by bytes."""
    put_rate: float
    """Bytes a second."""
    get_rate: float
    peak_bytes: int


def files(seed: int, family: str, size: int) -> Iterator[bytes]:
    """Successive files of about `size` bytes."""
    rng, exchange = (np.random.default_rng([seed, 14, which, *family.encode()]) for which in (0, 1))
    # Zeros stay: an image's holes are holes.
    others = [bytes([0, *(exchange.permutation(255) + 1).tolist()]) for _ in range(1, round(size / SMALL_BYTES))]
    tables = [bytes(range(256)), *others]
    for piece in synthetic.family_named(family).generate(rng, SMALL_BYTES, VERSIONS):
        yield b"".join(piece.translate(table) for table in tables)


def stored(round_: Round, family: str, size: int) -> Stored:
    """Puts the files one after the other, each when the one before has settled."""
    limits = f'[limits]\nmemory_bytes_max = "{MEMORY_BYTES_MAX >> 20}MiB"'
    server = Deltaweir(round_.binary, round_.place / "server", BUCKETS, extra_configuration=limits)
    added, sent, put_s, get_s, before = 0, 0, 0.0, 0.0, 0
    try:
        with server, WorkerPool(1, size + size // 4) as pool:
            assert server.admin is not None
            server.ensure_bucket(DELTA)
            for number, data in enumerate(files(round_.seed, family, size)):
                content = Content.write(round_.place / "file", data)
                del data
                put = run_checked(pool, server, [ask("put", content, DELTA, f"{family}/{number}")])
                settle_s(server, SETTLE_S)
                server.admin.collect()
                total = server.admin.stats().bucket(DELTA).stored.total
                if number:
                    get = run_checked(pool, server, [ask("get", content, DELTA, f"{family}/{number}")])
                    added, sent = added + total - before, sent + content.size
                    put_s, get_s = put_s + put.wall_s, get_s + get.wall_s
                before = total
            return Stored(added / sent, sent / put_s, sent / get_s, peak_bytes(server))
    finally:
        shutil.rmtree(server.data_dir, ignore_errors=True)
        (round_.place / "file").unlink(missing_ok=True)


def peak_bytes(server: Deltaweir) -> int:
    """The most that was resident since the server's start."""
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process_ids()[0]}/status").read_text())
    return int(peak) * 1024


def successive(round_: Round) -> Figures:
    """Line 14. Ratios are of the large files against the small ones."""
    peak = 0
    for name, family in FAMILIES.items():
        small, large = (stored(round_, family, size) for size in (SMALL_BYTES, LARGE_BYTES))
        yield f"{name}, ratio", small.share / large.share
        yield f"{name}, PUT speed", large.put_rate / small.put_rate
        yield f"{name}, GET speed", large.get_rate / small.get_rate
        peak = max(peak, large.peak_bytes)
    yield "RSS", peak / bound_bytes(0)

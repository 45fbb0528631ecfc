"""How fast the client itself is, against a server that stores nothing: the number every result is held against."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from taxbench.client.operation import Operation
from taxbench.client.pool import WorkerPool
from taxbench.records import Ceiling
from taxbench.servers.fileserver import FileServer

OBJECT_BYTES = 16 << 20
OBJECTS_PER_WORKER = 6
REQUESTS_PER_WORKER = 300


def measure(concurrency: int) -> Ceiling:
    """Client, loopback and a server that throws PUTs away in the kernel and answers GETs from memory.

    On one machine client and null server share its cores, so the ceiling with two machines is higher than this.
    """
    with tempfile.TemporaryDirectory(prefix="taxbench-ceiling-") as scratch:
        content = Path(scratch) / "zeros"
        content.write_bytes(bytes(OBJECT_BYTES))
        digest = hashlib.sha256(bytes(OBJECT_BYTES)).hexdigest()
        server = FileServer(Path(scratch) / "server", null=True)
        with server, WorkerPool(concurrency, OBJECT_BYTES) as pool:

            def speed(kind: str, size: int, count: int) -> tuple[float, float]:
                operation = Operation(
                    kind="put" if kind == "put" else "get",
                    phase="ceiling",
                    bucket="null",
                    key=str(size),
                    content_path=str(content),
                    size=size,
                    sha256=digest,
                )
                batch = pool.run(server.endpoint, [operation] * (count * concurrency))
                if any(sample.failed for sample in batch.samples):
                    raise RuntimeError(f"the null server failed: {next(s.error for s in batch.samples if s.failed)}")
                return batch.payload_bytes / 1e6 / batch.wall_s, len(batch.samples) / batch.wall_s

            speed("get", OBJECT_BYTES, 1)
            put_mb_s, _ = speed("put", OBJECT_BYTES, OBJECTS_PER_WORKER)
            get_mb_s, _ = speed("get", OBJECT_BYTES, OBJECTS_PER_WORKER)
            _, requests_s = speed("get", 1, REQUESTS_PER_WORKER)
    return Ceiling(
        concurrency=concurrency,
        put_mb_s=round(put_mb_s, 1),
        get_mb_s=round(get_mb_s, 1),
        requests_s=round(requests_s, 1),
    )

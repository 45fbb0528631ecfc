"""Line 6 and the growth table: a store with very many objects.

The objects are put by the example `fill_store`, through the engine and not over HTTP, so that a hundred thousand take
seconds. Everything is measured on a server that was started over them and has nothing left to do.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from goalbench.goals import Size
from goalbench.served import ask
from taxbench.client.operation import Kind, Operation
from taxbench.client.pool import WorkerPool
from taxbench.processes import process_usage
from taxbench.servers.deltaweir import BucketSettings, Deltaweir
from taxbench.statistics import Interval, bootstrap
from taxbench.studies.bench import Content, StudyError, cpu_s, run_checked, settle_s

BUCKET = "filled"
OBJECT_BYTES = 1024
MEMORY_BYTES_MAX = 256 << 20
"""The budget the server is given, so that what it takes besides is seen."""
RSS_BYTES_EACH = 64
FILL_S_MAX = 8 * 3600.0
"""Filling a store with ten million objects takes 45 minutes of CPU."""
CLIENTS = 4
CATALOG = "catalog.sqlite"
REBUILDING = "catalog.sqlite.rebuilding"
"""There while a damaged catalog is made again."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long an idle server is watched, and how often; how many requests are sent, and how long objects are."""

    seconds: float = 10.0
    rounds: int = 3
    requests: int = 400
    object_bytes: int = OBJECT_BYTES
    packs: bool = True
    """Whether small objects are packed, which takes half a millisecond for each. A bucket of deltas packs them."""
    recovers: bool = True
    """Whether the catalog is damaged, and then lost."""


def bound_bytes(objects: int) -> float:
    """What a server may take: its budget and a tenth, and a little for each object."""
    return 1.1 * MEMORY_BYTES_MAX + RSS_BYTES_EACH * objects


def measure(binary: Path, fill: Path, place: Path, objects: int, windows: Windows) -> Size:
    """Fills a store and measures everything about it.

    # Errors
    `StudyError` when the store cannot be filled or does not settle, `TargetError` when the server does not start.
    """
    limits = f'[limits]\nmemory_bytes_max = "{MEMORY_BYTES_MAX >> 20}MiB"'
    settings = {BUCKET: BucketSettings("delta" if windows.packs else "zstd", "off")}
    server = Deltaweir(binary, place, settings, extra_configuration=limits)
    with server:
        server.ensure_bucket(BUCKET)
    filled(server, fill, objects, windows.object_bytes)
    figures: dict[str, Interval] = {}
    with server:
        settle_s(server, FILL_S_MAX)
        figures["deleting what was packed, ms each"] = one(collected_s(server) * 1000 / objects)
    started = time.perf_counter()
    with server, WorkerPool(CLIENTS, max(windows.object_bytes, OBJECT_BYTES)) as pool:
        figures["restart s"] = one(time.perf_counter() - started)
        rewritten = Content.write(server.data_dir / "rewritten", b"twice")
        kinds: tuple[Kind, ...] = ("put", "delete")
        for kind in kinds:
            run_checked(pool, server, [ask(kind, rewritten, BUCKET, "rewritten")])
        collected_s(server)
        # What is deleted goes once the catalog is verified.
        figures["restart until verified s"] = one(time.perf_counter() - started)
        settle_s(server, FILL_S_MAX)
        figures |= dict(idle(server, objects, windows))
        figures["catalog bytes each, without content"] = one(catalog_bytes(server) / objects)
        figures |= dict(requests(server, pool, objects, windows))
        figures |= dict(jobs(server))
    if windows.recovers:
        figures |= dict(recoveries(server, objects))
    return Size(objects=objects, figures=figures)


def filled(server: Deltaweir, fill: Path, objects: int, object_bytes: int = OBJECT_BYTES) -> None:
    """Runs the example over the stopped server's store."""
    command = [str(fill), str(server.config_path), BUCKET, str(objects), str(object_bytes)]
    environment = {**os.environ, **server.environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=FILL_S_MAX, check=False)
    if done.returncode != 0:
        raise StudyError(f"{fill.name} failed: {done.stderr[-500:]}")


def idle(server: Deltaweir, objects: int, windows: Windows) -> Iterator[tuple[str, Interval]]:
    """CPU in windows without a request, and what is resident at the end of each."""
    cpu, resident = [], []
    for _ in range(windows.rounds):
        before_s = cpu_s(server)
        time.sleep(windows.seconds)
        cpu.append((cpu_s(server) - before_s) * 10 / windows.seconds)
        usage = process_usage(server.process_ids())
        if usage is None:
            raise StudyError("the server cannot be seen")
        resident.append(float(usage.rss_bytes))
    yield "idle CPU s in 10 s", many(cpu)
    yield "RSS MB", many([value / 1e6 for value in resident])
    yield "RSS × its bound", many([value / bound_bytes(objects) for value in resident])


def requests(server: Deltaweir, pool: WorkerPool, objects: int, windows: Windows) -> Iterator[tuple[str, Interval]]:
    """The server's CPU for a request of each kind, among so many objects."""
    rng = np.random.default_rng([objects, 6])
    contents = [
        Content.write(server.data_dir / f"content-{n:04d}", rng.bytes(windows.object_bytes))
        for n in range(windows.requests)
    ]
    kinds: tuple[Kind, ...] = ("put", "get", "delete")
    for kind in kinds:
        before_s = cpu_s(server)
        run_checked(pool, server, [ask(kind, c, BUCKET, f"fill/000001/{c.path.name}") for c in contents])
        yield f"{kind.upper()} ms", one((cpu_s(server) - before_s) * 1000 / len(contents))
    pages = [Operation(kind="list", phase="list", bucket=BUCKET, key=prefix(n, objects)) for n in range(20)]
    before_s = cpu_s(server)
    run_checked(pool, server, pages)
    yield "LIST of 1000 ms", one((cpu_s(server) - before_s) * 1000 / len(pages))


def prefix(number: int, objects: int) -> str:
    """One of the prefixes that `fill_store` makes, each with a thousand keys; the same for the same number."""
    return f"fill/{number * 7919 % max(objects // 1000, 1):06d}/"


def jobs(server: Deltaweir) -> Iterator[tuple[str, Interval]]:
    """How long a collection and a backup take, by the clock."""
    assert server.admin is not None
    yield "gc s", one(collected_s(server))
    started = time.perf_counter()
    server.admin.run_job("backup", FILL_S_MAX)
    yield "backup s", one(time.perf_counter() - started)


def collected_s(server: Deltaweir) -> float:
    """How long a collection takes that removes all there is to remove."""
    assert server.admin is not None
    started = time.perf_counter()
    server.admin.collect(FILL_S_MAX)
    return time.perf_counter() - started


def recoveries(server: Deltaweir, objects: int) -> Iterator[tuple[str, Interval]]:
    """How long the catalog of a stopped server is not there when it is damaged, and when it is lost.

    # Errors
    `StudyError` when not every object is back.
    """
    damage(server.data_dir / CATALOG)
    marker = server.data_dir / REBUILDING
    with server:
        assert server.admin is not None
        seen(lambda: bool(aside(server)), "the damage is found")
        seen(lambda: not marker.exists(), "the catalog is made again")
        seen(server.admin.ready, "the server is ready")
        # What is set aside is named after the moment.
        [begun] = aside(server)
        yield "damaged catalog until served s", one(time.time() - int(begun.name.rsplit("-", 1)[1]) / 1000)
        check_objects(server, objects)
        settle_s(server, FILL_S_MAX)
        server.admin.run_job("backup", FILL_S_MAX)
    for file in (CATALOG, f"{CATALOG}-wal", f"{CATALOG}-shm"):
        (server.data_dir / file).unlink(missing_ok=True)
    started = time.perf_counter()
    command = [str(server.binary), "restore", "--config", str(server.config_path)]
    environment = {**os.environ, **server.environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=FILL_S_MAX, check=False)
    if done.returncode != 0:
        raise StudyError(f"the catalog was not made again: {done.stderr[-500:]}")
    yield "lost catalog, restored s", one(time.perf_counter() - started)
    with server:
        check_objects(server, objects)


def damage(catalog: Path) -> None:
    """Overwrites a page that is in use: the first of the index by which keys are found."""
    opened = sqlite3.connect(f"file:{catalog}?mode=ro", uri=True)
    try:
        [page] = opened.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'versions_current'").fetchone()
        [page_bytes] = opened.execute("PRAGMA page_size").fetchone()
    finally:
        opened.close()
    with catalog.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xa5" * page_bytes)


def aside(server: Deltaweir) -> list[Path]:
    """The catalogs that were found damaged."""
    found = server.data_dir.glob(f"{CATALOG}.damaged-*")
    return [file for file in found if file.name.rsplit("-", 1)[1].isdigit()]


def seen(condition: Callable[[], bool], what: str) -> None:
    """Waits until it holds.

    # Errors
    `StudyError` when it does not.
    """
    deadline = time.perf_counter() + FILL_S_MAX
    while not condition():
        if time.perf_counter() > deadline:
            raise StudyError(f"never: {what}")
        time.sleep(0.01)


def check_objects(server: Deltaweir, objects: int) -> None:
    assert server.admin is not None
    found = server.admin.stats().bucket(BUCKET).objects
    if found != objects:
        raise StudyError(f"{found} of {objects} objects are back")


def catalog_bytes(server: Deltaweir) -> int:
    """Bytes of the catalog's pages in use, without the content of small objects that lies in rows."""
    catalog = sqlite3.connect(f"file:{server.data_dir / CATALOG}?mode=ro", uri=True)
    try:

        def count(asked: str) -> int:
            return int(catalog.execute(asked).fetchone()[0])

        pages = count("PRAGMA page_count") - count("PRAGMA freelist_count")
        content = count("SELECT coalesce(sum(length(inline_bytes)), 0) FROM blobs")
        return pages * count("PRAGMA page_size") - content
    finally:
        catalog.close()


def one(value: float) -> Interval:
    return many([value])


def many(values: list[float]) -> Interval:
    found = bootstrap(values)
    assert found is not None, "there is a value"
    return found

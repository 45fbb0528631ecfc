"""The server keeps its promises on a very small machine, and on one with many cores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from outside.buckets import NewServer, mode_tables
from outside.clients import S3Client, blunt_client
from outside.content import MIB, noise, release
from outside.server import BINARY, Server
from outside.storage import stored

BUCKET = "delta-00"
FAMILIES = 8
VERSIONS = 3
BESIDE_BYTES = 150_000_000
"""What a server may take beside its budget."""


@contextlib.contextmanager
def group(name: str, memory_bytes: int) -> Iterator[Path]:
    """A new cgroup that ends what takes more memory; its file for processes. Needs root."""
    root = Path("/sys/fs/cgroup")
    unified = (root / "cgroup.controllers").exists()
    if unified:
        (root / "cgroup.subtree_control").write_text("+memory")
    place = root / ("" if unified else "memory") / f"{name}-{os.getpid()}"
    place.mkdir()
    try:
        (place / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(memory_bytes))
        yield place / "cgroup.procs"
    finally:
        place.rmdir()


def within(binary: Path, folder: Path, processes: Path) -> Path:
    """A program that starts the binary in a cgroup, on one core."""
    script = folder / "deltaweir-within"
    core = min(os.sched_getaffinity(0))
    script.write_text(f'#!/bin/sh\necho $$ > {processes}\nexec taskset -c {core} {binary} "$@"\n')
    script.chmod(0o755)
    return script


def worked_on(server: Server) -> S3Client:
    """Three successive releases of eight families, eight uploads at a time; all read back, eight at a time."""
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    names = [(family, version) for version in range(VERSIONS) for family in range(FAMILIES)]

    def content(family: int, version: int) -> bytes:
        return noise(9, 24 * MIB) if family == 0 else release(family, 12 * MIB, version)

    def put(name: tuple[int, int]) -> None:
        family, version = name
        s3.put_object(Bucket=BUCKET, Key=f"app-{family}/{version}.tar", Body=content(family, version))

    def read(name: tuple[int, int]) -> None:
        family, version = name
        found = s3.get_object(Bucket=BUCKET, Key=f"app-{family}/{version}.tar")["Body"].read()
        assert found == content(family, version), name

    with ThreadPoolExecutor(FAMILIES) as clients:
        list(clients.map(put, names))
        server.settle(300)
        server.drop_caches()
        list(clients.map(read, names))
    return s3


@dataclass
class Unbudgeted(Server):
    """Nobody tells this server how much memory it may take."""

    def write_config(self) -> None:
        super().write_config()
        lines = self.config.read_text().splitlines(keepends=True)
        self.config.write_text("".join(line for line in lines if not line.startswith("memory_bytes_max")))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes cgroups")
def test_a_server_that_nobody_tells_how_much_memory_it_may_take_works_in_512_mib_on_one_core(tmp_path: Path) -> None:
    with group("deltaweir-small", 512 * MIB) as processes:
        binary = within(BINARY, tmp_path, processes)
        with Unbudgeted(tmp_path / "server", mode_tables(), binary=binary) as server:
            s3 = worked_on(server)
            assert server.metrics().total("deltaweir_memory_budget_bytes", state="limit") == 256 * MIB
            assert server.metrics().total("deltaweir_codec_threads", state="total") == 1
            assert {stored(s3, BUCKET, f"app-{family}/2.tar").form for family in range(1, FAMILIES)} == {"delta"}
            assert server.status_bytes("VmHWM") <= 256 * MIB + BESIDE_BYTES
            assert server.stop() == 0


def test_a_server_with_64_codec_threads_keeps_to_its_budget(new_server: NewServer) -> None:
    server = new_server(limits={"memory_bytes_max": "4GiB", "codec_threads": 64}).start()
    assert server.metrics().total("deltaweir_codec_threads", state="total") == 64
    s3 = worked_on(server)
    assert {stored(s3, BUCKET, f"app-{family}/2.tar").form for family in range(1, FAMILIES)} == {"delta"}
    assert server.status_bytes("VmHWM") <= (4 << 30) + BESIDE_BYTES

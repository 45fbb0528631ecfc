"""Buckets of every mode, by names the configuration knows; and the makers the fixtures hand to tests."""

from __future__ import annotations

import os
from collections import Counter
from typing import Protocol

from outside.clients import S3Client
from outside.server import MODES, Mode, Server, Value

BUCKETS_PER_MODE = 60
"""As one process of tests makes them."""
ELSEWHERE = os.environ.get("DELTAWEIR_TEST_ENDPOINT")
"""The endpoint that most tests are tried on, when it is none of their own."""


def mode_tables(processes: int = 1) -> dict[str, dict[str, Value]]:
    """Settings for buckets of every mode: `zstd-aes256-07` and so on, enough for so many processes of tests."""
    return {
        f'buckets."{mode.name}-{number:02}"': {"compression": mode.compression, "encryption": mode.encryption}
        for mode in MODES
        for number in range(BUCKETS_PER_MODE * processes)
    }


class MakeBucket(Protocol):
    """Creates an empty bucket of a mode, by default the run's, and gives its name."""

    def __call__(self, mode: Mode | None = None) -> str: ...


def bucket_maker(s3: S3Client) -> MakeBucket:
    """A maker of buckets whose names the configuration of [`mode_tables`] knows. Processes of pytest that share an
    endpoint take turns with the numbers."""
    taken = Counter[str]()
    first, step = 0, 1
    if ELSEWHERE is not None:
        first = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        step = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

    def make(mode: Mode | None = None) -> str:
        kind = mode.name if mode else "plain"
        number = first + step * taken[kind]
        taken[kind] += 1
        assert mode is None or number < BUCKETS_PER_MODE * step, "raise BUCKETS_PER_MODE"
        name = f"{kind}-{number:02}"
        s3.create_bucket(Bucket=name)
        return name

    return make


class NewServer(Protocol):
    """Makes a server (not started) in a folder of its own; keyword arguments are TOML tables."""

    def __call__(self, folder: str = "server", /, **tables: dict[str, Value]) -> Server: ...


def at_effort(new_server: NewServer, effort: str) -> NewServer:
    """A maker of servers whose buckets try so hard. Others here are `balanced`, which no load changes, but which spends
    little on reading compressed files."""

    def make(folder: str = "server", /, **tables: dict[str, Value]) -> Server:
        defaults: dict[str, dict[str, Value]] = {"defaults": {"effort": effort}}
        return new_server(folder, **defaults | tables)

    return make

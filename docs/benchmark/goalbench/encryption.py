"""`python -m goalbench.encryption`: what encryption costs one client, beside a plain bucket of the same round.

The client uploads objects of 32 MiB and downloads them again, one after another, over one connection, without
compression: sealed bucket, SSE-S3, SSE-C and SSE-KMS, each in turn within a round. Every download is compared with what
was sent. A cell of throughput is the ratio of the fastest rounds, since what disturbs a round only makes it slower. A
cell of CPU is the median of the ratios of rounds.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from taxbench.client.connection import Body, TimedConnection
from taxbench.client.sigv4 import sign
from taxbench.servers.deltaweir import BucketSettings, Deltaweir, find_binary
from taxbench.servers.target import TargetError
from taxbench.studies.bench import StudyError, cpu_s

MIB = 1 << 20
PLAIN, SEALED = "plain", "sealed"
BUCKETS = {PLAIN: BucketSettings("off", "off"), SEALED: BucketSettings("off", "aes256")}
SSE = "x-amz-server-side-encryption"
KEY_NAME = "bench"
KMS_KEYS = f'[kms.keys]\n"{KEY_NAME}" = "keyring"\n'
LOSS_MAX = 0.10
"""Throughput that encryption may cost."""
SEED = 20_261_127


def customer_key() -> dict[str, str]:
    """The headers of SSE-C, with a key that no secret depends on."""
    key = hashlib.sha256(b"goalbench").digest()
    digest = hashlib.md5(key, usedforsecurity=False).digest()
    return {
        f"{SSE}-customer-algorithm": "AES256",
        f"{SSE}-customer-key": base64.b64encode(key).decode(),
        f"{SSE}-customer-key-MD5": base64.b64encode(digest).decode(),
    }


@dataclass(frozen=True, slots=True)
class Way:
    """One way of encrypting: the bucket, and what a client says when it writes and when it reads."""

    bucket: str
    writing: dict[str, str] = field(default_factory=dict)
    reading: dict[str, str] = field(default_factory=dict)


WAYS = {
    PLAIN: Way(PLAIN),
    "sealed bucket": Way(SEALED),
    "SSE-S3": Way(PLAIN, {SSE: "AES256"}),
    "SSE-C": Way(PLAIN, customer_key(), customer_key()),
    "SSE-KMS": Way(PLAIN, {SSE: "aws:kms", f"{SSE}-aws-kms-key-id": KEY_NAME}),
}

Figures = dict[tuple[str, str], tuple[float, float]]
"""Wall seconds and the server's CPU seconds, by way and method."""


def round_of(server: Deltaweir, contents: list[bytes], number: int) -> Figures:
    """One round of all ways, which begins with another one each time: who comes later writes to a busier disk.

    # Errors
    `StudyError` when a request is refused, or a download is not what was sent.
    """
    found: Figures = {}
    connection = TimedConnection(server.endpoint)
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    room = memoryview(bytearray(max(map(len, contents))))

    def ask(method: str, path: str, headers: dict[str, str], content: bytes, digest: str) -> None:
        if method == "PUT":
            head = sign(server.endpoint, "PUT", path, "", headers, len(content), digest)
            answer = connection.exchange(head, Body(data=content))
        else:
            answer = connection.exchange(sign(server.endpoint, "GET", path, "", headers), sink=room)
        if answer.status != 200 or (method == "GET" and room[: len(content)] != content):
            raise StudyError(f"{method} {path}: {answer.status} {answer.small_body[:300]!r}")

    ways = list(WAYS.items())
    turn = number % len(ways)
    for name, way in ways[turn:] + ways[:turn]:
        for method, headers in (("PUT", way.writing), ("GET", way.reading)):
            before, began = cpu_s(server), time.perf_counter()
            for number, (content, digest) in enumerate(zip(contents, digests, strict=True)):
                path = f"/{way.bucket}/{name.replace(' ', '-')}-{number}"
                ask(method, path, headers, content, digest)
            found[name, method] = (time.perf_counter() - began, cpu_s(server) - before)
    connection.close()
    return found


def render(rounds: list[Figures]) -> str:
    """The table: each way, and whether it meets the goal."""
    speeds: dict[tuple[str, str], float] = {}
    costs: dict[tuple[str, str], float] = {}
    for key in rounds[0]:
        plain = (PLAIN, key[1])
        speeds[key] = min(found[plain][0] for found in rounds) / min(found[key][0] for found in rounds)
        costs[key] = median(found[key][1] / found[plain][1] for found in rounds)
    lines = ["| | PUT, throughput | PUT, CPU | GET, throughput | GET, CPU | goal |", "|---|---:|---:|---:|---:|---|"]
    for name in WAYS:
        if name == PLAIN:
            continue
        is_met = min(speeds[name, "PUT"], speeds[name, "GET"]) >= 1 - LOSS_MAX
        cells = [f"{table[name, method]:.2f}" for method in ("PUT", "GET") for table in (speeds, costs)]
        lines.append(f"| {name} | {' | '.join(cells)} | {'met' if is_met else 'not met'} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="goalbench.encryption", description=__doc__)
    parser.add_argument("--binary", default="", help="the server (default: the release build)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--objects", type=int, default=8)
    parser.add_argument("--mib", type=int, default=32, help="of an object")
    parser.add_argument("--place", type=Path, help="where stores are made (default: the system's temporary directory)")
    options = parser.parse_args(arguments)
    rounds: list[Figures] = []
    try:
        binary = find_binary(options.binary)
        with tempfile.TemporaryDirectory(prefix="goalbench-", dir=options.place) as place:
            for number in range(options.rounds):
                rng = np.random.default_rng([SEED, number])
                contents = [rng.bytes(options.mib * MIB) for _ in range(options.objects)]
                data = Path(place) / "server"
                server = Deltaweir(binary, data, BUCKETS, extra_configuration=KMS_KEYS)
                with server:
                    for bucket in BUCKETS:
                        server.ensure_bucket(bucket)
                    rounds.append(round_of(server, contents, number))
                shutil.rmtree(data, ignore_errors=True)
    except (TargetError, StudyError, OSError) as error:
        print(f"goalbench.encryption: {error}", file=sys.stderr)
        return 2
    print(render(rounds), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

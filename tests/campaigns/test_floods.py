"""One user on one peer floods the server in five ways at once; another user's requests take at most twice as long as
with the same core busy, none is refused, and health is answered throughout (C141)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from campaigns.floods import BUCKET, LARGE, LARGE_BYTES, Flood
from campaigns.sizes import size
from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client, s3_client
from outside.content import noise
from outside.server import ROOT, Server, Value
from outside.users import client_of, key_id, secret, users

SAMPLES = size(4_000)
"""Requests of the other user, half of them reads."""
RATIO_MAX = 2.0
BODY = 10_000
OTHER = "tenant"
UNBOUNDED: dict[str, Value] = {
    "requests_per_user_max": 1024,
    "uploads_per_user_max": 1024,
    "download_bytes_per_second_min": 0,
    "auth_failures_per_second": 1_000_000,
    "open_uploads_per_user_max": 1_000_000,
}
"""The mutant: no bound is one user's or one peer's."""


def flood_of(server: Server, core: int) -> Flood:
    """All of them at their size, however many samples are taken: smaller ones do no harm to anybody."""
    return Flood(server.port, server.admin_port, core, 4_200, 1_100, 300, 120, 5_000)


@dataclass
class Seen:
    """What the other user, and who probes, see."""

    took_s: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    probes: int = 0
    probes_failed: int = 0

    @property
    def p99_ms(self) -> float:
        """99 of 100 requests are as fast or faster."""
        ordered = sorted(self.took_s)
        return 1e3 * ordered[max(0, math.ceil(0.99 * len(ordered)) - 1)]


def measure(server: Server, s3: S3Client, samples: int) -> Seen:
    """Reads and writes one after another, and probes beside them."""
    seen = Seen()
    stop = threading.Event()

    def probe() -> None:
        while not stop.is_set():
            seen.probes += 1
            seen.probes_failed += server.admin_status("/healthz", token="") != 200
            stop.wait(0.1)

    prober = threading.Thread(target=probe)
    prober.start()
    try:
        for number in range(samples):
            began = time.perf_counter()
            try:
                if number % 2:
                    s3.get_object(Bucket="of-tenant", Key=f"k{number // 2 % 50}")["Body"].read()
                else:
                    s3.put_object(Bucket="of-tenant", Key=f"k{number // 2 % 50}", Body=noise(number, BODY))
            except (ClientError, BotoCoreError) as error:
                seen.refused.append(repr(error))
            seen.took_s.append(time.perf_counter() - began)
    finally:
        stop.set()
        prober.join()
    return seen


@contextlib.contextmanager
def busy(core: int) -> Iterator[None]:
    """A core that does nothing but turn."""
    script = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        try:
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def flooded(flood: Flood, told: dict[str, int]) -> Iterator[None]:
    """While all floods are under way; `told` is what they did."""
    command = [sys.executable, "-m", "campaigns.floods", json.dumps(dataclasses.asdict(flood))]
    with subprocess.Popen(
        command, cwd=ROOT / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield
            process.stdin.close()
            told |= json.loads(process.stdout.readline())
        finally:
            process.kill()


def trial(
    new_server: NewServer, name: str, limits: dict[str, Value], samples: int
) -> tuple[Seen, Seen, dict[str, int]]:
    """What the other user sees with a busy core, what with the floods, and what those did."""
    server = new_server(name, limits=limits)
    server.more_config += users(server.data.parent / "policies")
    server.start()
    alt = client_of(server.endpoint, "alt")
    other = s3_client(server.endpoint, key_id(OTHER), secret(OTHER), retries={"total_max_attempts": 1})
    alt.create_bucket(Bucket=BUCKET)
    alt.put_object(Bucket=BUCKET, Key=LARGE, Body=noise(1, LARGE_BYTES))
    other.create_bucket(Bucket="of-tenant")
    measure(server, other, 100)
    core = max(os.sched_getaffinity(0))
    with busy(core):
        baseline = measure(server, other, samples)
    told: dict[str, int] = {}
    blunt = blunt_client(server.endpoint)
    with flooded(flood_of(server, core), told):
        under = measure(server, other, samples)
        try:
            assert blunt.list_buckets()["Buckets"]
        except ClientError as error:
            under.refused.append(f"root: {error!r}")
    server.kill()
    return baseline, under, told


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_another_user_is_served_while_one_floods_in_five_ways(new_server: NewServer) -> None:
    baseline, under, told = trial(new_server, "bound", {}, SAMPLES)
    unbound = trial(new_server, "unbound", UNBOUNDED, max(200, SAMPLES // 10))
    harmed = bool(unbound[1].refused) or unbound[1].p99_ms > RATIO_MAX * unbound[0].p99_ms
    line = {
        "campaign": "floods",
        "ops": len(under.took_s),
        "baseline_p99_ms": round(baseline.p99_ms, 1),
        "flooded_p99_ms": round(under.p99_ms, 1),
        "ratio": round(under.p99_ms / baseline.p99_ms, 2),
        "errors": len(under.refused),
        "probes": under.probes,
        "probes_failed": under.probes_failed,
        "floods": told,
        "mutant_ratio": round(unbound[1].p99_ms / unbound[0].p99_ms, 2),
        "mutant_errors": len(unbound[1].refused),
        "mutant_detected": harmed,
    }
    print(json.dumps(line))
    assert told["guesses answered"] > 0 and told["uploads opened"] > 0 and told["slow readers"] > 0
    assert not baseline.refused
    assert not under.refused, under.refused[:3]
    assert (under.probes_failed, under.probes > 0) == (0, True)
    assert under.p99_ms <= RATIO_MAX * baseline.p99_ms
    assert harmed, "without the bounds nobody is harmed: the floods are none"

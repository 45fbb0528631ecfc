"""Campaigns B05 and B06: one system call of a working server fails, its n-th, and the server is killed after that.

strace injects the error. What was acknowledged is there after the restart, nothing is torn, nothing comes back; no
write is acknowledged whose catalog was not synced; and the server goes on by itself while it still runs.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from campaigns.sizes import size
from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import noise
from outside.killing import Key
from outside.server import Server, until
from outside.storage import assert_accounts_balance

SEED = 20_261_126
BUCKETS = ("off-00", "delta-aes256-00")
SIZES = (0, 200, 9_000, 300_000)
KEYS = 4
CHANGES = 8
"""Operations of a run, one after another."""
SYNC_RUNS = size(200)
SWEEP_RUNS = size(2500)
NTH_MAX = 24
"""A thread's calls are counted, and a run makes few more of a kind."""
WRITES = "pwrite64,pwritev,pwritev2,writev"
SWEEP = {
    WRITES: ("ENOSPC", "EIO", "EDQUOT", "EINTR"),
    "fsync,fdatasync": ("ENOSPC", "EDQUOT", "EINTR"),
    "openat,openat2": ("EMFILE", "ENOSPC", "EIO", "EINTR"),
    "mkdirat": ("ENOSPC", "EIO", "EDQUOT"),
    "linkat,renameat2,renameat,rename": ("ENOSPC", "EIO", "EDQUOT"),
    "unlinkat,unlink": ("EIO",),
    "ftruncate,fallocate": ("ENOSPC", "EIO"),
    "pread64,preadv": ("EIO", "EINTR"),
}
"""What fails, and how."""
CALL = re.compile(r"^\d+ +(?P<at>[\d.]+) (?:<\.\.\. )?(?P<name>\w+)(?P<rest>.*)$")


@dataclass
class Tracer:
    """strace on a server's process: `calls` fail with `error` at a thread's `nth`."""

    server: Server
    calls: str
    error: str
    nth: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        """What it writes."""
        return self.server.folder / "calls"

    def __enter__(self) -> Tracer:
        assert self.server.process is not None
        traced = f"trace=fsync,fdatasync,{self.calls}"
        failing = f"inject={self.calls}:error={self.error}:when={self.nth}"
        command = ["strace", "-f", "-y", "-ttt", "-e", traced, "-e", failing, "-o", str(self.output)]
        self.process = subprocess.Popen([*command, "-p", str(self.server.process.pid)], stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        # It says "attached" for every thread of its own accord; the first line is enough: all are stopped then.
        assert b"attached" in self.process.stderr.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()
        assert self.process is not None
        self.process.communicate(timeout=30)

    def injected(self) -> int:
        """How many calls failed."""
        return self.output.read_text(errors="replace").count("(INJECTED)")

    def syncs(self) -> list[float]:
        """When a sync of the catalog's log ended well."""
        found = []
        for line in self.output.read_text(errors="replace").splitlines():
            told = CALL.match(line)
            # A call that another thread's interrupted in the output ends in a line that does not name the file.
            if told is None or "sync" not in told["name"] or not told["rest"].endswith("= 0"):
                continue
            if "catalog.sqlite" in told["rest"] or "resumed" in told["rest"]:
                found.append(float(told["at"]))
        return found


@dataclass
class Sweep:
    """One client, and what it was told."""

    server: Server
    rng: random.Random = field(default_factory=lambda: random.Random(SEED))
    keys: list[Key] = field(
        default_factory=lambda: [Key(bucket, f"key-{number}") for bucket in BUCKETS for number in range(KEYS)]
    )
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def s3(self) -> S3Client:
        """A client that tries once."""
        return blunt_client(self.server.endpoint, read_timeout=40)

    def change(self, s3: S3Client, key: Key) -> tuple[float, float] | None:
        """Writes or deletes; from when to when, if it was acknowledged."""
        after = None if self.rng.random() < 0.2 else noise(self.rng.getrandbits(30), self.rng.choice(SIZES))
        # A deletion whose answer was lost may have been done: then another one changes nothing.
        is_there = key.acknowledged is not None and None not in key.pending
        key.pending.append(after)
        at = {"Bucket": key.bucket, "Key": key.name}
        began = time.time()
        try:
            if after is None:
                s3.delete_object(**at)
            else:
                s3.put_object(**at, Body=after)
        except (ClientError, BotoCoreError):
            self.counts["refused"] += 1
            return None
        key.acknowledged, key.pending = after, []
        self.counts["acked"] += 1
        return (began, time.time()) if after is not None or is_there else None

    def goes_on(self, s3: S3Client) -> bool:
        """Whether the next write is taken."""
        key = self.rng.choice(self.keys)
        return self.change(s3, key) is not None or (key.acknowledged is None and not key.pending)

    def run(self, calls: str, error: str, nth: int) -> None:
        """One failing call; then the server is killed, started, and everything looked at."""
        what = f"{calls}:{error}:{nth}"
        with Tracer(self.server, calls, error, nth) as tracer:
            s3 = self.s3()
            windows = [self.change(s3, self.rng.choice(self.keys)) for _ in range(CHANGES)]
            try:
                until(lambda: self.goes_on(s3), 20, "writes go on")
            except AssertionError:
                self.counts["stuck"] += 1
                self.broken.append(f"{what}: stuck: {self.server.tail(3)}")
        self.counts["injected"] += tracer.injected()
        self.counts["ops"] += tracer.injected() > 0
        synced = tracer.syncs()
        for window in filter(None, windows):
            if not any(window[0] <= at <= window[1] for at in synced):
                self.counts["acked_unsynced"] += 1
                self.broken.append(f"{what}: acknowledged without a sync")
        self.server.start()
        self.check(what)

    def check(self, what: str) -> None:
        """Every key holds what it may hold, and LIST says the same."""
        s3 = self.s3()
        for bucket in BUCKETS:
            listed = {entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", [])}
            for key in (key for key in self.keys if key.bucket == bucket):
                try:
                    holds: bytes | None = s3.get_object(Bucket=bucket, Key=key.name)["Body"].read()
                except s3.exceptions.NoSuchKey:
                    holds = None
                if holds not in key.allowed():
                    kind = "lost" if holds is None else "resurrected" if key.acknowledged is None else "wrong"
                    self.counts[kind] += 1
                    self.broken.append(f"{what}: {kind} {bucket}/{key.name}")
                if (holds is not None) != (key.name in listed):
                    self.counts["disorder"] += 1
                    self.broken.append(f"{what}: LIST and GET differ on {bucket}/{key.name}")
                key.acknowledged, key.pending = holds, []

    def line(self, campaign: str, runs: int, detected: bool) -> dict[str, object]:
        """What came out."""
        names = ("ops", "injected", "acked", "refused", "acked_unsynced", "stuck", "lost", "wrong", "resurrected")
        counted: dict[str, object] = {name: self.counts[name] for name in (*names, "disorder")}
        panics = self.server.log.read_text(errors="replace").count("panicked at")
        about = {"campaign": campaign, "seed": SEED, "runs": runs}
        return about | counted | {"panics": panics, "mutant_detected": detected, "notes": self.broken[:20]}


def started(server: Server) -> Sweep:
    """A server with empty buckets."""
    server.start()
    s3 = blunt_client(server.endpoint)
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
    return Sweep(server)


def assert_nothing_broke(sweep: Sweep, line: dict[str, object]) -> None:
    """Prints the line. Everything adds up in the end."""
    print(json.dumps(line))
    assert not sweep.broken and line["panics"] == 0, line
    assert sweep.counts["ops"] > 0 and line["mutant_detected"]
    sweep.server.run("gc", "--now", "--empty-trash")
    assert_accounts_balance(sweep.server)


def ignores_syncs_and_is_found(new_server: NewServer) -> bool:
    """The mutant: a server that is told not to sync acknowledges what was not synced."""
    mutant = started(new_server("mutant", storage={"sync": False}))
    mutant.run("fsync,fdatasync", "EIO", 1)
    mutant.server.kill()
    return mutant.counts["acked_unsynced"] > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_write_is_acknowledged_whose_sync_failed(new_server: NewServer) -> None:
    sweep = started(new_server())
    for number in range(SYNC_RUNS):
        sweep.run("fsync,fdatasync", "EIO", 1 + number % NTH_MAX)
    assert_nothing_broke(sweep, sweep.line("B05", SYNC_RUNS, ignores_syncs_and_is_found(new_server)))


@pytest.mark.long
@pytest.mark.timeout(2 * 3600)
def test_no_failing_system_call_loses_or_tears_anything(new_server: NewServer) -> None:
    sweep = started(new_server())
    kinds = [(calls, error) for calls, errors in SWEEP.items() for error in errors]
    for number in range(SWEEP_RUNS):
        calls, error = kinds[number % len(kinds)]
        sweep.run(calls, error, 1 + number // len(kinds) % NTH_MAX)
    assert_nothing_broke(sweep, sweep.line("B06", SWEEP_RUNS, ignores_syncs_and_is_found(new_server)))

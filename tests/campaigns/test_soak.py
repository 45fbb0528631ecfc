"""A soak: every job again and again under mixed load, and how memory, descriptors and disk move meanwhile."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from campaigns.sizes import size
from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import MIB, noise, release, sha256, text
from outside.server import Server, until
from outside.storage import collect

MINUTES = size(120)
BUCKETS = ("delta-00", "delta-aes256-00", "zstd-00", "off-00")
CLIENTS = 4
KEYS = 24
"""Of each client."""
SAMPLE_S = 5
WARM = 0.25
"""The share of the time in which caches fill; slopes are those of the rest."""
RSS_SLOPE_MAX = 2 * MIB
"""Bytes a minute that the noise of a run may look like, once it lasts longer than the caches take to fill. A leak of
what requests carry would be a hundred times that."""
SLOPES_FROM_MINUTES = 20
MEMORY_MIB = 256
BESIDE = 150_000_000
"""What a process may hold besides `memory_bytes_max`."""
JOBS: tuple[tuple[str, ...], ...] = (
    ("gc", "--now"),
    ("jobs", "pack", "start"),
    ("jobs", "copies", "start"),
    ("jobs", "lifecycle", "start"),
    ("jobs", "uploads", "start"),
    ("jobs", "converter", "start", "--parameters", '{"now": true}'),
    ("convert", "s3://zstd-00", "--compression", "zstd", "--effort", "high"),
    ("scrub", "--percent", "20", "--older-than", "0s"),
    ("backup",),
    ("keys", "reencrypt", "delta-aes256-00"),
    ("keys", "rotate"),
)
"""What an operator's calendar starts, one after another."""


@dataclass
class Clients:
    """Threads that write, overwrite, delete, upload in parts and read back, each in keys of its own."""

    server: Server
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def body(self, rng: random.Random) -> bytes:
        """Small records, releases, logs, noise."""
        match rng.randrange(5):
            case 0:
                return b'{"id": %d, "kind": "record"}' % rng.getrandbits(40)
            case 1:
                return text(rng.randrange(1000), rng.randrange(1, 200_000))
            case 2:
                return noise(rng.randrange(1000), rng.randrange(1, 100_000))
            case _:
                return release(rng.randrange(4), MIB, rng.randrange(12))

    def note(self, kind: str, what: str) -> None:
        """Counts one thing, and keeps the first of each in words."""
        with self.lock:
            self.counts[kind] += 1
            if self.counts[kind] < 6 and what:
                self.notes.append(f"{kind}: {what}")

    def step(self, s3: S3Client, rng: random.Random, at: dict[str, str], digests: dict[str, str]) -> None:
        """One request or a few."""
        known = digests.get(at["Key"])
        chance = rng.random()
        if known and chance < 0.5:
            if sha256(s3.get_object(**at)["Body"].read()) != known:
                self.note("wrong", str(at))
        elif known and chance < 0.6:
            s3.delete_object(**at)
            del digests[at["Key"]]
        elif chance < 0.95:
            content = self.body(rng)
            s3.put_object(**at, Body=content)
            digests[at["Key"]] = sha256(content)
        else:
            ids = at | {"UploadId": s3.create_multipart_upload(**at)["UploadId"]}
            bodies = [release(7, 5 * MIB, rng.randrange(6)), noise(rng.randrange(99), 1000)]
            parts = [
                {"PartNumber": number, "ETag": s3.upload_part(**ids, PartNumber=number, Body=part)["ETag"]}
                for number, part in enumerate(bodies, 1)
            ]
            s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})
            digests[at["Key"]] = sha256(b"".join(bodies))

    def work(self, number: int) -> None:
        """One client, until it is told to stop; at the end it reads all of its keys."""
        rng = random.Random(number)
        s3 = blunt_client(self.server.endpoint)
        bucket = BUCKETS[number % len(BUCKETS)]
        digests: dict[str, str] = {}
        while not self.stop.is_set():
            at = {"Bucket": bucket, "Key": f"client-{number}/{rng.randrange(KEYS)}"}
            try:
                self.step(s3, rng, at, digests)
                self.note("ops", "")
            except (ClientError, BotoCoreError) as error:
                # It may have had its effect.
                digests.pop(at["Key"], None)
                self.note("errors", f"{at}: {error}")
            self.stop.wait(0.02)
        for key, digest in digests.items():
            if sha256(s3.get_object(Bucket=bucket, Key=key)["Body"].read()) != digest:
                self.note("lost", key)


def slope(samples: list[tuple[float, float]]) -> float:
    """Least squares, in units a minute, without the first part of the time."""
    warm = [sample for sample in samples if sample[0] >= samples[-1][0] * WARM]
    mean_t = sum(at for at, _ in warm) / len(warm)
    mean = sum(value for _, value in warm) / len(warm)
    spread = sum((at - mean_t) ** 2 for at, _ in warm)
    return 60 * sum((at - mean_t) * (value - mean) for at, value in warm) / spread if spread else 0.0


def run_jobs(server: Server, stop: threading.Event, runs: Counter[str], failures: list[str]) -> None:
    """One job after another, round after round."""
    while not stop.is_set():
        for command in JOBS:
            done = server.run(*command, timeout_s=600, check=False)
            name = " ".join(command[:2])
            runs[name] += 1
            # A run that began by itself is no failure of the one that is asked for.
            if done.returncode != 0 and "running" not in done.stderr:
                failures.append(f"{name}: {done.stderr.strip()[-300:]}")
            if stop.wait(1):
                return


def watched(server: Server) -> dict[str, float]:
    """What is watched."""
    disk = sum(path.stat().st_size for path in server.blob_files() if path.exists())
    return {
        "rss": server.status_bytes("VmRSS"),
        "allocated": server.metrics().total("deltaweir_allocator_bytes", state="allocated"),
        "descriptors": server.open_files(),
        "disk": disk,
    }


@pytest.mark.long
def test_a_soak_over_a_store_that_changes_content_is_found(new_server: NewServer) -> None:
    """The mutant: what a client has written is another content afterwards. And a leak: its slope is too steep."""
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKETS[0])
    clients = Clients(server)
    client = threading.Thread(target=clients.work, args=(0,))
    client.start()
    try:
        until(lambda: clients.counts["ops"] >= 100, 60, "the client works")
        for entry in s3.list_objects_v2(Bucket=BUCKETS[0])["Contents"]:
            s3.put_object(Bucket=BUCKETS[0], Key=entry["Key"], Body=b"another content")
    finally:
        clients.stop.set()
        client.join()
    found = clients.counts["lost"] + clients.counts["wrong"]
    leaking = [(at, 100 * MIB + at / 60 * 2 * RSS_SLOPE_MAX) for at in map(float, range(0, 3600, SAMPLE_S))]
    is_detected = found > 0 and slope(leaking) > RSS_SLOPE_MAX
    print(json.dumps({"campaign": "soak of a store that forgets", "found": found, "mutant_detected": is_detected}))
    assert is_detected


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_a_soak_with_every_job_leaks_nothing(new_server: NewServer) -> None:
    server = new_server(gc={"grace": "1s"}, limits={"memory_bytes_max": f"{MEMORY_MIB}MiB"}).start()
    s3 = blunt_client(server.endpoint)
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
    rule = {"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "old/"}, "Expiration": {"Days": 1}}
    s3.put_bucket_lifecycle_configuration(Bucket="off-00", LifecycleConfiguration={"Rules": [rule]})
    clients, runs, failures = Clients(server), Counter[str](), list[str]()
    threads = [threading.Thread(target=clients.work, args=(number,)) for number in range(CLIENTS)]
    threads.append(threading.Thread(target=run_jobs, args=(server, clients.stop, runs, failures)))
    for thread in threads:
        thread.start()
    samples: dict[str, list[tuple[float, float]]] = {"rss": [], "allocated": [], "descriptors": [], "disk": []}
    began = time.monotonic()
    try:
        while (elapsed := time.monotonic() - began) < 60 * MINUTES:
            for name, value in watched(server).items():
                samples[name].append((elapsed, value))
            time.sleep(SAMPLE_S)
    finally:
        clients.stop.set()
        for thread in threads:
            thread.join()
    collect(server)
    counted = sum(entry["stored_bytes"] for entry in server.admin("/api/v1/stats")["backends"])
    files = server.blob_files()
    unaccounted = sum(path.stat().st_size for path in files) - counted
    slopes = {name: round(slope(found), 3) for name, found in samples.items()}
    rss_most = max(value for _, value in samples["rss"])
    line = {
        "campaign": "soak",
        "minutes": MINUTES,
        "ops": clients.counts["ops"],
        "jobs": dict(runs),
        "errors": clients.counts["errors"],
        "lost": clients.counts["lost"],
        "wrong": clients.counts["wrong"],
        "panics": server.log.read_text(errors="replace").count("panicked at"),
        "slopes_a_minute": slopes,
        "unaccounted_bytes": unaccounted,
        "rss_most": rss_most,
        "allocated_most": max(value for _, value in samples["allocated"]),
        "descriptors_most": max(value for _, value in samples["descriptors"]),
        "cores": os.cpu_count(),
        "notes": [*clients.notes, *failures][:10],
    }
    print(json.dumps(line))
    assert not (clients.counts["errors"] or clients.counts["lost"] or clients.counts["wrong"] or line["panics"])
    assert not failures and all(runs[" ".join(command[:2])] for command in JOBS)
    assert MINUTES < SLOPES_FROM_MINUTES or slopes["rss"] <= RSS_SLOPE_MAX
    assert rss_most <= MEMORY_MIB * MIB + BESIDE
    assert unaccounted == 0

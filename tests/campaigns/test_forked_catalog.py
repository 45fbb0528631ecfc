"""The database fails over to a standby that lags, or is put back from a copy, under a process that runs on (E21)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from cluster.postgres import Postgres
from cluster.replicas import KEK
from outside.buckets import mode_tables
from outside.clients import S3Client, s3_client
from outside.content import noise
from outside.server import Server, until
from outside.store import Store

BUCKET = "delta-00"
LOST = 40
"""PUTs that the catalog lacks after the failover, all of them shipped."""
LATEST_S = 5.0
"""How long after a fork can be seen a write may still be acknowledged."""
SLACK_S = 1.5
"""What a loaded machine adds to the measurement."""


@pytest.fixture
def databases() -> Iterator[list[Postgres]]:
    """Databases that end with the test; the first one is a fresh primary."""
    made = [Postgres().make().start()]
    yield made
    for database in made:
        database.remove()


def refusals(process: Server) -> list[str]:
    """Lines of the log that say that writes are refused."""
    return [line for line in process.log.read_text().splitlines() if "writes and deletions are refused" in line]


Fork = Callable[[list[Postgres]], Callable[[], None]]
"""Notes a state of the first database; what it gives makes that state the current one again."""


def from_a_copy(databases: list[Postgres]) -> Callable[[], None]:
    """The data directory is copied, and put back later."""
    (primary,) = databases
    primary.stop()
    primary.keep("copy")
    primary.start()

    def go_back() -> None:
        primary.stop()
        primary.put_back("copy")
        primary.start()

    return go_back


def to_a_standby(databases: list[Postgres]) -> Callable[[], None]:
    """A standby stops replicating, and is promoted later."""
    (primary,) = databases
    standby = databases[0].standby()
    databases.append(standby)
    until(lambda: primary.caught_up(standby), 60, "the standby has everything until now")
    standby.lag_behind(primary)

    def go_back() -> None:
        primary.stop()
        standby.promote()

    return go_back


def address(databases: list[Postgres]) -> str:
    """Every database, the one that takes writes is found."""
    hosts = ",".join(f"127.0.0.1:{database.port}" for database in databases)
    return f"postgres://postgres@{hosts}/postgres?target_session_attrs=read-write"


def replica(folder: Path, store: Store, catalog: str, journal_seconds: int) -> Server:
    """A process over the catalog, whose collector runs every second."""
    shared = store.tables()
    tables = (
        mode_tables()
        | shared
        | {
            "storage": shared["storage"] | {"catalog": catalog, "writer_lease": "10s"},
            "backup": {"journal_seconds": journal_seconds},
            "gc": {"interval": "1s", "grace": "0s"},
        }
    )
    return Server(folder, tables, environment={"DELTAWEIR_KEK": KEK})


def try_put(s3: S3Client, key: str, body: bytes) -> bool:
    """Whether a PUT was acknowledged."""
    try:
        s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    except (BotoCoreError, ClientError):
        return False
    return True


def journal_reaches(server: Server) -> None:
    """Everything until now is in the backend's journal."""
    server.admin("/api/v1/journal", "POST")


@pytest.mark.parametrize("fork", [from_a_copy, to_a_standby])
@pytest.mark.parametrize("journal_seconds", [1, 0])
def test_writes_end_within_five_seconds_of_a_fork_and_nothing_is_deleted(
    tmp_path: Path, store: Store, databases: list[Postgres], fork: Fork, journal_seconds: int
) -> None:
    # The standby must be named in the address before it is needed; the process starts after it.
    first = replica(tmp_path / "first", store, databases[0].url, journal_seconds).start()
    s3 = s3_client(first.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="before", Body=noise(1, 9_000))
    journal_reaches(first)
    assert first.stop() == 0
    go_back = fork(databases)
    server = replica(tmp_path / "server", store, address(databases), journal_seconds).start()
    bystander = replica(tmp_path / "bystander", store, address(databases), journal_seconds).start()
    try:
        s3, other = s3_client(server.endpoint), s3_client(bystander.endpoint)
        for number in range(LOST):
            s3.put_object(Bucket=BUCKET, Key=f"lost-{number:02}", Body=noise(100 + number, 9_000))
        journal_reaches(server)
        blobs = {found["Key"] for found in store.client().list_objects_v2(Bucket="blobs")["Contents"]}

        go_back()
        visible = time.monotonic()
        latest_s, number = 0.0, 0
        late: dict[str, bytes] = {}
        while (elapsed_s := time.monotonic() - visible) < 3 * LATEST_S:
            number += 1
            key, body = f"late-{number}", noise(500 + number, 9_000)
            taken = [try_put(client, key, body) for client in (s3, other)]
            late |= {key: body} if any(taken) else {}
            latest_s = time.monotonic() - visible if any(taken) else latest_s
            assert not any(taken) or elapsed_s <= LATEST_S + SLACK_S, f"acknowledged {elapsed_s:.1f} s after the fork"
        assert number > 2
        assert journal_seconds or not latest_s, "whatever is acknowledged was shipped, and this could not be"
        with pytest.raises(ClientError, match="Writes are refused"):
            s3.delete_object(Bucket=BUCKET, Key="before")
        for process in (server, bystander):
            assert process.admin_status("/readyz") == 503
            refused = process.metrics()
            assert refused.total("deltaweir_writes_refused") == 1
            said = until(partial(refusals, process), 20, "the log says that writes are refused")
            assert len(said) == 1 and "deltaweir" in said[0], said
        until(
            lambda: bystander.admin("/api/v1/jobs/gc")["last_result"] == "failed", 60, "the collector refuses to work"
        )
        # Epochs close and the collector runs on; what only the journal knows stays.
        server.kill()
        until(lambda: bystander.admin("/api/v1/jobs/gc")["run"] > 15, 60, "the collector had its chances")
        there = {found["Key"] for found in store.client().list_objects_v2(Bucket="blobs")["Contents"]}
        assert blobs <= there
        assert s3_client(bystander.endpoint).get_object(Bucket=BUCKET, Key="before")["Body"].read() == noise(1, 9_000)
    finally:
        server.kill()
        bystander.kill()
    assert_merged(tmp_path, store, databases, journal_seconds, late)


def missing_without_merge(
    tmp_path: Path, store: Store, forked: str, journal_seconds: int, acknowledged: set[str]
) -> int:
    """The mutant: a server that is told to believe the catalog that came back. How much of what was acknowledged it
    does not know."""
    mutant = replica(tmp_path / "mutant", store, forked, journal_seconds)
    try:
        mutant.launch("--accept-older-catalog")
        mutant.wait_ready()
        pages = s3_client(mutant.endpoint).get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return len(acknowledged - {found["Key"] for page in pages for found in page["Contents"]})
    finally:
        mutant.kill()


def assert_merged(
    tmp_path: Path, store: Store, databases: list[Postgres], journal_seconds: int, late: dict[str, bytes]
) -> None:
    """Joined into an empty database, nothing that either side acknowledged is lost, and writes go on."""
    forked = address(databases)
    databases.append(Postgres().make().start())
    merged = replica(tmp_path / "merged", store, databases[-1].url, journal_seconds)
    merged.write_config()
    report = json.loads(merged.run("recover", "--merge", "--from", forked, "--json").stdout)
    assert report["merged"]["buckets"][BUCKET]["store"] == LOST
    assert report["merged"]["buckets"][BUCKET]["catalog"] >= len(late)
    assert (report["merged"]["conflicts"], report["merged"]["left_out"]) == ([], [])
    acknowledged = {f"lost-{number:02}": noise(100 + number, 9_000) for number in range(LOST)} | late
    try:
        s3 = s3_client(merged.start().endpoint)
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        there = {found["Key"] for page in pages for found in page["Contents"]} & acknowledged.keys()
        got = {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in there}
        s3.put_object(Bucket=BUCKET, Key="after", Body=noise(2, 9_000))
    finally:
        merged.kill()
    line = {
        "campaign": "forked catalog",
        "ops": len(acknowledged),
        "late": len(late),
        "lost": len(acknowledged.keys() - got.keys()),
        "wrong": sum(got[key] != acknowledged[key] for key in got),
        "journal_seconds": journal_seconds,
        "mutant_detected": missing_without_merge(tmp_path, store, forked, journal_seconds, set(acknowledged)) > 0,
    }
    print(json.dumps(line))
    assert (line["lost"], line["wrong"]) == (0, 0), sorted(acknowledged.keys() - got.keys())
    assert line["mutant_detected"]

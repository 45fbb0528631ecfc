"""A rotation of keys and a rebuild are killed at their n-th write, link, removal or sync, and asked for again.

strace sends SIGKILL when the call is made. After each death every object reads, and in the end nothing of what was
left half done remains: one KEK is left, and a catalog that was made again from the store serves the same.
"""

from __future__ import annotations

import subprocess

import pytest

from e2e.test_keys import keks
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import noise
from outside.server import Server, Value
from outside.storage import assert_accounts_balance

SEALED = tuple(f"sealed-{number}" for number in range(3))
CALLS = {
    "fsync,fdatasync": (1, 2, 3),
    "renameat2,renameat,rename,linkat": (1, 2, 3),
    "unlinkat,unlink": (1, 2),
    "pwrite64,pwritev,write": (1, 4, 9),
}
PLACES = [(calls, nth) for calls, places in CALLS.items() for nth in places]
"""Where it is killed: a thread's n-th call of these."""


def killing(calls: str, nth: int) -> list[str]:
    """strace, and what it does: its command goes on with `-p` and a process, or with a program."""
    dies = f"inject={calls}:signal=SIGKILL:when={nth}"
    return ["strace", "-f", "-o", "/dev/null", "-e", f"trace={calls}", "-e", dies]


def filled(server: Server) -> dict[tuple[str, str], bytes]:
    """Objects of three sealed buckets and one that is not."""
    server.start()
    s3 = s3_client(server.endpoint)
    stored: dict[tuple[str, str], bytes] = {}
    for bucket in (*SEALED, "plain"):
        s3.create_bucket(Bucket=bucket)
        for number in range(3):
            stored[bucket, f"large-{number}"] = noise(len(stored), 200_000)
        stored[bucket, "delta"] = changed(stored[bucket, "large-0"])
        stored[bucket, "small"] = noise(len(stored), 900)
    for (bucket, key), content in stored.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content)
    return stored


def changed(content: bytes) -> bytes:
    """The same but for a byte: a few hundred bytes, which lie in the catalog itself."""
    return content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]


def assert_reads(s3: S3Client, stored: dict[tuple[str, str], bytes], below: str = "") -> None:
    """Every object is what was put."""
    for (bucket, key), content in stored.items():
        assert s3.get_object(Bucket=bucket, Key=below + key)["Body"].read() == content, (bucket, key)


def tables() -> dict[str, dict[str, Value]]:
    """Sealed buckets; nothing but what is asked for writes."""
    sealed: dict[str, dict[str, Value]] = {f"buckets.{name}": {"encryption": "aes256"} for name in SEALED}
    return {**sealed, "gc": {"interval": "1h"}, "convert": {"interval": "1h", "defer": False}}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_rotation_that_is_killed_anywhere_reads_and_is_ended_by_the_next_one(new_server: NewServer) -> None:
    server = new_server(**tables())
    stored = filled(server)
    killed = 0
    for calls, nth in PLACES:
        assert server.process is not None
        command = [*killing(calls, nth), "-p", str(server.process.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
            assert tracer.stderr is not None
            assert b"attached" in tracer.stderr.readline()
            server.run("keys", "rotate", "--remove-needless", check=False)
            # It may have made fewer such calls.
            killed += server.process.poll() is not None
            server.kill()
        server.start()
        assert_reads(s3_client(server.endpoint), stored)
        server.run("keys", "rotate", "--remove-needless")
        assert len(keks(server)) == 1
        check = server.json("keys", "verify")
        assert (check["problems"], check["outdated"], check["unbound"]) == ([], 0, 0)
    assert killed >= 6, "most of these were killed"
    server.stop()
    server.lose_catalog()
    server.run("rebuild")
    server.start()
    assert_reads(s3_client(server.endpoint), stored)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("journal", ["with its journal", "from blobs alone"])
def test_a_rebuild_that_is_killed_anywhere_is_ended_by_the_next_one(new_server: NewServer, journal: str) -> None:
    server = new_server(**tables())
    stored = filled(server)
    assert server.stop() == 0
    below = ""
    if journal == "from blobs alone":
        # Nothing says which of them are current, and what lies in the catalog itself is lost with all three.
        below = "deltaweir-recovered/"
        stored = {at: content for at, content in stored.items() if at[1].startswith("large")}
    killed = 0
    for calls, nth in PLACES:
        server.lose_catalog()
        if below:
            server.lose_journal_and_backups()
        command = [*killing(calls, nth), str(server.binary), "rebuild", "--config", str(server.config)]
        done = subprocess.run(command, env=server.variables(), cwd=server.folder, capture_output=True, check=False)
        if done.returncode != 0:
            killed += 1
            done_again = server.run("rebuild", check=False)
            if done_again.returncode != 0:
                # It had ended but for its last words: the catalog is there, and whole.
                assert "serve it" in done_again.stderr, done_again.stderr
        server.start()
        assert_reads(s3_client(server.endpoint), stored, below)
        server.run("gc", "--now", "--empty-trash")
        # Keysets of a run that died are younger than what a sweep after a recovery takes.
        if not below:
            assert_accounts_balance(server)
        assert server.stop() == 0
    assert killed >= 6, "most of these were killed"

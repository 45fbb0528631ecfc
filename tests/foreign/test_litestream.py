"""litestream: a SQLite database that is written to is copied to a bucket, and comes back as it was: many small objects
under prefixes, listings that are gone through page by page, deletions of many."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from functools import partial
from pathlib import Path

import pytest

from outside.clients import S3Client
from outside.server import ACCESS_KEY_ID, REGION, ROOT, SECRET_ACCESS_KEY, until

pytestmark = pytest.mark.long

LITESTREAM = ROOT / ".venv" / "bin" / "litestream"


def settings(database: Path, endpoint: str, bucket: str) -> str:
    """litestream's configuration: one database, one replica, copied each second."""
    return f"""
access-key-id: {ACCESS_KEY_ID}
secret-access-key: {SECRET_ACCESS_KEY}
dbs:
  - path: {database}
    replica:
      type: s3
      bucket: {bucket}
      path: copies
      region: {REGION}
      endpoint: {endpoint}
      force-path-style: true
      sync-interval: 200ms
"""


def rows(database: Path) -> int:
    """How many rows the table has."""
    with sqlite3.connect(database) as connection:
        return int(connection.execute("SELECT count(*) FROM numbers").fetchone()[0])


def count(s3: S3Client, bucket: str) -> int:
    """How many objects the bucket holds."""
    return int(s3.list_objects_v2(Bucket=bucket)["KeyCount"])


def has_grown(s3: S3Client, bucket: str, before: int) -> bool:
    """Whether the bucket holds more objects than before."""
    return count(s3, bucket) > before


def test_a_database_comes_back_from_its_copy(endpoint: str, s3: S3Client, bucket: str, tmp_path: Path) -> None:
    database, config, back = tmp_path / "live.db", tmp_path / "litestream.yml", tmp_path / "back.db"
    config.write_text(settings(database, endpoint, bucket))
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE numbers (n INTEGER, text TEXT)")
    replicating = subprocess.Popen(
        [LITESTREAM, "replicate", "-config", config], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        for batch in range(5):
            grown = partial(has_grown, s3, bucket, count(s3, bucket))
            with sqlite3.connect(database) as connection:
                connection.executemany(
                    "INSERT INTO numbers VALUES (?, ?)", [(n, f"row {batch} {n}" * 20) for n in range(200)]
                )
            until(grown, 30, "the rows are copied")
    finally:
        replicating.send_signal(signal.SIGINT)
        output, _ = replicating.communicate(timeout=60)
    assert replicating.returncode == 0, output.decode()
    done = subprocess.run(
        [LITESTREAM, "restore", "-config", config, "-o", back, database], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(back) == rows(database) == 1000

"""The console in a real browser: each page at three widths, light and dark, by keyboard, and what its pages do."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from outside.archives import tar_gz
from outside.clients import s3_client
from outside.server import ACCESS_KEY_ID, ROOT, SECRET_ACCESS_KEY, Server, Value
from outside.tools import chromium

HERE = ROOT / "tests" / "console"
CHECKS_MIN = 250
READ_TOKEN = "fedcba9876543210fedcba9876543210"
"""Fewer mean that a part did not run."""


BYTES_MAX = 300_000
"""Of every file of the console together, as they come over the wire."""


def builds(count: int) -> list[bytes]:
    """Successive builds: random parts of which each build replaces some, and text that changes all over."""
    source = random.Random(7)
    parts = [source.randbytes(40_000) for _ in range(60)]
    made = []
    for number in range(count):
        for part in source.sample(range(60), 4):
            parts[part] = source.randbytes(source.randrange(20_000, 60_000))
        log = "".join(f"{line:06} built by step {line % 97} of build {number}\n" for line in range(9_000))
        made.append(b"".join(parts[:40]) + log.encode() + b"".join(parts[40:]))
    return made


@pytest.mark.long
def test_every_page_works_by_mouse_keyboard_and_screen_reader(tmp_path: Path) -> None:
    ejected, folder = (tmp_path / name for name in ("ejected", "tree"))
    for path in (ejected, folder / "branch"):
        path.mkdir(parents=True)
    with Server(tmp_path / "old") as old:
        old_s3 = s3_client(old.endpoint)
        old_s3.create_bucket(Bucket="old")
        for number in range(3):
            old_s3.put_object(Bucket="old", Key=f"{number}.txt", Body=f"an old file {number}\n".encode())
            (folder / "branch" / f"{number}.txt").write_text(f"a leaf {number}\n")
        store: dict[str, Value] = {"type": "s3", "endpoint": old.endpoint, "bucket": "old", "region": "us-east-1"}
        store |= {"access_key_id": ACCESS_KEY_ID, "secret_access_key": SECRET_ACCESS_KEY}
        tables: dict[str, dict[str, Value]] = {"stores.old": store, "eject": {"roots": [str(ejected)]}}
        tables["server"] = {"admin_read_token": READ_TOKEN}
        tables["prices"] = {"currency": "EUR", "gb_month": 20.0}
        tables["buckets.sealed"] = {"encryption": "aes256"}
        drive(Server(tmp_path / "server", tables), ejected, folder)


def drive(server: Server, ejected: Path, folder: Path) -> None:
    """Fills a server, and has the browser go through it."""
    with server:
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket="releases")
        # Pages show more of a store that has keys.
        s3.create_bucket(Bucket="sealed")
        s3.put_object(Bucket="sealed", Key="secret.txt", Body=b"sealed " * 9000)
        for number, content in enumerate(builds(6)):
            s3.put_object(
                Bucket="releases", Key=f"app/build-{number}.tar", Body=content, Metadata={"build": str(number)}
            )
        s3.put_object(Bucket="releases", Key="app/docs.tar.gz", Body=tar_gz(2, 4, 30_000, 0))
        for number in range(120):
            s3.put_object(Bucket="releases", Key=f"logs/{number:03}.txt", Body=f"line {number}\n".encode() * 400)
        server.settle()
        told = {
            "base": f"http://127.0.0.1:{server.admin_port}",
            "s3": server.endpoint,
            "token": server.admin_token,
            "readToken": READ_TOKEN,
            "chromium": chromium(),
            "accessKeyId": ACCESS_KEY_ID,
            "secretAccessKey": SECRET_ACCESS_KEY,
            "bucket": "releases",
            "key": "app/build-5.tar",
            "baseKey": "app/build-0.tar",
            "scratch": str(server.folder),
            "folder": str(folder),
            "ejectRoot": str(ejected),
            "bytesMax": BYTES_MAX,
            "shots": os.environ.get("DELTAWEIR_CONSOLE_SHOTS"),
        }
        done = subprocess.run(
            ["node", "pages.mjs"],
            cwd=HERE,
            input=json.dumps(told),
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
    assert found["failures"] == [], "\n".join(found["failures"])
    print(found["weighed"])
    assert found["checks"] >= CHECKS_MIN

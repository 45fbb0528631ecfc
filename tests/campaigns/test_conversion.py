"""Conversions to views that are killed at any moment: every release stays what it was."""

from __future__ import annotations

import json
import random

import pytest

from campaigns.sizes import size
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.conversion import Releases, converting
from outside.server import Server, Value
from outside.storage import assert_accounts_balance

KILLS = size(200)
BUCKET = "delta-aes256-00"
CONVERT: dict[str, Value] = {"interval": "1h", "free_bytes_min": 0}


def is_loss_noticed(server: Server, releases: Releases) -> bool:
    """Whether the count tells that a blob is gone: the mutant is a store that lost one."""
    (extent,) = server.json("explain", f"s3://{BUCKET}/{min(releases.contents)}")["extents"]
    for path in server.blobs.rglob(extent["blob"]):
        path.unlink()
    return releases.harm(server)[0] > 0


def end(server: Server, releases: Releases, line: dict[str, int | str]) -> None:
    """Two further releases, and what was broken off, settle; then the line is printed."""
    releases.add(s3_client(server.endpoint))
    server.settle(120)
    server.run("gc", "--now", "--empty-trash")
    lost, wrong = releases.harm(server)
    assert_accounts_balance(server)
    views = releases.views(server)
    told = line | {
        "lost": int(line["lost"]) + lost,
        "wrong": int(line["wrong"]) + wrong,
        "views_at_the_end": views,
    }
    print(json.dumps(told | {"mutant_detected": is_loss_noticed(server, releases)}))
    assert (told["lost"], told["wrong"]) == (0, 0)
    assert views > 0, "something was converted"


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_two_hundred_kills_during_conversion_lose_nothing(new_server: NewServer) -> None:
    server = new_server(convert=CONVERT, defaults={"effort": "auto"}).start()
    s3_client(server.endpoint).create_bucket(Bucket=BUCKET)
    releases, rng, lost, wrong = Releases(BUCKET), random.Random(5), 0, 0
    for _ in range(KILLS):
        releases.add(s3_client(server.endpoint))
        with converting(server, rng):
            server.kill()
        server.start()
        lost, wrong = map(sum, zip((lost, wrong), releases.harm(server), strict=True))
    end(server, releases, {"campaign": "killed conversions", "ops": KILLS, "lost": lost, "wrong": wrong})

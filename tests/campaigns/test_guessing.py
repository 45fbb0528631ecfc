"""10,000 guesses of one tenant at another's content: a classifier over all that the guesser sees, times included, is
no better than a coin; and where the bucket says that everybody shares, it is nearly always right (C105, C139)."""

from __future__ import annotations

import json
import math
import random

import pytest

from campaigns.sizes import size
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.server import Value
from outside.tenants import BUCKET, OWN_PREFIX, add_tenants
from outside.users import client_of
from threats.guessing import guess, share_told_right


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shares", [False, True])
def test_a_classifier_is_right_about_guesses_only_where_everybody_shares(new_server: NewServer, shares: bool) -> None:
    settings: dict[str, Value] = {"isolation": "bucket", "storage_headers": "readers"} if shares else {}
    server = new_server(**({f"buckets.{BUCKET}": settings} if shares else {}))
    add_tenants(server, OWN_PREFIX)
    server.start()
    s3_client(server.endpoint).create_bucket(Bucket=BUCKET)
    ann, bob = client_of(server.endpoint, "ann"), client_of(server.endpoint, "bob")
    rng = random.Random(141)
    count = size(10_000) if not shares else size(1_000)
    trials = [guess(ann, bob, number, rng) for number in range(count)]
    right = share_told_right(trials)
    line = {"campaign": "guessing", "seed": 141, "shares": shares, "ops": count, "right_percent": round(100 * right, 1)}
    if shares:
        print(json.dumps(line | {"mutant_detected": right >= 0.95}))
        assert right >= 0.95
    else:
        print(json.dumps(line))
        # 52 % of all 10,000; three standard deviations where a share of them runs.
        assert right <= max(0.52, 0.5 + 3 * 0.5 / math.sqrt(count / 2))

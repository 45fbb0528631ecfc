"""Accounts on three replicas: one takes a change, and all of them keep to it within a second."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from cluster.replicas import Cluster
from e2e.test_sts import s3_of
from outside.clients import S3Client, s3_client, sts_client
from outside.failure import error_code
from outside.server import Server, until
from outside.users import key_id, secret

WITHIN_S = 1.0


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Three of them."""
    cluster = Cluster.start(tmp_path_factory.mktemp("accounts"))
    try:
        yield list(cluster.replicas)
    finally:
        cluster.stop()


def add(replica: Server, name: str, **more: Any) -> tuple[str, str]:
    """A new user's key pair."""
    told = replica.admin(f"/api/v1/users/{name}", "PUT", body={"policies": ["readwrite"]} | more)
    return told["access_key_id"], told["secret_access_key"]


def accepts(s3: S3Client) -> bool:
    """Whether a signature is taken."""
    try:
        s3.list_buckets()
    except Exception:
        return False
    return True


def all_within(clients: list[S3Client], accepted: bool) -> None:
    """Waits until every replica takes the signature, or none does: a second at most."""
    began = time.monotonic()
    for s3 in clients:
        left = WITHIN_S - (time.monotonic() - began)
        until(lambda s3=s3: accepts(s3) is accepted, max(left, 0.01), f"a replica whose answer is {accepted}")


def test_a_key_that_one_replica_revokes_is_refused_by_all_within_a_second(replicas: list[Server]) -> None:
    # C121
    pair = add(replicas[0], "ann")
    ann = [s3_client(replica.endpoint, *pair) for replica in replicas]
    assert accepts(ann[0])
    all_within(ann, True)
    replicas[0].admin(f"/api/v1/user-keys/ann?action=disable&key={pair[0]}", "POST")
    assert error_code(ann[0].list_buckets) == (403, "InvalidAccessKeyId")
    all_within(ann, False)
    replicas[1].admin(f"/api/v1/user-keys/ann?action=enable&key={pair[0]}", "POST")
    assert accepts(ann[1])
    all_within(ann, True)
    replicas[2].admin("/api/v1/users/ann", "DELETE")
    assert error_code(ann[2].list_buckets) == (403, "InvalidAccessKeyId")
    all_within(ann, False)


def test_sessions_of_a_revoked_key_end_on_every_replica_within_a_second(replicas: list[Server]) -> None:
    pair = add(replicas[0], "bob")
    credentials = sts_client(replicas[0].endpoint, *pair).get_session_token()["Credentials"]
    bob = [s3_of(replica.endpoint, credentials) for replica in replicas]
    all_within(bob, True)
    replicas[1].admin(f"/api/v1/user-keys/bob?key={pair[0]}", "DELETE")
    assert error_code(bob[1].list_buckets) == (400, "InvalidToken")
    all_within(bob, False)


@pytest.mark.parametrize("number", range(5))
def test_one_of_two_replicas_makes_an_access_key(replicas: list[Server], number: int) -> None:
    start = Barrier(2)

    def make(replica: Server, name: str) -> int:
        start.wait()
        body = json.dumps({"access_key_id": f"AKBOTH{number}"}).encode()
        try:
            request = replica.admin_request(f"/api/v1/users/{name}", "PUT", body)
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with ThreadPoolExecutor(2) as threads:
        made = [threads.submit(make, replicas[which], f"maker-{number}-{which}") for which in range(2)]
        assert sorted(done.result() for done in made) == [200, 409]


def test_the_files_of_three_replicas_seed_one_user_each_once(replicas: list[Server]) -> None:
    listed = [replica.admin("/api/v1/users")["users"] for replica in replicas]
    seeded = [[user["name"] for user in users if user["from_file"]] for users in listed]
    assert seeded == [["alt", "colleague", "tenant"]] * 3
    alt = [s3_client(replica.endpoint, key_id("alt"), secret("alt")) for replica in replicas]
    assert all(map(accepts, alt))

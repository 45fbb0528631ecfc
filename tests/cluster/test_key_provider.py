"""Three replicas whose KEK a provider keeps: one makes a key for all, one rotates for all, and while
the provider is away each of them reads on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.replicas import Cluster
from e2e.test_key_providers import keks, kept_by, put
from outside.buckets import mode_tables
from outside.clients import S3Client, blunt_client
from outside.content import noise
from outside.key_providers import Transit, transit
from outside.server import Server, until

BUCKETS = [f"delta-aes256-{number:02}" for number in range(3)]
SEALED = BUCKETS[0]
LIFETIME = "2s"


@pytest.fixture(name="keeper", scope="module")
def a_vault() -> Iterator[Transit]:
    with transit() as provider:
        yield provider


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, keeper: Transit) -> Iterator[list[Server]]:
    """Three of them."""
    tables = {**mode_tables(), **kept_by(keeper, key_lifetime=LIFETIME)}
    cluster = Cluster.start(tmp_path_factory.mktemp("kept"), tables)
    try:
        yield list(cluster.replicas)
    finally:
        cluster.stop()


def clients(replicas: list[Server]) -> list[S3Client]:
    """One for each, which asks once."""
    return [blunt_client(replica.endpoint) for replica in replicas]


def content_of(number: int) -> bytes:
    """Of what one replica writes."""
    return noise(100 + number, 60_000)


def test_a_key_that_one_replica_makes_serves_all_of_them(replicas: list[Server]) -> None:
    asked = clients(replicas)
    for number, (bucket, s3) in enumerate(zip(BUCKETS, asked, strict=True)):
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="made", Body=content_of(number))
    for s3 in asked:
        for number, bucket in enumerate(BUCKETS):
            assert s3.get_object(Bucket=bucket, Key="made")["Body"].read() == content_of(number)
            assert put(s3, bucket, "also") == 200
    (one,) = {str(keks(replica)) for replica in replicas}
    assert "vault-transit" in one, "there is one KEK, and it is the provider's"


def test_a_kek_that_one_replica_makes_is_followed_by_the_others_while_they_serve(replicas: list[Server]) -> None:
    asked = clients(replicas)

    def active(replica: Server) -> str:
        """The KEK that wraps."""
        (wrapping,) = [kek for kek in replica.json("keys", "list")["keks"] if kek["active"]]
        return str(wrapping["kek"])

    before = active(replicas[0])
    done = replicas[0].json("keys", "rotate", "--remove-needless")
    assert (done["made"], done["removed"]) == (True, True)
    now = active(replicas[0])
    assert now != before
    for replica, s3 in zip(replicas, asked, strict=True):
        until(lambda replica=replica: active(replica) == now, 20, "it wraps with the KEK that another one made")
        for number, bucket in enumerate(BUCKETS):
            assert s3.get_object(Bucket=bucket, Key="made")["Body"].read() == content_of(number)
            assert put(s3, bucket, "rotated") == 200
        check = replica.json("keys", "verify")
        assert (check["problems"], check["outdated"]) == ([], 0)
    # Nobody is left who knows the one before alone: each of them starts anew.
    replicas[1].restart()
    assert clients(replicas)[1].get_object(Bucket=SEALED, Key="made")["Body"].read() == content_of(0)


def test_while_the_provider_is_away_every_replica_reads_and_none_writes_what_it_would_seal(
    replicas: list[Server], keeper: Transit
) -> None:
    asked = clients(replicas)
    keeper.stop()
    try:
        for replica, s3 in zip(replicas, asked, strict=True):

            def is_refused(s3: S3Client = s3) -> bool:
                assert s3.get_object(Bucket=SEALED, Key="made")["Body"].read() == content_of(0)
                return put(s3, SEALED) == 503

            until(is_refused, 60, "writes are refused")
            until(
                lambda replica=replica: replica.metrics().total("deltaweir_sealing_refused") == 1,
                20,
                "the gauge shows it",
            )
            assert replica.admin_status("/readyz") == 200
    finally:
        keeper.start()
    for s3 in asked:
        until(lambda s3=s3: put(s3, SEALED) == 200, 60, "writes go on by themselves")
        assert s3.get_object(Bucket=SEALED, Key="new")["Body"].read() == noise(5, 100_000)

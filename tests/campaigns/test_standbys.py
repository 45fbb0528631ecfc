"""A database with a standby: nothing is read from it, and what its failover may lose is said."""

from __future__ import annotations

from pathlib import Path

from campaigns.test_forked_catalog import BUCKET, address, databases, replica, to_a_standby
from cluster.postgres import Postgres
from outside.clients import s3_client
from outside.content import noise
from outside.server import until
from outside.store import Store

__all__ = ["databases"]

WARNING = "none of them is synchronous"


def test_no_read_is_stale_though_a_standby_that_lags_is_in_the_address(
    tmp_path: Path, store: Store, databases: list[Postgres]
) -> None:
    to_a_standby(databases)
    # The standby has the schema, and nothing after it.
    catalog = address(databases).replace("target_session_attrs=read-write", "load_balance_hosts=random")
    server = replica(tmp_path / "server", store, catalog, 5).start()
    try:
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket=BUCKET)
        for number in range(60):
            s3.put_object(Bucket=BUCKET, Key="k", Body=noise(number, 500))
            assert s3.get_object(Bucket=BUCKET, Key="k")["Body"].read() == noise(number, 500), number
    finally:
        server.kill()


def test_an_asynchronous_standby_is_a_warning_that_names_the_setting(
    tmp_path: Path, store: Store, databases: list[Postgres]
) -> None:
    (primary,) = databases
    databases.append(primary.standby())
    for name, journal_seconds, setting, warned in (
        ("asynchronous", 5, "", True),
        ("shipped", 0, "", False),
        ("synchronous", 5, "*", False),
    ):
        primary.query(f"ALTER SYSTEM SET synchronous_standby_names = '{setting}'")
        primary.query("SELECT pg_reload_conf()")
        until(lambda wanted=setting: primary.query("SHOW synchronous_standby_names") == wanted, 30, "the setting holds")
        server = replica(tmp_path / name, store, primary.url, journal_seconds).start()
        try:
            # It asks when it starts, before anything that a request would wait for.
            s3_client(server.endpoint).list_buckets()
            if warned:
                until(lambda log=server: WARNING in log.tail(200), 30, "the warning")
                assert "Set synchronous_standby_names" in server.tail(200) and "journal_seconds = 0" in server.tail(200)
            else:
                assert server.stop() == 0
                assert WARNING not in server.tail(200)
        finally:
            server.kill()

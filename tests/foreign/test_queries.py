"""Programs that query files in a bucket: DuckDB's httpfs, a client of S3 of its own, and Polars, which reads and writes
through the Rust crate object_store."""

from __future__ import annotations

from importlib.resources import files

import duckdb
import polars as pl
import pytest

from outside.clients import object_store_options
from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

pytestmark = pytest.mark.long


@pytest.fixture
def database(endpoint: str) -> duckdb.DuckDBPyConnection:
    """DuckDB with its extension for S3, which a package brings, and a secret for the server."""
    found = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    version = found.sql("select library_version from pragma_version()").fetchall()[0][0]
    extension = files("duckdb_extension_httpfs") / "extensions" / version / "httpfs.duckdb_extension"
    found.execute(f"load '{extension}'")
    host = endpoint.removeprefix("http://")
    found.execute(
        f"create secret (type s3, key_id '{ACCESS_KEY_ID}', secret '{SECRET_ACCESS_KEY}', region '{REGION}', "
        f"endpoint '{host}', url_style 'path', use_ssl false)"
    )
    return found


def test_duckdb_writes_partitions_and_reads_only_the_columns_and_files_that_it_needs(
    database: duckdb.DuckDBPyConnection, bucket: str
) -> None:
    database.execute(
        "create table numbers as select range as n, range % 3 as third, repeat('x', 50) as text from range(200000)"
    )
    database.execute(f"copy numbers to 's3://{bucket}/one.parquet'")
    assert database.sql(f"select sum(n), count(*) from 's3://{bucket}/one.parquet'").fetchall() == [
        (200_000 * 199_999 // 2, 200_000)
    ]
    database.execute(f"copy numbers to 's3://{bucket}/set' (format parquet, partition_by (third))")
    listed = database.sql(f"select file from glob('s3://{bucket}/set/**/*.parquet')").fetchall()
    assert {name.split("/")[4] for (name,) in listed} == {"third=0", "third=1", "third=2"}
    one = database.sql(
        f"select count(*) from read_parquet('s3://{bucket}/set/*/*.parquet', hive_partitioning=true) where third = 1"
    )
    assert one.fetchall() == [(66_667,)]
    database.execute(f"copy (select * from numbers limit 10) to 's3://{bucket}/ten tables + more.csv' (header)")
    assert database.sql(f"select max(n) from read_csv('s3://{bucket}/ten tables + more.csv')").fetchall() == [(9,)]


def test_duckdb_uploads_a_file_of_several_parts(database: duckdb.DuckDBPyConnection, bucket: str) -> None:
    # Its parts have at least 5 MiB; random text does not shrink.
    database.execute(
        "create table noise as select md5(range::varchar) || md5((range + 1)::varchar) as text from range(400000)"
    )
    database.execute(f"copy noise to 's3://{bucket}/noise.csv' (header false)")
    assert database.sql(
        f"select count(*), min(length(column0)) from read_csv('s3://{bucket}/noise.csv', header=false)"
    ).fetchall() == [(400_000, 64)]


def test_polars_scans_a_data_set_and_sinks_into_another(endpoint: str, bucket: str) -> None:
    options = object_store_options(endpoint)
    table = pl.DataFrame({"n": range(100_000)}).with_columns(odd=pl.col("n") % 2)
    for half in (0, 1):
        place = f"s3://{bucket}/set/odd={half}/part.parquet"
        table.filter(pl.col("odd") == half).write_parquet(place, storage_options=options)
    scanned = pl.scan_parquet(f"s3://{bucket}/set/**/*.parquet", hive_partitioning=True, storage_options=options)
    assert scanned.filter((pl.col("odd") == 1) & (pl.col("n") < 10)).collect()["n"].to_list() == [1, 3, 5, 7, 9]
    scanned.filter(pl.col("n") < 50_000).sink_parquet(f"s3://{bucket}/half.parquet", storage_options=options)
    assert pl.read_parquet(f"s3://{bucket}/half.parquet", storage_options=options).height == 50_000

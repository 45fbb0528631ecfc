"""Programs that keep tables in a bucket: PyArrow's file system and data sets, delta-rs with its conditional commits."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs

from outside.clients import object_store_options
from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

pytestmark = pytest.mark.long


def numbers(first: int, count: int) -> pa.Table:
    """A table of two columns."""
    return pa.table({"n": list(range(first, first + count)), "odd": [n % 2 for n in range(first, first + count)]})


def test_pyarrow_writes_streams_and_reads_a_data_set_in_partitions(endpoint: str, bucket: str) -> None:
    store = fs.S3FileSystem(
        access_key=ACCESS_KEY_ID, secret_key=SECRET_ACCESS_KEY, region=REGION, endpoint_override=endpoint
    )
    with store.open_output_stream(f"{bucket}/stream") as out:
        for _ in range(12):
            out.write(b"x" * (1 << 20))
    assert store.get_file_info(f"{bucket}/stream").size == 12 << 20
    with store.open_input_file(f"{bucket}/stream") as back:
        assert back.read_at(10, 5_000_000) == b"x" * 10
    ds.write_dataset(numbers(0, 1000), f"{bucket}/set", filesystem=store, format="parquet", partitioning=["odd"])
    found = ds.dataset(f"{bucket}/set", filesystem=store, format="parquet", partitioning=["odd"])
    assert found.to_table(filter=ds.field("n") < 10).num_rows == 10
    store.move(f"{bucket}/stream", f"{bucket}/moved")
    store.delete_dir(f"{bucket}/set")
    left = [info.path for info in store.get_file_info(fs.FileSelector(bucket, recursive=True)) if info.is_file]
    assert left == [f"{bucket}/moved"]


def test_delta_rs_commits_reads_its_history_and_vacuums(endpoint: str, bucket: str) -> None:
    options = object_store_options(endpoint)
    where = f"s3://{bucket}/table"
    for first in (0, 100, 200):
        write_deltalake(where, numbers(first, 100), mode="append", storage_options=options)
    table = DeltaTable(where, storage_options=options)
    assert (table.version(), table.to_pyarrow_table().num_rows) == (2, 300)
    assert DeltaTable(where, version=0, storage_options=options).to_pyarrow_table().num_rows == 100
    table.delete("n < 150")
    table.optimize.compact()
    assert table.to_pyarrow_table().num_rows == 150
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert DeltaTable(where, storage_options=options).to_pyarrow_table().num_rows == 150

"""pyiceberg: tables of many small files with metadata that replaces metadata, over PyArrow and over fsspec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

pytestmark = pytest.mark.long


def test_a_table_is_appended_to_filtered_and_read_as_it_was(endpoint: str, bucket: str, tmp_path: Path) -> None:
    catalog: Any = SqlCatalog(
        "test",
        **{
            "uri": f"sqlite:///{tmp_path}/iceberg.db",
            "warehouse": f"s3://{bucket}/warehouse",
            "s3.endpoint": endpoint,
            "s3.access-key-id": ACCESS_KEY_ID,
            "s3.secret-access-key": SECRET_ACCESS_KEY,
            "s3.region": REGION,
        },
    )
    catalog.create_namespace("space")
    rows = pa.table({"n": list(range(100)), "text": [f"row {n}" for n in range(100)]})
    table = catalog.create_table("space.numbers", schema=rows.schema)
    for _ in range(3):
        table.append(rows)
    assert table.scan().to_arrow().num_rows == 300
    assert table.scan(row_filter="n < 10").to_arrow().num_rows == 30
    first = table.history()[0].snapshot_id
    table.delete("n >= 50")
    table.overwrite(rows.slice(0, 7), overwrite_filter="n < 10")
    assert table.scan().to_arrow().num_rows == 3 * 40 + 7
    assert table.scan(snapshot_id=first).to_arrow().num_rows == 100
    assert catalog.load_table("space.numbers").scan().to_arrow().num_rows == 3 * 40 + 7
    catalog.purge_table("space.numbers")

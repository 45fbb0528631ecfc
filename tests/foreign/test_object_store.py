"""The Rust crate object_store, as its Python package obstore has it: what tables and query engines stand on."""

from __future__ import annotations

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

pytestmark = pytest.mark.long


@pytest.fixture
def store(endpoint: str, bucket: str) -> S3Store:
    """The bucket."""
    return S3Store(
        bucket,
        endpoint=endpoint,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=SECRET_ACCESS_KEY,
        region=REGION,
        client_options={"allow_http": True},
    )


def test_a_write_can_depend_on_what_is_there(store: S3Store) -> None:
    first = obstore.put(store, "commit", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "commit", b"2", mode="create")
    obstore.put(store, "commit", b"2", mode={"e_tag": first["e_tag"]})
    with pytest.raises(PreconditionError):
        obstore.put(store, "commit", b"3", mode={"e_tag": first["e_tag"]})
    assert obstore.get(store, "commit").bytes().to_bytes() == b"2"


def test_parts_ranges_copies_and_pages_work(store: S3Store) -> None:
    content = bytes(range(256)) * 50_000
    obstore.put(store, "big", content, chunk_size=5 << 20, use_multipart=True)
    assert [
        piece.to_bytes() for piece in obstore.get_ranges(store, "big", starts=[0, 12_799_990], ends=[4, 12_800_000])
    ] == [
        content[:4],
        content[-10:],
    ]
    obstore.copy(store, "big", "folder/copy")
    obstore.rename(store, "folder/copy", "folder/moved")
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "folder/copy")
    for n in range(30):
        obstore.put(store, f"many/{n:02}", b"")
    assert [each["path"] for page in obstore.list(store, "many", offset="many/25") for each in page] == [
        f"many/{n}" for n in range(26, 30)
    ]
    folders = obstore.list_with_delimiter(store)
    assert (sorted(folders["common_prefixes"]), [each["path"] for each in folders["objects"]]) == (
        ["folder", "many"],
        ["big"],
    )
    obstore.delete(store, [f"many/{n:02}" for n in range(30)])
    assert [each for page in obstore.list(store, "many") for each in page] == []

"""Campaign B07: a disk is filled to its last byte or inode, fifty times, and healed by deletions alone."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from campaigns.sizes import size
from e2e.test_full_disk import BUCKET, LAYOUTS, pytestmark, stored_on
from outside.buckets import NewServer

CYCLES = size(50)

__all__ = ["pytestmark"]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("file_system", ["tmpfs", "ext4"])
def test_fifty_full_disks_heal_without_a_restart(
    new_server: NewServer, tmp_path: Path, layout: str, file_system: str
) -> None:
    healed = 0
    with ExitStack() as stack:
        store = stored_on(stack, new_server, tmp_path, layout, file_system)
        # Deleting them gives back more inodes than the guard and the reserve keep.
        store.small_files = 400
        started = store.server.process
        for cycle in range(CYCLES):
            objects = store.put(cycle)
            store.fill()
            store.assert_full(objects)
            store.heal(objects)
            store.disk.empty()
            healed += 1
        assert store.server.process is started
        store.fill()
        store.server.kill()
        store.server.start()
    print(json.dumps({"campaign": "B07", "layout": layout, "file_system": file_system, "healed": healed}))
    assert healed == CYCLES


@pytest.mark.long
def test_a_server_that_holds_no_reserve_is_found(new_server: NewServer, tmp_path: Path) -> None:
    """The mutant: what is set aside for deletions is taken away from it, and somebody else fills that, too."""
    with ExitStack() as stack:
        store = stored_on(stack, new_server, tmp_path, "one")
        objects = store.put(0)
        store.fill()
        for reserve in store.disk.path.rglob("+reserve/*"):
            reserve.unlink()
        store.fill()
        failed = 0
        for key in objects:
            try:
                store.s3.delete_object(Bucket=BUCKET, Key=key)
            except ClientError:
                failed += 1
        print(json.dumps({"campaign": "no reserve", "refused": failed, "mutant_detected": failed > 0}))
        assert failed > 0

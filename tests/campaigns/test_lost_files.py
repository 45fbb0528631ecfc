"""Any one file of a local store of 20,000 small objects is lost, and at most 16 objects with it; of what a recovery
needs, none."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from campaigns.sizes import size
from e2e.test_lost_files import LOST_MAX, filled, lost, small_objects
from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.content import noise
from outside.server import Server
from outside.storage import assert_accounts_balance

OBJECTS = max(1000, size(20_000))
READ_WHOLE = max(2, size(6))
"""Files after whose loss every object is read; of the others, scrub says what is lost."""
CONTENT = ("blobs", "copies")
SEED = 20_261_126


def by_kind(server: Server) -> dict[str, list[Path]]:
    """Every file of the backend, by the kind of thing that it holds."""
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in server.blobs.rglob("*") if path.is_file()):
        found.setdefault(path.relative_to(server.blobs).parts[0], []).append(path)
    return found


def scrubbed(server: Server) -> set[str]:
    """What a scrub of everything calls lost."""
    report = json.loads(server.run("scrub", "--json", check=False, timeout_s=600).stdout)
    return {one["key"] for one in report["quarantine"]["affected"]}


def lose_content(server: Server, objects: dict[str, bytes], paths: list[Path]) -> tuple[int, int]:
    """Each of these in turn; the most objects that one of them cost, and how many were not what scrub said."""
    rng = random.Random(SEED)
    thorough = set(rng.sample(paths, min(READ_WHOLE, len(paths))))
    most = mistaken = 0
    for path in paths:
        file = path.read_bytes()
        path.unlink()
        really = lost(server, objects) if path in thorough else None
        named = scrubbed(server)
        mistaken += really is not None and really != named & objects.keys()
        most = max(most, len(named if really is None else really))
        if named:
            path.write_bytes(file)
    named = scrubbed(server)
    assert not named, "everything was put back"
    return most, mistaken


def rebuilt(server: Server) -> int:
    """The catalog is lost; how many objects a rebuild finds."""
    server.kill()
    server.lose_catalog()
    report = json.loads(server.run("rebuild", "--json", timeout_s=600).stdout)
    server.start()
    return int(report["objects"])


def lose_documents(server: Server, paths: list[Path], objects: int) -> list[str]:
    """Each of these in turn, and after a scrub the catalog; the documents without which a rebuild finds less."""
    assert server.stop() == 0
    kept = server.folder / "kept"
    shutil.copytree(server.data, kept, symlinks=True)
    needed = []
    for path in paths:
        server.start()
        path.unlink()
        if scrubbed(server) or rebuilt(server) != objects:
            needed.append(str(path.relative_to(server.blobs)))
        server.kill()
        shutil.rmtree(server.data)
        shutil.copytree(kept, server.data, symlinks=True)
    server.start()
    return needed


def is_noticed_without_copies(new_server: NewServer) -> bool:
    """The mutant: a server that is told to keep no second copies loses a pack, and with it too much."""
    objects = {key: content for key, content in small_objects(1000).items() if key.startswith("records/")}
    mutant = filled(new_server("mutant", storage={"second_copies": "none"}), objects)
    max(mutant.blob_files(), key=lambda path: path.stat().st_size).unlink()
    named, really = scrubbed(mutant), lost(mutant, objects)
    mutant.kill()
    return named == really and len(really) > LOST_MAX


@pytest.mark.long
@pytest.mark.timeout(2 * 3600)
def test_any_one_lost_file_costs_at_most_16_objects_and_the_catalog_none(new_server: NewServer) -> None:
    objects = small_objects(OBJECTS)
    server = filled(new_server(backup={"journal_seconds": 3600}), objects)
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="delta-aes256-00")
    sealed = {f"sealed/{number}": noise(number, 9_000) for number in range(40)}
    for key, content in sealed.items():
        s3.put_object(Bucket="delta-aes256-00", Key=key, Body=content)
    server.run("backup")
    s3.put_object(Bucket="bucket", Key="records/late", Body=b"late")
    objects["records/late"] = b"late"
    server.admin("/api/v1/journal", "POST")
    kinds = by_kind(server)
    counts = Counter({kind: len(paths) for kind, paths in kinds.items()})
    holding = [path for kind in CONTENT for path in kinds[kind]]
    most, mistaken = lose_content(server, objects, holding)
    assert_accounts_balance(server)
    documents = [path for kind, paths in kinds.items() if kind not in CONTENT for path in paths]
    everything = len(objects) + len(sealed)
    needed = lose_documents(server, documents, everything)
    began = time.monotonic()
    found = rebuilt(server)
    took = time.monotonic() - began
    missing = lost(server, objects)
    s3 = blunt_client(server.endpoint)
    missing |= {
        key
        for key, content in sealed.items()
        if s3.get_object(Bucket="delta-aes256-00", Key=key)["Body"].read() != content
    }
    line = {
        "campaign": "lost files",
        "seed": SEED,
        "objects": everything,
        "ops": sum(counts.values()) + 1,
        "files": dict(counts),
        "lost_with_one_file": most,
        "scrub_mistaken": mistaken,
        "documents_needed": needed,
        "lost": len(missing),
        "rebuilt": found,
        "rebuild_seconds": round(took, 1),
        "mutant_detected": is_noticed_without_copies(new_server),
    }
    print(json.dumps(line))
    assert most <= LOST_MAX and mistaken == 0
    assert not needed
    assert not missing and found == everything
    assert line["mutant_detected"]

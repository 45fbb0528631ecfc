"""What a recovery reads is forged: thousands of times within the engine, and some dozens of times
under the real server. None is believed, and nothing of a sealed bucket is written in the clear afterwards (C137)."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from campaigns.in_process import WORKSPACE, lines_of
from campaigns.sizes import size
from outside.buckets import NewServer, mode_tables
from outside.clients import blunt_client, s3_client
from outside.content import noise
from outside.server import Server

FORGERIES = size(6_300)
CLASSES = 9
CASES_PER_TRY = 4
"""As in forged.rs."""
TEST = "recovery::vouch::forged::a_recovery_reads_what_was_written_or_nothing_whatever_was_put_into_the_store"
BUCKET = "delta-aes256-00"
OWN, STRANGE = (base64.b64encode(noise(seed, 32)).decode() for seed in (11, 12))
"""Two KEKs."""
HONEST = noise(1, 30_000)
CANARY = noise(2, 30_000)
FORGED = "forged-00"


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_forgery_of_thousands_is_read_and_each_is_by_a_build_without_its_check() -> None:
    tries = max(1, FORGERIES // CLASSES)
    (line,) = lines_of(
        *WORKSPACE,
        "--lib",
        arguments=("--exact", TEST),
        timeout_s=7000,
        variables={"PROPTEST_CASES": CASES_PER_TRY * tries},
    )
    assert (line["ops"], line["real"], line["wrong"]) == (tries * CLASSES, tries * CLASSES, 0)


def settled(server: Server, restores: int, bucket: str, body: bytes) -> Path:
    """The blobs of a store that was made, backed up, and made again some times; nobody serves it any more."""
    server.start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    server.run("backup")
    assert server.stop() == 0
    for _ in range(restores):
        server.lose_catalog()
        server.run("rebuild")
    return server.blobs


DOCUMENTS = ("lineage", "lineage-sealed", "journal", "backup", "backup-part", "keyset")


def name_of(blobs: Path, path: Path) -> str:
    """Of a blob that lies there: directories that begin with `+` only spread the files."""
    return "/".join(part for part in path.relative_to(blobs).parts if not part.startswith("+"))


def documents(blobs: Path, kind: str) -> list[Path]:
    """Of one kind, the newest last."""
    found = [path for path in (blobs / kind).rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: name_of(blobs, path))


def copied(source: Path) -> Callable[[Path], None]:
    """All that a recovery reads of one store, beside another's; of equal names theirs stays."""

    def forge(blobs: Path) -> None:
        for kind in DOCUMENTS:
            for path in documents(source, kind):
                target = blobs / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists():
                    shutil.copyfile(path, target)

    return forge


def flip(path: Path, rng: random.Random) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def planted(name: str, content: bytes) -> Callable[[Path], None]:
    """A blob that somebody made up, where the store looks for it."""

    def forge(blobs: Path) -> None:
        folder, leaf = name.rsplit("/", 1)
        place = blobs / folder / f"+{leaf[-2:]}" / f"+{leaf[-3]}" / leaf
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        assert name_of(blobs, place) == name

    return forge


def changed(kind: str, manner: str, seed: int) -> Callable[[Path], None]:
    """The newest document of a kind, in a manner."""
    rng = random.Random(seed)

    def forge(blobs: Path) -> None:
        of_kind = documents(blobs, kind)
        # Both copies of a keyset: one of two proves nothing.
        for path in of_kind if kind == "keyset" else of_kind[-1:]:
            match manner:
                case "bit flip":
                    flip(path, rng)
                case "truncation":
                    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])
                case "another's":
                    others = [
                        other for other in documents(blobs, "journal") + documents(blobs, "backup") if other != path
                    ]
                    path.write_bytes(rng.choice(others).read_bytes())

    return forge


@dataclass
class Outcome:
    """What a forgery came to, with the catalog and without."""

    believed: int = 0
    plaintext: int = 0
    wrong: int = 0
    refused: int = 0
    bricked: int = 0


def serve(server: Server, outcome: Outcome) -> bool:
    """Starts it, writes to the sealed bucket, and looks. Whether it started."""
    process = server.launch()
    try:
        server.wait_ready()
    except AssertionError:
        outcome.refused += 1
        server.kill()
        return False
    assert process.poll() is None
    s3 = blunt_client(server.endpoint)
    try:
        outcome.believed += FORGED in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
        outcome.wrong += s3.get_object(Bucket=BUCKET, Key="k")["Body"].read() != HONEST
    except (ClientError, BotoCoreError):
        outcome.refused += 1
    try:
        s3.put_object(Bucket=BUCKET, Key="canary", Body=CANARY)
    except (ClientError, BotoCoreError):
        outcome.refused += 1
    server.stop()
    pieces = [CANARY[at : at + 24] for at in range(0, len(CANARY) - 24, 4_000)]
    for path in server.data.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            outcome.plaintext += sum(piece in content for piece in pieces)
    return True


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_server_believes_no_forgery_and_writes_nothing_in_the_clear(new_server: NewServer, tmp_path: Path) -> None:
    victim = new_server("victim", **mode_tables())
    victim.environment["DELTAWEIR_KEK"] = OWN
    settled(victim, 0, BUCKET, HONEST)
    keyless = new_server("keyless", **mode_tables())
    plain = settled(keyless, 2, FORGED, b"forged")
    twin = new_server("twin", **mode_tables())
    twin.environment["DELTAWEIR_KEK"] = OWN
    same = settled(twin, 2, FORGED, b"forged")
    stranger = new_server("stranger", **mode_tables())
    stranger.environment["DELTAWEIR_KEK"] = STRANGE
    other = settled(stranger, 2, FORGED, b"forged")
    lineage = documents(plain, "lineage")[-1].read_bytes()
    own = documents(victim.blobs, "lineage")[-1]
    kinds = ("lineage", "journal", "backup", "backup-part", "keyset")
    owner = json.dumps({"format": "deltaweir owner 1", "deployment": "5f" * 16, "since_ms": 1}).encode()
    backup = documents(victim.blobs, "backup")[-1]
    forgeries: dict[str, Callable[[Path], None]] = {
        "a key-less store's history": copied(plain),
        "a history under the same KEK": copied(same),
        "a history under another KEK": copied(other),
        "a lineage that does not open": planted("lineage/3fffffff-00000001", own.read_bytes()),
        "a lineage of noise": planted("lineage/00000009-00000001", noise(3, 486)),
        "an unsealed lineage": planted("lineage/40000000-00000001", lineage),
        "a saturated generation": planted("lineage/ffffffff-00000001", lineage),
        "a backup that does not open": planted(f"backup/{own.name}/{2**60:016x}-{7:016x}", backup.read_bytes()),
        "a copy of the lineage that is not sealed": planted(f"lineage-sealed/{own.name}", lineage),
        "another owner": planted("owner/0000000000000002", owner),
        "an owner of noise": planted("owner/0000000000000002", noise(4, 90)),
        **{
            f"{kind}: {manner}": changed(kind, manner, seed)
            for seed, kind in enumerate(kinds)
            for manner in ("bit flip", "truncation", "another's")
        },
    }
    serves = {name for name in forgeries if name.startswith(("a ", "an unsealed", "another's"))}
    honest = tmp_path / "honest"
    shutil.copytree(victim.data, honest, symlinks=True)
    told = Outcome()
    bricked = []
    for name, forge in forgeries.items():
        for loses in (False, True):
            shutil.rmtree(victim.data)
            shutil.copytree(honest, victim.data, symlinks=True)
            forge(victim.blobs)
            if loses:
                victim.lose_catalog()
                if victim.run("rebuild", check=False).returncode != 0:
                    told.refused += 1
                    continue
            started = serve(victim, told)
            if not started and not loses and name in serves:
                bricked.append(name)
    line = {
        "campaign": "forging",
        "ops": 2 * len(forgeries),
        "wrong": told.wrong + told.believed,
        "hits": told.plaintext,
        "refused": told.refused,
        "unexpected": len(bricked),
    }
    print(json.dumps(line))
    assert (told.believed, told.wrong, told.plaintext) == (0, 0, 0)
    assert bricked == [], "whoever has the catalog is not kept from serving it"

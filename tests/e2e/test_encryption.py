"""Encrypted buckets: nothing of theirs is readable without the keyring, nothing changed goes unnoticed."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import KIB, MIB, noise, release
from outside.server import Server
from outside.wire import Connection, signed

CANARY = b"canary-7f1d-plaintext"
KEY_CANARY = "canary-key-55aa"
META_CANARY = "canary-metadata-31c4"


def canaried(size: int) -> bytes:
    """Content in which every 4 KiB holds the canary: any stored piece of it would show."""
    piece = (CANARY + noise(1, 4 * KIB))[: 4 * KIB]
    return (piece * (size // len(piece) + 1))[:size]


def contents() -> dict[str, bytes]:
    """One object of each form and size class."""
    random_with_canary = b"".join(CANARY + noise(seed, 60_000) for seed in range(100))
    return {
        f"{KEY_CANARY}/inline": CANARY,
        f"{KEY_CANARY}/zstd": canaried(2 * MIB),
        f"{KEY_CANARY}/raw": random_with_canary,
        f"{KEY_CANARY}/app-1": b"".join(CANARY + release(3, 50_000, 0) for _ in range(20)) + random_with_canary,
        f"{KEY_CANARY}/app-2": random_with_canary + b"".join(CANARY + release(3, 50_000, 1) for _ in range(20)),
    }


def fill(s3: S3Client, bucket: str) -> dict[str, bytes]:
    """Stores them, one also by parts."""
    s3.create_bucket(Bucket=bucket)
    stored = contents()
    for key, content in stored.items():
        s3.put_object(Bucket=bucket, Key=key, Body=content, Metadata={"m": META_CANARY})
    key = f"{KEY_CANARY}/parts"
    stored[key] = canaried(7 * MIB)
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key, Metadata={"m": META_CANARY})["UploadId"]
    ids = {"Bucket": bucket, "Key": key, "UploadId": upload}
    parts = [
        {"PartNumber": number, "ETag": s3.upload_part(**ids, PartNumber=number, Body=body)["ETag"]}
        for number, body in enumerate((stored[key][: 5 * MIB], stored[key][5 * MIB :]), 1)
    ]
    s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": parts})
    return stored


def secrets_of(stored: dict[str, bytes]) -> list[bytes]:
    """What must not be found: content, metadata, and every digest that would tell a known file."""
    found = [CANARY, META_CANARY.encode()]
    for content in stored.values():
        for digest in (hashlib.sha256(content), hashlib.md5(content, usedforsecurity=False)):
            found += [digest.digest(), digest.hexdigest().encode(), base64.b64encode(digest.digest())]
    return found


def files_with(folder: Path, needles: list[bytes]) -> list[tuple[Path, bytes]]:
    """Which files below a folder hold which of these bytes."""
    pattern = re.compile(b"|".join(re.escape(needle) for needle in needles))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files, f"{folder} holds nothing: the search would prove nothing"
    return [(path, found[0]) for path in files for found in [pattern.search(path.read_bytes())] if found]


def test_the_search_for_canaries_finds_them_where_nothing_is_encrypted(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    s3.put_object(Bucket="off-00", Key="k", Body=canaried(2 * MIB))
    assert files_with(server.blobs, [CANARY])


@pytest.mark.parametrize("bucket", ["off-aes256-00", "zstd-aes256-00", "delta-aes256-00"])
def test_no_plaintext_name_or_digest_reaches_disk_or_log(new_server: NewServer, bucket: str) -> None:
    server = new_server(log={"filter": "trace"}).start()
    stored = fill(s3_client(server.endpoint), bucket)
    needles = secrets_of(stored)
    assert files_with(server.folder, needles) == []
    assert files_with(server.blobs, [KEY_CANARY.encode()]) == []
    assert KEY_CANARY not in server.final_log()
    server.start()
    s3 = s3_client(server.endpoint)
    for key, content in stored.items():
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == content
    assert s3.head_object(Bucket=bucket, Key=f"{KEY_CANARY}/raw")["Metadata"] == {"m": META_CANARY}
    assert files_with(server.folder, needles) == []


def test_a_spooled_body_is_sealed_too(new_server: NewServer) -> None:
    """A spool file has no name; the process's open descriptors show it while the upload goes on."""
    server = new_server(limits={"memory_bytes_max": "64MiB"}).start()
    s3_client(server.endpoint).create_bucket(Bucket="delta-aes256-00")
    body = b"".join(CANARY + noise(seed, 60_000) for seed in range(600))
    request = signed(f"127.0.0.1:{server.port}", "PUT", f"/delta-aes256-00/{KEY_CANARY}", body=body)
    head = len(request) - len(body)
    assert server.process is not None
    with Connection(server.port) as connection:
        connection.send(request[: head + 30 * MIB])
        for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
            try:
                target = str(descriptor.readlink())
                if str(server.folder) not in target or target.endswith(".log") or not descriptor.is_file():
                    continue
                held = descriptor.read_bytes()
            except FileNotFoundError:
                continue  # closed since the folder was listed
            assert CANARY not in held, target
        connection.send(request[head + 30 * MIB :])
        answer = connection.answer("PUT")
    assert answer is not None
    assert answer.status == 200, answer.body


def test_without_its_key_a_store_does_not_start(new_server: NewServer) -> None:
    """Another KEK never means plaintext, silence or wrong bytes."""
    right, wrong = (base64.b64encode(noise(seed, 32)).decode() for seed in (1, 2))
    server = new_server()
    server.environment["DELTAWEIR_KEK"] = right
    server.start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-aes256-00")
    s3.put_object(Bucket="delta-aes256-00", Key="k", Body=noise(1, 100_000))
    assert server.stop() == 0
    server.environment["DELTAWEIR_KEK"] = wrong
    assert server.launch().wait(30) != 0
    assert wrong not in server.tail()
    server.environment["DELTAWEIR_KEK"] = right
    server.start()
    assert s3_client(server.endpoint).get_object(Bucket="delta-aes256-00", Key="k")["Body"].read() == noise(1, 100_000)


def test_keyset_blobs_lie_beside_what_they_open(new_server: NewServer) -> None:
    """Two copies of a bucket's wrapped keys are on its backend before the first blob of its epoch (I11)."""
    server: Server = new_server().start()
    before = len(server.blob_files())
    s3_client(server.endpoint).create_bucket(Bucket="delta-aes256-00")
    assert len(server.blob_files()) - before == 2

"""Stores kept from earlier commits: how they are made, unpacked and compared.

`PYTHONPATH=tests python -m outside.old_stores BINARY COMMIT` makes the two fixtures of a commit with the binary built
from it. The content follows from seeds, so that a fixture keeps no more than the store itself and what its clients
were told.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.postgres import Postgres, binaries
from outside.archives import tar_gz
from outside.clients import S3Client, s3_client
from outside.content import KIB, MIB, noise, release, text
from outside.server import ROOT, Server, Value

FOLDER = ROOT / "tests" / "vectors" / "stores"
KEK = base64.b64encode(bytes(range(32))).decode()
"""The key that opens the sealed buckets of every fixture."""
BUCKETS = {
    "off-plain": ("off", "off"),
    "zstd-plain": ("zstd", "off"),
    "delta-plain": ("delta", "off"),
    "delta-sealed": ("delta", "aes256"),
    "off-sealed": ("off", "aes256"),
}
UPLOAD_KEY = "unfinished/upload"
CHECKSUMS = ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256")


@dataclass(frozen=True)
class OldStore:
    """One fixture: a store's files, and what its clients had been told."""

    name: str

    @property
    def archive(self) -> Path:
        """The data directory and, with PostgreSQL, the dump of its catalog."""
        return FOLDER / f"{self.name}.tar.xz"

    @property
    def told(self) -> dict[str, Any]:
        """Every object with its digest, size, ETag and headers; the unfinished upload."""
        return dict(json.loads((FOLDER / f"{self.name}.json").read_text()))

    @property
    def on_postgres(self) -> bool:
        """Whether the catalog is a dump of PostgreSQL's."""
        return self.name.endswith("postgres")

    def unpack(self, folder: Path) -> None:
        """Lays the files into `folder`."""
        with tarfile.open(self.archive) as archive:
            archive.extractall(folder, filter="data")


def kept() -> list[OldStore]:
    """Every fixture there is."""
    return [OldStore(path.name.removesuffix(".tar.xz")) for path in sorted(FOLDER.glob("*.tar.xz"))]


def server_on(folder: Path, catalog: str = "sqlite", binary: Path | None = None, **tables: dict[str, Value]) -> Server:
    """A server, not started, on the store in `folder`."""
    settings: dict[str, dict[str, Value]] = {
        f"buckets.{name}": {"compression": compression, "encryption": encryption}
        for name, (compression, encryption) in BUCKETS.items()
    }
    more: dict[str, dict[str, Value]] = {
        "storage": {"catalog": catalog},
        "backup": {"journal_seconds": 1},
        "gc": {"grace": "1h"},
    }
    server = Server(folder, settings | more | tables, environment={"DELTAWEIR_KEK": KEK})
    if binary is not None:
        server.binary = binary
    return server


def lay() -> Iterator[tuple[str, str, bytes, dict[str, Any]]]:
    """Every object of the fixture: bucket, key, content, arguments of PUT."""
    for bucket in BUCKETS:
        yield bucket, "empty", b"", {}
        yield bucket, "inline", text(1, 900), {"ContentType": "text/plain", "Metadata": {"colour": "blue"}}
        yield bucket, "names/Üñïçødé key+with space%2F.txt", text(2, 300), {"CacheControl": "max-age=60"}
        for number, algorithm in enumerate(CHECKSUMS):
            yield bucket, f"checked/{algorithm}", noise(number, 1500), {"ChecksumAlgorithm": algorithm}
    yield "off-plain", "raw", noise(10, 70 * KIB), {}
    yield "off-sealed", "raw", noise(10, 70 * KIB), {}
    yield "zstd-plain", "log", text(11, 200 * KIB), {"ContentEncoding": "identity"}
    yield "zstd-plain", "random", noise(12, 20 * KIB), {}
    for bucket in ("delta-plain", "delta-sealed"):
        for version in range(4):
            yield bucket, f"builds/app-{version}.bin", release(20, 90 * KIB, version), {"Metadata": {"v": str(version)}}
        yield bucket, "builds/again.bin", release(20, 90 * KIB, 1), {}
        for version in range(2):
            # Deflate streams of both are opened: segments of coding 3.
            yield bucket, f"archives/package-1.{version}.tar.gz", tar_gz(70, 6, 60_000, version), {}
        for number in range(48):
            yield bucket, f"documents/{number:03}.json", text(100 + number, 5 * KIB + number), {}
    for version in range(18):
        yield "delta-plain", f"fan/{version:02}.bin", release(30, 24 * KIB, version), {}


def put_parts(s3: S3Client, bucket: str, key: str, parts: list[bytes]) -> None:
    """An upload in parts."""
    ids = {"Bucket": bucket, "Key": key}
    ids["UploadId"] = s3.create_multipart_upload(**ids, Metadata={"parts": str(len(parts))})["UploadId"]
    sent = [
        {"PartNumber": number, "ETag": s3.upload_part(**ids, PartNumber=number, Body=part)["ETag"]}
        for number, part in enumerate(parts, 1)
    ]
    s3.complete_multipart_upload(**ids, MultipartUpload={"Parts": sent})


def parts_of(seed: int) -> list[bytes]:
    """Two parts of 5 MiB that zstd makes small, and a short one."""
    block = text(seed, 16 * KIB)
    return [(block * 321)[: 5 * MIB], (block[::-1] * 321)[: 5 * MIB], text(seed + 1, 700)]


def told_of(s3: S3Client) -> dict[str, Any]:
    """What clients see: digest, size, ETag, headers and checksums of each object."""
    objects: list[dict[str, Any]] = []
    for bucket in sorted(BUCKETS):
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for entry in page.get("Contents", []):
                got = s3.get_object(Bucket=bucket, Key=entry["Key"], ChecksumMode="ENABLED")
                kept_headers = ("ContentType", "CacheControl", "ContentEncoding", "Metadata", "ETag")
                checksums = {name: value for name, value in got.items() if name.startswith("Checksum")}
                objects.append(
                    {
                        "bucket": bucket,
                        "key": entry["Key"],
                        "size": entry["Size"],
                        "modified": got["LastModified"].isoformat(),
                        "form": got["ResponseMetadata"]["HTTPHeaders"]["x-deltaweir-form"],
                        "sha256": hashlib.sha256(got["Body"].read()).hexdigest(),
                        "headers": {name: got[name] for name in kept_headers if name in got} | checksums,
                    }
                )
    uploads = [
        {"bucket": bucket, "key": upload["Key"], "id": upload["UploadId"]}
        for bucket in sorted(BUCKETS)
        for upload in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    ]
    return {"objects": objects, "uploads": uploads}


def codings(server: Server, bucket: str, prefix: str) -> dict[str, str]:
    """How the first segment of each object under a prefix is encoded."""
    found = s3_client(server.endpoint).list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    told = {}
    for entry in found:
        blobs = server.admin(f"/api/v1/explain?bucket={bucket}&key={entry['Key']}")["blobs"]
        segments = server.admin(f"/api/v1/inspect?blob={blobs[0]['id']}")["segments"]
        told[f"{bucket}/{entry['Key']}"] = segments[0]["coding"]
    return told


def fill(server: Server) -> dict[str, Any]:
    """Lives the life of a store in it: every form, packs, copies, deletions, journal, a backup in the middle."""
    s3 = s3_client(server.endpoint)
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)
    for bucket, key, content, arguments in lay():
        s3.put_object(Bucket=bucket, Key=key, Body=content, **arguments)
    for bucket in ("delta-plain", "delta-sealed", "zstd-plain"):
        put_parts(s3, bucket, "parts/object", parts_of(40))
        put_parts(s3, bucket, "parts/object-2", [*parts_of(40)[:2], text(50, 800)])
    server.settle(120)
    server.run("jobs", "copies", "start")
    server.run("backup")
    for bucket in BUCKETS:
        s3.copy_object(Bucket=bucket, Key="copy/of-inline", CopySource={"Bucket": bucket, "Key": "inline"})
        s3.delete_object(Bucket=bucket, Key="checked/SHA1")
        s3.put_object(Bucket=bucket, Key="inline", Body=text(3, 950))
    s3.delete_object(Bucket="delta-plain", Key="documents/007.json")
    s3.delete_object(Bucket="delta-plain", Key="builds/app-2.bin")
    started = s3.create_multipart_upload(Bucket="delta-sealed", Key=UPLOAD_KEY, Metadata={"un": "finished"})
    ids = {"Bucket": "delta-sealed", "Key": UPLOAD_KEY, "UploadId": started["UploadId"]}
    s3.upload_part(**ids, PartNumber=1, Body=parts_of(60)[0])
    server.admin("/api/v1/journal", "POST")
    told = told_of(s3)
    forms = {entry["form"] for entry in told["objects"]}
    assert forms >= {"raw", "zstd", "delta", "dedup"}, forms
    told["kinds"] = sorted(path.name for path in server.blobs.iterdir())
    done = {job["name"]: job["last_outcome"] for job in server.admin("/api/v1/jobs")}
    told["codings"] = codings(server, "delta-plain", "archives/") | codings(server, "delta-sealed", "archives/")
    assert "view" in told["codings"].values(), told["codings"]
    told["jobs"] = {name: done[name] for name in ("pack", "copies", "backup")}
    assert done["pack"]["packs"] and done["copies"]["copied"], done
    return told


def pack_up(name: str, folder: Path, told: dict[str, Any]) -> None:
    """Writes the archive, the same bytes for the same files, and what clients were told."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder)
            if path.is_file() and relative.parts[0] in ("data", "catalog.sql"):
                entry = tarfile.TarInfo(str(relative))
                entry.size, entry.mode = path.stat().st_size, 0o600
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
    text_of = json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False, default=str)
    (FOLDER / f"{name}.json").write_text(text_of + "\n")


def main() -> None:
    """Makes both fixtures of one commit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path)
    parser.add_argument("commit")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = server_on(Path(folder), binary=arguments.binary.resolve())
        with server:
            told = fill(server)
            assert server.stop() == 0, server.tail()
        pack_up(f"{arguments.commit}-sqlite", Path(folder), told)
    postgres = Postgres().make().start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            server = server_on(Path(folder), postgres.url, arguments.binary.resolve())
            with server:
                told = fill(server)
                assert server.stop() == 0, server.tail()
            dump = [str(binaries() / "pg_dump"), "--no-owner", "--no-privileges", postgres.url]
            done = subprocess.run(dump, capture_output=True, check=True)
            (Path(folder) / "catalog.sql").write_bytes(done.stdout)
            pack_up(f"{arguments.commit}-postgres", Path(folder), told)
    finally:
        postgres.remove()


if __name__ == "__main__":
    main()

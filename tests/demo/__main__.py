"""`make demo`: four releases of real packages through four kinds of bucket, and what each costs.

Uploads are `aws s3 cp`, downloads are boto3's, every byte is compared. Fails when later releases in the delta bucket
take more than they may of what the zstd bucket takes. Times are those of a person at a terminal: aws-cli's start is in
them, and client and server share the machine, so ratios count and absolutes do not.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from taxbench.artifacts.manifest import Artifact, Manifest
from taxbench.artifacts.packages import ECOSYSTEMS, build

from outside.clients import AwsCli, S3Client, s3_client
from outside.server import DELTA, DELTA_SEALED, OFF, ROOT, ZSTD, Server, Value
from outside.storage import assert_accounts_balance, stored

CACHE = ROOT / ".bench-data" / "demo"
RELEASE = ROOT / "target" / "release" / "deltaweir"
MODES = (OFF, ZSTD, DELTA, DELTA_SEALED)


@dataclass(frozen=True)
class Family:
    """A package, its releases, and the most its later releases may take in the delta bucket, as a share of zstd's."""

    package: str
    versions: tuple[str, ...]
    share_max: float
    what: str


FAMILIES = (
    Family("duckdb", ("1.5.3", "1.5.4", "1.5.5", "1.5.6"), 0.30, "native code"),
    Family("django", ("5.2.16", "5.2.17", "5.2.18", "5.2.19"), 0.03, "a source tree"),
)


@dataclass(frozen=True)
class Row:
    """What one object did in one bucket."""

    family: str
    version: str
    bucket: str
    form: str
    logical_bytes: int
    stored_bytes: int
    put_s: float
    get_s: float


def fetch(family: Family, console: Console) -> Manifest:
    """The releases as plain tars with fixed times, from the cache when they are there and unchanged."""
    known = CACHE / f"{family.package}-{'-'.join(family.versions)}.json"
    if known.exists():
        manifest = Manifest.model_validate_json(known.read_text())
        if all(digest_of(CACHE / artifact.path) == artifact.sha256 for artifact in manifest.artifacts):
            return manifest
    console.print(f"fetching {family.package} {', '.join(family.versions)} by pip")
    manifest = build(ECOSYSTEMS["pypi"], family.package, CACHE, len(family.versions), list(family.versions), reuse=True)
    known.write_text(manifest.model_dump_json())
    return manifest


def digest_of(path: Path) -> str | None:
    """A file's SHA-256; `None` when there is no such file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_matches(s3: S3Client, bucket: str, artifact: Artifact) -> bool:
    """Whether boto3 gets back what aws-cli put."""
    digest = hashlib.sha256()
    for piece in s3.get_object(Bucket=bucket, Key=artifact.name)["Body"].iter_chunks(1 << 20):
        digest.update(piece)
    return bool(digest.hexdigest() == artifact.sha256)


def carry(
    server: Server, aws: AwsCli, family: Family, manifest: Manifest, bucket: str, progress: Progress
) -> list[Row]:
    """Puts the releases of a family into a bucket, oldest first, and gets them back."""
    s3 = s3_client(server.endpoint)
    task = progress.add_task(f"{family.package} → {bucket}", total=2 * len(manifest.artifacts))
    put_s: dict[str, float] = {}
    for artifact in manifest.artifacts:
        started = time.monotonic()
        aws.run("s3", "cp", "--no-progress", str(CACHE / artifact.path), f"s3://{bucket}/{artifact.name}")
        put_s[artifact.name] = time.monotonic() - started
        progress.advance(task)
    server.settle()
    server.drop_caches()
    rows: list[Row] = []
    for artifact in manifest.artifacts:
        started = time.monotonic()
        if not download_matches(s3, bucket, artifact):
            raise SystemExit(f"{bucket}/{artifact.name}: the bytes that came back are not the bytes that were put")
        get_s = time.monotonic() - started
        told = stored(s3, bucket, artifact.name)
        rows.append(
            Row(
                family=family.package,
                version=artifact.version,
                bucket=bucket,
                form=told.form,
                logical_bytes=artifact.size,
                stored_bytes=told.stored_bytes,
                put_s=put_s[artifact.name],
                get_s=get_s,
            )
        )
        progress.advance(task)
    return rows


def table_of(rows: list[Row]) -> Table:
    """The rows as people read them."""
    table = Table(title="byte-identical after download, every one")
    for name in ("package", "release", "bucket", "form"):
        table.add_column(name)
    for name in ("logical MB", "stored MB", "ratio", "PUT MB/s", "GET MB/s"):
        table.add_column(name, justify="right")
    for row in rows:
        megabytes = row.logical_bytes / 1e6
        table.add_row(
            row.family,
            row.version,
            row.bucket,
            row.form,
            f"{megabytes:.1f}",
            f"{row.stored_bytes / 1e6:.2f}",
            f"{row.logical_bytes / max(1, row.stored_bytes):.1f}",
            f"{megabytes / row.put_s:.0f}",
            f"{megabytes / row.get_s:.0f}",
            end_section=row.version == max(other.version for other in rows if other.family == row.family),
        )
    return table


def later(rows: list[Row], family: Family, bucket: str) -> int:
    """Stored bytes of every release of a family but the first, in a bucket."""
    return sum(
        row.stored_bytes
        for row in rows
        if (row.family, row.bucket) == (family.package, bucket) and row.version != family.versions[0]
    )


def main() -> int:
    console = Console(width=max(110, Console().width))
    CACHE.mkdir(parents=True, exist_ok=True)
    manifests = {family.package: fetch(family, console) for family in FAMILIES}
    folder = CACHE / "server"
    shutil.rmtree(folder, ignore_errors=True)
    buckets: dict[str, dict[str, Value]] = {
        f'buckets."{mode.name}"': {"compression": mode.compression, "encryption": mode.encryption} for mode in MODES
    }
    rows: list[Row] = []
    with Server(folder, {**buckets, "defaults": {"effort": "auto"}}, binary=RELEASE) as server:
        aws = AwsCli(server.endpoint, folder / "home")
        for mode in MODES:
            aws.run("s3", "mb", f"s3://{mode.name}")
        with Progress(console=console, transient=True) as progress:
            for family in FAMILIES:
                for mode in MODES:
                    rows += carry(server, aws, family, manifests[family.package], mode.name, progress)
        assert_accounts_balance(server)
        console.print(table_of(rows))
        peak = server.status_bytes("VmHWM")
    console.print(f"peak memory of the server: {peak / 1e6:.0f} MB")
    (CACHE / "result.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    failed = False
    for family in FAMILIES:
        for bucket in (DELTA.name, DELTA_SEALED.name):
            share = later(rows, family, bucket) / later(rows, family, ZSTD.name)
            good = share <= family.share_max
            failed |= not good
            console.print(
                f"{family.package} ({family.what}): later releases in {bucket} take {share:.1%} of what they take in "
                f"{ZSTD.name}; at most {family.share_max:.0%}: {'yes' if good else 'NO'}"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

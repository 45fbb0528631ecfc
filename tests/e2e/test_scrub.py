"""`deltaweir scrub` over a store in which somebody flipped a bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import noise, release
from outside.server import Server, until

KINDS = ("journal", "keyset", "lineage", "owner")


def blob_file(server: Server, bucket: str, key: str) -> Path:
    """Where an object's only blob lies."""
    (extent,) = server.json("explain", f"s3://{bucket}/{key}")["extents"]
    (found,) = server.blobs.rglob(extent["blob"])
    return found


def flip(path: Path) -> None:
    """One bit in the middle; done twice, nothing has happened."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.chmod(0o600)
    path.write_bytes(content)


def is_readable(s3: S3Client, key: str) -> bool:
    """Whether an object is read to its end: damage is a 500, or a cut once bytes have left."""
    try:
        s3.get_object(Bucket="delta-00", Key=key)["Body"].read()
    except (BotoCoreError, ClientError):
        return False
    return True


def test_a_scrub_names_what_a_flipped_bit_reaches_and_nothing_else(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint, retries={"total_max_attempts": 1})
    for bucket in ("delta-00", "off-00"):
        s3.create_bucket(Bucket=bucket)
    for version in range(2):
        s3.put_object(Bucket="delta-00", Key=f"app-{version}", Body=release(31, 600_000, version))
    s3.copy_object(Bucket="delta-00", Key="copy", CopySource="delta-00/app-1")
    s3.put_object(Bucket="off-00", Key="other", Body=noise(3, 300_000))
    whole = server.json("scrub")
    assert whole["counts"]["damaged"] == 0 and whole["counts"]["ok"] == 3
    base = blob_file(server, "delta-00", "app-0")
    flip(base)

    found = server.run("scrub", "--json", check=False)
    assert found.returncode == 1 and "3 objects" in found.stderr
    report = json.loads(found.stdout)
    reached = [(one["bucket"], one["key"]) for one in report["quarantine"]["affected"]]
    assert reached == [("delta-00", "app-0"), ("delta-00", "app-1"), ("delta-00", "copy")]
    assert base.name in [blob["blob"] for blob in report["quarantine"]["blobs"]]
    assert server.metrics().total("deltaweir_quarantined_blobs") == 2
    server.drop_caches()
    for key in ("app-0", "app-1", "copy"):
        assert not is_readable(s3, key)
    assert s3.get_object(Bucket="off-00", Key="other")["Body"].read() == noise(3, 300_000)

    s3.put_object(Bucket="delta-00", Key="again", Body=release(31, 600_000, 0))
    assert s3.get_object(Bucket="delta-00", Key="again")["Body"].read() == release(31, 600_000, 0)

    assert server.stop() == 0
    listed = server.run("scrub", "--quarantined", check=False)
    assert listed.returncode == 1 and "affected s3://delta-00/copy version" in listed.stdout
    flip(base)
    mended = server.run("scrub", "--percent", "100", "--older-than", "0s", "--bytes-per-second", "1GiB")
    assert "2 recovered" in mended.stdout and "nothing is in quarantine" in mended.stdout


def test_a_scrub_writes_again_what_a_rebuild_will_need(new_server: NewServer) -> None:
    server = new_server(backup={"journal_seconds": 3600}).start()
    s3 = blunt_client(server.endpoint, retries={"total_max_attempts": 1})
    s3.create_bucket(Bucket="delta-aes256-00")
    bodies = {f"key-{number}": noise(number, 9_000) for number in range(12)}
    for key, body in bodies.items():
        s3.put_object(Bucket="delta-aes256-00", Key=key, Body=body)
        if key.endswith(("3", "7")):
            server.admin("/api/v1/journal", "POST")
    whole = server.json("scrub")["recovery"]
    assert (whole["restored"], whole["damaged"], whole["unreachable"]) == (0, 0, 0)

    documents = {kind: sorted(path for path in (server.blobs / kind).rglob("*") if path.is_file()) for kind in KINDS}
    flip(max(documents["journal"], key=lambda path: path.name))
    flip(documents["keyset"][0])
    documents["lineage"][0].unlink()
    documents["owner"][0].unlink()
    with pytest.raises(ClientError, match="Writes are refused"):
        s3.put_object(Bucket="delta-aes256-00", Key="refused", Body=b"x" * 9_000)
    said = server.run("scrub").stdout
    assert "4 rewritten, 0 damaged, 0 unreachable" in said
    assert server.metrics().total("deltaweir_scrub_recovery_documents_total", outcome="restored") == 4
    s3.put_object(Bucket="delta-aes256-00", Key="key-12", Body=noise(12, 9_000))
    server.admin("/api/v1/journal", "POST")

    server.kill()
    server.lose_catalog()
    report = json.loads(server.run("rebuild", "--json").stdout)
    assert (report["objects"], report["holes"]) == (13, [])
    s3 = blunt_client(server.start().endpoint)
    for key, body in (bodies | {"key-12": noise(12, 9_000)}).items():
        assert s3.get_object(Bucket="delta-aes256-00", Key=key)["Body"].read() == body


def test_a_scrub_runs_by_itself_where_the_configuration_says_how_often(new_server: NewServer) -> None:
    server = new_server(scrub={"interval": "1s", "percent": 50, "bytes_per_second": "100MiB"}).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    s3.put_object(Bucket="off-00", Key="k", Body=noise(4, 100_000))

    def verified() -> bool:
        return server.metrics().total("deltaweir_scrub_objects_total", result="ok") >= 1

    until(verified, 60, "a scrub has met the blob")
    (job,) = [job for job in server.admin("/api/v1/jobs") if job["name"] == "scrub"]
    assert job["interval_s"] == 1


def test_flags_that_mean_nothing_are_refused(new_server: NewServer) -> None:
    server = new_server().start()
    for flags, words in {
        ("--percent", "0"): "percent",
        ("--percent", "200"): "percent",
        ("--older-than", "5 parsecs"): "duration",
        ("--bytes-per-second", "fast"): "size",
    }.items():
        refused = server.run("scrub", *flags, check=False)
        assert refused.returncode == 1 and words in refused.stderr, (flags, refused.stderr)

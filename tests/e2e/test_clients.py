"""Other people's clients doing what people do with them."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest

from outside.buckets import MakeBucket
from outside.clients import AwsCli, Rclone, Restic, S3Client
from outside.content import MIB, md5, noise, release, text
from outside.server import DELTA, DELTA_SEALED, Mode
from outside.sigv4 import EMPTY_SHA256, Scope, authorize
from outside.wire import Connection, signed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small project with releases, text, an empty file and awkward names."""
    root = tmp_path / "project"
    for version in range(3):
        path = root / "releases" / f"app-1.{version}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(release(31, 10 * MIB, version))
    (root / "logs").mkdir()
    for number in range(20):
        (root / "logs" / f"day {number:02}.log").write_bytes(text(number, 3000))
    (root / "empty").touch()
    (root / "größe & more.txt").write_bytes(noise(1, 5000))
    yesterday = time.time() - 86400
    for path in root.rglob("*"):
        os.utime(path, (yesterday, yesterday))
    return root


def same(first: Path, second: Path) -> bool:
    """Whether two folders hold the same files with the same bytes."""
    files = {path.relative_to(first): path.read_bytes() for path in first.rglob("*") if path.is_file()}
    return files == {path.relative_to(second): path.read_bytes() for path in second.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", [DELTA, DELTA_SEALED], ids=lambda mode: mode.name)
def test_aws_s3_sync_transfers_nothing_the_second_time(
    aws: AwsCli, make_bucket: MakeBucket, folder: Path, tmp_path: Path, mode: Mode
) -> None:
    bucket = make_bucket(mode)
    first = aws.run("s3", "sync", "--no-progress", str(folder), f"s3://{bucket}/p")
    assert first.stdout.count("upload:") == 25
    assert aws.run("s3", "sync", "--no-progress", str(folder), f"s3://{bucket}/p").stdout == ""
    assert aws.run("s3", "sync", "--no-progress", f"s3://{bucket}/p", str(folder)).stdout == ""
    back = tmp_path / "back"
    aws.run("s3", "sync", "--no-progress", f"s3://{bucket}/p", str(back))
    assert same(folder, back)


@pytest.mark.direct
def test_an_empty_upload_does_not_confuse_the_next_one_on_its_connection(
    connect: Callable[[], Connection], bucket: str
) -> None:
    """aws-cli waits for `100 Continue` before it sends a file. When the final answer comes instead, which is all that
    an empty body allows, it takes that answer's status line for the one of the next request on the connection, and
    hangs there. So such an answer is the connection's last."""
    with connect() as connection:
        connection.send(signed(connection.host, "PUT", f"/{bucket}/empty", [("Expect", "100-continue")]))
        answer = connection.answer("PUT")
        assert answer is not None
        assert (answer.status, answer.header("etag")) == (200, f'"{md5(b"")}"')
        assert answer.header("connection") == "close"
        assert connection.closed()


def test_aws_s3_moves_streams_lists_and_removes(aws: AwsCli, bucket: str, folder: Path) -> None:
    big = folder / "releases" / "app-1.0.bin"
    aws.run("s3", "cp", "--no-progress", str(big), f"s3://{bucket}/x/one")
    aws.run("s3", "mv", "--no-progress", f"s3://{bucket}/x/one", f"s3://{bucket}/x/two")
    listed = aws.run("s3", "ls", "--recursive", "--summarize", f"s3://{bucket}/").stdout
    assert "x/two" in listed
    assert "x/one" not in listed
    assert f"Total Size: {10 * MIB}" in listed
    aws.run("s3", "rm", "--recursive", f"s3://{bucket}/x")
    assert (
        "Total Objects: 0" in aws.run("s3", "ls", "--recursive", "--summarize", f"s3://{bucket}/", check=False).stdout
    )
    aws.run("s3", "rb", f"s3://{bucket}")


def test_rclone_copies_checks_and_finds_no_difference(
    rclone: Rclone, bucket: str, folder: Path, tmp_path: Path
) -> None:
    rclone.run("copy", str(folder), f"store:{bucket}/p")
    checked = rclone.run("check", "--download", str(folder), f"store:{bucket}/p")
    assert "0 differences found" in checked.stderr
    assert "0 differences found" in rclone.run("check", str(folder), f"store:{bucket}/p").stderr
    (folder / "logs" / "day 03.log").write_bytes(b"changed")
    assert "1 differences found" in rclone.run("check", str(folder), f"store:{bucket}/p", check=False).stderr
    rclone.run("sync", str(folder), f"store:{bucket}/p")
    back = tmp_path / "back"
    rclone.run("copy", f"store:{bucket}/p", str(back))
    assert same(folder, back)
    shutil.rmtree(back)


def test_restic_backs_up_checks_and_restores(endpoint: str, bucket: str, folder: Path, tmp_path: Path) -> None:
    restic = Restic(endpoint, tmp_path / "restic-home")
    restic.run(bucket, "init")
    restic.run(bucket, "backup", str(folder))
    (folder / "logs" / "day 03.log").write_bytes(b"changed")
    restic.run(bucket, "backup", str(folder))
    restic.run(bucket, "forget", "--keep-last", "1", "--prune")
    assert "no errors were found" in restic.run(bucket, "check", "--read-data").stdout
    restic.run(bucket, "restore", "latest", "--target", str(tmp_path / "back"))
    assert same(folder, tmp_path / "back" / folder.relative_to("/"))


@pytest.mark.direct
def test_http2_without_tls_carries_puts_and_gets(s3: S3Client, endpoint: str, bucket: str) -> None:
    authority = endpoint.removeprefix("http://")
    host, port = authority.split(":")
    body = noise(77, 3 * MIB)
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    with socket.create_connection((host, int(port)), 20) as connection:
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        client.initiate_connection()
        received: dict[int, bytes] = {}
        status: dict[int, str] = {}
        ended: set[int] = set()
        for path in (f"/{bucket}/k", f"/{bucket}?list-type=2", f"/{bucket}/none"):
            signed, _ = authorize(Scope(), "GET", path, [("host", authority)], EMPTY_SHA256)
            head = [(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", path)]
            head += [(name.lower(), value) for name, value in signed if name != "host"]
            client.send_headers(client.get_next_available_stream_id(), head, end_stream=True)
        connection.sendall(client.data_to_send())
        while len(ended) < 3:
            data = connection.recv(65536)
            assert data, "the server closed the connection"
            for event in client.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    head_fields: dict[Any, Any] = dict(event.headers)
                    status[event.stream_id] = head_fields[":status"]
                elif isinstance(event, h2.events.DataReceived):
                    received[event.stream_id] = received.get(event.stream_id, b"") + event.data
                    client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    ended.add(event.stream_id)
            connection.sendall(client.data_to_send())
    assert [status[stream] for stream in sorted(status)] == ["200", "200", "404"]
    assert received[1] == body
    assert b"<Key>k</Key>" in received[3]
    assert b"<Code>NoSuchKey</Code>" in received[5]

"""Where the server can be made to connect to, and what it believes of names it finds there (C128, C130)."""

from __future__ import annotations

import json
import socket
import urllib.error
from pathlib import Path

import pytest

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import noise
from outside.server import Server, Value


def call(server: Server, path: str, body: object) -> int:
    """The status of a call of the admin API."""
    return server.admin_status(path, "POST", json.dumps(body).encode())


def test_nobody_names_an_address_for_the_server_to_fetch_from(new_server: NewServer) -> None:
    """Sources are stores that the configuration names; a caller says which, and never where."""
    server = new_server().start()
    s3_client(server.endpoint).create_bucket(Bucket="off-00")
    with socket.create_server(("127.0.0.1", 0)) as bait:
        here = f"http://127.0.0.1:{bait.getsockname()[1]}"
        sources = [here, f"{here}/latest/meta-data", "http://169.254.169.254/latest/meta-data", "file:///etc", "/etc"]
        for source in sources:
            told = server.run("import", source, "s3://off-00", check=False)
            assert told.returncode != 0, source
            assert "store" in told.stderr, told.stderr
        named = {"source": "local", "bucket": "off-00", "endpoint": here}
        assert call(server, "/api/v1/jobs/import", named) >= 400, "an address beside the name"
        assert call(server, "/api/v1/jobs/eject", {"bucket": "off-00", "target": here}) >= 400
        s3 = s3_client(server.endpoint)
        with pytest.raises(Exception, match=r"4\d\d|InvalidArgument|Invalid copy source"):
            s3.copy_object(Bucket="off-00", Key="k", CopySource=f"{here}/b/k")
        bait.settimeout(0.2)
        with pytest.raises(TimeoutError):
            bait.accept()
    assert s3.list_objects_v2(Bucket="off-00")["KeyCount"] == 0


HOSTILE = [
    "plain",
    "new\nline",
    "car\rriage",
    "tab\tand\x01control",
    "esc\x1b[31m",
    "a/" + "n" * 250 + "/" + "m" * 250 + "/" + "o" * 250 + "/" + "p" * 250,
    "<Key>&amp;</Key>",
    "journal/00000001-00000000/0000000000000001",
    "keyset/store-00000000000000000000000000000000-1",
    "blobs/00/00000001",
    "\u202etxt.exe",
    "..hidden",
]
"""Names a directory can hold: those of our own files among them."""


def test_names_of_an_imported_store_are_keys_and_nothing_else(new_server: NewServer, tmp_path: Path) -> None:
    old = tmp_path / "old"
    contents = {key: noise(number, 2000) for number, key in enumerate(HOSTILE)}
    for key, content in contents.items():
        path = old / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (old / "link").symlink_to("/etc/passwd")
    tables: dict[str, dict[str, Value]] = {"stores.old": {"type": "local", "path": str(old)}}
    server = new_server(**tables).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    report = server.json("import", "old", "s3://off-00")
    assert report["adopted"] == len(contents), report
    listed = [entry["Key"] for entry in s3.list_objects_v2(Bucket="off-00")["Contents"]]
    assert sorted(listed) == sorted(contents)
    for key, content in contents.items():
        assert s3.get_object(Bucket="off-00", Key=key)["Body"].read() == content, key
    assert not (tmp_path / "server" / "data" / "blobs" / "plain").exists()
    with pytest.raises(urllib.error.HTTPError):
        server.admin("/api/v1/explain?bucket=off-00&key=link")
    assert "\x1b[31m" not in server.final_log(), "no terminal is told what to do"

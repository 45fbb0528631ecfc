"""Docker's registry (distribution) with its S3 driver: layers that are pushed in chunks become uploads whose parts are
listed, completed and moved by copies; manifests, tags and the catalog are listings; deletions are batches."""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outside.clients import S3Client
from outside.content import MIB, noise
from outside.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, free_port, until

pytestmark = pytest.mark.long

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Registry:
    """A registry on a loopback port, spoken to as `docker push` and `docker pull` do."""

    port: int

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """One request, its answer's body read to the end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        answer.content = answer.read()  # type: ignore[attr-defined]
        connection.close()
        return answer

    def content(self, path: str, accept: str = "*/*") -> bytes:
        """What a GET answers."""
        answer = self.ask("GET", path, headers={"Accept": accept})
        assert answer.status == 200, answer.content  # type: ignore[attr-defined]
        return bytes(answer.content)  # type: ignore[attr-defined]

    def push(self, name: str, content: bytes, chunk: int) -> str:
        """A layer in chunks, then its digest."""
        answer = self.ask("POST", f"/v2/{name}/blobs/uploads/")
        assert answer.status == 202
        place = here(answer)
        for start in range(0, len(content), chunk):
            piece = content[start : start + chunk]
            kind = {"Content-Type": "application/octet-stream", "Content-Range": f"{start}-{start + len(piece) - 1}"}
            answer = self.ask("PATCH", place, piece, kind)
            assert answer.status == 202, answer.content  # type: ignore[attr-defined]
            place = here(answer)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert self.ask("PUT", f"{place}&digest={digest}").status == 201
        return digest


def here(answer: http.client.HTTPResponse) -> str:
    """Where the registry says to go on."""
    to = urlsplit(answer.headers["Location"])
    return f"{to.path}?{to.query}"


@pytest.fixture
def registry(endpoint: str, bucket: str, tmp_path: Path) -> Iterator[Registry]:
    """Debian's docker-registry, its store a bucket."""
    port, config = free_port(), tmp_path / "registry.yml"
    store = {
        "accesskey": ACCESS_KEY_ID,
        "secretkey": SECRET_ACCESS_KEY,
        "region": REGION,
        "regionendpoint": endpoint,
        "bucket": bucket,
        "secure": False,
        "chunksize": 5 * MIB,
        "rootdirectory": "/registry",
    }
    settings = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"s3": store, "delete": {"enabled": True}, "redirect": {"disable": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    config.write_text(json.dumps(settings))
    with (tmp_path / "registry.log").open("wb") as log:
        process = subprocess.Popen(["/usr/bin/docker-registry", "serve", config], stdout=log, stderr=log)
    served = Registry(port)
    try:
        until(lambda: process.poll() is not None or answers(served), 30, "the registry answers")
        assert process.poll() is None, (tmp_path / "registry.log").read_text()
        yield served
    finally:
        process.terminate()
        process.wait(30)


def answers(registry: Registry) -> bool:
    """Whether the registry is up."""
    try:
        return registry.ask("GET", "/v2/").status == 200
    except OSError:
        return False


@pytest.mark.timeout(300)
def test_an_image_is_pushed_in_chunks_tagged_pulled_and_deleted(registry: Registry, s3: S3Client, bucket: str) -> None:
    layer, config = noise(8, 23 * MIB), json.dumps({"architecture": "amd64", "os": "linux"}).encode()
    digests = [registry.push("team/app", layer, 6 * MIB), registry.push("team/app", config, MIB)]
    kinds = ["application/vnd.docker.image.rootfs.diff.tar.gzip", "application/vnd.docker.container.image.v1+json"]
    entries = [
        {"mediaType": kind, "size": len(content), "digest": digest}
        for kind, content, digest in zip(kinds, (layer, config), digests, strict=True)
    ]
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": entries[1], "layers": [entries[0]]}
    ).encode()
    for tag in ("v1", "v2"):
        answer = registry.ask("PUT", f"/v2/team/app/manifests/{tag}", manifest, {"Content-Type": MANIFEST})
        assert answer.status == 201
    assert json.loads(registry.content("/v2/_catalog")) == {"repositories": ["team/app"]}
    assert sorted(json.loads(registry.content("/v2/team/app/tags/list"))["tags"]) == ["v1", "v2"]
    assert registry.content("/v2/team/app/manifests/v1", MANIFEST) == manifest
    assert registry.content(f"/v2/team/app/blobs/{digests[0]}") == layer
    part = registry.ask("GET", f"/v2/team/app/blobs/{digests[0]}", headers={"Range": "bytes=6000000-6000009"})
    assert part.content == layer[6_000_000:6_000_010]  # type: ignore[attr-defined]
    deleted = registry.ask("DELETE", f"/v2/team/app/manifests/sha256:{hashlib.sha256(manifest).hexdigest()}")
    assert deleted.status == 202
    assert registry.ask("GET", "/v2/team/app/manifests/v1", headers={"Accept": MANIFEST}).status == 404
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)

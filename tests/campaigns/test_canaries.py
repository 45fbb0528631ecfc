"""Canaries in everything that is secret, and a search through all that the server leaves behind: backend, catalog and
its write-ahead log, spool files, the log at TRACE, metrics, answers of the admin API, and a core dump (C91, C115)."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaigns.sizes import size
from e2e.test_encryption import CANARY, KEY_CANARY, META_CANARY, canaried
from e2e.test_sign_in import Browser, settings
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import KIB, MIB, noise, release
from outside.issuer import CLIENT_SECRET, Issuer
from outside.server import SECRET_ACCESS_KEY, Server, until
from outside.sigv4 import Scope
from outside.wire import Connection, signed

OBJECTS = size(2_000)
BUCKET = "delta-aes256-00"
CUSTOMER_KEY = "canary-key-of-a-customer-31-char"
ADMIN_TOKEN = "canary-admin-token-0123456789abcdef"
WRONG_TOKEN = "canary-guessed-token-0123456789abcdef"
USER_SECRET = "canary-secret-of-a-user-0123456789"
TAG_CANARY = "canary-tag-77be"
KEK = base64.b64encode(noise(4712, 32)).decode()

OURS = {"admin-token", "root-credentials.json", "keyring.json", "audit-key", "deltaweir.toml"}
"""Files whose purpose it is to hold a secret, for their owner's eyes."""


def bodies(number: int) -> bytes:
    """Content of every size class, each with canaries throughout; some resembles what was there before."""
    kind = number % 4
    if kind == 0:
        return CANARY + noise(number, 200)
    if kind == 1:
        return canaried(20 * KIB + number)
    if kind == 2:
        return b"".join(CANARY + release(3, 20_000, number % 7) for _ in range(3))
    return b"".join(CANARY + noise(number * 100 + piece, 60_000) for piece in range(4))


def store(s3: S3Client, server: Server) -> list[str]:
    """Everything is put, some of it read, replaced, copied and deleted; what was signed for presigned requests."""
    customer: dict[str, Any] = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": CUSTOMER_KEY}
    signatures = []
    for number in range(OBJECTS):
        key = f"{KEY_CANARY}/{number % (OBJECTS * 3 // 4 + 1)}"
        tags = {"Metadata": {"m": META_CANARY}, "Tagging": f"t={TAG_CANARY}"}
        s3.put_object(Bucket=BUCKET, Key=key, Body=bodies(number), **tags)
        if number % 10 == 0:
            s3.put_object(Bucket="delta-00", Key=f"c{number}", Body=bodies(number), **customer)
            s3.get_object(Bucket="delta-00", Key=f"c{number}", **customer)["Body"].read()
            s3.copy_object(Bucket=BUCKET, Key=f"{key}-copy", CopySource={"Bucket": BUCKET, "Key": key})
            url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": key})
            found = re.search(r"Signature=([0-9a-f]{64})", url)
            signatures += [found[1]] if found else []
            with Connection(server.port) as connection:
                connection.send(
                    f"GET {url.removeprefix(server.endpoint)} HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode()
                )
                answer = connection.answer()
                assert answer is not None and answer.status == 200
        if number % 25 == 0:
            s3.delete_object(Bucket=BUCKET, Key=key)
    return signatures


def while_spooled(server: Server) -> Iterator[tuple[str, bytes]]:
    """What the files without a name hold while a large upload goes on."""
    body = b"".join(CANARY + noise(seed, 60_000) for seed in range(600))
    request = signed(f"127.0.0.1:{server.port}", "PUT", f"/{BUCKET}/{KEY_CANARY}-large", body=body)
    assert server.process is not None
    with Connection(server.port) as connection:
        connection.send(request[: len(request) - len(body) + 30 * MIB])
        for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
            try:
                target = str(descriptor.readlink())
                if str(server.folder) in target and not target.endswith(".log") and descriptor.is_file():
                    yield f"open: {target}", descriptor.read_bytes()
            except OSError:
                continue  # closed since the folder was listed
        connection.send(request[len(request) - len(body) + 30 * MIB :])
        answer = connection.answer("PUT")
    assert answer is not None and answer.status == 200, answer


def ask_everything(server: Server) -> Iterator[tuple[str, bytes]]:
    """Metrics, every page of the admin API that needs no name, and what commands print."""
    yield "metrics", str(server.metrics()).encode()
    paths = ["stats", "overview", "buckets", "jobs", "users", "groups", "policies", "quotas", "recovery", "requests"]
    paths += ["traffic", "quarantine", "backups", "audit", f"objects?bucket={BUCKET}", "users/carol"]
    for path in paths:
        yield path, json.dumps(server.admin(f"/api/v1/{path}")).encode()
    yield "config show", server.run("config", "show").stdout.encode()


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder but those that are there for a secret."""
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in OURS:
            yield str(path), path.read_bytes()


def hits(places: Iterator[tuple[str, bytes]], needles: dict[str, bytes], seen: dict[str, int]) -> list[str]:
    """Which place holds which canary; counts places and bytes."""
    pattern = re.compile(b"|".join(re.escape(needle) for needle in needles.values()))
    found = []
    for name, content in places:
        seen["places"] += 1
        seen["bytes"] += len(content)
        if hit := pattern.search(content):
            found.append(f"{name}: {hit[0][:12]!r}…")
    return found


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nothing_secret_is_found_in_anything_that_the_server_leaves_behind(new_server: NewServer) -> None:
    issuer = Issuer()
    server = settings(new_server(log={"filter": "trace"}, limits={"memory_bytes_max": "64MiB"}), issuer)
    server.tables["server"] = {"admin_token": ADMIN_TOKEN}
    server.environment["DELTAWEIR_KEK"] = KEK
    server.start()
    s3 = s3_client(server.endpoint, signature_version="s3v4")
    for bucket in (BUCKET, "delta-00"):
        s3.create_bucket(Bucket=bucket)
    added = ("users", "add", "carol", "--policy", "readwrite", "--access-key-id", "AKIACAROL0", "--secret-access-key")
    server.run(*added, USER_SECRET)
    sessions = s3_client(server.endpoint, "AKIACAROL0", USER_SECRET)
    sessions.list_buckets()
    browser = Browser(server)
    assert browser.sign_in(issuer) == (200, "write")
    assert server.admin_status("/api/v1/stats", token=WRONG_TOKEN) == 401
    with Connection(server.port) as connection:
        connection.send(signed(connection.host, "GET", f"/{BUCKET}/k", scope=Scope(secret="not-the-secret")))
        connection.answer()
    signatures = store(s3, server)
    needles = {
        "content": CANARY,
        "metadata": META_CANARY.encode(),
        "tag": TAG_CANARY.encode(),
        "customer's key": CUSTOMER_KEY.encode(),
        "customer's key as sent": base64.b64encode(CUSTOMER_KEY.encode()),
        "token": ADMIN_TOKEN.encode(),
        "guessed token": WRONG_TOKEN.encode(),
        "root's secret": SECRET_ACCESS_KEY.encode(),
        "user's secret": USER_SECRET.encode(),
        "KEK": KEK.encode(),
        "KEK, raw": base64.b64decode(KEK),
        "client's secret": CLIENT_SECRET.encode(),
        "session": browser.key.encode(),
    } | {f"signature {number}": signature.encode() for number, signature in enumerate(signatures)}
    seen = {"places": 0, "bytes": 0}
    found = hits(while_spooled(server), needles, seen)
    found += hits(ask_everything(server), needles, seen)
    server.run("backup")
    found += hits(files(server.folder), needles, seen)
    found += hits(files(server.blobs), {"name": KEY_CANARY.encode()}, seen)
    found += hits(iter([("log", server.log.read_bytes())]), {"name": KEY_CANARY.encode()}, seen)
    # The mutant: the same content where nothing is sealed is found by the same search.
    s3.create_bucket(Bucket="off-00")
    s3.put_object(Bucket="off-00", Key="k", Body=canaried(2 * MIB))
    is_detected = bool(hits(files(server.blobs), {"content": CANARY}, {"places": 0, "bytes": 0}))
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGABRT)
    until(lambda: server.process is not None and server.process.poll() is not None, 30, "it has ended")
    cores = [path for path in (*server.folder.glob("core*"), *server.data.glob("core*")) if path.is_file()]
    issuer.close()
    line = {"campaign": "canaries", "ops": OBJECTS, **seen, "cores": len(cores), "hits": len(found)}
    print(json.dumps(line | {"canaries": len(needles), "mutant_detected": is_detected}))
    assert found == []
    assert cores == [], "a dump of a process that holds keys"
    assert is_detected
    assert seen["places"] > 50

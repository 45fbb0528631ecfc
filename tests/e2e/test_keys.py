"""Keys change while they are used: another KEK wraps them, and nothing that is stored is copied."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.postgres import Postgres
from outside.beside import again_and_again
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import MIB, noise, release
from outside.server import Server, Value
from outside.store import Store

BUCKET = "delta-aes256-00"
KMS: dict[str, dict[str, Value]] = {"kms.keys": {"payroll": "keyring"}}


def digests(server: Server) -> dict[str, str]:
    """Every blob of content, by its path."""
    kept = [path for path in (server.blobs / "blobs").rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def keks(server: Server) -> list[str]:
    """What the keyring holds."""
    found = json.loads((server.data / "keyring.json").read_text())
    return list(found["keks"]) if found["version"] == 2 else [found["kek"]]


def test_a_rotation_wraps_anew_and_copies_nothing(new_server: NewServer) -> None:
    server = new_server(**KMS).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    s3.create_bucket(Bucket="off-00")
    stored = {f"k{n}": release(3, 400_000, n) for n in range(4)}
    for key, content in stored.items():
        s3.put_object(Bucket=BUCKET, Key=key, Body=content)
    s3.put_object(Bucket="off-00", Key="kms", Body=b"by name", ServerSideEncryption="aws:kms", SSEKMSKeyId="payroll")
    s3.put_object(Bucket="off-00", Key="sse", Body=b"by the server", ServerSideEncryption="AES256")
    server.run("users", "add", "ann", "--policy", "readonly")
    before, old = digests(server), keks(server)
    assert before

    done = server.json("keys", "rotate", "--remove-needless")
    assert (done["made"], done["removed"], done["wraps"]) == (True, True, 2)
    assert digests(server) == before, "blobs are as they were, byte for byte"
    assert len(keks(server)) == 1
    assert keks(server) != old
    server.restart()
    s3 = s3_client(server.endpoint)
    for key, content in stored.items():
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content
    assert s3.get_object(Bucket="off-00", Key="kms")["Body"].read() == b"by name"
    assert s3.get_object(Bucket="off-00", Key="sse")["Body"].read() == b"by the server"
    assert "ann" in server.run("users", "list").stdout
    check = server.json("keys", "verify")
    assert (check["problems"], check["outdated"], check["unbound"]) == ([], 0, 0)
    assert check["wraps"] == 2
    listed = server.run("keys", "list").stdout
    assert listed.count("KEK ") == 1
    assert f"{BUCKET}: epoch 1," in listed

    # A lost catalog comes back under the new KEK alone.
    server.stop()
    server.lose_catalog()
    server.run("rebuild")
    server.start()
    s3 = s3_client(server.endpoint)
    for key, content in stored.items():
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content
    assert server.json("keys", "verify")["problems"] == []


def test_a_wrap_that_was_altered_is_named_and_verify_fails(new_server: NewServer) -> None:
    server = new_server().start()
    s3_client(server.endpoint).create_bucket(Bucket=BUCKET)
    assert server.run("keys", "verify").returncode == 0
    server.stop()
    keyset = next(path for path in (server.blobs / "keyset").rglob("*") if path.is_file())
    spoilt = bytearray(keyset.read_bytes())
    spoilt[200] ^= 1
    keyset.chmod(0o600)
    keyset.write_bytes(spoilt)
    server.start()
    failed = server.run("keys", "verify", check=False)
    assert failed.returncode == 1
    assert "do not open" in failed.stderr


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Server]]:
    """Two replicas over PostgreSQL and one store, with one keyring that both read."""
    postgres = Postgres()
    store = Store(tmp_path / "store")
    keyring = tmp_path / "keyring.json"
    kek = base64.b64encode(noise(7, 32)).decode()
    keyring.write_text(json.dumps({"version": 1, "kek": kek}))
    keyring.chmod(0o600)
    servers: list[Server] = []
    try:
        postgres.make().start()
        store.start().client().create_bucket(Bucket="blobs")
        shared = store.tables()
        storage: dict[str, Value] = {**shared["storage"], "catalog": postgres.url, "keyring": str(keyring)}
        for number in range(2):
            server = Server(tmp_path / f"replica-{number}", {**KMS, **shared, "storage": storage})
            servers.append(server)
            server.tables["buckets.sealed"] = {"encryption": "aes256"}
            server.tables["buckets.second"] = {"encryption": "aes256"}
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()
        store.stop()
        postgres.remove()


def test_replicas_take_up_a_new_kek_while_they_serve(replicas: list[Server]) -> None:
    clients = [s3_client(server.endpoint) for server in replicas]
    clients[0].create_bucket(Bucket="sealed")
    clients[0].create_bucket(Bucket="plain")
    content = noise(5, MIB)
    clients[1].put_object(Bucket="sealed", Key="k", Body=content)
    rounds = [0, 0]

    def worker(number: int) -> Callable[[int], None]:
        s3 = clients[number]

        def work(_turn: int) -> None:
            rounds[number] += 1
            key = f"{number}-{rounds[number]}"
            s3.put_object(Bucket="sealed", Key=key, Body=content[: 1000 + rounds[number]])
            assert s3.get_object(Bucket="sealed", Key="k")["Body"].read() == content
            s3.put_object(Bucket="plain", Key=key, Body=b"x", ServerSideEncryption="aws:kms", SSEKMSKeyId="payroll")
            assert clients[1 - number].get_object(Bucket="plain", Key=key)["Body"].read() == b"x"

        return work

    with again_and_again(*map(worker, range(2))):
        done = replicas[0].json("keys", "rotate")
    assert min(rounds) > 2, "both served meanwhile"
    assert done["made"]
    # A bucket made by the other replica is wrapped under the new KEK, too.
    clients[1].create_bucket(Bucket="second")
    clients[1].put_object(Bucket="second", Key="k", Body=content)
    assert clients[0].get_object(Bucket="second", Key="k")["Body"].read() == content
    again = replicas[1].json("keys", "rotate", "--remove-needless")
    assert (again["made"], again["removed"], again["wraps"]) == (False, True, 0)
    for server in replicas:
        check = server.json("keys", "verify")
        assert (check["problems"], check["outdated"]) == ([], 0)

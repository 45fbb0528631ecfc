"""HashiCorp Vault itself keeps the KEK: by a token, by a role, by a key that derives; its keys get new versions, and it
seals itself and comes back."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.test_key_providers import LIFETIME, NAMED, fill, keks, put
from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.server import ROOT, Server, Value, free_port, until
from outside.tools import built_by_setup

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

BINARY = ROOT / ".tools" / "bin" / "vault"
ROOT_TOKEN = "root-token-of-the-tests"
POLICY = "".join(
    f'path "transit/{call}/{key}" {{ capabilities = ["update"] }}\n'
    for call in ("encrypt", "decrypt")
    for key in ("deltaweir", "derives")
)


@dataclass
class Vault:
    """`vault server -dev`, with a transit engine and a role for the server."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def call(self, method: str, path: str, **body: Any) -> Any:
        """A call of its API with all rights."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/{path}",
            json.dumps(body).encode() if body or method != "GET" else None,
            {"X-Vault-Token": ROOT_TOKEN},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            told = answer.read()
        return json.loads(told) if told else None

    def start(self) -> Vault:
        """Starts it and makes what the guide to encryption makes."""
        flags = ["-dev", "-dev-no-store-token", f"-dev-listen-address=127.0.0.1:{self.port}"]
        with (self.folder / "vault.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(BINARY), "server", *flags, f"-dev-root-token-id={ROOT_TOKEN}"],
                env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
                stdout=log,
                stderr=log,
            )

        def answers() -> bool:
            try:
                return self.call("GET", "sys/health")["sealed"] is False
            except OSError:
                return False

        until(answers, 60, "Vault answers")
        self.call("POST", "sys/mounts/transit", type="transit")
        self.call("POST", "transit/keys/deltaweir")
        self.call("POST", "transit/keys/derives", derived=True)
        self.call("POST", "sys/policies/acl/deltaweir", policy=POLICY)
        self.call("POST", "sys/auth/approle", type="approle")
        self.call("POST", "auth/approle/role/deltaweir", token_policies="deltaweir", token_ttl="1h")
        return self

    def role(self) -> dict[str, Value]:
        """A role and its secret."""
        role_id = self.call("GET", "auth/approle/role/deltaweir/role-id")["data"]["role_id"]
        secret_id = self.call("POST", "auth/approle/role/deltaweir/secret-id")["data"]["secret_id"]
        return {"role_id": role_id, "secret_id": secret_id}

    def table(self, key: str = "deltaweir", **login: Value) -> dict[str, Value]:
        """The configuration that knows it."""
        address = f"http://127.0.0.1:{self.port}"
        return {"type": "vault", "address": address, "key": key, "timeout": "2s", **(login or self.role())}

    def stop(self) -> None:
        """Ends it, and all that it keeps in memory."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)


@pytest.fixture(name="vault", scope="module")
def a_vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    built_by_setup("vault", BINARY.name)
    vault = Vault(tmp_path_factory.mktemp("vault")).start()
    yield vault
    vault.stop()


def served(new_server: NewServer, table: dict[str, Value], **storage: Value) -> Server:
    """A server whose KEK Vault keeps."""
    keeper = {"key_provider": "keeper", **storage}
    return new_server(**NAMED, **{"key_providers.keeper": table}, storage=keeper).start()


@pytest.mark.parametrize("key", ["deltaweir", "derives"])
def test_vault_keeps_the_kek_and_a_lost_catalog_comes_back(new_server: NewServer, vault: Vault, key: str) -> None:
    server = served(new_server, vault.table(key))
    check = fill(server)
    check()
    assert keks(server) == [("vault-transit", True, 2)]
    assert "wraps and unwraps" in server.run("doctor").stdout
    server.stop()
    server.lose_catalog()
    server.run("rebuild")
    server.start()
    check()
    assert server.json("keys", "verify")["problems"] == []
    # A new version of its key wraps the next KEK; then the old version is not needed.
    vault.call("POST", f"transit/keys/{key}/rotate")
    server.restart()
    check()
    done = server.json("keys", "rotate", "--remove-needless")
    assert (done["made"], done["wraps"], done["removed"]) == (True, 2, True)
    newest = vault.call("GET", f"transit/keys/{key}")["data"]["latest_version"]
    vault.call("POST", f"transit/keys/{key}/config", min_decryption_version=newest)
    server.restart()
    check()


def test_a_token_that_vault_revokes_stops_what_encrypts_and_another_one_begins_it_again(
    new_server: NewServer, vault: Vault, tmp_path: Path
) -> None:
    def made() -> str:
        return str(vault.call("POST", "auth/token/create", policies=["deltaweir"])["auth"]["client_token"])

    token = tmp_path / "token"
    token.write_text(made())
    token.chmod(0o600)
    server = served(new_server, vault.table(token_file=str(token)), key_lifetime=LIFETIME)
    check = fill(server)
    s3 = blunt_client(server.endpoint)
    assert put(s3) == 200
    vault.call("POST", "auth/token/revoke", token=token.read_text())
    until(lambda: put(s3) == 503, 30, "writes are refused")
    check()
    token.write_text(made())
    until(lambda: put(s3) == 200, 30, "writes go on by themselves")
    check()


def test_a_sealed_vault_is_taken_for_away(new_server: NewServer, tmp_path: Path) -> None:
    vault = Vault(tmp_path).start()
    try:
        server = served(new_server, vault.table(), key_lifetime=LIFETIME)
        check = fill(server)
        s3 = blunt_client(server.endpoint)
        vault.call("POST", "sys/seal")
        until(lambda: put(s3) == 503, 30, "writes are refused")
        check()
        until(lambda: "sealed" in server.log.read_text(errors="replace"), 20, "the log says why")
    finally:
        vault.stop()

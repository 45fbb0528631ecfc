"""KEKs that Vault, OpenBao or AWS KMS keep: buckets that are sealed under them, moves between them, and what happens
while their keeper is away or answers nonsense."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client, s3_client
from outside.content import noise, release
from outside.failure import error_code
from outside.key_providers import KMS_KEY, TOKEN, Kms, Provider, Transit, kms, transit
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Server, Value, until

BUCKET = "delta-aes256-00"
PLAIN = "off-00"
NAMED: dict[str, dict[str, Value]] = {"kms.keys": {"payroll": "keyring"}}
LIFETIME = "2s"
AWAY_S = 60
READERS = 2


@pytest.fixture(name="vault")
def a_vault() -> Iterator[Transit]:
    with transit() as provider:
        yield provider


@pytest.fixture(name="cloud")
def a_kms() -> Iterator[Kms]:
    with kms() as provider:
        yield provider


@pytest.fixture(name="keeper", params=["vault", "kms"])
def one_of_both(request: pytest.FixtureRequest, vault: Transit, cloud: Kms) -> Provider:
    return vault if request.param == "vault" else cloud


def kept_by(provider: Provider, **storage: Value) -> dict[str, dict[str, Value]]:
    """The tables of a server whose KEK a provider keeps."""
    assert isinstance(provider, Transit | Kms)
    tables = provider.tables("keeper")
    return {**NAMED, **tables, "storage": {"key_provider": "keeper", **storage}}


def digests(server: Server) -> dict[str, str]:
    """Every blob of content, by its path."""
    kept = [path for path in (server.blobs / "blobs").rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def fill(server: Server) -> Callable[[], None]:
    """Stores something under each kind of key, and gives what reads it back."""
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    s3.create_bucket(Bucket=PLAIN)
    stored = {f"k{n}": release(3, 300_000, n) for n in range(3)}
    for key, content in stored.items():
        s3.put_object(Bucket=BUCKET, Key=key, Body=content)
    s3.put_object(Bucket=PLAIN, Key="sse", Body=b"by the server", ServerSideEncryption="AES256")
    s3.put_object(Bucket=PLAIN, Key="kms", Body=b"by name", ServerSideEncryption="aws:kms", SSEKMSKeyId="payroll")
    server.run("users", "add", "ann", "--policy", "readonly")

    def check() -> None:
        s3 = s3_client(server.endpoint)
        for key, content in stored.items():
            assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content
        assert s3.get_object(Bucket=PLAIN, Key="sse")["Body"].read() == b"by the server"
        assert s3.get_object(Bucket=PLAIN, Key="kms")["Body"].read() == b"by name"
        assert "ann" in server.run("users", "list").stdout

    return check


def keks(server: Server) -> list[tuple[str, bool, int]]:
    """Who keeps each KEK, whether it wraps, and how many keys."""
    listed = server.json("keys", "list")["keks"]
    return [(kek["provider"], kek["active"], kek["wraps"]) for kek in listed]


def put(s3: S3Client, bucket: str = BUCKET, key: str = "new", **sealing: Any) -> int:
    """The status of a write."""
    try:
        answer = s3.put_object(Bucket=bucket, Key=key, Body=noise(5, 100_000), **sealing)
    except s3.exceptions.ClientError as error:
        answer = error.response
    return int(answer["ResponseMetadata"]["HTTPStatusCode"])


def test_a_store_whose_kek_a_provider_keeps_has_no_key_of_its_own_and_comes_back_from_blobs_alone(
    new_server: NewServer, keeper: Provider
) -> None:
    server = new_server(**kept_by(keeper)).start()
    check = fill(server)
    check()
    assert not (server.data / "keyring.json").exists()
    assert keks(server) == [(keks(server)[0][0], True, 2)]
    told = server.run("keys", "list").stdout
    assert ("vault-transit transit/deltaweir" in told) or (f"aws-kms {KMS_KEY}" in told), told
    server.restart()
    check()

    # Wraps say whose their KEK is: blobs and provider are enough.
    server.stop()
    server.lose_catalog()
    server.run("rebuild")
    server.start()
    check()
    assert server.json("keys", "verify")["problems"] == []
    assert keks(server) == [(keks(server)[0][0], True, 2)]

    # The same where neither journal nor backup is left.
    server.stop()
    server.lose_catalog()
    server.lose_journal_and_backups()
    server.run("rebuild")
    server.start()
    s3 = s3_client(server.endpoint)
    found = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    assert {s3.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read() for item in found} == {
        release(3, 300_000, n) for n in range(3)
    }


def test_the_wrap_is_bound_to_its_kek(new_server: NewServer, vault: Transit, cloud: Kms) -> None:
    first = new_server("first", **kept_by(vault)).start()
    fill(first)
    bound = {json.dumps(body.get("associated_data")) for body in vault.bodies if "ciphertext" in body}
    assert bound == {json.dumps(body["associated_data"]) for body in vault.bodies if "plaintext" in body}
    (label,) = {base64.b64decode(body["associated_data"]) for body in vault.bodies}
    assert label.startswith(b"deltaweir kek ")
    second = new_server("second", **kept_by(cloud)).start()
    fill(second)
    contexts = [body["EncryptionContext"] for body in cloud.bodies]
    (fingerprint,) = {context["deltaweir:kek"] for context in contexts}
    assert fingerprint == second.json("keys", "list")["keks"][0]["kek"]
    assert "unsigned" not in cloud.calls


def test_a_kek_moves_from_a_file_to_vault_to_kms_and_back_and_nothing_is_copied(
    new_server: NewServer, vault: Transit, cloud: Kms
) -> None:
    server = new_server(**NAMED).start()
    check = fill(server)
    before = digests(server)
    assert keks(server) == [("local", True, 2)]
    server.tables |= vault.tables() | cloud.tables()

    for name, kind, former in [("vault", "vault-transit", "local"), ("kms", "aws-kms", "vault-transit")]:
        server.tables["storage"] = {"key_provider": name}
        server.restart()
        check()
        assert keks(server) == [(kind, True, 0), (former, False, 2)]
        done = server.json("keys", "rotate", "--remove-needless")
        assert (done["made"], done["wraps"], done["removed"]) == (False, 2, True)
        assert keks(server) == [(kind, True, 2)]
        check()
        server.restart()
        check()
    assert not (server.data / "keyring.json").exists(), "the KEK of before is gone"
    # Within one provider, too.
    done = server.json("keys", "rotate", "--remove-needless")
    assert (done["made"], done["wraps"], done["removed"]) == (True, 2, True)
    assert keks(server) == [("aws-kms", True, 2)]
    # And back to a file, the provider of before being configured still.
    server.tables["storage"] = {}
    server.restart()
    check()
    assert keks(server) == [("local", True, 0), ("aws-kms", False, 2)]
    server.json("keys", "rotate", "--remove-needless")
    assert keks(server) == [("local", True, 2)]
    for table in ("key_providers.vault", "key_providers.kms"):
        del server.tables[table]
    server.restart()
    check()
    assert server.json("keys", "verify")["problems"] == []
    assert digests(server) == before, "blobs are as they were, byte for byte"


def test_while_the_provider_is_away_reads_go_on_and_writes_wait_for_it(new_server: NewServer, keeper: Provider) -> None:
    server = new_server(**kept_by(keeper, key_lifetime=LIFETIME)).start()
    check = fill(server)
    s3 = blunt_client(server.endpoint)
    until(lambda: put(s3) == 200, 20, "a busy machine may ask for its key late, and then writes")
    keeper.stop()
    # Within the lifetime nothing changes; after it writes that encrypt are refused, and only those.
    refused = 0
    reads = 0

    def is_refused() -> bool:
        nonlocal reads
        check()
        reads += 1
        return put(s3) == 503

    until(is_refused, 30, "writes are refused")
    assert reads > 0
    for sealing in ({"ServerSideEncryption": "AES256"}, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "payroll"}):
        refused += put(s3, PLAIN, "sealed", **sealing) == 503
    refused += error_code(s3.create_multipart_upload, Bucket=BUCKET, Key="parts")[0] == 503
    refused += error_code(s3.copy_object, Bucket=BUCKET, Key="copy", CopySource=f"{BUCKET}/k0")[0] == 503
    assert refused == 4
    assert put(s3, PLAIN, "plain") == 200, "what is not encrypted is written"
    s3.delete_object(Bucket=PLAIN, Key="plain")
    until(lambda: server.metrics().total("deltaweir_sealing_refused") == 1, 20, "the gauge shows it")
    with pytest.raises(s3.exceptions.ClientError) as failure:
        s3.put_object(Bucket=BUCKET, Key="new", Body=b"x")
    assert "provider of the server's key does not answer" in str(failure.value)
    until(lambda: "the lifetime of the key is over" in server.tail(400), 5, "the log says why")
    assert server.admin_status("/readyz") == 200, "it serves reads"
    check()

    keeper.start()
    until(lambda: put(s3) == 200, 30, "writes go on by themselves")
    until(lambda: server.metrics().total("deltaweir_sealing_refused") == 0, 20, "the gauge shows it")
    assert server.metrics().total("deltaweir_key_provider_calls_total", outcome="unavailable") > 0
    check()


@dataclass
class Reads:
    """Threads that read the same objects again and again, each over a connection of its own, until they are told."""

    server: Server
    objects: list[tuple[str, str, bytes, dict[str, str]]]
    """Bucket, key, content, and the headers of its key."""
    done: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        """One thread's work."""
        s3 = blunt_client(self.server.endpoint)
        while not self.ended.is_set():
            for bucket, key, content, sealing in self.objects:
                try:
                    whole = s3.get_object(Bucket=bucket, Key=key, **sealing)["Body"].read() == content
                    trouble = "" if whole else "another content"
                except Exception as error:  # whatever it is, a read failed
                    trouble = str(error)
                self.done[bucket] += 1
                if trouble:
                    self.failed.append(f"{bucket}/{key}: {trouble}")

    def __enter__(self) -> Reads:
        self.threads = [threading.Thread(target=self.read) for _ in range(READERS)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.long
def test_a_minute_without_the_provider_fails_no_read_and_writes_go_on_behind_it(
    new_server: NewServer, keeper: Provider
) -> None:
    server = new_server(**kept_by(keeper, key_lifetime=LIFETIME)).start()
    check = fill(server)
    s3 = blunt_client(server.endpoint)
    # One bucket was wrapped anew under a second KEK; the others know no other.
    contents = {
        bucket: release(8, 400_000, n) for n, bucket in enumerate((BUCKET, "delta-aes256-01", "zstd-aes256-00"))
    }
    for bucket, content in contents.items():
        if bucket != BUCKET:
            s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="one", Body=content)
        if bucket == BUCKET:
            server.json("keys", "rotate")
    customer = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "0123456789abcdef0123456789abcdef"}
    s3.put_object(Bucket=PLAIN, Key="customer", Body=b"the customer's", **customer)
    # No domain key but that of one bucket has been opened since the start.
    server.restart()
    until(lambda: put(s3) == 200, 20, "it seals")
    objects: list[tuple[str, str, bytes, dict[str, str]]] = [
        (BUCKET, "one", contents[BUCKET], {}),
        (PLAIN, "sse", b"by the server", {}),
        (PLAIN, "kms", b"by name", {}),
        (PLAIN, "customer", b"the customer's", customer),
    ]
    keeper.stop()
    began = time.monotonic()
    accepted, refused, others = 0, 0, 0
    with Reads(server, objects) as reads:
        while (away_s := time.monotonic() - began) < AWAY_S:
            status = put(s3)
            accepted += status == 200
            refused += status == 503
            others += status not in (200, 503)
            # Sealed anew it is never again, whatever the caches hold.
            assert not (refused and status == 200), "a write was taken behind a refused one"
            assert put(s3, PLAIN, "plain") == 200, "what is not encrypted is written"
            if away_s > AWAY_S / 2 and len(objects) == 4:
                # Buckets that nobody has touched since the start: their keys are opened now.
                objects += [(bucket, "one", content, {}) for bucket, content in contents.items() if bucket != BUCKET]
                server.drop_caches()
    print(
        f"away {away_s:.0f} s: {sum(reads.done.values())} reads, {len(reads.failed)} failed {dict(reads.done)}; ",
        end="",
    )
    print(f"writes that encrypt: {accepted} taken, {refused} refused, {others} otherwise")
    assert reads.failed == []
    assert all(reads.done[bucket] > 0 for bucket in (PLAIN, *contents))
    assert refused > 0 and others == 0
    check()

    keeper.start()
    until(lambda: put(s3) == 200, 30, "writes go on by themselves")
    until(lambda: server.metrics().total("deltaweir_sealing_refused") == 0, 20, "the gauge shows it")
    for bucket, content in contents.items():
        assert put(s3, bucket, "behind") == 200
        assert s3.get_object(Bucket=bucket, Key="one")["Body"].read() == content
    check()
    assert server.json("keys", "verify")["problems"] == []


def test_a_server_does_not_start_without_its_provider_and_says_which(new_server: NewServer, keeper: Provider) -> None:
    server = new_server(**kept_by(keeper)).start()
    check = fill(server)
    server.stop()
    keeper.stop()
    process = server.launch()
    assert process.wait(60) != 0
    assert "key provider" in server.tail()
    keeper.start()
    server.start()
    check()


@pytest.mark.parametrize("manner", ["garbage", "hang", "redirect", "huge", "error"])
def test_a_provider_that_answers_nonsense_is_bounded_and_taken_for_away(
    new_server: NewServer, keeper: Provider, manner: str
) -> None:
    server = new_server(**kept_by(keeper, key_lifetime=LIFETIME)).start()
    check = fill(server)
    before = server.status_bytes("VmHWM")
    s3 = blunt_client(server.endpoint)
    keeper.manner = manner
    until(lambda: put(s3) == 503, 30, "writes are refused")
    check()
    assert not [call for call in keeper.calls if call.startswith("followed")], "no redirect is followed"
    assert server.status_bytes("VmHWM") - before < 64 << 20
    keeper.manner = "well"
    keeper.released.set()
    until(lambda: put(s3) == 200, 30, "writes go on by themselves")
    check()


def test_a_key_that_the_provider_lost_or_exchanged_opens_nothing(new_server: NewServer, keeper: Provider) -> None:
    server = new_server(**kept_by(keeper)).start()
    check = fill(server)
    server.stop()
    kept = dict(keeper.keys)
    for name in kept:
        keeper.keys[name] = bytes(32)
    process = server.launch()
    assert process.wait(60) != 0
    assert "key provider" in server.tail()
    failed = server.run("doctor", check=False)
    assert "wraps and unwraps" in failed.stdout, "the key there is does work: it is another one"
    keeper.keys.update(kept)
    server.start()
    check()


def test_a_wrap_of_another_bucket_is_refused_under_a_provider_as_well(new_server: NewServer, vault: Transit) -> None:
    import sqlite3

    server = new_server(**kept_by(vault)).start()
    fill(server)
    s3_client(server.endpoint).create_bucket(Bucket="delta-aes256-01")
    server.stop()
    with sqlite3.connect(server.data / "catalog.sqlite") as catalog:
        rows = catalog.execute("SELECT id, bucket, wrapped FROM keys WHERE epoch = 1 ORDER BY bucket").fetchall()
        assert len(rows) == 2
        assert all(wrapped.startswith(b"DWPK") for _, _, wrapped in rows)
    catalog.close()
    exchanged = rows[0][2]
    with sqlite3.connect(server.data / "catalog.sqlite") as catalog:
        catalog.execute("UPDATE keys SET wrapped = ? WHERE id = ?", (exchanged, rows[1][0]))
    catalog.close()
    server.launch()
    until(lambda: server.admin_status("/healthz") == 200, 30, "it runs")
    s3 = blunt_client(server.endpoint)
    assert error_code(s3.put_object, Bucket="delta-aes256-01", Key="k", Body=b"x") == (500, "InternalError")


def test_tokens_come_from_a_file_that_an_agent_renews_or_from_a_role(
    new_server: NewServer, vault: Transit, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    tables = vault.tables("keeper", token_file=str(token))
    server = new_server("file", **NAMED, **tables, storage={"key_provider": "keeper", "key_lifetime": LIFETIME}).start()
    fill(server)
    s3 = blunt_client(server.endpoint)
    vault.tokens.clear()
    until(lambda: put(s3) == 503, 30, "the token is refused")
    vault.tokens.add("hvs.renewed")
    token.write_text("hvs.renewed")
    until(lambda: put(s3) == 200, 30, "the file is read again")

    vault.roles["role"] = "secret-of-the-role-0123456789"
    vault.namespace = "team"
    tables = vault.tables("keeper", role_id="role", secret_id=vault.roles["role"], namespace="team")
    server = new_server("role", **NAMED, **tables, storage={"key_provider": "keeper", "key_lifetime": LIFETIME}).start()
    check = fill(server)
    logins = vault.calls.count("/v1/auth/approle/login")
    vault.tokens.clear()
    until(lambda: vault.calls.count("/v1/auth/approle/login") > logins, 30, "it logs in anew")
    s3 = blunt_client(server.endpoint)
    until(lambda: put(s3) == 200, 30, "writes go on")
    check()


def test_credentials_of_kms_come_from_a_file_and_a_wrong_secret_is_refused(
    new_server: NewServer, cloud: Kms, tmp_path: Path
) -> None:
    pairs = tmp_path / "credentials"
    profile = "[{}]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    text = profile.format("other", "A", "B") + profile.replace("{}", "ours", 1)
    pairs.write_text(text.format(ACCESS_KEY_ID, "another-secret-0123456789"))
    pairs.chmod(0o600)
    tables = cloud.tables("keeper", credentials_file=str(pairs), profile="ours")
    server = new_server(**NAMED, **tables, storage={"key_provider": "keeper"})
    assert server.launch().wait(60) != 0
    assert "InvalidSignatureException" in server.tail()
    pairs.write_text(text.format(ACCESS_KEY_ID, SECRET_ACCESS_KEY))
    server.start()
    fill(server)()
    assert "Encrypt" in cloud.calls


@pytest.mark.parametrize(
    ("table", "key", "value", "message"),
    [
        (
            "key_providers.keeper",
            "address",
            "http://vault.example",
            "keeper.address: expected an https:// URL",
        ),
        ("key_providers.keeper", "mount", "../sys", "key_providers.keeper.mount: expected a name"),
        ("key_providers.keeper", "role_id", "role", "key_providers.keeper: role_id and secret_id belong together"),
        ("key_providers.keeper", "token_file", "/nowhere", "key_providers.keeper: set one of token"),
        ("key_providers.keeper", "timeout", "2h", "key_providers.keeper.timeout: expected"),
        ("key_providers.keeper", "colour", "red", "colour"),
        ("storage", "key_provider", "nobody", "storage.key_provider: there is no [key_providers.nobody]"),
        ("storage", "key_lifetime", "1ms", "storage.key_lifetime: expected"),
    ],
)
def test_config_check_finds_what_is_wrong(
    new_server: NewServer, vault: Transit, table: str, key: str, value: str, message: str
) -> None:
    server = new_server(**kept_by(vault))
    server.tables[table] = server.tables[table] | {key: value}
    server.write_config()
    done = server.run("config", "check", check=False)
    assert done.returncode != 0
    assert message in done.stderr, done.stderr


def test_doctor_asks_the_provider_and_no_secret_shows(new_server: NewServer, keeper: Provider) -> None:
    server = new_server(**kept_by(keeper), log={"filter": "trace"}).start()
    fill(server)
    good = server.run("doctor").stdout
    assert "wraps and unwraps" in good
    keeper.manner = "error"
    failed = server.run("doctor", check=False)
    assert failed.returncode != 0
    assert "FAILED" in failed.stdout
    shown = server.run("config", "show").stdout + server.final_log() + failed.stdout + good
    plain = [body.get("plaintext") or body.get("Plaintext") for body in keeper.bodies]
    for secret in [TOKEN, SECRET_ACCESS_KEY, *filter(None, plain)]:
        assert secret not in shown
        assert secret.rstrip("=") not in shown

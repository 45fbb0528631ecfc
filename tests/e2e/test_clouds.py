"""Blobs in every kind of store, reached with every kind of credentials."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.clouds import Amazon, Azure, Bucket, Google, Stored, TemporaryKeys, service_account
from outside.content import KIB, MIB, noise, release
from outside.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Server, Value, until
from outside.storage import bucket_stats, stored
from outside.store import Store


@dataclass
class Way:
    """One way to a store: what the configuration says, and what the process finds around it."""

    keys: dict[str, Value]
    environment: dict[str, str] = field(default_factory=dict)


def over(way: Way, new_server: NewServer, folder: str = "server") -> Server:
    """A server, not started, whose buckets lie in a store that is reached in this way."""
    tables: dict[str, dict[str, Value]] = {"backends.cloud": way.keys, "storage": {"backend": "cloud"}}
    server = new_server(folder, **tables)
    server.environment |= way.environment
    return server


def lives_there(server: Server) -> None:
    """Writes, reads, reads ranges and removes, through parts and a restart."""
    server.start()
    s3 = s3_client(server.endpoint)
    large = noise(7, 21 * MIB)
    for bucket in ("delta-00", "delta-aes256-00", "off-00"):
        s3.create_bucket(Bucket=bucket)
    for bucket in ("delta-00", "delta-aes256-00"):
        for version in range(2):
            s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=release(121, MIB, version))
        assert stored(s3, bucket, "app-1").form == "delta"
    s3.put_object(Bucket="off-00", Key="large", Body=large)
    server.restart()
    s3 = s3_client(server.endpoint)
    for bucket in ("delta-00", "delta-aes256-00"):
        for version in range(2):
            got = s3.get_object(Bucket=bucket, Key=f"app-{version}")["Body"].read()
            assert got == release(121, MIB, version)
            s3.delete_object(Bucket=bucket, Key=f"app-{version}")
    got = s3.get_object(Bucket="off-00", Key="large", Range="bytes=16000000-16999999")["Body"].read()
    assert got == large[16_000_000:17_000_000]
    assert s3.get_object(Bucket="off-00", Key="large")["Body"].read() == large
    s3.delete_object(Bucket="off-00", Key="large")
    for _ in range(3):
        server.run("gc", "--now")
    assert bucket_stats(server, "off-00")["stored"]["total"] == 0


def was_used(cloud: Bucket) -> None:
    """Every call there is was made, with good credentials, and no blob is left."""
    assert {"put", "part", "complete", "get", "head", "list", "delete"} <= cloud.asked.keys(), cloud.asked
    assert cloud.denied == 0
    assert [name for name in cloud.objects if name.startswith("prod/blobs/")] == []
    assert all(name.startswith("prod/") for name in cloud.objects)


def does_not_start(server: Server) -> str:
    """The last lines of a server that refuses to start."""
    process = server.launch()
    code = until(lambda: process.poll() is not None, 60, "the server ends") and process.returncode
    assert code != 0
    return server.tail(5)


def google_keys(google: Google) -> dict[str, Value]:
    """The keys that every way to it has."""
    return {"type": "gcs", "bucket": "blobs", "prefix": "prod/", "endpoint": google.address, "attempts_max": 2}


def azure_keys(azure: Azure) -> dict[str, Value]:
    """The same."""
    place: dict[str, Value] = {"account": azure.account, "container": "blobs", "endpoint": azure.endpoint}
    return place | {"type": "azure", "prefix": "prod/", "attempts_max": 2}


def without_keys(store: Store) -> dict[str, Value]:
    """The configuration of an S3 store without its credentials."""
    return {name: value for name, value in store.table().items() if "access_key" not in name}


@pytest.fixture
def google() -> Iterator[Google]:
    """A bucket of Google's that asks for a service account."""
    with contextlib.closing(Google()) as running:
        yield running


@pytest.fixture
def azure() -> Iterator[Azure]:
    """A container of Azure's."""
    with contextlib.closing(Azure()) as running:
        yield running


@pytest.fixture
def amazon() -> Iterator[Amazon]:
    """The services that hand out temporary keys."""
    with contextlib.closing(Amazon()) as running:
        yield running


@pytest.mark.parametrize("source", ["file", "environment", "application default", "nobody"])
def test_blobs_live_in_a_bucket_of_google(source: str, new_server: NewServer, tmp_path: Path) -> None:
    with contextlib.closing(Google(anonymous=source == "nobody")) as google:
        key = tmp_path / "key.json"
        key.write_text(google.service_account())
        keys = google_keys(google)
        way = {
            "file": Way(keys | {"service_account_file": str(key)}),
            "environment": Way(keys | {"service_account_key": "env:GCS_KEY"}, {"GCS_KEY": google.service_account()}),
            "application default": Way(keys, {"GOOGLE_APPLICATION_CREDENTIALS": str(key)}),
            "nobody": Way(keys | {"anonymous": True}),
        }[source]
        lives_there(over(way, new_server))
        was_used(google)


def test_a_key_that_google_does_not_know_is_refused_at_start(new_server: NewServer, google: Google) -> None:
    stranger = service_account(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    way = Way(google_keys(google) | {"service_account_key": "env:GCS_KEY"}, {"GCS_KEY": stranger})
    said = does_not_start(over(way, new_server))
    assert "Denied" in said and "AuthenticationRequired" in said, said
    assert google.denied > 0 and google.objects == {}


@pytest.mark.parametrize("source", ["access key", "signature", "secret", "federated token"])
def test_blobs_live_in_a_container_of_azure(source: str, new_server: NewServer, azure: Azure, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(azure.federated)
    application: dict[str, Value] = {
        "tenant_id": azure.tenant,
        "client_id": azure.client,
        "authority": azure.address,
    }
    ways: dict[str, dict[str, Value]] = {
        "access key": {"access_key": "env:AZURE_SECRET"},
        "signature": {"sas_token": "env:AZURE_SECRET"},
        "secret": application | {"client_secret": "env:AZURE_SECRET"},
        "federated token": application | {"federated_token_file": str(token)},
    }
    secret = {"access key": azure.key, "signature": azure.sas, "secret": azure.secret}.get(source, "unused")
    way = Way(azure_keys(azure) | ways[source], {"AZURE_SECRET": secret})
    lives_there(over(way, new_server))
    was_used(azure)
    assert (azure.asked["exchange"] > 0) == (source in ("secret", "federated token"))


def test_a_key_that_azure_does_not_know_is_refused_at_start(new_server: NewServer, azure: Azure) -> None:
    way = Way(azure_keys(azure) | {"access_key": "c29tZWJvZHkgZWxzZSdzIGtleQ=="})
    said = does_not_start(over(way, new_server))
    assert "Denied" in said and "AuthenticationFailed" in said, said
    assert azure.denied > 0 and azure.objects == {}


@pytest.mark.parametrize("cloud", [Google, Azure])
def test_objects_of_another_cloud_are_adopted_and_given_back(
    cloud: type[Google | Azure], new_server: NewServer
) -> None:
    with contextlib.closing(cloud()) as running:
        if isinstance(running, Google):
            prefix, keys = "x-goog-meta-", google_keys(running) | {"service_account_key": "env:SECRET"}
            secret = running.service_account()
        else:
            prefix, keys = "x-ms-meta-", azure_keys(running) | {"access_key": "env:SECRET"}
            secret = running.key
        made = {f"old/app-{number}.bin": release(5, 300 * KIB, number) for number in range(7)}
        beside = {"content-type": "application/x-test", "cache-control": "max-age=60", f"{prefix}note": "a b"}
        with running.lock:
            for number, (key, content) in enumerate(made.items(), 1_000_000):
                running.objects[key] = Stored(content, number, beside)

        reading: dict[str, Value] = {"read_through": "there/old/"}
        tables = {"stores.there": keys | {"prefix": ""}, "buckets.through": reading}
        server = new_server(**tables)
        server.environment["SECRET"] = secret
        s3 = s3_client(server.start().endpoint)
        s3.create_bucket(Bucket="delta-00")
        assert server.json("import", "there/old/", "s3://delta-00", "--verify")["adopted"] == len(made)
        s3.create_bucket(Bucket="through")
        for key, content in made.items():
            for bucket in ("delta-00", "through"):
                got = s3.get_object(Bucket=bucket, Key=key.removeprefix("old/"))
                assert got["Body"].read() == content
                assert (got["ContentType"], got["CacheControl"]) == ("application/x-test", "max-age=60")
                assert got["Metadata"] == {"note": "a b"}

        s3.put_object(Bucket="delta-00", Key="large", Body=noise(3, 17 * MIB), ContentLanguage="de")
        s3.put_object(Bucket="delta-00", Key="expiring", Body=b"x", Expires="Thu, 01 Jan 2099 00:00:00 GMT")
        ended = server.run("eject", "s3://delta-00", "store:there/new/", "--json", check=False)
        report = json.loads(ended.stdout)
        assert (report["written"], report["failed"]) == (len(made) + 1, 1), report
        assert report["failures"][0]["key"] == "expiring"
        assert 'keeps no header "expires"' in report["failures"][0]["error"], report
        left = {key: stored for key, stored in running.objects.items() if key.startswith("new/")}
        assert {key: stored.content for key, stored in left.items()} == {
            key.replace("old/", "new/"): content for key, content in made.items()
        } | {"new/large": noise(3, 17 * MIB)}
        assert left["new/app-3.bin"].headers == beside
        assert running.asked["part"] == 3


@pytest.mark.parametrize("source", ["environment", "file"])
def test_an_s3_store_is_reached_with_a_key_pair_from_elsewhere(
    source: str, new_server: NewServer, store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"[blobs]\naws_access_key_id = {ACCESS_KEY_ID}\naws_secret_access_key = {SECRET_ACCESS_KEY}\n")
    keys = without_keys(store)
    way = {
        "environment": Way(keys, {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}),
        "file": Way(keys | {"credentials_file": str(file), "profile": "blobs"}),
    }[source]
    lives_there(over(way, new_server))


@pytest.mark.parametrize("source", ["web identity", "web identity of the environment", "machine"])
def test_an_s3_store_is_reached_with_temporary_keys(
    source: str, new_server: NewServer, store: Store, amazon: Amazon, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(amazon.web_identity_token)
    with contextlib.closing(TemporaryKeys(store.endpoint)) as judge:
        keys = without_keys(store) | {"endpoint": judge.address}
        role: dict[str, Value] = {"role_arn": amazon.role, "web_identity_token_file": str(token)}
        variables = {
            "AWS_ROLE_ARN": amazon.role,
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_ENDPOINT_URL_STS": amazon.address,
        }
        way = {
            "web identity": Way(keys | role | {"sts_endpoint": amazon.address}),
            "web identity of the environment": Way(keys, variables),
            "machine": Way(keys | {"credentials": "instance", "metadata_endpoint": amazon.address}),
        }[source]
        lives_there(over(way, new_server))
        assert judge.denied == 0
        assert judge.requests, "the store was asked"
    assert amazon.handed_out.keys() == {"instance" if source == "machine" else "web identity"}


def test_credentials_that_are_not_there_are_refused_with_what_there_could_be(
    new_server: NewServer, store: Store
) -> None:
    server = over(Way(without_keys(store)), new_server)
    said = does_not_start(server)
    assert "backends.cloud: no credentials: set access_key_id and secret_access_key, or credentials_file" in said
    server.tables["backends.cloud"]["role_arn"] = "arn:aws:iam::1:role/r"
    server.write_config()
    checked = server.run("config", "check", check=False)
    assert checked.returncode != 0
    assert "role_arn and web_identity_token_file belong together" in checked.stderr


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that nobody has heard of, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "store")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / "store.pem", folder / "store.key"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, private


def test_a_store_with_a_certificate_of_its_own_is_trusted_only_by_its_file(
    new_server: NewServer, tmp_path: Path
) -> None:
    tls = certificate(tmp_path)
    store = Store(tmp_path / "store", tls=tls).start()
    try:
        store.client().create_bucket(Bucket="blobs")
        keys = store.table() | {"attempts_max": 1}
        said = does_not_start(over(Way(keys), new_server, "distrustful"))
        assert "ertificate" in said, said
        server = over(Way(keys | {"ca_file": str(tls[0])}), new_server).start()
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket="off-00")
        s3.put_object(Bucket="off-00", Key="k", Body=b"content" * 10_000)
        server.drop_caches()
        assert s3.get_object(Bucket="off-00", Key="k")["Body"].read() == b"content" * 10_000
    finally:
        store.stop()

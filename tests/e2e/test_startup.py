"""Starting: what is refused and in which words, what the first start makes and prints, who may be second."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from e2e.test_clouds import certificate
from outside.buckets import NewServer
from outside.clients import AwsCli, s3_client
from outside.failure import error_code
from outside.server import Server, Value

ROOT_FILE = "root-credentials.json"


def without_credentials(server: Server) -> Server:
    """The same server, told no key pair."""
    server.credentials = False
    return server


def refusal(server: Server) -> str:
    """What a server says that must not start."""
    assert server.launch().wait(30) != 0, "it ended as if all were well"
    return server.tail()


def root_pair(server: Server) -> tuple[str, str]:
    """The key pair in the data directory."""
    stored = json.loads((server.data / ROOT_FILE).read_text())
    return stored["access_key_id"], stored["secret_access_key"]


def test_the_first_start_makes_a_root_key_pair_and_prints_it_once(new_server: NewServer) -> None:
    server = without_credentials(new_server()).start()
    key_id, secret = root_pair(server)
    printed = server.log.read_text()
    assert printed.count(secret) >= 1
    assert key_id in printed
    assert f"http://127.0.0.1:{server.port}" in printed
    mode = (server.data / ROOT_FILE).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    s3_client(server.endpoint, key_id, secret).create_bucket(Bucket="bucket")
    assert server.stop() == 0
    server.start()
    assert [found["Name"] for found in s3_client(server.endpoint, key_id, secret).list_buckets()["Buckets"]] == [
        "bucket"
    ]
    assert server.final_log().count(secret) == printed.count(secret), "printed again"


def test_what_is_printed_can_be_pasted(new_server: NewServer, tmp_path: Path) -> None:
    """The lines a newcomer pastes are real commands: the exports give the credentials that work."""
    server = without_credentials(new_server()).start()
    exported = dict(re.findall(r"^\s*export (\w+)=(\S+)$", server.log.read_text(), re.MULTILINE))
    assert set(exported) >= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    commands = re.findall(r"^\s*(aws .+)$", server.log.read_text(), re.MULTILINE)
    assert commands

    class Pasted(AwsCli):
        def environment(self) -> dict[str, str]:
            ours = super().environment()
            return {name: value for name, value in ours.items() if name != "AWS_ENDPOINT_URL"} | exported

    (tmp_path / "home").mkdir()
    for command in commands:
        words = command.split("#")[0].split()[1:]
        if "mb" in words:
            Pasted(server.endpoint, tmp_path / "home").run(*words)
    assert s3_client(server.endpoint, *root_pair(server)).list_buckets()["Buckets"]


def test_the_data_directory_is_for_its_owner_only(new_server: NewServer) -> None:
    server = without_credentials(new_server()).start()
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700


def test_a_key_pair_others_may_read_is_refused(new_server: NewServer) -> None:
    server = without_credentials(new_server()).start()
    assert server.stop() == 0
    (server.data / ROOT_FILE).chmod(0o644)
    assert ROOT_FILE in refusal(server)


def test_a_public_listener_needs_credentials_that_were_set(new_server: NewServer) -> None:
    server = new_server()
    public: dict[str, Value] = {"listen": f"0.0.0.0:{server.port}"}
    server.tables["server"] = public
    assert "DELTAWEIR_ACCESS_KEY_ID" in refusal(without_credentials(server))
    server.credentials = True
    server.start()


def test_a_public_admin_listener_needs_a_token(new_server: NewServer) -> None:
    server = new_server()
    server.tables["server"] = {"admin_listen": f"0.0.0.0:{server.admin_port}"}
    assert "token" in refusal(server).lower()
    server.environment["DELTAWEIR_ADMIN_TOKEN"] = "0123456789abcdef0123456789abcde"
    assert "32" in refusal(server)
    server.environment["DELTAWEIR_ADMIN_TOKEN"] += "f"
    assert "tls_cert" in refusal(server)
    server.environment["DELTAWEIR_ADMIN_OVER_HTTP"] = "true"
    server.start()


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("server", "lisssten", "127.0.0.1:1"),
        ("server", "listen", "not an address"),
        ("storage", "sync", "perhaps"),
        ("storage", "backend", "nowhere"),
        ("defaults", "compression", "gzip"),
        ("defaults", "encryption", "rot13"),
        ("limits", "memory_bytes_max", "lots"),
        ("limits", "memory_bytes_max", "1 byte"),
        ('buckets."b-1"', "compressoin", "off"),
        ("backends.local", "typ", "local"),
        ("unheard_of", "key", 1),
    ],
)
def test_a_wrong_configuration_is_refused_with_the_path_of_the_key(
    new_server: NewServer, table: str, key: str, value: str | int
) -> None:
    server = new_server()
    server.tables[table] = {key: value}
    said = refusal(server)
    path = table if table == "unheard_of" else f"{table}.{key}".replace('"', "")
    assert path in said.replace('"', ""), said
    assert not server.data.exists(), "nothing is made before the configuration is right (C119)"


def test_a_second_server_on_the_same_data_is_refused_and_the_first_goes_on(new_server: NewServer) -> None:
    first = new_server().start()
    s3 = s3_client(first.endpoint)
    s3.create_bucket(Bucket="bucket")
    second = Server(
        first.folder / "second", {"storage": {"data": str(first.data)}, "backends.local": {"path": str(first.blobs)}}
    )
    said = refusal(second)
    assert re.search(r"in use|already|another", said, re.IGNORECASE), said
    s3.put_object(Bucket="bucket", Key="k", Body=b"still here")
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"still here"


def test_users_of_the_file_have_the_rights_it_gives(new_server: NewServer) -> None:
    server = new_server()
    for name, policy in (("reader", "readonly"), ("writer", "readwrite")):
        server.environment[f"SECRET_OF_{name.upper()}"] = f"{name}-secret-0123456789"
        server.more_config += (
            f'[[users]]\nname = "{name}"\naccess_key_id = "AKIA{name.upper():0<16}"\n'
            f'secret_access_key = "env:SECRET_OF_{name.upper()}"\npolicy = "{policy}"\n'
        )
    server.start()
    reader = s3_client(server.endpoint, "AKIAREADER0000000000", "reader-secret-0123456789")
    writer = s3_client(server.endpoint, "AKIAWRITER0000000000", "writer-secret-0123456789")
    writer.create_bucket(Bucket="bucket")
    writer.put_object(Bucket="bucket", Key="k", Body=b"x")
    assert reader.get_object(Bucket="bucket", Key="k")["Body"].read() == b"x"
    denied = (403, "AccessDenied")
    assert error_code(reader.put_object, Bucket="bucket", Key="k", Body=b"y") == denied
    assert error_code(reader.delete_object, Bucket="bucket", Key="k") == denied
    assert error_code(reader.create_multipart_upload, Bucket="bucket", Key="k") == denied
    assert error_code(reader.copy_object, Bucket="bucket", Key="k2", CopySource="bucket/k") == denied
    assert error_code(reader.create_bucket, Bucket="another") == denied
    answer = reader.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "k"}]})
    assert [found["Code"] for found in answer["Errors"]] == ["AccessDenied"]
    assert reader.get_object(Bucket="bucket", Key="k")["Body"].read() == b"x"


def test_files_that_others_may_write_or_read_are_told_by_config_check(new_server: NewServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    server = new_server()
    server.environment.pop("DELTAWEIR_ADMIN_TOKEN", None)
    server.more_config += (
        f'[[users]]\nname = "u"\naccess_key_id = "AKU"\nsecret_access_key = "file:{token}"\npolicy = "readonly"\n'
    )
    server.write_config()

    def check(mode: int, config_mode: int) -> tuple[int, str]:
        token.chmod(mode)
        server.config.chmod(config_mode)
        done = server.run("config", "check", check=False)
        return done.returncode, done.stdout + done.stderr

    assert "mode" not in check(0o600, 0o644)[1]
    code, said = check(0o640, 0o664)
    assert code == 0
    assert f"users[0].secret_access_key: {token} has mode 0640" in said
    assert f"{server.config} has mode 0664: its group may write it" in said
    for modes, file in (((0o602, 0o644), token), ((0o600, 0o646), server.config)):
        code, said = check(*modes)
        assert code != 0, said
        assert f"{file} has mode" in said


@pytest.mark.parametrize("is_named", [False, True], ids=["data-directory", "storage.keyring"])
def test_a_file_of_keks_that_everybody_may_write_is_not_used(
    new_server: NewServer, tmp_path: Path, is_named: bool
) -> None:
    server = new_server()
    if is_named:
        server.tables["storage"] = {"keyring": str(tmp_path / "keks.json")}
    keyring = tmp_path / "keks.json" if is_named else server.data / "keyring.json"
    server.start()
    assert server.stop() == 0
    keyring.chmod(0o640)
    checked = server.run("config", "check")
    assert f"storage.keyring: {keyring} has mode 0640" in checked.stdout + checked.stderr
    keyring.chmod(0o602)
    found = server.run("config", "check", check=False)
    assert (found.returncode, "everybody may write it" in found.stderr) == (1, True), found
    assert "everybody may write it" in refusal(server)
    keyring.chmod(0o600)
    good = keyring.read_text()
    keyring.write_text(good[: len(good) // 2])
    found = server.run("config", "check", check=False)
    assert (found.returncode, f"cannot understand {keyring}" in found.stderr) == (1, True), found
    keyring.write_text(good)
    server.start()


@pytest.mark.parametrize("key", ["credentials_file", "ca_file"])
def test_a_file_of_a_backend_that_everybody_may_write_is_refused(
    new_server: NewServer, tmp_path: Path, key: str
) -> None:
    authority, _ = certificate(tmp_path)
    pairs = tmp_path / "pairs"
    pairs.write_text("[default]\naws_access_key_id = AK\naws_secret_access_key = secret\n")
    pairs.chmod(0o600)
    server = new_server()
    server.tables["backends.cloud"] = {
        "type": "s3",
        "bucket": "blobs",
        "region": "us-east-1",
        "endpoint": "https://127.0.0.1:1",
        "credentials_file": str(pairs),
        "ca_file": str(authority),
    }
    server.write_config()
    assert server.run("config", "check").returncode == 0
    (pairs if key == "credentials_file" else authority).chmod(0o666)
    found = server.run("config", "check", check=False)
    assert found.returncode == 1
    assert f"backends.cloud.{key}" in found.stderr and "everybody may write it" in found.stderr, found.stderr


def test_a_token_that_reads_is_another_than_the_one_that_writes(new_server: NewServer) -> None:
    server = new_server()
    token = "0123456789abcdef" * 2
    server.tables["server"] = {"admin_token": token, "admin_read_token": token}
    assert "server.admin_read_token" in refusal(server)

"""Accounts at run time: users, keys, groups and policies are changed while the server runs, and count at once."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from e2e.test_reload import CAROL, hang_up
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.failure import error_code
from outside.server import ACCESS_KEY_ID, Server, until

REFUSED = (403, "InvalidAccessKeyId")
DENIED = (403, "AccessDenied")
SECRET = "a-secret-of-ann-0123456789"


@pytest.fixture
def server(new_server: NewServer) -> Server:
    """A server with a bucket that holds one object."""
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="k", Body=b"here")
    return server


def users(server: Server, *arguments: str, check: bool = True) -> Any:
    """What `deltaweir users` answers, as JSON; without `check` what it says of its failure."""
    done = server.run("users", *arguments, "--json", check=check)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def added(server: Server, name: str, *arguments: str) -> S3Client:
    """A client of a new user."""
    told = users(server, "add", name, *arguments)
    return s3_client(server.endpoint, told["access_key_id"], told["secret_access_key"])


def read(s3: S3Client) -> bytes:
    content: bytes = s3.get_object(Bucket="bucket", Key="k")["Body"].read()
    return content


def read_error(s3: S3Client) -> tuple[int, str]:
    return error_code(s3.get_object, Bucket="bucket", Key="k")


def test_a_user_signs_from_its_first_second_to_its_last(server: Server) -> None:
    ann = added(server, "ann", "--policy", "readonly")
    assert read(ann) == b"here"
    assert error_code(ann.put_object, Bucket="bucket", Key="k", Body=b"no") == DENIED
    users(server, "disable", "ann")
    assert read_error(ann) == REFUSED
    users(server, "enable", "ann")
    assert read(ann) == b"here"
    shown = users(server, "show", "ann")
    assert (shown["policies"], shown["enabled"], len(shown["keys"])) == (["readonly"], True, 1)
    users(server, "remove", "ann")
    assert read_error(ann) == REFUSED
    assert [user["name"] for user in users(server, "list")["users"]] == []


def test_keys_of_a_user_are_replaced_without_a_gap(server: Server) -> None:
    old = added(server, "ann", "--policy", "readonly", "--access-key-id", "AKOLD", "--secret-access-key", SECRET)
    told = users(server, "keys", "add", "ann")
    new = s3_client(server.endpoint, told["access_key_id"], told["secret_access_key"])
    assert read(old) == read(new) == b"here"
    users(server, "keys", "disable", "ann", "AKOLD")
    assert read_error(old) == REFUSED
    users(server, "keys", "enable", "ann", "AKOLD")
    assert read(old) == b"here"
    users(server, "keys", "remove", "ann", "AKOLD")
    assert read_error(old) == REFUSED
    assert read(new) == b"here"


def test_an_access_key_is_one_users_and_none_of_roots(server: Server) -> None:
    added(server, "ann", "--access-key-id", "AKSAME")
    users(server, "add", "bob", "--no-key")
    for taken in ("AKSAME", ACCESS_KEY_ID):
        said = users(server, "keys", "add", "bob", "--access-key-id", taken, check=False)
        assert "that access key is taken" in said
    assert users(server, "show", "bob")["keys"] == []


def test_groups_and_policies_say_what_their_users_may(server: Server) -> None:
    ann = added(server, "ann")
    assert read_error(ann) == DENIED
    document = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::bucket/*"},
            {"Effect": "Deny", "Action": "s3:DeleteObject", "Resource": "*"},
        ],
    }
    file = server.folder / "policy.json"
    file.write_text(json.dumps(document))
    users(server, "policies", "put", "keepers", str(file))
    assert users(server, "policies", "show", "keepers")["document"] == document
    users(server, "groups", "add", "staff")
    users(server, "policies", "attach", "keepers", "--group", "staff")
    assert read_error(ann) == DENIED
    users(server, "groups", "join", "staff", "ann")
    assert read(ann) == b"here"
    users(server, "policies", "attach", "readwrite", "--user", "ann")
    assert error_code(ann.delete_object, Bucket="bucket", Key="k") == DENIED
    asked = ("policy", "test", "ann", "s3:DeleteObject", "arn:aws:s3:::bucket/k", "--json")
    verdict = json.loads(server.run(*asked).stdout)
    assert (verdict["allowed"], verdict["policy"]) == (False, "user")
    assert "is attached to group staff" in users(server, "policies", "remove", "keepers", check=False)
    assert "ann is in the group staff" in users(server, "groups", "remove", "staff", check=False)
    users(server, "groups", "leave", "staff", "ann")
    ann.delete_object(Bucket="bucket", Key="k")
    users(server, "groups", "remove", "staff")
    users(server, "policies", "remove", "keepers")


def test_what_is_wrong_is_refused_and_changes_nothing(server: Server) -> None:
    for method, path, body, status in (
        ("PUT", "users/root", {}, 409),
        ("PUT", "users/a%20b", {}, 400),
        ("PUT", "users/ann", {"policies": ["none"]}, 404),
        ("PUT", "users/ann", {"nonsense": 1}, 400),
        ("PUT", "users/ann", {"secret_access_key": "short"}, 400),
        ("PUT", "users/ann", {"access_key_id": "a/b"}, 400),
        ("PUT", "policies/p", {"Statement": {"Effect": "Allow", "Action": "s3:Gett", "Resource": "*"}}, 400),
        ("PUT", "policies/admin", {}, 409),
        ("POST", "users/ann?action=enable", None, 404),
        ("POST", "users/ann?action=nonsense", None, 400),
        ("POST", "policies/readonly?action=attach", None, 400),
        ("DELETE", "user-keys/ann?key=AK", None, 404),
        ("DELETE", "groups/none", None, 404),
    ):
        data = None if body is None else json.dumps(body).encode()
        assert server.admin_status(f"/api/v1/{path}", method, data) == status, (method, path, body)
    assert users(server, "list")["users"] == []


def test_accounts_outlive_a_restart_and_a_rebuild_and_no_secret_is_stored(server: Server) -> None:
    key = ("--access-key-id", "AKANN", "--secret-access-key", SECRET)
    added(server, "ann", "--policy", "readonly", *key)
    server.stop()
    server.start()
    ann = s3_client(server.endpoint, "AKANN", SECRET)
    assert read(ann) == b"here"
    server.admin("/api/v1/journal", "POST")
    server.run("backup")
    server.stop()
    holders = [file for file in server.data.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
    assert holders == []
    server.lose_catalog()
    server.run("rebuild")
    server.start()
    assert read(ann) == b"here"
    users(server, "remove", "ann")
    assert read_error(ann) == REFUSED


def test_without_a_server_the_command_changes_the_store_itself(server: Server) -> None:
    server.stop()
    told = users(server, "add", "ann", "--policy", "readonly")
    assert [user["name"] for user in users(server, "list")["users"]] == ["ann"]
    server.start()
    assert read(s3_client(server.endpoint, told["access_key_id"], told["secret_access_key"])) == b"here"


def test_the_file_seeds_and_does_not_bring_back_who_was_removed(new_server: NewServer) -> None:
    server = new_server()
    server.more_config = CAROL % "readwrite"
    server.start()
    carol = s3_client(server.endpoint, "AKIACAROL", "carols-secret-key")
    carol.create_bucket(Bucket="bucket")
    assert users(server, "show", "carol")["from_file"] is True
    users(server, "remove", "carol")
    hang_up(server)
    assert error_code(carol.list_buckets) == REFUSED
    server.stop()
    server.start()
    assert error_code(carol.list_buckets) == REFUSED
    said = 'user "carol" was removed, and the configuration file still has it'
    until(lambda: said in server.log.read_text(), 20, "the log says so")
    again = added(server, "carol", "--policy", "readonly")
    assert [found["Name"] for found in again.list_buckets()["Buckets"]] == ["bucket"]


def test_a_kek_that_is_configured_later_seals_accounts_anew(server: Server) -> None:
    key = ("--access-key-id", "AKANN", "--secret-access-key", SECRET)
    added(server, "ann", "--policy", "readonly", *key)
    server.stop()
    server.environment["DELTAWEIR_KEK"] = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    server.start()
    server.stop()
    (server.data / "keyring.json").unlink()
    server.start()
    assert read(s3_client(server.endpoint, "AKANN", SECRET)) == b"here"
    server.stop()
    server.environment["DELTAWEIR_KEK"] = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    refused = server.run("serve", check=False, timeout_s=30)
    assert refused.returncode == 1
    assert "is sealed under another KEK" in refused.stderr


def test_a_lost_keyring_costs_the_accounts_and_not_the_users_of_the_file(new_server: NewServer) -> None:
    server = new_server()
    server.more_config = CAROL % "readwrite"
    server.start()
    users(server, "add", "ann")
    server.stop()
    (server.data / "keyring.json").unlink()
    server.start()
    until(lambda: "are sealed under a lost KEK" in server.log.read_text(), 20, "the log says so")
    carol = s3_client(server.endpoint, "AKIACAROL", "carols-secret-key")
    carol.create_bucket(Bucket="bucket")
    assert [user["name"] for user in users(server, "list")["users"]] == ["carol"]
    added(server, "ann")


def test_every_change_is_a_line_of_the_audit_log(new_server: NewServer) -> None:
    server = new_server()
    server.more_config = CAROL % "readonly"
    server.start()
    told = users(server, "add", "ann", "--policy", "readonly", "--access-key-id", "AKANN")
    users(server, "keys", "disable", "ann", "AKANN")
    users(server, "keys", "remove", "carol", "AKNONE", check=False)
    users(server, "remove", "carol")
    lines = [json.loads(line) for line in server.run("audit", "tail", "-n", "100").stdout.splitlines()]
    changes = [line["change"] for line in lines if "change" in line]
    assert changes == [
        "added from the configuration file: carol",
        "user ann added, key AKANN of ann added",
        "key AKANN of ann disabled",
        "user carol removed",
    ]
    assert told["secret_access_key"] not in json.dumps(lines)
    server.run("audit", "verify")


def test_what_is_printed_can_be_pasted(server: Server) -> None:
    text = server.run("users", "add", "ann", "--policy", "readonly").stdout
    pair = re.search(r"^export AWS_ACCESS_KEY_ID=(\S+)\nexport AWS_SECRET_ACCESS_KEY=(\S+)$", text, re.MULTILINE)
    assert pair is not None, text
    assert read(s3_client(server.endpoint, pair[1], pair[2])) == b"here"
    assert pair[2] not in server.run("users", "list").stdout

"""Every call that changes something or is denied has a line in a log that shows when it was changed (C124)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import urllib3

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import noise
from outside.failure import error_code
from outside.server import Server, until
from outside.users import anonymous, users

KEPT = {"Bucket": "off-00", "Key": "kept"}


def lines(server: Server) -> list[dict[str, Any]]:
    """Everything the log says."""
    told = server.run("audit", "tail", "-n", "100000").stdout.splitlines()
    return [json.loads(line) for line in told]


def calls(server: Server) -> list[tuple[str, str | None, str | None, int | None]]:
    """Operation, key, user and status of what came in from outside."""
    return [
        (line["op"], line.get("key"), line.get("user"), line.get("status"))
        for line in lines(server)
        if line["kind"] in ("s3", "admin")
    ]


def test_what_changes_something_or_is_denied_is_written_down_and_what_reads_is_not(new_server: NewServer) -> None:
    server = new_server()
    server.more_config = users(server.folder / "policies")
    server.start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    s3.create_bucket(Bucket="delta-aes256-00")
    s3.put_object(**KEPT, Body=b"x")
    s3.get_object(**KEPT)["Body"].read()
    s3.put_object(Bucket="delta-aes256-00", Key="a name that is a secret", Body=b"x")
    stranger = s3_client(server.endpoint, "AKTENANT000000000000", "secret-of-tenant")
    assert error_code(stranger.get_object, **KEPT)[0] == 403
    guessed = s3_client(server.endpoint, secret="guessed")
    assert error_code(guessed.list_buckets)[0] == 403
    s3.delete_object(**KEPT)
    assert server.admin_status("/api/v1/stats") == 200
    assert server.admin_status("/api/v1/stats", token="x" * 32) == 401
    server.admin("/api/v1/gc", "POST")
    assert calls(server) == [
        ("users", None, "file", None),
        ("CreateBucket", None, "root", 200),
        ("CreateBucket", None, "root", 200),
        ("PutObject", "kept", "root", 200),
        ("PutObject", None, "root", 200),
        ("GetObject", None, "tenant", 403),
        ("ListBuckets", None, None, 403),
        ("DeleteObject", "kept", "root", 204),
        ("/api/v1/stats", None, None, 401),
        ("/api/v1/gc", None, "token", 200),
    ]
    until(lambda: any(line["kind"] == "job" for line in lines(server)), 20, "a job has ended")
    sealed = [line for line in lines(server) if line.get("bucket") == "delta-aes256-00" and "key_digest" in line]
    assert len(sealed) == 1
    written = "".join(path.read_text() for path in (server.data / "audit").iterdir())
    assert "a name that is a secret" not in written
    assert "secret-of-tenant" not in written and "guessed" not in written and server.admin_token not in written
    assert (server.data / "audit").stat().st_mode & 0o777 == 0o700
    assert server.metrics().total("deltaweir_audit_failures_total") == 0


def test_objects_that_only_a_body_names_are_in_its_line_and_so_is_who_signed_a_form(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    for bucket in ("off-00", "delta-aes256-00"):
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="one", Body=b"x")
        wanted = [{"Key": "one"}, {"Key": "two", "VersionId": "never"}]
        s3.delete_objects(Bucket=bucket, Delete={"Objects": wanted, "Quiet": True})
        form = s3.generate_presigned_post(bucket, "by form")
        fields = dict(form["fields"]) | {"file": ("f", b"x")}
        assert urllib3.PoolManager().request("POST", form["url"], fields=fields).status == 204
    s3.delete_object(Bucket="off-00", Key="by form", VersionId="null")
    assert [line.get("version") for line in lines(server) if line["op"] == "DeleteObject"] == ["null"]
    told = [line for line in lines(server) if line["op"] in ("DeleteObjects", "PostObject")]
    plain, sealed = (
        [(line["op"], line["user"], line["objects"]) for line in told if line["bucket"] == bucket]
        for bucket in ("off-00", "delta-aes256-00")
    )
    assert plain == [
        ("DeleteObjects", "root", [{"key": "one"}, {"key": "two", "version": "never", "code": "NoSuchVersion"}]),
        ("PostObject", "root", [{"key": "by form"}]),
    ]
    assert [(op, user) for op, user, _ in sealed] == [("DeleteObjects", "root"), ("PostObject", "root")]
    named = [entry for _, _, objects in sealed for entry in objects]
    assert len(named) == 3 and all("key_digest" in entry and "key" not in entry for entry in named)
    server.run("audit", "verify")


def test_a_catalog_that_was_made_again_has_a_line_by_whomever_it_was_made(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    s3.put_object(**KEPT, Body=b"x")
    server.run("backup")
    server.stop()
    catalog = server.data / "catalog.sqlite"
    catalog.unlink()
    server.run("rebuild", "--stop-at-damage")
    catalog.write_bytes(bytes(4096) + catalog.read_bytes()[4096:])
    server.start()
    made = [line for line in lines(server) if line["op"] in ("rebuild", "restore")]
    assert [(line.get("user"), line.get("change"), line["outcome"]) for line in made] == [
        ("owner", "stop at damage", "done"),
        (None, None, "done"),
    ]
    assert made[0]["lineage"] != made[1]["lineage"]
    server.run("audit", "verify")


def test_a_call_of_an_operator_says_which_bucket_it_is_about_and_what_it_asks_for(
    new_server: NewServer, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    server = new_server(eject={"roots": [str(tmp_path / "out")]})
    server.tables["server"] = {"admin_read_token": "0123456789abcdef" * 2}
    server.start()
    s3 = s3_client(server.endpoint)
    sealed = "delta-aes256-00"
    s3.create_bucket(Bucket=sealed)
    s3.put_object(Bucket=sealed, Key="a name that is a secret/1", Body=b"x")
    orders = {"bucket": sealed, "prefix": "a name that is a secret/"}
    for target in (tmp_path / "elsewhere", tmp_path / "out"):
        asked = orders | {"target": str(target)}
        server.admin_status("/api/v1/jobs/eject", "POST", json.dumps(asked).encode())
    server.settle()
    server.admin(f"/api/v1/quota?bucket={sealed}", "PUT", body={"objects": 10})
    server.admin("/api/v1/quota?user=root", "PUT", body={"bytes": 10**9})
    server.admin(f"/api/v1/keys/shred?bucket={sealed}", "POST")
    server.admin_status(f"/api/v1/keys/shred?bucket={sealed}", "POST", token="0123456789abcdef" * 2)
    server.run("gc", "--now")
    told = [line for line in lines(server) if line["kind"] == "admin" and line["op"] not in ("users", "/api/v1/settle")]
    assert [(line["op"], line["status"], line.get("bucket"), line.get("change")) for line in told] == [
        ("/api/v1/jobs/eject", 403, sealed, f"target {tmp_path / 'elsewhere'}"),
        ("/api/v1/jobs/eject", 200, sealed, f"target {tmp_path / 'out'}"),
        ("/api/v1/quota", 200, sealed, "objects 10"),
        ("/api/v1/quota", 200, None, "user root, bytes 1000000000"),
        ("/api/v1/keys/shred", 200, sealed, None),
        ("/api/v1/keys/shred", 403, sealed, None),
        ("/api/v1/gc", 200, None, "now"),
    ]
    ended = [line["run"] for line in lines(server) if line["kind"] == "job" and line["op"] == "eject"]
    assert ended == [told[1]["run"]]
    found = server.run("audit", "search", "--bucket", sealed, "--action", "/api/v1/jobs/eject").stdout
    assert found.count("/api/v1/jobs/eject") == 2
    assert "a name that is a secret" not in "".join(path.read_text() for path in (server.data / "audit").iterdir())


def test_acknowledged_calls_are_in_the_log_after_kill_9_and_a_changed_line_is_found(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    for number in range(20):
        s3.put_object(Bucket="off-00", Key=f"k{number}", Body=b"x")
    server.kill()
    keys = [key for op, key, _, _ in calls(server) if op == "PutObject"]
    assert keys == [f"k{number}" for number in range(20)]
    server.start()
    assert server.stop() == 0
    server.run("gc")
    assert calls(server)[-1][:3] == ("/api/v1/gc", None, "owner"), "a command without a server writes its line too"
    whole = server.json("audit", "verify")
    assert whole["first"] == 1 and whole["lines"] == whole["last"] > 20
    path = sorted((server.data / "audit").glob("audit-*.jsonl"))[0]
    text = path.read_text()
    changed = text.replace('"user":"root"', '"user":"carl"', 1)
    assert changed != text
    path.write_text(changed)
    refused = server.run("audit", "verify", check=False)
    assert refused.returncode != 0 and "its hash does not fit" in refused.stderr, refused.stderr


def test_damage_is_written_down_with_request_key_and_blob(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint, retries={"max_attempts": 1})
    s3.create_bucket(Bucket="off-00")
    s3.put_object(**KEPT, Body=noise(1, 300_000))
    [blob] = [path for path in server.blob_files() if path.stat().st_size > 300_000]
    content = bytearray(blob.read_bytes())
    content[70_000] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(content)
    server.drop_caches()
    try:
        body = s3.get_object(**KEPT)["Body"].read()
    except Exception:  # either an error at once or a body that ends
        body = b""
    assert body != noise(1, 300_000)
    until(lambda: any(line["kind"] == "corruption" for line in lines(server)), 20, "the damage is written down")
    [told] = [line for line in lines(server) if line["kind"] == "corruption"][:1]
    assert (told["bucket"], told["key"], told["op"]) == ("off-00", "kept", "GetObject")
    until(lambda: told["request_id"] in server.log.read_text(), 20, "the log has the request")
    assert blob.name in told["why"]
    assert f"(blob {blob.name})" in server.log.read_text()
    # A scrub lists blobs: none is named twice in a line.
    [damaged] = [line for line in server.run("scrub", check=False).stdout.splitlines() if line.startswith("damaged")]
    assert damaged.count(blob.name) == 1


def test_old_files_go_when_the_operator_says_so_and_the_log_tells_it(new_server: NewServer) -> None:
    server = new_server(audit={"file_bytes_max": "4KiB", "sync_interval": "0s", "files_max": 2}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="off-00")
    for number in range(60):
        s3.put_object(Bucket="off-00", Key=f"k{number}", Body=b"x")
    sound = server.json("audit", "verify")
    assert sound["files"] == 2 and sound["first"] > 1, "old files went, and the log says so"
    assert "files-removed" in server.run("audit", "tail", "-n", "100").stdout


def test_who_signs_nothing_cannot_push_old_lines_out_of_the_log(new_server: NewServer) -> None:
    with new_server() as server:
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket="off-00")
        stranger, asked = anonymous(server.endpoint), 300
        for _ in range(asked):
            assert error_code(stranger.get_object, **KEPT)[0] == 403
        s3.delete_bucket(Bucket="off-00")

        def of_stranger() -> list[dict[str, Any]]:
            return [line for line in lines(server) if line["kind"] == "s3" and "user" not in line]

        def is_told() -> bool:
            nonlocal asked
            asked += 1
            assert error_code(stranger.list_buckets)[0] == 403
            told = of_stranger()
            without = sum(int(line.get("left_out", 0)) for line in told)
            return bool(told[-1]["op"] == "ListBuckets") and len(told) + without == asked

        assert len(of_stranger()) < asked, "some calls have no line"
        until(is_told, 20, "a line tells of the calls that have none")
        signed = [call for call in calls(server) if call[2] == "root"]
        assert signed == [("CreateBucket", None, "root", 200), ("DeleteBucket", None, "root", 204)]

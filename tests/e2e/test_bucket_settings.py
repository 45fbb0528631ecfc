"""Buckets that operators make and change while the server runs: no file is edited, no process restarted."""

from __future__ import annotations

import json
from typing import Any

from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import text
from outside.failure import error_code
from outside.server import Server
from outside.storage import stored
from outside.tenants import BUCKET, OWN_PREFIX, add_tenants, allow
from outside.users import client_of

CANARY = b"a sentence that stands in no other object of this store 4711 " * 60
TOKEN = "t" * 32


def call(server: Server, method: str, bucket: str, body: dict[str, Any], more: str = "") -> int:
    """The status of a call about one bucket."""
    return server.admin_status(f"/api/v1/buckets/{bucket}{more}", method, json.dumps(body).encode())


def headers_of(server: Server, name: str) -> set[str]:
    """The storage headers that a user gets of the object `k`."""
    answer = client_of(server.endpoint, name).head_object(Bucket=BUCKET, Key="k")
    return {name for name in answer["ResponseMetadata"]["HTTPHeaders"] if name.startswith("x-deltaweir")}


def test_an_encrypted_bucket_is_made_while_the_server_runs(new_server: NewServer) -> None:
    server = new_server()
    add_tenants(server, {"ann": [allow("s3:*", "")]})
    server.start()
    said = server.run("buckets", "add", BUCKET, "--encryption", "aes256", "--compression", "zstd", "--owner", "ann")
    assert "compression=zstd encryption=aes256" in said.stdout
    ann = client_of(server.endpoint, "ann")
    ann.put_object(Bucket=BUCKET, Key="k", Body=CANARY)
    assert call(server, "PUT", BUCKET, {}) == 409
    assert call(server, "PUT", "Not_a_name", {}) == 400
    assert call(server, "PUT", "another", {"encryption": "rot13"}) == 400
    assert call(server, "PUT", "another", {"encrypted": True}) == 400
    assert call(server, "PUT", "another", {}, "?user=nobody") == 404
    assert error_code(s3_client(server.endpoint).head_bucket, Bucket="another")[0] == 404
    server.restart()
    assert ann.get_object(Bucket=BUCKET, Key="k")["Body"].read() == CANARY
    [listed] = [found for found in server.json("buckets", "list")["buckets"] if found["name"] == BUCKET]
    assert listed["settings"]["encryption"] == "aes256"
    assert f"{BUCKET}: epoch 1, " in server.run("keys", "list").stdout
    assert server.stop() == 0
    written = b"".join(path.read_bytes() for path in server.data.rglob("*") if path.is_file())
    assert CANARY[:40] not in written
    server.lose_catalog()
    server.run("rebuild")
    server.start()
    assert ann.get_object(Bucket=BUCKET, Key="k")["Body"].read() == CANARY


def test_rules_apply_from_the_next_request_on_and_win_over_the_file(new_server: NewServer) -> None:
    server = new_server()
    server.tables[f"buckets.{BUCKET}"] = {"storage_headers": "readers", "isolation": "strict"}
    add_tenants(server, {"carl": [allow("s3:*", "")], "dora": [allow("s3:*", "")]})
    server.start()
    s3_client(server.endpoint).create_bucket(Bucket=BUCKET)
    root, (carl, dora) = s3_client(server.endpoint), (client_of(server.endpoint, name) for name in ("carl", "dora"))
    content = text(3, 100_000)

    def shares(number: int) -> bool:
        """Whether two users who may read everything share their content."""
        for client, name in ((carl, "carl"), (dora, "dora")):
            client.put_object(Bucket=BUCKET, Key=f"{name}/{number}", Body=content + b"%d" % number)
        return stored(root, BUCKET, f"dora/{number}").form in ("dedup", "delta")

    carl.put_object(Bucket=BUCKET, Key="k", Body=content)
    assert headers_of(server, "carl") and not shares(1)
    server.run("buckets", "set", BUCKET, "--isolation", "policy", "--storage-headers", "administrators")
    assert not headers_of(server, "carl") and shares(2)
    server.restart()
    assert not headers_of(server, "carl") and shares(3)
    server.run("buckets", "set", BUCKET, "--isolation", "configured", "--storage-headers", "configured")
    assert headers_of(server, "carl")
    [listed] = [found for found in server.json("buckets", "list")["buckets"] if found["name"] == BUCKET]
    assert (listed["isolation"], listed["storage_headers"]) == ("strict", "readers")


def test_what_is_no_rule_is_refused_and_changes_nothing(new_server: NewServer) -> None:
    server = new_server()
    server.tables["server"] = {"admin_token": TOKEN, "admin_read_token": "r" * 32}
    add_tenants(server, OWN_PREFIX)
    server.start()
    s3_client(server.endpoint).create_bucket(Bucket=BUCKET)
    before = server.admin("/api/v1/buckets")["buckets"]
    wrong: list[Any] = [{}, {"isolation": "none"}, {"isolation": 1}, {"encryption": "off"}, {"storage_headers": "all"}]
    wrong += [{"isolation": "strict", "storage_headers": "all"}, [], "strict"]
    for body in wrong:
        assert call(server, "POST", BUCKET, body) == 400, body
    assert call(server, "POST", "nowhere", {"isolation": "strict"}) == 404
    reads = server.admin_status(f"/api/v1/buckets/{BUCKET}", "POST", b'{"isolation":"bucket"}', token="r" * 32)
    assert reads == 403
    assert server.admin("/api/v1/buckets")["buckets"] == before
    server.admin(f"/api/v1/buckets/{BUCKET}", "POST", body={"isolation": "strict"})
    lines = [json.loads(line) for line in server.run("audit", "tail", "-n", "100").stdout.splitlines()]
    # Jobs write lines, too.
    changes = [(line.get("bucket"), line["change"]) for line in lines if "change" in line]
    assert changes[-1] == (BUCKET, f"bucket {BUCKET}: isolation strict")
    assert [line["op"] for line in lines if (line.get("bucket"), line.get("status")) == (BUCKET, 403)] == [
        f"/api/v1/buckets/{BUCKET}"
    ]

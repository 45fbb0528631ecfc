"""How much a bucket or a user may hold: what would go beyond it is refused whole, and deletions give back (C122)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client, s3_client
from outside.content import KIB, MIB, noise
from outside.failure import error_code
from outside.server import Server
from outside.users import client_of, users
from outside.wire import Answer, Connection, signed

B: dict[str, Any] = {"Bucket": "delta-00"}
EXCEEDED = (403, "QuotaExceeded")


def quota(server: Server, method: str, whose: str, limits: Any = None) -> Any:
    """What the call answers."""
    return server.admin(f"/api/v1/quota?{whose}", method, body=limits)


def held(server: Server, whose: str = "bucket=delta-00") -> tuple[int, int]:
    """Bytes and objects."""
    told = quota(server, "GET", whose)["held"]
    return told["bytes"], told["objects"]


def attempt(s3: S3Client, key: str, size: int) -> bool:
    """Whether an upload goes through; it is refused for its quota otherwise."""
    try:
        s3.put_object(**B, Key=key, Body=noise(size, size))
    except s3.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "QuotaExceeded", error
        return False
    return True


def test_what_goes_beyond_a_quota_is_refused_and_leaves_nothing(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(**B)
    s3.put_object(**B, Key="kept", Body=noise(1, MIB))
    told = server.run("quota", "set", "--bucket", "delta-00", "--bytes", "2MiB", "--objects", "4")
    assert told.stdout == f"bucket delta-00: {MIB} of {2 * MIB} bytes, 1 of 4 objects\n"
    server.settle()
    before = server.blob_files()
    assert error_code(s3.put_object, **B, Key="large", Body=noise(2, MIB + 1)) == EXCEEDED
    assert server.blob_files() == before, "what was stored of it is removed"
    assert error_code(s3.head_object, **B, Key="large")[0] == 404
    upload = s3.create_multipart_upload(**B, Key="parts")["UploadId"]
    part: dict[str, Any] = {**B, "Key": "parts", "UploadId": upload, "PartNumber": 1}
    etag = s3.upload_part(**part, Body=noise(3, MIB))["ETag"]
    assert held(server) == (2 * MIB, 1)
    assert error_code(s3.upload_part, **{**part, "PartNumber": 2}, Body=b"x") == EXCEEDED
    source = {**B, "Key": "kept"}
    assert error_code(s3.copy_object, **B, Key="copy", CopySource=source) == EXCEEDED
    done = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    s3.complete_multipart_upload(**B, Key="parts", UploadId=upload, MultipartUpload=done)
    assert held(server) == (2 * MIB, 2)
    s3.put_object(**B, Key="kept", Body=noise(4, MIB - 10 * KIB))
    for number in range(2):
        s3.put_object(**B, Key=f"small-{number}", Body=noise(5, KIB))
    assert error_code(s3.put_object, **B, Key="fifth", Body=b"x") == EXCEEDED
    s3.delete_object(**B, Key="small-0")
    s3.put_object(**B, Key="fifth", Body=b"x")
    assert server.metrics().total("deltaweir_rejected_total", reason="quota") == 4
    server.restart()
    assert held(server) == (2 * MIB - 9 * KIB + 1, 4)
    assert server.json("quota", "list")["quotas"][0]["limits"] == {"bytes": 2 * MIB, "objects": 4}
    server.run("quota", "clear", "--bucket", "delta-00")
    assert server.run("quota", "list").stdout == "no quota is set\n"
    s3.put_object(**B, Key="large", Body=noise(2, 3 * MIB))


def test_a_users_quota_is_for_all_buckets_that_it_owns(new_server: NewServer) -> None:
    server = new_server()
    server.more_config = users(server.folder / "policies")
    server.start()
    alt = client_of(server.endpoint, "alt")
    for name in ("of-alt-1", "of-alt-2"):
        alt.create_bucket(Bucket=name)
    s3 = s3_client(server.endpoint)
    s3.create_bucket(**B)
    quota(server, "PUT", "user=alt", {"bytes": 1000})
    alt.put_object(Bucket="of-alt-1", Key="k", Body=bytes(600))
    assert error_code(alt.put_object, Bucket="of-alt-2", Key="k", Body=bytes(401)) == EXCEEDED
    alt.put_object(Bucket="of-alt-2", Key="k", Body=bytes(400))
    s3.put_object(**B, Key="k", Body=bytes(5000))
    assert held(server, "user=alt") == (1000, 2)
    alt.delete_object(Bucket="of-alt-1", Key="k")
    assert held(server, "user=alt") == (400, 1)
    shown = server.json("quota", "show", "--user", "alt")
    assert (shown["user"], shown["limits"]) == ("alt", {"bytes": 1000})


def test_limits_that_cannot_be_counted_to_are_refused_and_the_quota_stays(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(**B)
    quota(server, "PUT", "bucket=delta-00", {"bytes": 10})
    wrong = ["-1", "1e30", "18446744073709551615", "18446744073709551616", "9223372036854775808", "1.5", '"10"']
    for number in wrong:
        for name in ("bytes", "objects"):
            path = "/api/v1/quota?bucket=delta-00"
            assert server.admin_status(path, "PUT", f'{{"{name}": {number}}}'.encode()) == 400, (name, number)
    for path in ("/api/v1/quota", "/api/v1/quota?bucket=delta-00&user=root"):
        assert server.admin_status(path, "PUT", json.dumps({"bytes": 1}).encode()) == 400
    for path in ("/api/v1/quota?bucket=no-such-bucket", "/api/v1/quota?user=nobody"):
        assert server.admin_status(path) == 404
    assert error_code(s3.put_object, **B, Key="k", Body=bytes(11)) == EXCEEDED
    quota(server, "PUT", "bucket=delta-00", {"bytes": 2**63 - 1, "objects": 2**63 - 1})
    s3.put_object(**B, Key="k", Body=bytes(11))
    assert held(server) == (11, 1)


def test_uploads_at_once_do_not_go_beyond_a_quota_together(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(**B)
    quota(server, "PUT", "bucket=delta-00", {"bytes": 20 * KIB})
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: attempt(s3, f"k{number}", 4 * KIB), range(24)))
    assert done.count(True) == 5
    assert held(server) == (20 * KIB, 5)


def head_of_put(server: Server, key: str, size: int) -> Answer:
    """What is answered to a PUT of which only the head is sent."""
    request = signed(f"127.0.0.1:{server.port}", "PUT", f"/delta-00/{key}", body=bytes(size))
    with Connection(server.port, timeout_s=20) as connection:
        connection.send(request[: -size or None])
        answer = connection.answer("PUT")
    assert answer is not None
    return answer


def test_a_body_beyond_a_quota_is_refused_before_it_is_sent(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(**B)
    quota(server, "PUT", "bucket=delta-00", {"bytes": 3 * MIB, "objects": 2})
    s3.put_object(**B, Key="kept", Body=noise(1, 2 * MIB))
    refused = head_of_put(server, "large", 2 * MIB)
    assert (refused.status, b"QuotaExceeded" in refused.body) == (403, True), refused
    assert server.metrics().total("deltaweir_rejected_total", reason="quota") == 1
    assert head_of_put(server, "kept", 3 * MIB + 1).status == 403
    s3.put_object(**B, Key="kept", Body=noise(2, 3 * MIB))
    assert held(server) == (3 * MIB, 1)
    upload = s3.create_multipart_upload(**B, Key="parts")["UploadId"]
    part: dict[str, Any] = {**B, "Key": "parts", "UploadId": upload, "PartNumber": 1}
    assert error_code(s3.upload_part, **part, Body=noise(3, MIB)) == EXCEEDED
    quota(server, "PUT", "bucket=delta-00", {"bytes": 5 * MIB})
    s3.upload_part(**part, Body=noise(3, 2 * MIB))
    s3.upload_part(**part, Body=noise(4, 2 * MIB))
    assert held(server) == (5 * MIB, 1)
    s3.put_bucket_versioning(**B, VersioningConfiguration={"Status": "Enabled"})
    assert head_of_put(server, "kept", 2 * MIB).status == 403, "an old version stays"
    quota(server, "PUT", "bucket=delta-00", {"objects": 1})
    assert head_of_put(server, "second", 2 * MIB).status == 403


def test_a_user_without_a_working_key_has_a_quota_as_well(new_server: NewServer) -> None:
    server = new_server().start()
    key = server.admin("/api/v1/users/ann", "PUT", body={})["access_key_id"]
    limits = {"bytes": MIB}
    assert quota(server, "PUT", "user=ann", limits)["limits"] == limits
    server.admin(f"/api/v1/user-keys/ann?action=disable&key={key}", "POST")
    assert quota(server, "GET", "user=ann")["limits"] == limits
    assert server.admin_status("/api/v1/quota?user=nobody") == 404

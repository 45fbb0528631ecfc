"""What a server answers now: `top`, `requests`, and the search in the audit log."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import ClientError

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, release
from outside.server import BINARY, Server, until


@pytest.fixture
def server(new_server: NewServer) -> Server:
    """A running server with an object in a plain bucket and one in a sealed bucket."""
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="zstd-00")
    s3.create_bucket(Bucket="delta-aes256-00")
    s3.put_object(Bucket="zstd-00", Key="k", Body=b"abc" * 9999)
    s3.put_object(Bucket="delta-aes256-00", Key="hidden name", Body=b"x")
    return server


def missing(s3: S3Client, bucket: str = "zstd-00") -> str:
    """Asks for a key that is not there; the request's id."""
    with pytest.raises(ClientError) as raised:
        s3.get_object(Bucket=bucket, Key="none")
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404
    return str(raised.value.response["ResponseMetadata"]["HTTPHeaders"]["x-amz-request-id"])


def sums(server: Server, op: str, bucket: str) -> dict[str, Any]:
    """The sums of an operation in a bucket; only `requests`, of 0, before the first has ended."""
    rows = server.admin("/api/v1/traffic")["traffic"]
    return next((dict(row) for row in rows if (row["op"], row["bucket"]) == (op, bucket)), {"requests": 0})


def requests(server: Server, query: str) -> list[dict[str, Any]]:
    """The newest requests that fit a query."""
    return list(server.admin(f"/api/v1/requests?{query}")["requests"])


def test_a_404_is_an_error_of_the_client_and_a_failing_store_one_of_the_server(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    s3.put_object(Bucket="zstd-00", Key="lost", Body=release(3, 2 * MIB, 0))
    s3.get_object(Bucket="zstd-00", Key="lost")["Body"].read()
    for _ in range(3):
        missing(s3)
    until(lambda: sums(server, "GetObject", "zstd-00")["requests"] == 4, 10, "all have ended")
    row = sums(server, "GetObject", "zstd-00")
    assert (row["client_errors"], row["server_errors"], row["cut"]) == (3, 0, 0)
    assert row["bytes_out"] > 2 * MIB
    for blob in server.blob_files():
        blob.unlink()
    server.drop_caches()
    url = s3.generate_presigned_url("get_object", {"Bucket": "zstd-00", "Key": "lost"})
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(url, timeout=20)
    assert raised.value.code >= 500
    until(lambda: sums(server, "GetObject", "zstd-00")["server_errors"] == 1, 10, "its error is counted")
    assert sums(server, "GetObject", "zstd-00")["client_errors"] == 3


def test_top_counts_a_404_in_its_column(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    missing(s3)
    ended = threading.Event()

    def traffic() -> None:
        while not ended.wait(0.05):
            missing(s3)

    client = threading.Thread(target=traffic)
    client.start()
    try:
        told = server.json("top", "--interval", "1")
        (row,) = [row for row in told["rows"] if row["op"] == "GetObject"]
        assert row["bucket"] == "zstd-00"
        assert row["client_errors"] == row["requests"] > 0
        assert row["server_errors"] == 0
        text = server.run("top", "--once", "--by", "operation", "--interval", "1").stdout
        heads = text.splitlines()[2].split()
        line = next(line.split() for line in text.splitlines() if line.startswith("GetObject"))
        assert heads[:4] == ["operation", "requests/s", "4xx", "5xx"]
        assert int(line[2]) > 0
        assert line[3] == "0"
    finally:
        ended.set()
        client.join()


def test_buckets_that_are_not_there_take_no_row(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    for number in range(3):
        missing(s3, f"made-up-{number}")
    until(lambda: sums(server, "GetObject", "_other")["requests"] == 3, 10, "all have ended")
    assert not [row for row in server.admin("/api/v1/traffic")["traffic"] if row["bucket"].startswith("made-up")]


def test_the_newest_requests_are_told_by_filter_and_traced_by_id(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    s3.get_object(Bucket="zstd-00", Key="k")["Body"].read()
    request_id = missing(s3)
    until(lambda: requests(server, f"id={request_id}"), 10, "the request has ended")
    (request,) = requests(server, "status=4xx&op=GetObject&bucket=zstd-00&user=root")
    assert (request["request_id"], request["status"], request["code"]) == (request_id, 404, "NoSuchKey")
    assert request["program"].startswith("Boto3/")
    assert {found["status"] for found in requests(server, "status=200")} == {200}
    assert requests(server, "peer=10.0.0.7") == []
    assert requests(server, "slower_ms=600000") == []
    told = server.json("requests", request_id.lower())
    steps = [step["step"] for step in told["steps"]]
    assert steps == ["signature verified", "allowed", "answer begins", "complete"]
    assert [step["ms"] for step in told["steps"]] == sorted(step["ms"] for step in told["steps"])
    text = server.run("requests", request_id).stdout
    assert "GetObject zstd-00/none: 404 NoSuchKey" in text
    listed = server.run("requests", "--status", "404").stdout
    assert request_id in listed
    assert "hidden name" not in json.dumps(server.admin("/api/v1/requests?limit=1000"))
    unknown = server.run("requests", "0" * 16, check=False)
    assert unknown.returncode == 1
    assert "request 0000000000000000 is not among the newest" in unknown.stderr
    for wrong in ("status=9xx", "limit=0", "after=x", "peer=here"):
        assert server.admin_status(f"/api/v1/requests?{wrong}") == 400
    assert server.admin_status("/api/v1/requests/xyz") == 400


def test_requests_can_be_followed_and_none_is_left_out(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    command = [
        str(BINARY),
        "requests",
        "--follow",
        "--json",
        "-n",
        "1",
        "--op",
        "HeadObject",
        "--config",
        str(server.config),
    ]
    out = server.folder / "followed"
    with out.open("wb") as to:
        process = subprocess.Popen(command, env=server.variables(), stdout=to)
    try:

        def seen() -> list[str]:
            return [json.loads(line)["key"] for line in out.read_text().splitlines()]

        s3.head_object(Bucket="zstd-00", Key="k")
        until(seen, 20, "the first request is shown")
        wanted = [f"k{number}" for number in range(50)]
        for key in wanted:
            s3.put_object(Bucket="zstd-00", Key=key, Body=b"x")
            s3.head_object(Bucket="zstd-00", Key=key)
        until(lambda: seen()[-50:] == wanted, 20, "every request is shown, in order")
    finally:
        process.kill()
        process.wait(30)


def test_as_many_requests_are_kept_as_the_configuration_says(new_server: NewServer) -> None:
    server = new_server(access_log={"recent": 2}).start()
    s3 = s3_client(server.endpoint)
    for _ in range(5):
        s3.list_buckets()
    until(lambda: server.admin("/api/v1/requests")["next"] == 5, 10, "all have ended")
    told = server.admin("/api/v1/requests?after=0")
    assert ([request["number"] for request in told["requests"]], told["missed"]) == ([4, 5], 3)


def test_without_a_server_there_are_no_requests(server: Server) -> None:
    assert server.stop() == 0
    for command in ("requests", "top"):
        refused = server.run(command, check=False)
        assert refused.returncode == 1
        assert "no server is running" in refused.stderr


def test_the_audit_log_is_searched_by_user_action_bucket_time_and_request(server: Server) -> None:
    s3 = s3_client(server.endpoint)
    deleted = s3.delete_object(Bucket="zstd-00", Key="k")["ResponseMetadata"]["HTTPHeaders"]["x-amz-request-id"]
    server.run("gc", "--now")

    def found(*flags: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in server.run("audit", "search", *flags).stdout.splitlines() if line]

    (line,) = found("--action", "DeleteObject", "--user", "root", "--bucket", "zstd-00")
    assert (line["key"], line["request_id"]) == ("k", deleted)
    assert found("--request-id", deleted.lower()) == [line]
    assert [line["op"] for line in found("--bucket", "zstd-00")] == ["CreateBucket", "PutObject", "DeleteObject"]
    assert [line["op"] for line in found("--bucket", "zstd-00", "-n", "2")] == ["PutObject", "DeleteObject"]
    assert [line["user"] for line in found("--user", "owner")] == ["owner"]
    assert found("--user", "nobody") == []
    assert found("--since", "1h", "--action", "DeleteObject") == [line]
    assert found("--until", "1h", "--action", "DeleteObject") == []
    assert found("--since", line["at"], "--until", line["at"]) == []
    assert found("--since", line["at"])[0] == line
    wrong = server.run("audit", "search", "--since", "yesterday", check=False)
    assert wrong.returncode == 1
    assert "--since" in wrong.stderr


def test_the_newest_lines_of_the_log_are_kept_and_no_request_is_among_them(server: Server) -> None:
    missing(s3_client(server.endpoint))
    told = server.admin("/api/v1/log?limit=1000")
    texts = [line["text"] for line in told["lines"]]
    assert any(text.startswith("serving version=") for text in texts)
    assert [line["number"] for line in told["lines"]] == list(range(1, told["next"] + 1))
    written = server.log.read_text()
    assert all(text in written for text in texts), "in the words of the log itself"
    assert "op=" in written
    assert not any("request_id=" in text for text in texts)
    assert "hidden name" not in json.dumps(told)
    found = server.admin("/api/v1/log?text=soundness&level=info&limit=5")["lines"]
    assert {line["target"] for line in found} == {"engine::background::soundness"}
    assert all(line["level"] in ("error", "warn") for line in server.admin("/api/v1/log?level=warn")["lines"])
    after = server.admin(f"/api/v1/log?after={told['next'] - 1}&limit=1")["lines"]
    assert [line["number"] for line in after] == [told["next"]]
    for wrong in ("level=loud", "limit=0", "after=x"):
        assert server.admin_status(f"/api/v1/log?{wrong}") == 400, wrong
    printed = server.run("logs", "--text", "serving").stdout
    assert "INFO deltaweir::cli::serve: serving version=" in printed
    server.stop()
    stopped = server.run("logs", check=False)
    assert stopped.returncode == 1
    assert "no server is running" in stopped.stderr

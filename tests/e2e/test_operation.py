"""The operator's side: health, metrics, the admin API, the log."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import http.client
import json
import os
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.content import MIB, noise, release
from outside.failure import error_code
from outside.server import SECRET_ACCESS_KEY, Server, until
from outside.store import Store

EXPECTED_METRICS = {
    "deltaweir_build_info",
    "deltaweir_http_requests_total",
    "deltaweir_http_request_seconds_count",
    "deltaweir_http_ttfb_seconds_count",
    "deltaweir_http_response_bytes_total",
    "deltaweir_logical_bytes_total",
    "deltaweir_stored_bytes_total",
    "deltaweir_saved_bytes_total",
    "deltaweir_plan_total",
    "deltaweir_encode_seconds_count",
    "deltaweir_decode_seconds_count",
    "deltaweir_codec_queue_seconds_count",
    "deltaweir_codec_threads",
    "deltaweir_bucket_objects",
    "deltaweir_bucket_stored_bytes",
    "deltaweir_seal_bytes_total",
    "deltaweir_cache_misses_total",
    "deltaweir_backend_requests_total",
    "deltaweir_backend_bytes_total",
    "deltaweir_catalog_commit_seconds_count",
    "deltaweir_memory_budget_bytes",
    "process_resident_memory_bytes",
}


def test_health_and_readiness(server: Server) -> None:
    assert (server.admin_status("/healthz"), server.admin_status("/readyz")) == (200, 200)
    assert server.admin_status("/unheard-of") == 404


def test_a_server_that_cannot_reach_its_backend_is_not_ready(new_server: NewServer, store: Store) -> None:
    server = new_server(**store.tables()).start()
    store.stop()
    until(lambda: server.admin_status("/readyz") == 503, 60, "/readyz says no")
    assert server.admin_status("/healthz") == 200
    store.start()
    until(lambda: server.admin_status("/readyz") == 200, 60, "/readyz says yes again")


def test_the_s3_port_carries_s3_only(server: Server) -> None:
    for path in ("/metrics", "/healthz", "/readyz", "/api/v1/stats"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 404
        assert b"<Code>NoSuchBucket</Code>" in answer.read()
        connection.close()


@pytest.mark.parametrize("why", ["full disk", "closed pipe", "a reader that stalls"])
def test_a_server_whose_log_cannot_be_written_serves_all_the_same(new_server: NewServer, why: str) -> None:
    server = new_server()
    server.write_config()
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as stalled:
        if why == "full disk":
            output = stack.enter_context(Path("/dev/full").open("wb")).fileno()
        else:
            reader, output = os.pipe()
            stack.callback(os.close, output)
            if why == "closed pipe":
                os.close(reader)
            else:
                fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, 4096)
                stalled.callback(os.close, reader)
        # Lines to paste are for a terminal; what goes on to be written is the log.
        pasted = subprocess.DEVNULL if why == "a reader that stalls" else output
        command = [str(server.binary), "serve", "--config", str(server.config)]
        environment = server.variables() | {"DELTAWEIR_LOG": "debug"}
        server.process = subprocess.Popen(command, env=environment, cwd=server.folder, stdout=pasted, stderr=output)
        server.wait_ready()
        s3 = s3_client(server.endpoint)
        s3.create_bucket(Bucket="delta-00")
        contents = {f"app-{version}": release(3, 3 * MIB, version) for version in range(4)}
        for key, content in contents.items():
            s3.put_object(Bucket="delta-00", Key=key, Body=content)
        server.settle()
        for key, content in contents.items():
            assert s3.get_object(Bucket="delta-00", Key=key)["Body"].read() == content
        for _ in range(100):
            assert error_code(s3.get_object, Bucket="delta-00", Key="none") == (404, "NoSuchKey")
        os.kill(server.process.pid, signal.SIGHUP)
        assert server.stop() == 0


def test_every_metric_the_dashboards_need_has_a_value(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    for bucket in ("delta-00", "zstd-aes256-00"):
        s3.create_bucket(Bucket=bucket)
        for version in range(2):
            s3.put_object(Bucket=bucket, Key=f"app-{version}", Body=release(111, 5 * MIB, version))
    server.drop_caches()
    s3.get_object(Bucket="delta-00", Key="app-1")["Body"].read()
    server.admin("/api/v1/stats")
    metrics = server.metrics()
    assert EXPECTED_METRICS - metrics.names() == set()
    assert metrics.total("deltaweir_http_requests_total", op="PutObject", code="200") == 4
    assert metrics.total("deltaweir_logical_bytes_total") == 4 * 5 * MIB
    assert metrics.total("deltaweir_saved_bytes_total", stage="delta") > 4 * MIB
    assert metrics.total("deltaweir_seal_bytes_total") > 0


def test_the_admin_api_lists_buckets_and_jobs_and_settles(server: Server, bucket: str) -> None:
    assert bucket in [found["name"] for found in server.admin("/api/v1/buckets")["buckets"]]
    assert server.admin("/api/v1/jobs")
    server.settle()
    assert server.admin_status("/api/v1/explain?bucket=none&key=none") == 404


def test_an_admin_token_is_asked_for_where_one_is_set(new_server: NewServer) -> None:
    server = new_server()
    server.environment["DELTAWEIR_ADMIN_TOKEN"] = "a-token-of-some-length-0123456789"
    server.start()
    for path in ("/metrics", "/api/v1/stats", "/api/v1/buckets", "/api/v1/jobs"):
        assert server.admin_status(path, token="") == 401, path
        assert server.admin_status(path, token="a-token-of-some-length-012345678") == 401, path
        assert server.admin_status(path) == 200, path
    assert not (server.data / "admin-token").exists()


def test_one_line_per_request_tells_what_was_asked_and_answered(new_server: NewServer) -> None:
    server = new_server(log={"format": "json"}).start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    meta = s3.put_object(Bucket="delta-00", Key="k", Body=noise(1, 100_000))["ResponseMetadata"]
    request_id = meta["HTTPHeaders"]["x-amz-request-id"]

    def lines() -> list[str]:
        return [line for line in server.log.read_text().splitlines() if request_id in line]

    (line,) = until(lines, 10, "the request is logged")
    assert json.loads(line)
    assert "PutObject" in line
    assert "200" in line


def secrets_in(text: str, secrets: list[str]) -> list[str]:
    """Those of them that a text holds."""
    return [secret for secret in secrets if secret in text]


def everything_that_carries_secrets(s3: S3Client, server: Server) -> list[str]:
    """Requests of every kind of authentication, good and bad; gives the secrets they carried."""
    s3.create_bucket(Bucket="delta-00")
    s3.put_object(Bucket="delta-00", Key="k", Body=b"x")
    signatures = []
    for version, name in (("s3v4", "X-Amz-Signature"), ("s3", "Signature")):
        signer = s3_client(server.endpoint, signature_version=version)
        url = signer.generate_presigned_url("get_object", {"Bucket": "delta-00", "Key": "k"})
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert answer.read() == b"x"
        query = urllib.parse.urlsplit(url).query
        signatures += [urllib.parse.parse_qs(query)[name][0], query.split(f"{name}=")[1].split("&")[0]]
    wrong = s3_client(server.endpoint, secret="a-wrong-secret-5b1e")
    assert error_code(wrong.list_buckets) == (403, "SignatureDoesNotMatch")
    tokened = s3_client(server.endpoint, token="session-token-77aa")
    assert error_code(tokened.list_buckets)[0] in (400, 403)
    return [*signatures, "a-wrong-secret-5b1e", "session-token-77aa"]


def test_no_secret_reaches_the_log_the_metrics_or_the_admin_api(new_server: NewServer) -> None:
    kek = base64.b64encode(noise(5, 32)).decode()
    server = new_server(log={"filter": "trace"})
    server.environment |= {"DELTAWEIR_KEK": kek}
    server.start()
    secrets = [*everything_that_carries_secrets(s3_client(server.endpoint), server), SECRET_ACCESS_KEY, kek]
    said = [server.run("config", "show").stdout, json.dumps(server.admin("/api/v1/stats"))]
    with urllib.request.urlopen(server.admin_request("/metrics"), timeout=10) as answer:
        said.append(answer.read().decode())
    secrets.append(server.admin_token)
    assert server.stop() == 0
    log = server.log.read_text(errors="replace")
    assert "ListBuckets" in log
    for text in (log, *said):
        assert secrets_in(text, secrets) == []
    assert not re.search(r"Signature=[0-9a-f]{64}", log)


@pytest.mark.parametrize("operation", ["get_object", "put_object"])
def test_what_is_refused_is_counted_with_its_reason(new_server: NewServer, operation: str) -> None:
    server = new_server().start()
    wrong = s3_client(server.endpoint, secret="wrong" * 8)
    body = {"Body": b"x"} if operation == "put_object" else {}
    assert error_code(getattr(wrong, operation), Bucket="delta-00", Key="k", **body)[0] == 403
    assert server.metrics().total("deltaweir_auth_total") >= 1

"""SIGHUP reads new users, roles, the certificate and the log's filter anew, and ends no request."""

from __future__ import annotations

import shutil
import signal
import ssl
import threading
import time
from pathlib import Path

from botocore.exceptions import ClientError

from e2e.test_clouds import certificate
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.server import Server, until
from outside.wire import Connection, signed

CAROL = """
[[users]]
name = "carol"
access_key_id = "AKIACAROL"
secret_access_key = "carols-secret-key"
policy = "%s"
"""


def hang_up(server: Server, expected: str = "were reloaded") -> None:
    """SIGHUP, and until the log says what became of it."""
    assert server.process is not None
    before = server.log.read_text().count(expected)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: server.log.read_text().count(expected) > before, 10, f"the log says {expected!r}")


def test_new_users_are_added_the_catalog_wins_and_requests_go_on(new_server: NewServer) -> None:
    server = new_server().start()
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    body = noise(1, MIB)
    request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/slow", body=body)
    with Connection(server.port, timeout_s=30) as connection:
        connection.send(request[: len(request) // 2])
        server.more_config = CAROL % "readonly"
        server.write_config()
        hang_up(server)
        carol = s3_client(server.endpoint, "AKIACAROL", "carols-secret-key")
        assert carol.list_objects_v2(Bucket="delta-00")["KeyCount"] == 0
        assert error_code(carol.put_object, Bucket="delta-00", Key="k", Body=b"k")[0] == 403
        server.more_config = CAROL % "readwrite"
        server.write_config()
        hang_up(server)
        assert 'user "carol" has another policy in the configuration file' in server.log.read_text()
        assert error_code(carol.put_object, Bucket="delta-00", Key="k", Body=b"k")[0] == 403
        server.run("users", "policies", "attach", "readwrite", "--user", "carol")
        carol.put_object(Bucket="delta-00", Key="k", Body=b"k")
        server.more_config = ""
        server.write_config()
        hang_up(server)
        assert carol.get_object(Bucket="delta-00", Key="k")["Body"].read() == b"k"
        server.run("users", "remove", "carol")
        assert error_code(carol.get_object, Bucket="delta-00", Key="k")[0] == 403
        connection.send(request[len(request) // 2 :])
        answer = connection.answer("PUT")
        assert answer is not None and answer.status == 200, answer
    assert s3.get_object(Bucket="delta-00", Key="slow")["Body"].read() == body


def test_a_configuration_that_cannot_be_used_changes_nothing(new_server: NewServer) -> None:
    server = new_server().start()
    server.config.write_text(server.config.read_text() + "\n[nonsense]\n")
    hang_up(server, "nothing was reloaded")
    s3_client(server.endpoint).create_bucket(Bucket="delta-00")


def test_the_log_filter_is_read_anew(new_server: NewServer) -> None:
    server = new_server(log={"filter": "warn,deltaweir::cli=info"}).start()
    s3 = s3_client(server.endpoint)
    s3.list_buckets()
    server.tables["log"] = {"filter": "info"}
    server.write_config()
    hang_up(server)
    assert "deltaweir::access" not in server.log.read_text(), "lines keep their order"
    s3.list_buckets()
    until(lambda: "deltaweir::access" in server.log.read_text(), 5, "requests are logged")


def served(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_new_connections_get_the_new_certificate(new_server: NewServer, tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.append(certificate(tmp_path / name))
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(number: int) -> None:
        shutil.copy(made[number][0], cert)
        shutil.copy(made[number][1], key)

    install(0)
    server = new_server(server={"tls_cert": str(cert), "tls_key": str(key)}).start()
    assert served(server.port) == made[0][0].read_text()
    install(1)
    assert served(server.port) == made[0][0].read_text()
    hang_up(server)
    assert served(server.port) == made[1][0].read_text()
    cert.write_text("not a certificate")
    hang_up(server, "nothing was reloaded")
    assert served(server.port) == made[1][0].read_text()


def test_a_reload_that_fails_at_the_access_log_changes_no_certificate(new_server: NewServer, tmp_path: Path) -> None:
    made, logs = [], tmp_path / "logs"
    logs.mkdir()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        made.append(certificate(tmp_path / name))
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    server = new_server(server={"tls_cert": str(cert), "tls_key": str(key)})
    server.tables["access_log"] = {"format": "json", "path": str(logs / "access.log")}
    for number in (0, 1):
        shutil.copy(made[number][0], cert)
        shutil.copy(made[number][1], key)
        if number == 0:
            server.start()
    (logs / "access.log").rename(logs / "moved")
    (logs / "access.log").mkdir()
    hang_up(server, "nothing was reloaded")
    assert served(server.port) == made[0][0].read_text()
    (logs / "access.log").rmdir()
    hang_up(server)
    assert served(server.port) == made[1][0].read_text()
    assert (logs / "access.log").exists()


def test_descriptors_bound_connections(new_server: NewServer) -> None:
    """With 128 descriptors and many clients there are refusals, and never a request that fails for want of one."""
    server = new_server()
    server.folder.mkdir(parents=True)
    script = server.folder / "few"
    script.write_text(f'#!/bin/sh\nulimit -n 128\nexec {server.binary} "$@"\n')
    script.chmod(0o700)
    server.binary = script
    server.start()
    until(lambda: "bounded by RLIMIT_NOFILE" in server.log.read_text(), 20, "the bound is in the log")
    s3 = s3_client(server.endpoint)
    s3.create_bucket(Bucket="delta-00")
    statuses: list[int] = []

    def client(number: int) -> None:
        mine = s3_client(server.endpoint)
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            try:
                mine.put_object(Bucket="delta-00", Key=f"k{number}", Body=noise(number, 200_000))
                mine.get_object(Bucket="delta-00", Key=f"k{number}")["Body"].read()
                statuses.append(200)
            except ClientError as error:
                statuses.append(int(error.response["ResponseMetadata"]["HTTPStatusCode"]))
            except Exception:  # closed before it was let in
                statuses.append(0)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 200 in statuses
    assert set(statuses) <= {0, 200, 503}, {status: statuses.count(status) for status in set(statuses)}
    assert s3.list_objects_v2(Bucket="delta-00")["KeyCount"] >= 1
    assert "Too many open files" not in server.final_log()

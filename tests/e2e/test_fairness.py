"""One user or peer that takes all it can get is told to slow down, and everybody else goes on (C117, C141)."""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
from contextlib import ExitStack

from botocore.exceptions import ClientError

from outside.buckets import NewServer
from outside.clients import blunt_client
from outside.content import MIB, noise
from outside.failure import error_code
from outside.server import Server, Value, until
from outside.sigv4 import Scope
from outside.users import client_of, users
from outside.wire import Connection, signed

SLOW_DOWN = (503, "SlowDown")
REFUSED = "deltaweir_rejected_total"
IN_FLIGHT = "deltaweir_http_inflight"


def bounded(new_server: NewServer, **limits: Value) -> Server:
    """A server with these limits, the shared users and a bucket."""
    server = new_server(limits=limits)
    server.more_config += users(server.data.parent / "policies")
    server.start()
    blunt_client(server.endpoint).create_bucket(Bucket="delta-00")
    return server


def hold_uploads(server: Server, held: ExitStack, count: int) -> list[Connection]:
    """Uploads of root that lack their last byte."""
    request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k", body=noise(1, MIB))
    connections = [held.enter_context(Connection(server.port)) for _ in range(count)]
    for connection in connections:
        connection.send(request[:-1])
    until(lambda: server.metrics().total(IN_FLIGHT, op="PutObject") == count, 20, "the uploads are under way")
    return connections


def test_one_users_uploads_leave_its_reads_and_everybody_else_alone(new_server: NewServer) -> None:
    server = bounded(new_server, uploads_per_user_max=2)
    s3 = blunt_client(server.endpoint)
    with ExitStack() as held:
        connections = hold_uploads(server, held, 2)
        with_retry = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k2", body=b"x")
        with Connection(server.port) as refused:
            refused.send(with_retry)
            answer = refused.answer("PUT")
        assert answer is not None
        assert (answer.status, answer.code, answer.header("retry-after")) == (503, "SlowDown", "1")
        assert s3.list_objects_v2(Bucket="delta-00")["KeyCount"] == 0
        alt = client_of(server.endpoint, "alt")
        alt.create_bucket(Bucket="of-alt")
        alt.put_object(Bucket="of-alt", Key="k", Body=b"x")
        for connection in connections:
            connection.send(noise(1, MIB)[-1:])
            done = connection.answer("PUT")
            assert done is not None and done.status == 200
    assert server.metrics().total(REFUSED, reason="uploads of a user") == 1
    until(lambda: server.metrics().total(IN_FLIGHT, op="PutObject") == 0, 20, "the share is given back")
    s3.put_object(Bucket="delta-00", Key="k2", Body=b"x")


def test_one_users_requests_leave_places_to_others(new_server: NewServer) -> None:
    server = bounded(new_server, requests_per_user_max=2)
    s3 = blunt_client(server.endpoint)
    with ExitStack() as held:
        hold_uploads(server, held, 2)
        assert error_code(s3.list_buckets) == SLOW_DOWN
        assert client_of(server.endpoint, "alt").list_buckets()["Buckets"] == []
    until(lambda: server.metrics().total(IN_FLIGHT, op="PutObject") == 0, 20, "the share is given back")
    assert s3.list_buckets()["Buckets"]
    assert server.metrics().total(REFUSED, reason="requests of a user") == 1


def test_refused_uploads_keep_no_places_while_their_bodies_come(new_server: NewServer) -> None:
    server = bounded(new_server, uploads_per_user_max=1, requests_max=4)
    ended = threading.Event()
    with ExitStack() as held:
        hold_uploads(server, held, 1)
        request = signed(f"127.0.0.1:{server.port}", "PUT", "/delta-00/k2", body=noise(2, MIB))
        head = len(request) - MIB
        refused = [held.enter_context(Connection(server.port)) for _ in range(8)]
        for connection in refused:
            connection.send(request[: head + 1])

        def trickle() -> None:
            for place in itertools.count(head + 1):
                for connection in refused:
                    with contextlib.suppress(OSError):
                        connection.send(request[place : place + 1])
                if ended.wait(0.05):
                    return

        trickling = threading.Thread(target=trickle)
        trickling.start()
        try:
            counted = server.metrics
            until(lambda: counted().total(REFUSED, reason="uploads of a user") == 8, 4, "all are refused, with a place")
            assert client_of(server.endpoint, "alt").list_buckets()["Buckets"] == []
        finally:
            ended.set()
            trickling.join()
    assert server.metrics().total(REFUSED, reason="requests") == 0


def test_wrong_signatures_of_one_peer_are_answered_late_and_right_ones_at_once(new_server: NewServer) -> None:
    server = bounded(new_server, auth_failures_per_second=1)
    wrong = [Scope(secret="not-the-secret"), Scope(key_id="AKNOBODY")]
    for scope in wrong * 5:
        with Connection(server.port) as connection:
            connection.send(signed(connection.host, "GET", "/delta-00/k", scope=scope))
            answer = connection.answer()
            assert answer is not None
            assert (answer.status, answer.code) in ((403, "SignatureDoesNotMatch"), (403, "InvalidAccessKeyId"))
    with ExitStack() as held:
        connections = [held.enter_context(Connection(server.port)) for _ in range(40)]
        for number, connection in enumerate(connections):
            connection.send(signed(connection.host, "GET", "/delta-00/k", scope=wrong[number % 2]))
        sockets = {connection.socket: connection for connection in connections}
        answered = until(lambda: select.select(list(sockets), [], [], 0)[0], 20, "there is no room for all to wait")
        answer = sockets[answered[0]].answer()
        assert answer is not None
        assert (answer.status, answer.code) == SLOW_DOWN
        blunt_client(server.endpoint).put_object(Bucket="delta-00", Key="k", Body=b"x")
    assert server.metrics().total(REFUSED, reason="failures") > 0


def test_one_user_may_open_so_many_uploads(new_server: NewServer) -> None:
    server = bounded(new_server, open_uploads_per_user_max=3)
    s3 = blunt_client(server.endpoint)
    opened = [s3.create_multipart_upload(Bucket="delta-00", Key=f"k{n}")["UploadId"] for n in range(3)]
    assert error_code(s3.create_multipart_upload, Bucket="delta-00", Key="k3") == SLOW_DOWN
    alt = client_of(server.endpoint, "alt")
    alt.create_bucket(Bucket="of-alt")
    alt.create_multipart_upload(Bucket="of-alt", Key="k")
    s3.abort_multipart_upload(Bucket="delta-00", Key="k0", UploadId=opened[0])

    def admitted() -> bool:
        try:
            s3.create_multipart_upload(Bucket="delta-00", Key="k3")
        except ClientError:
            return False
        return True

    until(admitted, 20, "the place of the one that was aborted is free")
    assert error_code(s3.create_multipart_upload, Bucket="delta-00", Key="k4") == SLOW_DOWN
    assert server.metrics().total(REFUSED, reason="open uploads") > 0


def test_readers_that_take_nothing_are_let_go_while_others_wait(new_server: NewServer) -> None:
    # 64 MiB of memory hold what some dozens of downloads have ready for readers that never come.
    server = bounded(new_server, memory_bytes_max="64MiB")
    s3 = blunt_client(server.endpoint)
    content = noise(1, 24 * MIB)
    s3.put_object(Bucket="delta-00", Key="k", Body=content)
    with ExitStack() as held:
        for _ in range(48):
            connection = held.enter_context(Connection(server.port))
            connection.send(signed(connection.host, "GET", "/delta-00/k"))
        waiting = "deltaweir_memory_waiting"
        until(lambda: server.metrics().total(waiting) > 0, 20, "memory is taken by readers that do not read")
        until(lambda: server.metrics().total(REFUSED, reason="slow reader") > 0, 30, "some are let go")
        assert s3.get_object(Bucket="delta-00", Key="k")["Body"].read() == content

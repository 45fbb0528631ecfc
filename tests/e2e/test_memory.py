"""Memory follows the bytes that are there: slow clients hold little of it, and nobody else waits for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from outside.buckets import NewServer
from outside.clients import S3Client, blunt_client
from outside.content import MIB, noise, release, text
from outside.server import Server, until
from outside.storage import stored
from outside.wire import Connection, signed

BUCKET = "delta-00"
OTHERS = "the-others"
"""What is read meanwhile: content in several segments."""


def start(new_server: NewServer, **limits: int | str) -> tuple[Server, S3Client, bytes]:
    """A server with these limits and something to read."""
    server = new_server(limits=dict(limits)).start()
    s3 = blunt_client(server.endpoint)
    s3.create_bucket(Bucket=BUCKET)
    content = noise(1, 9 * MIB)
    s3.put_object(Bucket=BUCKET, Key=OTHERS, Body=content)
    return server, s3, content


class Uploads:
    """Uploads whose clients send when they are told to."""

    def __init__(self, server: Server, count: int, size: int) -> None:
        self.bodies = {f"slow/{number:04}": noise(100 + number, size) for number in range(count)}
        self.connections = {key: Connection(server.port, timeout_s=120) for key in self.bodies}
        self.sent = 0
        host = f"127.0.0.1:{server.port}"
        for key, connection in self.connections.items():
            request = signed(host, "PUT", f"/{BUCKET}/{key}", body=self.bodies[key])
            connection.send(request[: len(request) - size])

    def send(self, size: int) -> None:
        """So many more bytes of each."""
        for key, connection in self.connections.items():
            connection.send(self.bodies[key][self.sent : self.sent + size])
        self.sent += size

    def assert_stored(self, s3: S3Client) -> None:
        """All were answered well, and all is there."""
        for key, connection in self.connections.items():
            answer = connection.answer("PUT")
            assert answer is not None and answer.status == 200, (key, answer)
            connection.socket.close()
        for key, body in self.bodies.items():
            assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body, key


def test_uploads_that_stand_still_keep_no_memory_from_others(new_server: NewServer) -> None:
    server, s3, content = start(new_server, memory_bytes_max="64MiB")
    uploads = Uploads(server, 40, 5 * MIB)
    uploads.send(MIB)
    until(lambda: server.metrics().total("deltaweir_spool_bytes", state="used") > 10 * MIB, 20, "bodies are spooled")
    server.drop_caches()
    assert s3.get_object(Bucket=BUCKET, Key=OTHERS)["Body"].read() == content
    s3.put_object(Bucket=BUCKET, Key="small", Body=b"small")
    assert s3.get_object(Bucket=BUCKET, Key="small")["Body"].read() == b"small"
    assert server.status_bytes("VmRSS") <= 64 * MIB + 150_000_000
    uploads.send(4 * MIB)
    uploads.assert_stored(s3)
    assert server.metrics().total("deltaweir_spool_bytes", state="used") == 0


def test_a_reader_that_is_slow_is_read_to_its_end(new_server: NewServer) -> None:
    server, s3, content = start(new_server, memory_bytes_max="64MiB")
    begun = [Connection(server.port, timeout_s=120) for _ in range(12)]
    for connection in begun:
        connection.send(signed(connection.host, "GET", f"/{BUCKET}/{OTHERS}"))
    uploads = Uploads(server, 20, 5 * MIB)
    uploads.send(MIB)
    with ThreadPoolExecutor(len(begun)) as readers:
        answers = list(readers.map(lambda connection: connection.answer(), begun))
    for answer in answers:
        assert answer is not None and answer.status == 200 and answer.body == content
    uploads.send(4 * MIB)
    uploads.assert_stored(s3)


@pytest.mark.parametrize(("memory", "threads"), [("64MiB", 4), ("64MiB", 96), ("512MiB", 96)])
def test_a_budget_that_is_too_small_for_its_threads_has_fewer_of_them(
    new_server: NewServer, memory: str, threads: int
) -> None:
    server, s3, content = start(new_server, memory_bytes_max=memory, codec_threads=threads)
    assert 1 <= server.metrics().total("deltaweir_codec_threads", state="total") < threads
    for version in range(2):
        body = release(3, 9 * MIB, version)
        s3.put_object(Bucket=BUCKET, Key=f"app-{version}", Body=body)
        server.drop_caches()
        assert s3.get_object(Bucket=BUCKET, Key=f"app-{version}")["Body"].read() == body
    assert s3.get_object(Bucket=BUCKET, Key=OTHERS)["Body"].read() == content
    assert "fewer are used" in server.tail(200)


def test_cached_bases_hold_no_more_memory_than_they_are_long(new_server: NewServer) -> None:
    """A buffer of a whole segment goes round between reads. A short base that is kept must not keep such a buffer."""
    families, length = 48, 100_000
    server, s3, _ = start(new_server, memory_bytes_max="256MiB")
    whole = text(99, 4 * MIB)
    s3.put_object(Bucket=BUCKET, Key="whole", Body=whole)
    newest = {}
    for family in range(families):
        older = text(family, length)
        newest[f"family-{family:02}/2.log"] = older + b"one more line\n"
        s3.put_object(Bucket=BUCKET, Key=f"family-{family:02}/1.log", Body=older)
    for key, content in newest.items():
        s3.put_object(Bucket=BUCKET, Key=key, Body=content)
        assert stored(s3, BUCKET, key).form == "delta"
    server.drop_caches()
    before = server.metrics().total("deltaweir_allocator_bytes", state="allocated")
    for key, content in newest.items():
        assert s3.get_object(Bucket=BUCKET, Key="whole")["Body"].read() == whole
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content

    def cached() -> float:
        """The cache counts what came into it a little later."""
        kept = server.metrics().total("deltaweir_cache_bytes", kind="base")
        return kept if kept >= families * length * 3 // 4 else 0

    kept = until(cached, 30, "the bases are cached")
    grown = server.metrics().total("deltaweir_allocator_bytes", state="allocated") - before
    assert grown <= kept + 32 * MIB, f"{grown / 1e6:.0f} MB for {kept / 1e6:.0f} MB that are cached"


def test_beyond_its_budget_a_process_keeps_no_memory_for_later(new_server: NewServer) -> None:
    """The allocator would keep pages for ten seconds after they were freed."""

    body = noise(2, 9 * MIB)

    def given_back(limit: str, rounds: int) -> float:
        """What went back under reads and writes of 9 MiB, eight at a time; ends when something did."""
        server, s3, content = start(new_server, memory_bytes_max=limit)
        given = 0.0
        for number in range(rounds):
            with ThreadPoolExecutor(8) as clients:
                for client in range(4):
                    head = f"{number} {client}".encode()
                    clients.submit(s3.put_object, Bucket=BUCKET, Key=f"new-{client}", Body=head + body)
                    clients.submit(lambda: s3.get_object(Bucket=BUCKET, Key=OTHERS)["Body"].read() == content)
            if given := server.metrics().total("deltaweir_allocator_given_back_bytes_total"):
                break
        server.stop()
        return given

    assert given_back("4GiB", rounds=1) == 0
    assert given_back("64MiB", rounds=50) > 0

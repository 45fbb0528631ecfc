"""Fixtures: one server for every test that only needs an endpoint, and a maker of servers for tests that break theirs.

`DELTAWEIR_TEST_ENDPOINT=http://…` points the first kind at another S3 server (or at replicas behind a balancer) that
knows the credentials of `outside.server`; the second kind is then left out, and so are tests marked `direct`, which
look at how the server itself frames a connection.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outside.buckets import ELSEWHERE, MakeBucket, NewServer, bucket_maker, mode_tables
from outside.clients import AwsCli, Rclone, S3Client, s3_client
from outside.conformance import Tally, mark, suite_mode
from outside.server import Server, Value
from outside.store import Store
from outside.users import anonymous, client_of, users
from outside.wire import Connection

OWN_SERVER = {"server", "new_server"}


def pytest_configure(config: pytest.Config) -> None:
    """Counts the cases of the conformance suite."""
    config.pluginmanager.register(Tally())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks conformance cases. With an endpoint of somebody else's, only the tests that need no more remain."""
    for item in items:
        mark(item)
    if ELSEWHERE is None:
        return
    ours = [
        item
        for item in items
        if OWN_SERVER & set(getattr(item, "fixturenames", ())) or item.get_closest_marker("direct") is not None
    ]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


def assert_healthy(server: Server) -> None:
    """Nothing panicked, whatever the test did to it."""
    log = server.log.read_text(errors="replace") if server.log.exists() else ""
    assert not (found := re.search(r".*panicked at.*", log)), found[0] if found else ""


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[NewServer]:
    """Servers that end with the test."""
    made: list[Server] = []

    def make(folder: str = "server", /, **tables: dict[str, Value]) -> Server:
        server = Server(tmp_path / folder, mode_tables() | tables)
        made.append(server)
        return server

    yield make
    for server in made:
        server.kill()
    for server in made:
        assert_healthy(server)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An S3 server to keep blobs in, with an empty bucket `blobs`."""
    running = Store(tmp_path / "store").start()
    running.client().create_bucket(Bucket="blobs")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server most tests share, in the mode of the run; they keep to buckets of their own."""
    folder = tmp_path_factory.mktemp("shared")
    with suite_mode().opened() as tables:
        shared = Server(folder, mode_tables() | tables, users(folder))
        with shared:
            yield shared
            assert shared.stop() == 0, shared.tail()
    assert_healthy(shared)


@pytest.fixture(scope="session")
def endpoint(request: pytest.FixtureRequest) -> str:
    """Where S3 is spoken."""
    if ELSEWHERE is not None:
        return ELSEWHERE
    shared: Server = request.getfixturevalue("server")
    return shared.endpoint


@pytest.fixture(scope="session")
def s3(endpoint: str) -> S3Client:
    """boto3 on the shared endpoint."""
    return s3_client(endpoint)


@pytest.fixture
def alt(endpoint: str) -> S3Client:
    """The client of another account."""
    return client_of(endpoint, "alt")


@pytest.fixture
def nobody(endpoint: str) -> S3Client:
    """A client that signs nothing."""
    return anonymous(endpoint)


@pytest.fixture(scope="session")
def make_bucket(s3: S3Client) -> MakeBucket:
    """Buckets on the shared endpoint."""
    return bucket_maker(s3)


@pytest.fixture
def bucket(make_bucket: MakeBucket) -> str:
    """An empty bucket that stores as the mode of the run says (delta, unless told otherwise)."""
    return make_bucket()


@pytest.fixture
def connect(endpoint: str) -> Callable[[], Connection]:
    """Opens a raw connection to the shared endpoint."""
    port = int(endpoint.rsplit(":", 1)[1])
    return lambda: Connection(port)


@pytest.fixture
def aws(endpoint: str, tmp_path: Path) -> AwsCli:
    """aws-cli on the shared endpoint."""
    return AwsCli(endpoint, tmp_path / "aws-home")


@pytest.fixture
def rclone(endpoint: str, tmp_path: Path) -> Rclone:
    """rclone on the shared endpoint."""
    return Rclone(endpoint, tmp_path / "rclone-home")


@pytest.fixture(autouse=True)
def quiet_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets the machine's own AWS settings."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

"""A server alone and a cluster, each with the buckets that campaigns write to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from campaigns.linearizability.workload import Plan
from cluster.replicas import Cluster
from outside.buckets import NewServer
from outside.clients import S3Client, s3_client
from outside.server import Server

BUCKETS = Plan(0).buckets


def make_buckets(s3: S3Client) -> None:
    """The buckets a plan writes to."""
    for bucket in BUCKETS:
        s3.create_bucket(Bucket=bucket)


@dataclass(frozen=True)
class Alone:
    """One server as a target."""

    server: Server

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self.server.port

    @property
    def replicas(self) -> Sequence[Server]:
        """Itself."""
        return [self.server]


@pytest.fixture
def alone(new_server: NewServer) -> Alone:
    """A fresh server."""
    server = new_server().start()
    make_buckets(s3_client(server.endpoint))
    return Alone(server)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A fresh cluster for a file of tests; its balancer gives a silent replica up after two seconds."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    running = Cluster.start(folder, timeout_s=2)
    make_buckets(s3_client(running.endpoint))
    yield running
    running.stop()

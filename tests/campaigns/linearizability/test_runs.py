"""What clients see is what one register per key could have told them: on one server, on replicas, under faults."""

from __future__ import annotations

import json

import pytest

from campaigns.conftest import Alone, make_buckets
from campaigns.linearizability.campaign import judge_file, run
from campaigns.linearizability.nemesis import Chaos
from campaigns.linearizability.workload import Plan
from campaigns.sizes import size
from cluster.replicas import Cluster
from outside.buckets import NewServer
from outside.clients import s3_client
from outside.server import BINARY, ROOT

MUTANT = BINARY.with_name("deltaweir-mutant")
LONG_SEEDS = range(303, 303 + size(10))


def test_one_server_is_linearizable(alone: Alone) -> None:
    report = run(alone, Plan(seed=101, seconds=5))
    print(report.line())
    assert report.valid, f"{report.line()}\n{report.explanation}\n{report.wrong}"
    assert report.acked > 100


def test_a_stale_cache_is_found(new_server: NewServer) -> None:
    """The mutant keeps what a key held for 200 ms."""
    assert MUTANT.is_file(), "cargo build -p proxy --features mutant-stale-cache --bin deltaweir-mutant"
    server = new_server()
    server.binary = MUTANT
    server.start()
    make_buckets(s3_client(server.endpoint))
    report = run(Alone(server), Plan(seed=102, seconds=3))
    assert report.disorder, f"the checker would miss a stale cache: {report.line()}"
    assert not report.wrong, "stale, but each answer is whole"
    print(json.dumps({"campaign": "stale cache", "ops": report.ops, "mutant_detected": bool(report.disorder)}))
    kept = ROOT / report.history
    assert judge_file(kept).disorder == report.disorder, "the history that was kept has the same verdict"
    kept.unlink()


@pytest.mark.parametrize("seed", [201])
def test_three_replicas_are_linearizable(cluster: Cluster, seed: int) -> None:
    report = run(cluster, Plan(seed=seed, seconds=5))
    print(report.line())
    assert report.valid, f"{report.line()}\n{report.explanation}\n{report.wrong}"
    assert report.acked > 100


@pytest.mark.parametrize("seed", [301, *(pytest.param(seed, marks=pytest.mark.long) for seed in (302, *LONG_SEEDS))])
def test_three_replicas_are_linearizable_under_faults(cluster: Cluster, seed: int) -> None:
    """30 s of kill -9, SIGSTOP, restarts of the database, a dying store."""
    long = seed > 302
    chaos = Chaos(cluster, seed, pause_s_max=30 if long else 8, away_s_max=10 if long else 4)
    report = run(cluster, Plan(seed=seed, seconds=30, clients=30 if long else 20), chaos)
    print(report.line())
    assert report.valid, f"{report.line()}\n{report.explanation}\n{report.wrong}"
    assert report.acked > 100
    assert len(report.faults) >= (2 if long else 3), "a pause may take most of a long run"
    assert report.unknown > 0, "no request met a fault"

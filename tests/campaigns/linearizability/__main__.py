"""`python -m campaigns.linearizability run|check`: one run on a fresh cluster, or a kept history judged again.

Prints one line of JSON; the exit code is 1 where there is no order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from campaigns.linearizability.campaign import Report, judge_file, run
from campaigns.linearizability.nemesis import Chaos
from campaigns.linearizability.workload import Plan
from cluster.replicas import Cluster
from outside.clients import s3_client


def run_once(seed: int, seconds: float, clients: int, faults: bool) -> Report:
    """One run on a cluster made for it."""
    plan = Plan(seed, seconds, clients)
    with tempfile.TemporaryDirectory(prefix="dw-cluster-") as folder:
        cluster = Cluster.start(Path(folder), timeout_s=2)
        try:
            for bucket in plan.buckets:
                s3_client(cluster.endpoint).create_bucket(Bucket=bucket)
            return run(cluster, plan, Chaos(cluster, seed) if faults else None)
        finally:
            cluster.stop()


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.linearizability", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="one run on a fresh cluster")
    running.add_argument("--seed", type=int, required=True)
    running.add_argument("--seconds", type=float, default=30)
    running.add_argument("--clients", type=int, default=20)
    running.add_argument("--faults", action="store_true", help="kill, stop and restart things meanwhile")
    checking = commands.add_parser("check", help="judge a history that was kept")
    checking.add_argument("history", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "check":
        report = judge_file(arguments.history)
    else:
        report = run_once(arguments.seed, arguments.seconds, arguments.clients, arguments.faults)
    print(report.line())
    print(report.explanation, end="", file=sys.stderr)
    return 0 if report.valid else 1


if __name__ == "__main__":
    sys.exit(main())

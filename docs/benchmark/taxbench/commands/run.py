"""`run`: measure an endpoint that is already there."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from taxbench.admin import AdminClient
from taxbench.artifacts import sources
from taxbench.client.endpoint import Endpoint
from taxbench.commands import flags
from taxbench.names import DIRECT, MODES
from taxbench.progress import Reporter
from taxbench.runner import UsageError, execute
from taxbench.servers.remote import Remote
from taxbench.servers.target import Target


def add_endpoint_flags(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """How to reach what is measured. Credentials come from the environment, never from a flag."""
    group = parser.add_argument_group("endpoint")
    names, told = ("--endpoint", "--proxy-endpoint"), "URL of the S3 endpoint"
    group.add_argument(*names, dest="endpoint", required=required, default="", help=told)
    group.add_argument("--region", default="us-east-1", help="region that requests are signed for (default: us-east-1)")
    group.add_argument("--admin-url", default="", help="URL of the admin listener: accounting, settling, cache drop")
    group.add_argument("--metrics-url", default="", help="default: /metrics of the admin listener")
    group.add_argument("--health-url", default="", help="URL that answers 200 when the server is ready")
    group.add_argument("--ca-file", default="", help="CA certificates for https")


def add(commands: Any) -> None:
    parser = commands.add_parser("run", help="measure an endpoint that is already there")
    add_endpoint_flags(parser)
    flags.add_run_flags(parser)
    flags.add_artifact_flags(parser)
    group = parser.add_argument_group("server")
    group.add_argument("--restart-command", default="", help="shell command that restarts the server before cold reads")
    group.add_argument(
        "--direct-endpoint", default="", help="URL of the backend or a file server, for the mode `direct`"
    )
    group.add_argument("--direct-plain", action="store_true", help="the direct endpoint is a plain file server, not S3")
    group.add_argument("--backend-dir", type=Path, action="append", default=[], help="where stored bytes can be seen")
    group.add_argument("--server-pid", type=int, action="append", default=[], help="server process on this machine")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    reporter = Reporter(quiet=options.json)
    remote = remote_of(options)
    default = [*([DIRECT] if options.direct_endpoint else []), *MODES]
    modes = flags.modes_of(options, default)
    unknown = [m for m in modes if m not in (*MODES, DIRECT)]
    if unknown:
        raise UsageError(f"unknown modes: {', '.join(unknown)}")
    if DIRECT in modes and not options.direct_endpoint:
        raise UsageError("the mode `direct` needs --direct-endpoint")

    def make(mode: str, _place: Path) -> Target:
        if mode != DIRECT:
            return remote
        key, secret = ("", "") if options.direct_plain else flags.credentials("DIRECT")
        endpoint = Endpoint(
            options.direct_endpoint,
            key,
            secret,
            options.region,
            "none" if options.direct_plain else "sigv4",
            flags.payload_hash_of(options),
            options.timeout,
            ca_file=options.ca_file,
        )
        return Remote(endpoint, name=DIRECT, lists=not options.direct_plain)

    with tempfile.TemporaryDirectory(prefix="taxbench-") as scratch:
        place = options.data_dir or Path(".bench-data") / options.artifact_source
        manifest, artifacts_dir = sources.prepare(options, place, reporter)
        host = urlsplit(options.endpoint).hostname or ""
        plan = flags.plan_of(options, manifest, artifacts_dir.resolve(), Path(scratch), modes, host, {})
        bundle, summary = execute(plan, make, reporter)
    return flags.finish(options, summary, bundle.root)


def remote_of(options: argparse.Namespace) -> Remote:
    """The endpoint the flags describe, with as much sight of the server as they give."""
    key, secret = flags.credentials()
    endpoint = Endpoint(
        options.endpoint,
        key,
        secret,
        options.region,
        "sigv4",
        flags.payload_hash_of(options) if hasattr(options, "payload_hash") else "precomputed",
        getattr(options, "timeout", 120.0),
        ca_file=options.ca_file,
    )
    token = os.environ.get("TAXBENCH_ADMIN_TOKEN", "")
    admin = AdminClient(options.admin_url.rstrip("/"), token) if options.admin_url else None
    return Remote(
        endpoint,
        admin=admin,
        metrics_url=options.metrics_url,
        health_url=options.health_url,
        restart_command=getattr(options, "restart_command", ""),
        backend_dirs=list(getattr(options, "backend_dir", [])),
        pids=list(getattr(options, "server_pid", [])),
    )

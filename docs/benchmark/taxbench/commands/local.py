"""`local`: one command, no cloud. Starts the built binary (or the image) per mode, runs, reports."""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from taxbench.artifacts import sources
from taxbench.bundle import Bundle
from taxbench.client.endpoint import Endpoint
from taxbench.commands import flags
from taxbench.names import COMPRESSION_ENCRYPTION, DEFAULT_BUCKETS, DIRECT, MODES, PASSTHROUGH
from taxbench.profiles import PROFILES
from taxbench.progress import Reporter
from taxbench.runner import Study, UsageError, execute
from taxbench.servers.deltaweir import BucketSettings, Deltaweir, find_binary, mode_buckets
from taxbench.servers.fileserver import FileServer
from taxbench.servers.nginx import Nginx, find_nginx
from taxbench.servers.peers import PEERS
from taxbench.servers.remote import Remote
from taxbench.servers.target import Target
from taxbench.studies import adaptive, codec_table, level_sweep, memory, small_files
from taxbench.studies.bench import StudyBench

STUDIES = ("level_sweep", "adaptive", "codec_table", "small_files", "memory")
DIRECT_SYNC = "direct_sync"


def add(commands: Any) -> None:
    parser = commands.add_parser("local", help="start the built binary per mode, run everything, report")
    flags.add_run_flags(parser)
    flags.add_artifact_flags(parser)
    group = parser.add_argument_group("servers")
    group.add_argument(
        "--binary", default="", help="deltaweir binary (default: the release build, else the debug build)"
    )
    group.add_argument(
        "--container", default="", metavar="IMAGE", help="run this image with docker instead of a binary"
    )
    group.add_argument("--docker", default="docker", help="the docker command")
    group.add_argument("--server-config", type=Path, help="TOML appended to the generated configuration")
    group.add_argument(
        "--no-defer", action="store_true", help="encode every upload before it is answered ([convert] defer = false)"
    )
    group.add_argument("--direct", choices=("auto", "nginx", "fileserver"), default="auto", help="what `direct` is")
    for name, peer in PEERS.items():
        group.add_argument(f"--{name}", default="", help=peer.help)
    group.add_argument(
        "--comparators",
        default="auto",
        help=f"auto, none, or a list of {', '.join(PEERS)}, direct_sync (a file server that syncs); auto: versitygw",
    )
    group.add_argument(
        "--compare-endpoint",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="another S3 endpoint; credentials from <NAME>_ACCESS_KEY_ID and <NAME>_SECRET_ACCESS_KEY",
    )
    group.add_argument("--studies", default="all", help=f"all, none, or a list of {', '.join(STUDIES)}")
    group.add_argument(
        "--scratch-dir", type=Path, help="where servers keep their data (default: a temporary directory)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    reporter = Reporter(quiet=options.json)
    binary = Path(options.container) if options.container else find_binary(options.binary)
    endpoints = _endpoints(options)
    modes = flags.modes_of(options, [*flags.default_modes(), *_comparators(options), *endpoints])
    # The stores must lie on a real disk: a temporary directory in memory would flatter everything that syncs.
    options.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="taxbench-", dir=options.scratch_dir or options.results) as scratch:
        place = options.data_dir or options.results / f".artifacts-{options.artifact_source}"
        manifest, artifacts_dir = sources.prepare(options, place, reporter)
        make = partial(_target, options, binary, endpoints)
        plan = flags.plan_of(
            options, manifest, artifacts_dir.resolve(), Path(scratch), modes, "127.0.0.1", _studies(options, binary)
        )
        bundle, summary = execute(plan, make, reporter)
        return flags.finish(options, summary, bundle.root)


def _comparators(options: argparse.Namespace) -> list[str]:
    if options.comparators == "none":
        return []
    names = [n.strip() for n in options.comparators.split(",") if n.strip()]
    if names == ["auto"]:
        return ["versitygw"] if _command_of("versitygw", options) else []
    unknown = set(names) - {*PEERS, DIRECT_SYNC}
    if unknown:
        raise UsageError(f"unknown comparators: {', '.join(sorted(unknown))}")
    for name in names:
        if name in PEERS and not _command_of(name, options):
            raise UsageError(f"{name} was asked for and is not installed: --{name} is its {PEERS[name].help}")
    return names


def _command_of(peer: str, options: argparse.Namespace) -> str:
    """An empty string when it is not installed."""
    return PEERS[peer].find(getattr(options, peer))


def _endpoints(options: argparse.Namespace) -> dict[str, str]:
    found = {}
    for entry in options.compare_endpoint:
        name, equals, url = entry.partition("=")
        if not equals or not url.startswith(("http://", "https://")) or name in (*MODES, DIRECT):
            raise UsageError(f"--compare-endpoint {entry!r}: NAME=URL was expected, with a name of its own")
        found[name] = url
    return found


def _target(options: argparse.Namespace, binary: Path, endpoints: dict[str, str], mode: str, place: Path) -> Target:
    """A fresh server for one cell."""
    if mode in endpoints:
        key, secret = flags.credentials(mode.upper().replace("-", "_"))
        endpoint = Endpoint(
            endpoints[mode], key, secret, "us-east-1", "sigv4", flags.payload_hash_of(options), options.timeout
        )
        return Remote(endpoint, name=mode)
    if mode == DIRECT_SYNC:
        return FileServer(place, sync=True, timeout_s=options.timeout)
    if mode == DIRECT:
        nginx = find_nginx() if options.direct != "fileserver" else ""
        if options.direct == "nginx" and not nginx:
            raise UsageError("nginx was asked for and is not installed")
        return Nginx(nginx, place, options.timeout) if nginx else FileServer(place, timeout_s=options.timeout)
    if mode in PEERS:
        command = _command_of(mode, options)
        return PEERS[mode].server(command, place, flags.payload_hash_of(options), options.timeout)
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}")
    names = {flags.bucket_of(options, m): settings for m, settings in zip(MODES, mode_buckets().values(), strict=True)}
    return _server(options, binary, place, names)


def _server(options: argparse.Namespace, binary: Path, place: Path, buckets: dict[str, BucketSettings]) -> Deltaweir:
    extra = options.server_config.read_text() if options.server_config else ""
    return Deltaweir(
        binary=binary,
        data_dir=place,
        buckets=buckets,
        payload_hash=flags.payload_hash_of(options),
        timeout_s=options.timeout,
        extra_configuration=extra,
        defer=not options.no_defer,
        image=options.container,
        docker=options.docker,
    )


def _studies(options: argparse.Namespace, binary: Path) -> dict[str, Study]:
    """The studies to run, each bound to its bench."""
    chosen = STUDIES if options.studies == "all" else tuple(n.strip() for n in options.studies.split(",") if n.strip())
    chosen = () if options.studies == "none" else chosen
    unknown = set(chosen) - set(STUDIES)
    if unknown:
        raise UsageError(f"unknown studies: {', '.join(sorted(unknown))}; there are {', '.join(STUDIES)}")

    def make_server(place: Path, buckets: dict[str, tuple[str, str, str]]) -> Target:
        return _server(options, binary, place, {name: BucketSettings(*settings) for name, settings in buckets.items()})

    bench = StudyBench(PROFILES[options.profile], options.seed, make_server, None if options.container else binary)
    runs: dict[str, Study] = {
        "level_sweep": partial(level_sweep.run, bench),
        "adaptive": partial(adaptive.run, bench),
        "codec_table": partial(codec_table.run, bench),
        "small_files": partial(_small_files, options, binary, bench),
        "memory": partial(memory.run, bench),
    }
    return {name: runs[name] for name in STUDIES if name in chosen}


def _small_files(options: argparse.Namespace, binary: Path, bench: StudyBench, bundle: Bundle, place: Path) -> None:
    """Small files against our server with and without everything, and against what stands beside it."""
    modes = [DIRECT, PASSTHROUGH, COMPRESSION_ENCRYPTION, *_comparators(options)]
    targets = {
        mode: (_target(options, binary, {}, mode, place / mode), DEFAULT_BUCKETS.get(mode, "bench-small"))
        for mode in modes
    }
    small_files.run(bench, targets, bundle, place)

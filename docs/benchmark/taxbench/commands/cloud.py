"""`up`, `status`, `down`, `single-vm-smoke`: rented machines for a run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from taxbench.cloud import lifecycle, two_machines
from taxbench.cloud.lifecycle import CloudError, PlannedServer, Request, RunningServer
from taxbench.cloud.remote_run import Shell, smoke
from taxbench.commands import flags
from taxbench.progress import Reporter
from taxbench.servers.deltaweir import find_binary

OnStep = Callable[[str], None]

DEFAULT_TYPE = "ccx33"
"""Dedicated cores: shared ones are stolen from, and a stolen core makes a run unpublishable."""
FORWARDED = (
    "artifact_source", "artifact_count", "artifact_extension", "mirror_url", "index_pattern", "alpine_branch",
    "alpine_flavor", "alpine_arch", "kernel_branch", "package", "versions", "synthetic_scale", "synthetic_families",
    "profile", "trials", "modes", "concurrency", "phases", "seed", "payload_hash", "part_size", "timeout",
    "settle_timeout", "phase_gap_seconds", "resource_sample_interval", "resource_command",
    "restart_between_modes_command", "clean_command",
)  # fmt: skip
"""Flags with a value that the machine there is given. Its commands run there."""
FORWARDED_SWITCHES = (
    "reuse_artifacts", "as_shipped", "no_proxy_restart", "no_restart_between_modes", "allow_clean_failure",
    "allow_failures", "skip_compression_verify",
)  # fmt: skip
FORWARDED_REPEATED = ("mode_bucket",)
KEPT_HERE = ("run_id", "results", "json")
"""What this side does itself."""
REFUSED = {
    "local_dir": "no file of this machine is sent to a rented one",
    "data_dir": "a rented machine keeps its artifacts in a directory of its own",
}
REFUSED_APART = {**REFUSED, "mode_bucket": "the proxy's buckets are made with their usual names"}


def add(commands: Any) -> None:
    up = commands.add_parser("up", help="create machines for a run (Hetzner Cloud)")
    _add_machine_flags(up)
    up.add_argument("--dry-run", action="store_true", help="print what would be created")
    flags.add_json(up)
    up.set_defaults(run=run_up)

    status = commands.add_parser("status", help="list a run's machines")
    _add_selection(status)
    flags.add_json(status)
    status.set_defaults(run=run_status)

    down = commands.add_parser("down", help="delete a run's machines")
    _add_selection(down)
    down.add_argument("--dry-run", action="store_true", help="print what would be deleted")
    flags.add_json(down)
    down.set_defaults(run=run_down)

    single = commands.add_parser("single-vm-smoke", help="run `local` on one rented machine and fetch its bundle")
    _add_remote_flags(single)
    single.add_argument("--address", default="", help="use this host instead of asking the cloud")
    single.set_defaults(run=run_smoke)

    apart = commands.add_parser("two-vm-run", help="run the client on one rented machine, the proxy on another")
    _add_remote_flags(apart)
    apart.set_defaults(run=run_apart)


def run_up(options: argparse.Namespace) -> int:
    request = _request(options)
    if options.dry_run:
        planned = lifecycle.priced(lifecycle.connect(), request) if lifecycle.has_token() else request.servers
        _print_plan(options, request, planned)
        return 0
    reporter = Reporter(quiet=options.json)
    with reporter.steps_bar("creating machines", len(request.servers)) as bar:
        servers = lifecycle.up(lifecycle.connect(), request, lambda step: bar.advance(1, step))
    _print_servers(options, servers)
    if not options.json:
        ending = "single-vm-smoke" if request.single_vm else "two-vm-run"
        print(f"next: taxbench {ending} --run-id {request.run_id}\nafterwards: taxbench down --run-id {request.run_id}")
    return 0


def run_status(options: argparse.Namespace) -> int:
    _print_servers(options, lifecycle.status(lifecycle.connect(), _selected(options)))
    return 0


def run_down(options: argparse.Namespace) -> int:
    client = lifecycle.connect()
    if options.dry_run:
        _print_servers(options, lifecycle.status(client, _selected(options)))
        return 0
    reporter = Reporter(quiet=options.json)
    with reporter.steps_bar("deleting machines", 1) as bar:
        gone = lifecycle.down(client, _selected(options), lambda step: bar.advance(0, step))
        bar.advance(1)
    _print_servers(options, gone)
    return 0


def run_smoke(options: argparse.Namespace) -> int:
    options.single_vm = True

    def work(run_id: str, binary: Path, arguments: list[str], on_step: OnStep) -> Path:
        address = options.address
        if not address:
            machines = lifecycle.status(lifecycle.connect(), run_id)
            if len(machines) != 1:
                raise CloudError(f"run {run_id} has {len(machines)} machines, one was expected; see `up --single-vm`")
            address = machines[0].ipv4
        return smoke(_shell(options, run_id, address), binary, run_id, arguments, options.results, on_step)

    return _on_machines(options, REFUSED, ("single VM", 6), work)


def run_apart(options: argparse.Namespace) -> int:
    options.single_vm, options.address = False, ""

    def work(run_id: str, binary: Path, arguments: list[str], on_step: OnStep) -> Path:
        addresses = {machine.role: machine.ipv4 for machine in lifecycle.status(lifecycle.connect(), run_id)}
        if set(addresses) != {"client", "proxy"}:
            found = ", ".join(sorted(addresses)) or "no machine"
            raise CloudError(f"run {run_id} has {found}; a client and a proxy were expected; see `up`")
        client, proxy = (_shell(options, run_id, addresses[role]) for role in ("client", "proxy"))
        return two_machines.run_apart(client, proxy, binary, run_id, arguments, options.results, on_step)

    return _on_machines(options, REFUSED_APART, ("two VMs", 8), work)


def _on_machines(
    options: argparse.Namespace,
    refused: dict[str, str],
    told: tuple[str, int],
    work: Callable[[str, Path, list[str], OnStep], Path],
) -> int:
    """Runs something that leaves a bundle on the machines of a run, which are created and deleted as asked. `told` is
    what the progress bar says, and its steps."""
    reporter = Reporter(quiet=options.json)
    arguments = forwarded(options, refused)
    options.run_id = run_id = flags.run_id_of(options)
    binary = find_binary(options.binary)
    with reporter.steps_bar(*told) as bar:
        try:
            if options.create:
                lifecycle.up(lifecycle.connect(), _request(options), lambda step: bar.advance(1, step))
            bundle = work(run_id, binary, arguments, lambda step: bar.advance(1, step))
        finally:
            if options.destroy and not options.address:
                lifecycle.down(lifecycle.connect(), run_id, lambda step: bar.advance(0, step))
    return _tell(options, run_id, bundle)


def _shell(options: argparse.Namespace, run_id: str, address: str) -> Shell:
    """Commands on a machine of a run."""
    options.results.mkdir(parents=True, exist_ok=True)
    hosts = options.results.resolve() / f"{run_id}.known_hosts"
    return Shell(address, hosts, options.ssh_user, options.ssh_command, options.scp_command)


def _add_remote_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the commands that run something on machines."""
    flags.add_run_flags(parser)
    flags.add_artifact_flags(parser)
    _add_machine_flags(parser, with_run_id=False)
    parser.add_argument("--create", action="store_true", help="create the machines first")
    parser.add_argument("--destroy", action="store_true", help="delete the machines afterwards, also after a failure")
    parser.add_argument("--binary", default="", help="deltaweir binary to ship (default: the release build)")
    parser.add_argument("--ssh-user", default="root", help="who logs in there (default: root)")
    parser.add_argument("--ssh-command", default="ssh", help="the ssh program (default: ssh)")
    parser.add_argument("--scp-command", default="scp", help="the scp program (default: scp)")


def _tell(options: argparse.Namespace, run_id: str, bundle: Path) -> int:
    """Says where the bundle is."""
    if options.json:
        print(json.dumps({"run_id": run_id, "bundle": str(bundle)}))
    else:
        print(f"bundle: {bundle}\nreport: taxbench html-report --bundle {bundle}")
    return 0


def _add_machine_flags(parser: argparse.ArgumentParser, with_run_id: bool = True) -> None:
    if with_run_id:
        parser.add_argument("--run-id", default="", help="default: tax-<UTC time>")
        parser.add_argument("--single-vm", action="store_true", help="one machine for client and proxy")
    add_kind_flags(parser)


def add_kind_flags(parser: argparse.ArgumentParser) -> None:
    """Which machines a run is given."""
    parser.add_argument("--location", default="hel1", help="where machines stand (default: hel1)")
    parser.add_argument(
        "--client-type", default=DEFAULT_TYPE, help=f"type of the client's machine (default: {DEFAULT_TYPE})"
    )
    parser.add_argument(
        "--proxy-type", default=DEFAULT_TYPE, help=f"type of the proxy's machine (default: {DEFAULT_TYPE})"
    )
    parser.add_argument("--image", default="debian-12", help="their operating system (default: debian-12)")
    parser.add_argument("--ssh-key-name", default="", help="name of an SSH key of the project")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--run-id", help="machines of this run")
    which.add_argument("--all-benchmark-vms", action="store_true", help="machines of every run of this benchmark")


def _selected(options: argparse.Namespace) -> str | None:
    return None if options.all_benchmark_vms else str(options.run_id)


def _request(options: argparse.Namespace) -> Request:
    if not options.ssh_key_name and not getattr(options, "dry_run", False):
        raise CloudError("--ssh-key-name is needed: without a key nobody could log in")
    return Request(
        run_id=flags.run_id_of(options),
        single_vm=options.single_vm,
        location=options.location,
        client_type=options.client_type,
        proxy_type=options.proxy_type,
        image=options.image,
        ssh_key_name=options.ssh_key_name,
    )


def forwarded(options: argparse.Namespace, refused: dict[str, str]) -> list[str]:
    """The flags of a run that were given here, for the machine there.

    # Errors
    `CloudError` for one that means nothing there: a run without it would be another than was asked for.
    """
    for name, why in refused.items():
        if getattr(options, name):
            raise CloudError(f"{_flag(name)} cannot be used with rented machines: {why}")
    if options.artifact_source == "local":
        raise CloudError(f"--artifact-source local cannot be used with rented machines: {REFUSED['local_dir']}")
    given = []
    for name in FORWARDED:
        value = getattr(options, name)
        if value not in (None, ""):
            given += [_flag(name), str(value)]
    for name in FORWARDED_REPEATED:
        given += [word for value in getattr(options, name) for word in (_flag(name), str(value))]
    return given + [_flag(name) for name in FORWARDED_SWITCHES if getattr(options, name)]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _print_plan(options: argparse.Namespace, request: Request, planned: list[PlannedServer]) -> None:
    if options.json:
        made = [{**server.model_dump(), "labels": lifecycle.labels(request.run_id, server.role)} for server in planned]
        print(
            json.dumps(
                {"run_id": request.run_id, "location": request.location, "image": request.image, "servers": made}
            )
        )
        return
    print(f"would create in {request.location}, image {request.image}:")
    for server in planned:
        price = f", {server.eur_per_hour:.4f} EUR per hour" if server.eur_per_hour is not None else ""
        tags = ",".join(f"{k}={v}" for k, v in lifecycle.labels(request.run_id, server.role).items())
        print(f"  {server.name}: {server.server_type} ({server.role}){price}, labels {tags}")


def _print_servers(options: argparse.Namespace, servers: list[RunningServer]) -> None:
    if options.json:
        print(json.dumps([server.model_dump() for server in servers]))
        return
    if not servers:
        print("no machines")
        return
    table = Table()
    for column in ("name", "role", "run", "status", "type", "location", "IPv4", "created"):
        table.add_column(column)
    for s in servers:
        table.add_row(s.name, s.role, s.run_id, s.status, s.server_type, s.location, s.ipv4, s.created)
    Console().print(table)

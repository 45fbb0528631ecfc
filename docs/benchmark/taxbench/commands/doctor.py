"""`doctor`: is everything as a run needs it? The endpoint, the clock, the metrics, the buckets, the client itself."""

from __future__ import annotations

import argparse
import email.utils
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from taxbench import prometheus
from taxbench.admin import AdminError, fetch_text
from taxbench.client import ceiling
from taxbench.client.connection import Body, ExchangeError, TimedConnection
from taxbench.client.endpoint import Endpoint
from taxbench.client.sigv4 import sign
from taxbench.cloud import lifecycle
from taxbench.cloud.lifecycle import CloudError
from taxbench.commands import flags
from taxbench.commands.cloud import add_kind_flags
from taxbench.commands.run import add_endpoint_flags, remote_of
from taxbench.guards import EXPECTED_SETTINGS
from taxbench.machine import is_this_machine
from taxbench.names import COMPRESSING_MODES, ENCRYPTING_MODES, MODES
from taxbench.progress import Reporter
from taxbench.records import Strict
from taxbench.runner import UsageError
from taxbench.servers.remote import Remote

SKEW_S_MAX = 60.0
SKEW_FATAL_S = 15 * 60.0
NEEDED_METRICS = ("deltaweir_http_requests_total", "deltaweir_bucket_stored_bytes", "process_cpu_seconds_total")

Level = Literal["ok", "warning", "failed"]


class Check(Strict):
    """One thing that was looked at."""

    name: str
    level: Level
    detail: str


def add(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="check an endpoint, its buckets, and this client")
    add_endpoint_flags(parser, required=False)
    parser.add_argument(
        "--mode-bucket", action="append", default=[], metavar="MODE=BUCKET", help=flags.MODE_BUCKET_HELP
    )
    parser.add_argument("--modes", default="", help="comma-separated modes whose buckets are checked")
    parser.add_argument("--concurrency", default="1", help="connection counts to measure the client's ceiling at")
    parser.add_argument("--skip-ceiling", action="store_true", help="do not measure the client")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds without progress before a request failed")
    cloud = parser.add_argument_group("machines")
    cloud.add_argument(
        "--hcloud", action="store_true", help="check what `up` needs of Hetzner Cloud; without --endpoint, only that"
    )
    add_kind_flags(cloud)
    flags.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not options.endpoint and not options.hcloud:
        raise UsageError("name what is to be checked: --endpoint, --hcloud, or both")
    reporter = Reporter(quiet=options.json)
    checks: list[Check] = []
    steps: list[tuple[str, Callable[[], Iterator[Check]]]] = []
    if options.hcloud:
        steps.append(("Hetzner Cloud", lambda: _hcloud(options)))
    if options.endpoint:
        remote = remote_of(options)
        steps += [
            ("endpoint", lambda: _endpoint(remote)),
            ("admin and metrics", lambda: _metrics(remote)),
            ("buckets", lambda: _buckets(options, remote)),
            ("this machine", lambda: _machine(remote.endpoint)),
        ]
        if not options.skip_ceiling:
            steps.append(("client ceiling", lambda: _ceiling(options)))
    with reporter.steps_bar("doctor", len(steps)) as bar:
        for name, step in steps:
            bar.advance(0, name)
            checks += step()
            bar.advance(1)
    if options.json:
        print("[" + ",".join(check.model_dump_json() for check in checks) + "]")
    else:
        table = Table(show_header=False, box=None)
        marks = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[bold red]failed[/]"}
        for check in checks:
            table.add_row(marks[check.level], check.name, check.detail)
        Console().print(table)
    return 1 if any(check.level == "failed" for check in checks) else 0


def _hcloud(options: argparse.Namespace) -> Iterator[Check]:
    """What `up` needs: a token that the API takes, machines that are sold where they shall stand, a key to log in with.

    And what is left of earlier runs, because it costs money.
    """
    name = "cloud token"
    if not lifecycle.has_token():
        yield Check(name=name, level="failed", detail=f"{lifecycle.TOKEN_ENVIRONMENT} is not set")
        return
    client = lifecycle.connect()
    try:
        running = lifecycle.status(client, None)
    except CloudError as error:
        yield Check(name=name, level="failed", detail=str(error))
        return
    yield Check(name=name, level="ok", detail="the API takes it")
    request = lifecycle.Request(
        run_id="doctor",
        single_vm=False,
        location=options.location,
        client_type=options.client_type,
        proxy_type=options.proxy_type,
        image=options.image,
        ssh_key_name=options.ssh_key_name,
    )
    try:
        planned = lifecycle.priced(client, request)
        cost = sum(server.eur_per_hour or 0 for server in planned)
        types = ", ".join(f"{server.server_type} ({server.role})" for server in planned)
        detail = f"{types} in {request.location}: {cost:.4f} EUR per hour"
        yield Check(name="cloud machines", level="ok", detail=detail)
    except CloudError as error:
        yield Check(name="cloud machines", level="failed", detail=str(error))
    try:
        lifecycle.ssh_key(client, request.ssh_key_name)
        yield Check(name="cloud SSH key", level="ok", detail=request.ssh_key_name)
    except CloudError as error:
        yield Check(name="cloud SSH key", level="failed", detail=str(error))
    names = ", ".join(server.name for server in running)
    left = f"{names}: they cost money; `taxbench down --all-benchmark-vms` deletes them" if running else "none"
    yield Check(name="cloud leftovers", level="warning" if running else "ok", detail=left)


def _endpoint(remote: Remote) -> Iterator[Check]:
    """Reachability, credentials and clock, from one signed request."""
    endpoint = remote.endpoint
    connection = TimedConnection(endpoint)
    sent = time.time()
    try:
        answer = connection.exchange(sign(endpoint, "GET", "/"))
        again = connection.exchange(sign(endpoint, "GET", "/"))
    except ExchangeError as error:
        yield Check(name="endpoint", level="failed", detail=f"{endpoint.url}: {error}")
        return
    finally:
        connection.close()
    detail = (
        f"{endpoint.url} answers in {again.total_s * 1000:.1f} ms, connecting took {answer.connect_s * 1000:.1f} ms"
    )
    yield Check(name="endpoint", level="ok", detail=detail)
    if answer.status == 200:
        yield Check(name="credentials", level="ok", detail="the signature was accepted")
    else:
        text = answer.small_body[:160].decode("utf-8", "replace")
        yield Check(name="credentials", level="failed", detail=f"ListBuckets answered {answer.status}: {text}")
    date = email.utils.parsedate_tz(answer.headers.get("date", ""))
    if date is None:
        yield Check(name="clock", level="warning", detail="the endpoint sends no Date; skew cannot be told")
        return
    skew_s = email.utils.mktime_tz(date) - sent
    level: Level = "ok" if abs(skew_s) <= SKEW_S_MAX else "warning" if abs(skew_s) < SKEW_FATAL_S else "failed"
    yield Check(name="clock", level=level, detail=f"the endpoint's clock is {skew_s:+.0f} s from ours")


def _metrics(remote: Remote) -> Iterator[Check]:
    if remote.metrics_url:
        try:
            scrape = prometheus.parse(fetch_text(remote.metrics_url, remote.metrics_token))
        except AdminError as error:
            yield Check(name="metrics", level="failed", detail=str(error))
        else:
            missing = [name for name in NEEDED_METRICS if not scrape.has(name) and name not in scrape.types]
            detail = f"{len(scrape.series)} series" + (f"; missing: {', '.join(missing)}" if missing else "")
            yield Check(name="metrics", level="warning" if missing else "ok", detail=detail)
    else:
        yield Check(name="metrics", level="warning", detail="no --metrics-url: counters will not be watched")
    if remote.admin is None:
        detail = "no --admin-url: no accounting, no settling, caches cannot be dropped"
        yield Check(name="admin", level="warning", detail=detail)
        return
    try:
        stats = remote.admin.stats()
        ready = remote.admin.ready()
    except AdminError as error:
        yield Check(name="admin", level="failed", detail=str(error))
        return
    parts, total = stats.totals.stored.parts_sum, stats.totals.stored.total
    adds_up = parts == total
    detail = f"{stats.totals.objects} objects, {total} bytes stored" + (
        "" if adds_up else f", but the parts sum to {parts}"
    )
    yield Check(name="admin", level="ok" if adds_up and ready else "failed", detail=detail if ready else "not ready")


def _buckets(options: argparse.Namespace, remote: Remote) -> Iterator[Check]:
    """What each mode's bucket really is: by the admin API where there is one, and always by trying it."""
    try:
        told = {b.name: b for b in remote.admin.buckets()} if remote.admin else {}
    except AdminError as error:
        yield Check(name="buckets", level="failed", detail=str(error))
        told = {}
    for mode in flags.modes_of(options, list(MODES)):
        if mode not in EXPECTED_SETTINGS:
            continue
        bucket = flags.bucket_of(options, mode)
        compression, encryption = EXPECTED_SETTINGS[mode]
        if bucket in told and told[bucket].compression:
            seen = told[bucket]
            right = seen.compression in compression and seen.encryption == encryption
            detail = f"{bucket} is configured with compression {seen.compression}, encryption {seen.encryption}"
            yield Check(name=f"bucket of {mode}", level="ok" if right else "failed", detail=detail)
        yield _probe(remote, mode, bucket)


def _probe(remote: Remote, mode: str, bucket: str) -> Check:
    """Stores a compressible object, looks at what became of it, and takes it away again."""
    name = f"probe of {mode}"
    endpoint, key = remote.endpoint, f"taxbench-doctor/{secrets.token_hex(8)}"
    data = b"".join(b"%08d a line that compresses well\n" % n for n in range(8000))
    connection = TimedConnection(endpoint)
    path = endpoint.path(bucket, key)
    try:
        put = sign(endpoint, "PUT", path, body_len=len(data), body_sha256=hashlib.sha256(data).hexdigest())
        stored = connection.exchange(put, Body(data=data, length=len(data)))
        if stored.status != 200:
            text = stored.small_body[:120].decode("utf-8", "replace")
            return Check(name=name, level="failed", detail=f"PUT to {bucket} answered {stored.status}: {text}")
        head = connection.exchange(sign(endpoint, "HEAD", path))
        got = connection.exchange(sign(endpoint, "GET", path))
        connection.exchange(sign(endpoint, "DELETE", path))
    except ExchangeError as error:
        return Check(name=name, level="failed", detail=str(error))
    finally:
        connection.close()
    if got.small_body != data:
        return Check(name=name, level="failed", detail=f"{bucket} gave other bytes back than it was given")
    form = head.headers.get("x-deltaweir-form", "")
    sealed = head.headers.get("x-amz-server-side-encryption", "")
    said = f"{bucket} stored it as {form or 'it does not say'}" + (f", encrypted ({sealed})" if sealed else "")
    reduced = form in ("zstd", "delta", "dedup")
    if form and reduced != (mode in COMPRESSING_MODES):
        return Check(name=name, level="failed", detail=f"{said}: that is not {mode}")
    if mode not in ENCRYPTING_MODES and sealed:
        return Check(name=name, level="failed", detail=f"{said}: that is not {mode}")
    return Check(name=name, level="ok" if form else "warning", detail=said)


def _machine(endpoint: Endpoint) -> Iterator[Check]:
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    level: Level = "ok" if load < cpus * 0.5 else "warning"
    yield Check(name="load", level=level, detail=f"{load:.2f} on {cpus} CPUs")
    if is_this_machine(endpoint.host):
        detail = "client and server share this machine: ratios will count, absolutes will not"
        yield Check(name="placement", level="warning", detail=detail)
    else:
        yield Check(name="placement", level="ok", detail="the server is on another machine")


def _ceiling(options: argparse.Namespace) -> Iterator[Check]:
    for text in options.concurrency.split(","):
        found = ceiling.measure(int(text))
        detail = f"PUT {found.put_mb_s:.0f} MB/s, GET {found.get_mb_s:.0f} MB/s, {found.requests_s:.0f} requests/s"
        yield Check(name=f"client ceiling, {found.concurrency} connections", level="ok", detail=detail)

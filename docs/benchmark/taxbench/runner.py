"""A whole run: every trial, mode and concurrency in a seeded order, then the summary, the report and the archive."""

from __future__ import annotations

import datetime
import functools
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from taxbench import __version__, machine, summarize
from taxbench.admin import AdminError
from taxbench.artifacts.manifest import Manifest
from taxbench.bundle import Bundle, write_json
from taxbench.cell import CellPlan, CellRun
from taxbench.client import ceiling
from taxbench.client.pool import WorkerPool
from taxbench.names import CORE_PHASES
from taxbench.processes import process_usage
from taxbench.progress import Bar, Reporter
from taxbench.records import Ceiling, Environment
from taxbench.report import markdown, page
from taxbench.resources import Sampler
from taxbench.servers.remote import run_operator_command
from taxbench.servers.target import Target, TargetError
from taxbench.studies.bench import StudyError
from taxbench.summary import Summary

RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

TargetFactory = Callable[[str, Path], Target]
"""Makes a fresh target for a mode, with a data directory of its own."""

Study = Callable[[Bundle, Path], None]
"""Runs one extra study: writes `studies/<name>.json`; its second argument is a scratch directory."""


class UsageError(RuntimeError):
    """The run cannot be done as it was asked for."""


@dataclass(frozen=True)
class RunPlan:
    """What to run. Everything random comes from `seed`."""

    run_id: str
    profile: str
    seed: int
    trials: int
    modes: tuple[str, ...]
    concurrency: tuple[int, ...]
    phases: tuple[str, ...]
    other_phases: tuple[str, ...]
    buckets: dict[str, str]
    manifest: Manifest
    artifacts_dir: Path
    results: Path
    scratch: Path
    command: list[str]
    payload_hash: str = "precomputed"
    sample_interval_s: float = 0.25
    resource_command: str = ""
    phase_gap_s: float = 0.0
    part_size: int = 5 << 20
    mixed_operations: int = 60
    settle_timeout_s: float = 120.0
    restart_before_cold: bool = True
    restart_between_modes_command: str = ""
    clean_command: str = ""
    allow_clean_failure: bool = False
    verify_compression: bool = True
    server_host: str = "127.0.0.1"
    studies: dict[str, Study] = field(default_factory=dict)

    def cells(self) -> list[CellPlan]:
        """The cells in the order they run: trials in sequence, modes shuffled inside each, concurrency ascending."""
        order = []
        for trial in range(1, self.trials + 1):
            modes = list(self.modes)
            random.Random(self.seed * 1000 + trial).shuffle(modes)
            for mode in modes:
                for position, concurrency in enumerate(self.concurrency):
                    order.append(
                        CellPlan(
                            trial=trial,
                            mode=mode,
                            concurrency=concurrency,
                            bucket=self.buckets[mode],
                            prefix=f"{self.run_id}/t{trial:03d}/{mode}/c{concurrency}",
                            phases=self.phases if position == 0 else self.other_phases,
                            seed=self.seed * 1000 + trial,
                            part_size=self.part_size,
                            mixed_operations=self.mixed_operations,
                            settle_timeout_s=self.settle_timeout_s,
                            phase_gap_s=self.phase_gap_s,
                            restart_before_cold=self.restart_before_cold,
                        )
                    )
        return order

    def check(self) -> None:
        """# Errors
        `UsageError` when the run would not be one.
        """
        if not RUN_ID.fullmatch(self.run_id):
            raise UsageError(f"run id {self.run_id!r}: lower-case letters, digits, '.', '_' and '-' only")
        missing = [phase for phase in CORE_PHASES if phase not in self.phases]
        if missing:
            raise UsageError(f"the phases {', '.join(missing)} cannot be left out")
        if self.trials < 1 or not self.modes or not self.concurrency or min(self.concurrency) < 1:
            raise UsageError("at least one trial, one mode and a concurrency of one are needed")
        if not self.manifest.artifacts:
            raise UsageError("there are no artifacts to store")
        if (self.results / self.run_id / "environment.json").exists():
            raise UsageError(f"{self.results / self.run_id} already holds a run; choose another --run-id")


def execute(plan: RunPlan, make_target: TargetFactory, reporter: Reporter) -> tuple[Bundle, Summary]:
    """Runs the plan, reports it, seals it. Gives back the bundle and its summary; judging is the caller's.

    # Errors
    `UsageError` before anything ran; `TargetError` when a server could not be kept running.
    """
    plan.check()
    bundle = Bundle(plan.results / plan.run_id)
    bundle.root.mkdir(parents=True, exist_ok=True)
    started, started_at = time.monotonic(), datetime.datetime.now(datetime.UTC)
    write_json(bundle.root / "artifacts.json", plan.manifest)
    reporter.say(
        f"run {plan.run_id}: {len(plan.manifest.artifacts)} artifacts, {plan.manifest.logical_bytes / 1e6:.1f} MB"
    )
    ceilings = _ceilings(plan, reporter)
    external = (lambda: run_operator_command(plan.resource_command, "resource")) if plan.resource_command else None
    noise = machine.NoiseMeter.begin()
    ours_before = _own_cpu_s()
    servers: dict[str, dict[str, str]] = {}
    kills: Counter[str] = Counter()
    cells = plan.cells()
    steps = sum(len(cell.phases) for cell in cells)
    with Sampler(plan.sample_interval_s, external) as sampler, reporter.steps_bar("cells", steps) as bar:
        previous: CellPlan | None = None
        for cell in cells:
            bar.advance(0, cell.label)
            reporter.step(f"{time.monotonic() - started:7.1f} s  {cell.label}")
            _between(plan, previous, cell, reporter)
            place = plan.scratch / cell.label.replace("/", "-")
            target = make_target(cell.mode, place)
            try:
                with target:
                    servers.setdefault(cell.mode, target.facts())
                    told = functools.partial(_tell, bar, cell)
                    CellRun(cell, target, plan.manifest, plan.artifacts_dir, bundle, sampler, told).run()
                    if not target.spawned:
                        usage = process_usage(target.process_ids())
                        noise.add_ours(usage.cpu_s if usage else 0.0)
            finally:
                kills[cell.mode] += target.kills
                _keep_log(place, bundle.cell_dir(cell.mode, cell.concurrency) / f"server_t{cell.trial:03d}.log")
                shutil.rmtree(place, ignore_errors=True)
            previous = cell
    noise.add_ours(_own_cpu_s() - ours_before)
    environment = Environment(
        run_id=plan.run_id,
        started_at=started_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        taxbench=__version__,
        command=plan.command,
        profile=plan.profile,
        seed=plan.seed,
        trials=plan.trials,
        modes=list(plan.modes),
        concurrency=list(plan.concurrency),
        phases=list(plan.phases),
        cell_order=[cell.label for cell in cells],
        payload_hash=plan.payload_hash,
        machine=machine.facts(plan.scratch),
        single_machine=machine.is_this_machine(plan.server_host),
        ceilings=ceilings,
        noise=noise.read(),
        servers=servers,
        buckets=plan.buckets,
        compression_verified=plan.verify_compression,
        killed_servers={mode: count for mode, count in kills.items() if count},
    )
    write_json(bundle.root / "resource_timeseries.json", sampler.timeseries())
    environment.failed_studies = _run_studies(plan, bundle, reporter)
    environment.wall_s = round(time.monotonic() - started, 1)
    write_json(bundle.root / "environment.json", environment)
    return bundle, report(bundle)


def report(bundle: Bundle) -> Summary:
    """Writes everything that is derived from the raw files, then seals the bundle."""
    summary = summarize.summarize(bundle)
    write_json(bundle.root / "summary.json", summary)
    write_json(bundle.root / "resources_rollup.json", dict(summarize.rollup(bundle)))
    bundle.write_text("report.md", markdown.render(summary))
    bundle.write_text("report.html", page.render(bundle, summary))
    bundle.seal()
    return summary


def _tell(bar: Bar, cell: CellPlan, phase: str) -> None:
    bar.advance(1, f"{cell.label} {phase}")


def _ceilings(plan: RunPlan, reporter: Reporter) -> list[Ceiling]:
    found = []
    with reporter.steps_bar("client ceiling", len(plan.concurrency)) as bar:
        for concurrency in plan.concurrency:
            found.append(ceiling.measure(concurrency))
            bar.advance(1)
    return found


def _between(plan: RunPlan, previous: CellPlan | None, cell: CellPlan, reporter: Reporter) -> None:
    """The operator's commands between modes and between trials."""
    if previous is None:
        return
    if previous.trial != cell.trial and plan.clean_command:
        try:
            run_operator_command(plan.clean_command, "clean")
        except TargetError as error:
            if not plan.allow_clean_failure:
                raise
            reporter.say(f"warning: {error} (continuing, as --allow-clean-failure asks)")
    if previous.mode != cell.mode and plan.restart_between_modes_command:
        run_operator_command(plan.restart_between_modes_command, "restart-between-modes")


def _run_studies(plan: RunPlan, bundle: Bundle, reporter: Reporter) -> dict[str, str]:
    """Runs every study. One that fails does not take the run with it; it becomes a fatal finding."""
    failed: dict[str, str] = {}
    if not plan.studies:
        return failed
    with reporter.steps_bar("studies", len(plan.studies)) as bar:
        for name, study in plan.studies.items():
            title = f"study: {name.replace('_', ' ')}"
            bar.advance(0, title)
            reporter.step(title)
            place = plan.scratch / f"study-{name}"
            place.mkdir(parents=True, exist_ok=True)
            try:
                study(bundle, place)
            except (StudyError, TargetError, AdminError) as error:
                failed[name] = str(error)[:500]
            finally:
                shutil.rmtree(place, ignore_errors=True)
            bar.advance(1)
    return failed


def _keep_log(place: Path, target: Path) -> None:
    """Keeps the end of a server's log beside its samples; an empty log is not kept."""
    log = place / "server.log"
    if log.is_file() and log.stat().st_size:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as file:
            file.write(log.read_bytes()[-100_000:])


def _own_cpu_s() -> float:
    """CPU seconds of this process, of the servers it started and waited for, and of the workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + WorkerPool.ended_cpu_s

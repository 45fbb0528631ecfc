"""One cell: a trial of a mode at a concurrency, through all its phases, with everything it leaves on disk."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from taxbench import cold, phases, prometheus, storage
from taxbench.admin import AdminError, Stats, fetch_text
from taxbench.artifacts.manifest import Manifest
from taxbench.bundle import Bundle, write_json
from taxbench.client.operation import Operation, Sample
from taxbench.client.pool import Batch, WorkerPool
from taxbench.processes import Usage, peak_rss_bytes, process_usage, reset_peak_rss
from taxbench.prometheus import Scrape
from taxbench.records import (
    CanaryFacts,
    CellFacts,
    ColdFacts,
    CounterFacts,
    DeferralFacts,
    Marker,
    ObjectFacts,
    PhaseFacts,
    StorageCounts,
)
from taxbench.resources import Observed, Sampler, network_bytes
from taxbench.servers.target import Target

SAVED = "deltaweir_saved_bytes_total"
PLAN, DEFERRED = "deltaweir_plan_total", "deferred"
"""Bodies by why they were stored as they were, and the reason of those that are to be encoded again."""


@dataclass(frozen=True, slots=True)
class CellPlan:
    """What to do in one cell."""

    trial: int
    mode: str
    concurrency: int
    bucket: str
    prefix: str
    phases: tuple[str, ...]
    seed: int
    part_size: int = 5 << 20
    mixed_operations: int = 60
    settle_timeout_s: float = 120.0
    phase_gap_s: float = 0.0
    restart_before_cold: bool = True

    @property
    def label(self) -> str:
        return f"t{self.trial:03d}/{self.mode}/c{self.concurrency}"


@dataclass
class Counters:
    """Follows the server's counters through a cell and keeps account of the restarts we ordered."""

    scrapes: list[Scrape] = field(default_factory=list)
    backwards: list[str] = field(default_factory=list)
    restarts_seen: int = 0
    restarts_ordered: int = 0
    _restart_ordered: bool = False

    def note_restart(self) -> None:
        self.restarts_ordered += 1
        self._restart_ordered = True

    def take(self, scrape: Scrape | None) -> None:
        if scrape is None:
            return
        if self.scrapes:
            before = self.scrapes[-1]
            if prometheus.restarted(before, scrape):
                self.restarts_seen += 1
            if not self._restart_ordered:
                self.backwards += prometheus.went_backwards(before, scrape)
        self._restart_ordered = False
        self.scrapes.append(scrape)

    def facts(self) -> CounterFacts | None:
        if len(self.scrapes) < 2:
            return None
        return CounterFacts(
            backwards=self.backwards[:20], restarts_seen=self.restarts_seen, restarts_ordered=self.restarts_ordered
        )


class CellRun:
    """Runs a cell against a started target and writes its files into the bundle."""

    def __init__(
        self,
        plan: CellPlan,
        target: Target,
        manifest: Manifest,
        artifacts_dir: Path,
        bundle: Bundle,
        sampler: Sampler,
        on_phase: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.plan, self.target, self.manifest = plan, target, manifest
        self.bundle, self.sampler, self._on_phase = bundle, sampler, on_phase
        self.keys = phases.CellKeys(plan.bucket, plan.prefix, artifacts_dir)
        self.facts = CellFacts(
            trial=plan.trial,
            mode=plan.mode,
            concurrency=plan.concurrency,
            bucket=plan.bucket,
            prefix=plan.prefix,
            phases=[],
        )
        self.counters = Counters()
        self.stored: list[Operation] = []
        self._pool: WorkerPool | None = None

    @property
    def pool(self) -> WorkerPool:
        assert self._pool is not None, "phases run inside `run`"
        return self._pool

    def run(self) -> CellFacts:
        """All phases in order. A failed operation is a row, not an exception; a dead server is an exception."""
        self.target.ensure_bucket(self.plan.bucket)
        self._note_bucket_mode()
        self._snapshot("before")
        steps: dict[str, Callable[[], None]] = {
            "put_base": lambda: self._puts("put_base"),
            "put_delta": lambda: self._puts("put_delta"),
            "settle": self._settle,
            "cold_get": self._cold_get,
            "warm_get": lambda: self._simple("warm_get", phases.get_all(self.manifest, self.keys, "warm_get")),
            "range_get": lambda: self._simple("range_get", phases.range_get(self.manifest, self.keys)),
            "head": lambda: self._simple("head", phases.head_all(self.manifest, self.keys)),
            "list": self._list,
            "multipart_put": self._multipart_put,
            "overwrite": self._overwrite,
            "mixed": self._mixed,
            "delete": self._delete,
        }
        with WorkerPool(self.plan.concurrency, self.manifest.largest_bytes) as pool:
            self._pool = pool
            self.sampler.observed = Observed(self.target.process_ids, pool.pids, self._metrics_reader())
            for phase in self.plan.phases:
                if phase == "delete":
                    self._look_for_canaries()
                steps[phase]()
                self._on_phase(phase)
                if self.plan.phase_gap_s:
                    time.sleep(self.plan.phase_gap_s)
            if "delete" not in self.plan.phases:
                self._look_for_canaries()
            self.sampler.observed = Observed()
            self._pool = None
        self._snapshot("after")
        self.facts.counters = self.counters.facts()
        self.bundle.write_cell(self.facts)
        return self.facts

    # Phases

    def _puts(self, phase: str) -> None:
        build = phases.put_base if phase == "put_base" else phases.put_delta
        operations = build(self.manifest, self.keys)
        self.stored += operations
        self._simple(phase, operations)

    def _settle(self) -> None:
        """Waits, bounded, until background work is done, then counts what is stored."""

        def wait() -> Batch:
            started = time.perf_counter()
            if self.target.admin is not None:
                self.facts.settled = self.target.admin.settle(self.plan.settle_timeout_s)
            self.facts.settle_s = round(time.perf_counter() - started, 4)
            return Batch([], 0.0)

        self.facts.deferral = self._deferral()
        self._observe("settle", wait)
        inspected = self.pool.run(self.target.endpoint, phases.head_all(self.manifest, self.keys, "inspect")).samples
        self.facts.objects = self._object_facts(inspected)
        stats = self.target.admin.stats() if self.target.admin is not None else None
        # The server reads its bucket gauges from the catalog when it is asked for its accounting: in this order both
        # speak of the same moment.
        scrape = self._scrape()
        self.counters.take(scrape)
        self.facts.storage = self._count(stats, scrape, inspected)
        if scrape is not None and self.counters.scrapes and scrape.has(SAVED):
            first = self.counters.scrapes[0].by_label(SAVED, "stage")
            last = scrape.by_label(SAVED, "stage")
            self.facts.saved_bytes = {stage: int(value - first.get(stage, 0.0)) for stage, value in last.items()}

    def _deferral(self) -> DeferralFacts | None:
        """What the uploads left undone: PUT's speed is without that work, so the report has to say how much it was."""
        scrape = self._scrape()
        if self.target.admin is None or scrape is None or not scrape.has(PLAN) or not self.counters.scrapes:
            return None
        first, last = (one.by_label(PLAN, "reason") for one in (self.counters.scrapes[0], scrape))
        account = self.target.admin.stats().bucket(self.plan.bucket).stored
        return DeferralFacts(
            bodies=int(sum(last.values()) - sum(first.values())),
            deferred=int(last.get(DEFERRED, 0.0) - first.get(DEFERRED, 0.0)),
            stored_bytes=account.total - account.tombstoned,
        )

    def _cold_get(self) -> None:
        self.facts.cold = self._make_cold()
        self._simple("cold_get", phases.get_all(self.manifest, self.keys, "cold_get"))

    def _list(self) -> None:
        if "list" not in self.target.features:
            return self._skip("list", "the target has no LIST")
        signed = self.target.endpoint.signing == "sigv4"
        return self._simple("list", phases.list_all(self.manifest, self.keys, checked_etags=signed))

    def _multipart_put(self) -> None:
        if "multipart" not in self.target.features:
            return self._skip("multipart_put", "the target has no multipart uploads")
        operations = phases.multipart_put(self.manifest, self.keys, self.plan.part_size)
        if not operations:
            return self._skip("multipart_put", f"no artifact is larger than one part of {self.plan.part_size} bytes")
        self.stored += operations
        self._simple("multipart_put", operations)
        self._keep(
            self.pool.run(
                self.target.endpoint, [replace(op, kind="get", phase="multipart_put_check") for op in operations]
            )
        )
        return None

    def _overwrite(self) -> None:
        before, timed, after = phases.overwrite(self.manifest, self.keys)
        if not timed:
            return self._skip("overwrite", "no family has two versions")
        self.stored += before
        self._keep(self.pool.run(self.target.endpoint, before))
        self._simple("overwrite", timed)
        self._keep(self.pool.run(self.target.endpoint, after))
        return None

    def _mixed(self) -> None:
        operations = phases.mixed(self.manifest, self.keys, self.plan.seed, self.plan.mixed_operations)
        self.stored += [op for op in operations if op.kind == "put"]
        self._simple("mixed", operations)

    def _delete(self) -> None:
        """Deletes everything, and has it collected: the next cell in this bucket must find neither bases nor twins."""
        self._simple("delete", phases.delete_all(self.stored))
        if self.target.admin is not None:
            self.target.admin.settle(self.plan.settle_timeout_s)
            self.target.admin.collect()

    def _skip(self, phase: str, reason: str) -> None:
        now = time.perf_counter()
        self.facts.phases.append(
            PhaseFacts(
                phase=phase,
                started_s=now,
                ended_s=now,
                operations=0,
                failed=0,
                payload_bytes=0,
                wall_s=0.0,
                client_cpu_s=0.0,
                skipped=reason,
            )
        )

    def _simple(self, phase: str, operations: list[Operation]) -> None:
        if not operations:
            return self._skip(phase, "nothing to do for these artifacts")
        self._keep(self._observe(phase, lambda: self.pool.run(self.target.endpoint, operations)))
        return None

    # Observation

    def _observe(self, phase: str, work: Callable[[], Batch]) -> Batch:
        """Runs a phase between two exact readings of the server's counters, with markers on the time axis."""
        pids = self.target.process_ids()
        reset_peak_rss(pids)
        before, network = self._usage(pids), network_bytes()
        started = time.perf_counter()
        self._mark("begin", phase, started)
        batch = work()
        ended = time.perf_counter()
        self._mark("end", phase, ended)
        after = self._usage(pids)
        facts = PhaseFacts(
            phase=phase,
            started_s=started,
            ended_s=ended,
            operations=len(batch.samples),
            failed=sum(s.failed for s in batch.samples),
            payload_bytes=batch.payload_bytes,
            wall_s=batch.wall_s if batch.samples else ended - started,
            client_cpu_s=batch.client_cpu_s,
            network_bytes=network_bytes() - network,
        )
        if before is not None and after is not None:
            facts.server_cpu_s = round(after.cpu_s - before.cpu_s, 4)
            facts.server_disk_read_bytes = after.disk_read_bytes - before.disk_read_bytes
            facts.server_disk_write_bytes = after.disk_write_bytes - before.disk_write_bytes
            resident = [p.server_rss_bytes for p in self.sampler.window(started, ended) if p.server_rss_bytes]
            resident += [before.rss_bytes, after.rss_bytes]
            facts.server_rss_mean_bytes = sum(resident) // len(resident)
            facts.server_rss_max_bytes = max(peak_rss_bytes(pids) or 0, *resident)
        self.facts.phases.append(facts)
        return batch

    def _usage(self, pids: list[int]) -> Usage | None:
        """From `/proc` when the server is here, from its own metrics when it is not."""
        usage = process_usage(pids)
        if usage is None and (scrape := self._scrape()) is not None and scrape.has("process_cpu_seconds_total"):
            resident = int(scrape.total("process_resident_memory_bytes"))
            usage = Usage(scrape.total("process_cpu_seconds_total"), resident, 0, 0)
        return usage

    def _mark(self, event: str, phase: str, at_s: float) -> None:
        self.sampler.mark(
            Marker(
                t_s=at_s,
                event="begin" if event == "begin" else "end",
                trial=self.plan.trial,
                mode=self.plan.mode,
                concurrency=self.plan.concurrency,
                phase=phase,
            )
        )

    def _keep(self, batch: Batch) -> None:
        for sample in batch.samples:
            sample.trial, sample.mode, sample.concurrency = self.plan.trial, self.plan.mode, self.plan.concurrency
        self.bundle.append_samples(batch.samples)

    def _metrics_reader(self) -> Callable[[], str] | None:
        url, token = self.target.metrics_url, self.target.metrics_token
        return (lambda: fetch_text(url, token)) if url else None

    def _scrape(self) -> Scrape | None:
        reader = self._metrics_reader()
        if reader is None:
            return None
        with contextlib.suppress(AdminError):
            return prometheus.parse(reader())
        return None

    def _snapshot(self, when: str) -> None:
        """`before_t001.prom` and `.json`: what the server said of itself, kept as it was said."""
        place = self.bundle.cell_dir(self.plan.mode, self.plan.concurrency)
        reader = self._metrics_reader()
        if reader is not None:
            text = reader()
            self.counters.take(prometheus.parse(text))
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{when}_t{self.plan.trial:03d}.prom").write_text(text)
        if self.target.admin is not None:
            write_json(place / f"{when}_t{self.plan.trial:03d}.json", self.target.admin.raw_stats())

    # Facts

    def _note_bucket_mode(self) -> None:
        if self.target.admin is None:
            return
        for bucket in self.target.admin.buckets():
            if bucket.name == self.plan.bucket:
                self.facts.observed_compression, self.facts.observed_encryption = bucket.compression, bucket.encryption

    def _make_cold(self) -> ColdFacts:
        facts = ColdFacts()
        self.pool.disconnect()
        if self.target.admin is not None:
            self.target.admin.drop_caches()
            facts.cache_drop_api = True
        if self.plan.restart_before_cold and "restart" in self.target.features:
            self.counters.take(self._scrape())
            self.counters.note_restart()
            self.target.restart()
            self.counters.take(self._scrape())
            facts.process_restarted = True
        facts.kernel_cache, fraction = cold.make_cold(self.target.blob_roots())
        facts.resident_fraction = None if fraction is None else round(fraction, 4)
        return facts

    def _object_facts(self, inspected: list[Sample]) -> list[ObjectFacts]:
        expectations = {a.name: a.expectation for a in self.manifest.artifacts}
        return [
            ObjectFacts(
                artifact=s.artifact,
                family=s.family,
                version_order=s.version_order,
                expectation=expectations[s.artifact],
                logical_bytes=s.logical_bytes,
                stored_bytes=s.stored_bytes if s.stored_bytes >= 0 else None,
                form=s.form,
                reason=s.reason,
            )
            for s in sorted(inspected, key=lambda s: (s.family, s.version_order))
            if not s.failed
        ]

    def _count(self, stats: Stats | None, scrape: Scrape | None, inspected: list[Sample]) -> StorageCounts:
        known = [s.stored_bytes for s in inspected if s.stored_bytes >= 0]
        header_total = sum(known) if inspected and len(known) == len(inspected) else None
        listing = storage.list_backend(self.target.blob_roots())
        objects, logical = len(self.manifest.artifacts), self.manifest.logical_bytes
        return storage.count(self.plan.bucket, objects, logical, stats, scrape, listing, header_total)

    def _look_for_canaries(self) -> None:
        """Plants known plaintext, lets background work finish, and searches everything the server wrote for it."""
        roots = self.target.private_roots()
        if not roots:
            skipped = "nothing the server wrote can be seen from here"
            self.facts.canary = CanaryFacts(
                scanned_bytes=0, scanned_files=0, content_found=[], name_found=[], skipped=skipped
            )
            return
        planted = storage.canaries(f"{self.plan.prefix}/canary")
        with tempfile.TemporaryDirectory(prefix="taxbench-canary-") as scratch:
            operations = []
            for number, canary in enumerate(planted):
                path = Path(scratch) / str(number)
                path.write_bytes(canary.content)
                sha256 = hashlib.sha256(canary.content).hexdigest()
                operations.append(
                    Operation(
                        kind="put",
                        phase="canary",
                        bucket=self.plan.bucket,
                        key=canary.key,
                        content_path=str(path),
                        size=len(canary.content),
                        sha256=sha256,
                    )
                )
            self.stored += operations
            failed = [s for s in self.pool.run(self.target.endpoint, operations).samples if s.failed]
        if self.target.admin is not None:
            self.target.admin.settle(self.plan.settle_timeout_s)
        self.facts.canary = storage.scan(planted, roots, self.target.blob_roots())
        if failed:
            self.facts.canary.skipped = f"the canary could not be stored: {failed[0].error}"

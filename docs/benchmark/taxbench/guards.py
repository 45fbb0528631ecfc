"""What may be believed. Each guard looks at raw facts and says what is wrong with them; none repairs anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from taxbench import statistics
from taxbench.artifacts.manifest import Manifest
from taxbench.client.operation import Sample
from taxbench.names import (
    COMPRESSING_MODES,
    COMPRESSION,
    COMPRESSION_ENCRYPTION,
    ENCRYPTING_MODES,
    ENCRYPTION,
    MODES,
    PASSTHROUGH,
    mode_title,
)
from taxbench.records import CellFacts, Environment, StorageCounts
from taxbench.summary import CellSummary, Finding, Severity

SAVING_RATIO_MAX = 0.98
"""Similar data that is stored at more than this fraction of its size was not reduced."""
GROWTH_RATIO_MAX = 1.01
GROWTH_BYTES_PER_OBJECT = 4096
"""What a store may add to data it cannot shrink: headers, tags and manifests, never a recompressed copy."""
COUNT_TOLERANCE_RATIO = 0.005
COUNT_TOLERANCE_BYTES = 64 << 10
"""Journal and key blobs are written at any time, so two counts a moment apart may differ by a little."""
STEAL_FRACTION_MAX = 0.02
FOREIGN_FRACTION_MAX = 0.10
LOAD_PER_CPU_MAX = 0.5
CEILING_MARGIN = 1.5
GAP_S_MAX = 1.0
RESIDENT_FRACTION_MAX = 0.1

EXPECTED_SETTINGS: dict[str, tuple[frozenset[str], str]] = {
    PASSTHROUGH: (frozenset({"off"}), "off"),
    COMPRESSION: (frozenset({"delta", "zstd"}), "off"),
    ENCRYPTION: (frozenset({"off"}), "aes256"),
    COMPRESSION_ENCRYPTION: (frozenset({"delta", "zstd"}), "aes256"),
}


@dataclass(frozen=True)
class Evidence:
    """Everything a guard may look at."""

    environment: Environment
    manifest: Manifest
    cells: list[CellFacts]
    samples: Callable[[str, int], list[Sample]]
    summaries: list[CellSummary]


def check(evidence: Evidence) -> list[Finding]:
    """All findings, the gravest first."""
    found = [finding for guard in GUARDS for finding in guard(evidence)]
    order: dict[Severity, int] = {"fatal": 0, "unpublishable": 1, "label": 2, "note": 3}
    return sorted(found, key=lambda f: (order[f.severity], f.code, f.where))


def where(cell: CellFacts) -> str:
    return f"{cell.mode}/c{cell.concurrency}/t{cell.trial:03d}"


def _rows(evidence: Evidence) -> Iterator[tuple[str, list[Sample]]]:
    for mode, concurrency in sorted({(c.mode, c.concurrency) for c in evidence.cells}):
        yield f"{mode}/c{concurrency}", evidence.samples(mode, concurrency)


def wrong_bytes(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: a GET, a range, a LIST or a HEAD that disagreed with what was stored."""
    for place, samples in _rows(evidence):
        wrong = [s for s in samples if s.verdict == "mismatch"]
        if wrong:
            first = wrong[0]
            text = f"{len(wrong)} answers were wrong; first: {first.kind} {first.key} in {first.phase}"
            yield Finding(
                severity="fatal", code="byte-mismatch", where=place, message=f"{text}. {first.error}".rstrip(". ")
            )


def failed_operations(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: operations that failed. Throughput over the ones that did not would flatter."""
    for place, samples in _rows(evidence):
        failed = [s for s in samples if s.failed and s.verdict != "mismatch"]
        if failed:
            reasons = Counter(s.error[:90] for s in failed).most_common(2)
            text = "; ".join(f"{count} x {reason}" for reason, count in reasons)
            message = f"{len(failed)} of {len(samples)} operations failed: {text}"
            yield Finding(severity="fatal", code="failed-operations", where=place, message=message)


def retried_operations(evidence: Evidence) -> Iterator[Finding]:
    """Note: operations that needed a repeat. Their time is in the numbers."""
    for place, samples in _rows(evidence):
        retried = sum(s.retries > 0 for s in samples)
        if retried:
            message = f"{retried} operations needed a repeat; the repeats are timed"
            yield Finding(severity="note", code="retries", where=place, message=message)


def stalls(evidence: Evidence) -> Iterator[Finding]:
    """Note: bodies that went silent in the middle."""
    for place, samples in _rows(evidence):
        silent = [s for s in samples if s.max_gap_s > GAP_S_MAX]
        if silent:
            worst = max(s.max_gap_s for s in silent)
            message = f"{len(silent)} bodies went silent for more than {GAP_S_MAX:.0f} s, the longest for {worst:.1f} s"
            yield Finding(severity="note", code="stalled-body", where=place, message=message)


def delayed_acks(evidence: Evidence) -> Iterator[Finding]:
    """Note: the signature of Nagle against delayed ACKs in the latencies of small requests."""
    for place, samples in _rows(evidence):
        for kind in ("get", "head", "put"):
            small = [s.total_s for s in samples if s.kind == kind and s.logical_bytes <= 64 << 10 and not s.failed]
            suspicious = statistics.delayed_ack_share(small)
            if suspicious:
                share, contrast = suspicious
                message = (
                    f"{share:.1%} of small {kind.upper()}s take 40 or 200 ms, {contrast:.0f} times more than around "
                    f"it: "
                    f"delayed ACKs"
                )
                yield Finding(severity="note", code="delayed-ack", where=place, message=message)


def nothing_saved(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: a compression mode that stored similar or compressible data at its full size."""
    if not evidence.environment.compression_verified:
        return
    demanded = {"similar", "compressible", "duplicate"}
    for cell in evidence.cells:
        if cell.mode not in COMPRESSING_MODES:
            continue
        for family, logical, stored in _families(cell, demanded):
            if stored > logical * SAVING_RATIO_MAX:
                message = (
                    f"{family} was stored in {stored} of {logical} bytes: nothing was saved on data that must shrink"
                )
                yield Finding(severity="fatal", code="no-saving", where=where(cell), message=message)
        storage = cell.storage
        has_similar = any(a.expectation in demanded for a in evidence.manifest.artifacts)
        told = any(o.stored_bytes is not None for o in cell.objects)
        if storage is None or storage.best is None or told or not has_similar:
            continue
        if storage.best > storage.logical_bytes * SAVING_RATIO_MAX:
            message = f"{storage.best} bytes stored for {storage.logical_bytes}: nothing was saved"
            yield Finding(severity="fatal", code="no-saving", where=where(cell), message=message)


def random_grew(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: data nobody can shrink was made larger, beyond headers and tags. In every mode of ours."""
    for cell in evidence.cells:
        if cell.mode not in MODES:
            continue
        for family, logical, stored in _families(cell, {"incompressible", "open"}):
            count = sum(o.family == family for o in cell.objects)
            if stored > logical * GROWTH_RATIO_MAX + GROWTH_BYTES_PER_OBJECT * count:
                message = f"{family} grew from {logical} to {stored} bytes"
                yield Finding(severity="fatal", code="growth", where=where(cell), message=message)


def plaintext_canary(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: known plaintext found in what an encrypted mode wrote, or a search that would not have found it anyway."""
    for cell in evidence.cells:
        canary = cell.canary
        if cell.mode not in MODES or canary is None:
            continue
        if canary.skipped:
            if cell.mode in ENCRYPTING_MODES:
                message = f"stored bytes were not searched for plaintext: {canary.skipped}"
                yield Finding(severity="note", code="canary-unchecked", where=where(cell), message=message)
        elif cell.mode in ENCRYPTING_MODES and canary.content_found:
            message = f"plaintext found in {len(canary.content_found)} files, first {canary.content_found[0]}"
            yield Finding(severity="fatal", code="plaintext", where=where(cell), message=message)
        elif cell.mode in ENCRYPTING_MODES and canary.name_found:
            message = f"the object's name found in {len(canary.name_found)} blobs, first {canary.name_found[0]}"
            yield Finding(severity="fatal", code="plaintext-name", where=where(cell), message=message)
        elif cell.mode == PASSTHROUGH and not canary.content_found:
            message = (
                f"the search found no plaintext in {canary.scanned_files} files of an unencrypted mode: it is blind"
            )
            yield Finding(severity="fatal", code="canary-blind", where=where(cell), message=message)


def counters_reset(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: a counter went backwards, or the process was replaced, without us having ordered it."""
    for cell in evidence.cells:
        counters = cell.counters
        if counters is None:
            continue
        if counters.backwards:
            message = (
                f"{len(counters.backwards)} counters went backwards without a restart, first {counters.backwards[0]}"
            )
            yield Finding(severity="fatal", code="counter-reset", where=where(cell), message=message)
        if counters.restarts_seen > counters.restarts_ordered:
            message = (
                f"the server process was replaced {counters.restarts_seen} times, {counters.restarts_ordered} were "
                f"ordered"
            )
            yield Finding(severity="fatal", code="counter-reset", where=where(cell), message=message)


def counts_disagree(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: the independent counts of stored bytes tell different stories."""
    for cell in evidence.cells:
        if cell.storage is None:
            continue
        for message in disagreements(cell.storage):
            yield Finding(severity="fatal", code="storage-disagreement", where=where(cell), message=message)


def disagreements(counts: StorageCounts) -> Iterator[str]:
    """Compares the counts of one cell pairwise, each against what it must equal."""
    for name, parts, total in (
        ("bucket", counts.account_parts, counts.account_total),
        ("store", counts.store_parts, counts.store_total),
    ):
        if total is not None and sum(parts.values()) != total:
            yield f"the {name}'s accounting does not add up: parts {sum(parts.values())}, total {total}"
    if counts.store_total is not None and counts.backend_said is not None:
        in_backend = counts.store_total - counts.store_parts.get("inline", 0)
        if not _agree(in_backend, counts.backend_said):
            yield (
                f"the accounting puts {in_backend} bytes in the backend, the backend account says {counts.backend_said}"
            )
    if (
        counts.backend_said is not None
        and counts.backend_listed is not None
        and not _agree(counts.backend_said, counts.backend_listed)
    ):
        yield f"the backend account says {counts.backend_said} bytes, listing it finds {counts.backend_listed}"
    metrics, account = counts.metrics_total, counts.account_total
    if metrics is not None and account is not None and not _agree(metrics, account):
        yield f"the metrics say {metrics} bytes, the accounting {account}"


def wrong_mode(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: the bucket of a mode is not configured as that mode."""
    for cell in evidence.cells:
        expected = EXPECTED_SETTINGS.get(cell.mode)
        if expected is None or not cell.observed_compression:
            continue
        compression, encryption = expected
        if cell.observed_compression not in compression or cell.observed_encryption != encryption:
            seen = f"compression {cell.observed_compression}, encryption {cell.observed_encryption}"
            message = f"bucket {cell.bucket} has {seen}: that is not {cell.mode}"
            yield Finding(severity="fatal", code="wrong-mode", where=where(cell), message=message)


def contaminated(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: a unique artifact was stored as a duplicate, so its content had been there before the cell began."""
    counts = Counter(a.sha256 for a in evidence.manifest.artifacts)
    unique = {a.name for a in evidence.manifest.artifacts if counts[a.sha256] == 1}
    for cell in evidence.cells:
        before = [o.artifact for o in cell.objects if o.form == "dedup" and o.artifact in unique]
        if before:
            message = (
                f"{len(before)} unique artifacts were deduplicated, first {before[0]}: the bucket already held them"
            )
            yield Finding(severity="fatal", code="contaminated", where=where(cell), message=message)


def failed_studies(evidence: Evidence) -> Iterator[Finding]:
    """Fatal: a study that could not be finished, or whose bytes came back wrong."""
    for name, reason in sorted(evidence.environment.failed_studies.items()):
        yield Finding(severity="fatal", code="study-failed", where=name, message=reason)


def noisy_machine(evidence: Evidence) -> Iterator[Finding]:
    """Unpublishable: somebody else used the machine."""
    noise, cpus = evidence.environment.noise, evidence.environment.machine.cpu_count
    if noise.steal_fraction > STEAL_FRACTION_MAX:
        message = f"the hypervisor withheld {noise.steal_fraction:.1%} of the CPU time"
        yield Finding(severity="unpublishable", code="steal", message=message)
    if noise.foreign_fraction > FOREIGN_FRACTION_MAX:
        message = f"other processes used {noise.foreign_fraction:.1%} of the CPU time"
        yield Finding(severity="unpublishable", code="foreign-load", message=message)
    if noise.load_before > LOAD_PER_CPU_MAX * cpus:
        message = f"the load average was {noise.load_before:.2f} on {cpus} CPUs before the run began"
        yield Finding(severity="unpublishable", code="load-before", message=message)
    if noise.swap_in_pages:
        message = f"{noise.swap_in_pages} pages were swapped in during the run"
        yield Finding(severity="unpublishable", code="swapping", message=message)


def single_machine(evidence: Evidence) -> Iterator[Finding]:
    """Label: client and server share a machine, or the client could hardly have gone faster."""
    if evidence.environment.single_machine:
        message = "client and server share one machine: ratios count, absolutes do not"
        yield Finding(severity="label", code="single-machine", message=message)
    ceilings = {c.concurrency: c for c in evidence.environment.ceilings}
    for cell in evidence.summaries:
        ceiling = ceilings.get(cell.concurrency)
        if ceiling is None:
            continue
        for phase, limit in (("put", ceiling.put_mb_s), ("cold_get", ceiling.get_mb_s), ("warm_get", ceiling.get_mb_s)):
            summary = cell.phases.get(phase)
            speed = summary.throughput_mb_s.median if summary and summary.throughput_mb_s else 0.0
            if speed * CEILING_MARGIN > limit:
                message = f"{phase} ran at {speed:.0f} MB/s, the client's own ceiling is {limit:.0f} MB/s"
                yield Finding(
                    severity="label", code="client-limited", where=f"{cell.mode}/c{cell.concurrency}", message=message
                )


def unexplained_order(evidence: Evidence) -> Iterator[Finding]:
    """Note: a mode that is faster than passthrough beyond its interval. It does more work, so this wants a reason."""
    for cell in evidence.summaries:
        if cell.mode not in MODES or cell.mode == PASSTHROUGH:
            continue
        for phase, summary in cell.phases.items():
            ratio = summary.to_passthrough
            if ratio and ratio.low is not None and ratio.low > 1.0:
                reason = "; it reads fewer bytes" if cell.mode in COMPRESSING_MODES and "get" in phase else ""
                message = f"{phase} is {ratio.median:.2f} times as fast as passthrough (from {ratio.low:.2f}){reason}"
                yield Finding(
                    severity="note",
                    code="faster-than-passthrough",
                    where=f"{cell.mode}/c{cell.concurrency}",
                    message=message,
                )


def deferred_uploads(evidence: Evidence) -> Iterator[Finding]:
    """Label: uploads that were answered before they were encoded. PUT's speed is without that work."""
    for cell in evidence.summaries:
        storage = cell.storage
        if storage is None or storage.deferred_share is None or not any(storage.deferred_share.values):
            continue
        message = (
            f"{mode_title(cell.mode)} stored {storage.deferred_share.median:.0%} of uploads first and encoded them "
            f"while settling; PUT's speed is without that work, its CPU time is with it"
        )
        if storage.unsettled_ratio and storage.stored_ratio:
            before, after = storage.unsettled_ratio.median, storage.stored_ratio.median
            message += f"; {before:.2f}× were stored at the end of PUT, {after:.2f}× after settling"
        yield Finding(severity="label", code="deferred", where=f"{cell.mode}/c{cell.concurrency}", message=message)


def conditions(evidence: Evidence) -> Iterator[Finding]:
    """Notes on what a phase could not do: cold that was not cold, settling that did not end, phases left out."""
    for cell in evidence.cells:
        fraction = cell.cold.resident_fraction if cell.cold else None
        if fraction is not None and fraction > RESIDENT_FRACTION_MAX:
            message = f"{fraction:.0%} of the stored pages were still cached when cold reads began"
            yield Finding(severity="note", code="not-cold", where=where(cell), message=message)
        if cell.settled is False:
            message = f"background work was not done after {cell.settle_s:.0f} s; stored sizes are not final"
            yield Finding(severity="note", code="not-settled", where=where(cell), message=message)
    skipped = {(c.mode, p.phase, p.skipped) for c in evidence.cells for p in c.phases if p.skipped}
    for mode, phase, reason in sorted(skipped):
        yield Finding(severity="note", code="phase-skipped", where=mode, message=f"{phase}: {reason}")
    for mode, count in sorted(evidence.environment.killed_servers.items()):
        message = f"the server did not stop when asked to and was killed {count} times"
        yield Finding(severity="note", code="killed", where=mode, message=message)
    if not evidence.environment.compression_verified:
        message = "savings were not verified (--skip-compression-verify)"
        yield Finding(severity="label", code="savings-unverified", message=message)


def _families(cell: CellFacts, expectations: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """(family, logical, stored) of the families whose every object says what it adds to the store."""
    wanted = set(expectations)
    families: dict[str, list[tuple[int, int | None]]] = {}
    for entry in cell.objects:
        if entry.expectation in wanted:
            families.setdefault(entry.family, []).append((entry.logical_bytes, entry.stored_bytes))
    for family, pairs in sorted(families.items()):
        stored = [s for _, s in pairs if s is not None]
        if len(stored) == len(pairs):
            yield family, sum(logical for logical, _ in pairs), sum(stored)


def _agree(one: int, other: int) -> bool:
    return abs(one - other) <= max(COUNT_TOLERANCE_BYTES, COUNT_TOLERANCE_RATIO * max(one, other))


GUARDS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    wrong_bytes,
    failed_operations,
    nothing_saved,
    random_grew,
    plaintext_canary,
    counters_reset,
    counts_disagree,
    wrong_mode,
    contaminated,
    failed_studies,
    noisy_machine,
    single_machine,
    unexplained_order,
    stalls,
    delayed_acks,
    retried_operations,
    deferred_uploads,
    conditions,
)

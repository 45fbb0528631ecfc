"""From the raw files of a bundle to `summary.json`. Pure: the same files give the same summary, on any machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from taxbench import guards
from taxbench.bundle import Bundle
from taxbench.client.operation import Sample
from taxbench.names import COMPRESSING_MODES, DIRECT, MODES, PASSTHROUGH, mode_title
from taxbench.records import CellFacts, PhaseFacts
from taxbench.statistics import Interval, bootstrap, paired_ratio, quantiles
from taxbench.summary import (
    BreakEven,
    CellSummary,
    FamilySummary,
    Headline,
    PhaseSummary,
    StorageSummary,
    Summary,
)

MB, GB = 1e6, 1e9
CPU_USD_PER_HOUR = 0.04
"""A rented core's price; the break-even page says so and lets the reader scale it."""
RETENTION_MONTHS = 12.0
TIMED_KINDS = {"overwrite": "put", "multipart_put": "multipart"}

PUT_PARTS = ("put_base", "put_delta")
LATENCY_PHASES = frozenset({"range_get", "head", "list", "delete"})
"""Phases judged by requests per second, not by bytes per second."""


def summarize(bundle: Bundle) -> Summary:
    """Reads a bundle and computes everything that is said about it, findings included."""
    environment, manifest = bundle.environment(), bundle.manifest()
    cells = bundle.cells()
    grouped: dict[tuple[str, int], list[CellFacts]] = {}
    for cell in cells:
        grouped.setdefault((cell.mode, cell.concurrency), []).append(cell)
    rows = {key: bundle.samples(*key) for key in grouped}
    order = {mode: n for n, mode in enumerate([DIRECT, *MODES])}
    keys = sorted(grouped, key=lambda k: (order.get(k[0], len(order)), k[0], k[1]))
    summaries = [_cell(grouped[key], rows[key], grouped) for key in keys]
    evidence = guards.Evidence(environment, manifest, cells, lambda m, c: rows[(m, c)], summaries)
    findings = guards.check(evidence)
    return Summary(
        run_id=environment.run_id,
        artifacts_digest=manifest.digest(),
        artifacts=len(manifest.artifacts),
        logical_bytes=manifest.logical_bytes,
        publishable=not any(f.severity in ("fatal", "unpublishable") for f in findings),
        findings=findings,
        headline=_headlines(summaries),
        cells=summaries,
        break_even=_break_even(summaries),
        environment=environment,
    )


def rollup(bundle: Bundle) -> dict[str, dict[str, dict[str, dict[str, float | int | None]]]]:
    """`resources_rollup.json`: per mode, concurrency and phase, what the server process used (means over trials)."""
    found: dict[str, dict[str, dict[str, list[PhaseFacts]]]] = {}
    for cell in bundle.cells():
        phases = found.setdefault(cell.mode, {}).setdefault(f"c{cell.concurrency}", {})
        for phase in cell.phases:
            if not phase.skipped:
                phases.setdefault(phase.phase, []).append(phase)
    fields = (
        "wall_s",
        "server_cpu_s",
        "client_cpu_s",
        "server_rss_mean_bytes",
        "server_rss_max_bytes",
        "server_disk_read_bytes",
        "server_disk_write_bytes",
        "network_bytes",
    )
    return {
        mode: {
            concurrency: {
                phase: {name: _mean(getattr(f, name) for f in facts) for name in fields}
                for phase, facts in phases.items()
            }
            for concurrency, phases in cells.items()
        }
        for mode, cells in found.items()
    }


def _mean(values: Iterable[float | int | None]) -> float | None:
    known = [float(v) for v in values if v is not None]
    return round(sum(known) / len(known), 4) if known else None


# One cell


def _cell(
    trials: list[CellFacts], samples: list[Sample], grouped: dict[tuple[str, int], list[CellFacts]]
) -> CellSummary:
    mode, concurrency = trials[0].mode, trials[0].concurrency
    references = {name: grouped.get((name, concurrency), []) for name in (PASSTHROUGH, DIRECT)}
    names = [p.phase for p in trials[0].phases if p.phase not in ("settle", *PUT_PARTS)]
    phases = {}
    for name in (["put", *PUT_PARTS] if any(p.phase in PUT_PARTS for p in trials[0].phases) else []) + names:
        summary = _phase(name, trials, samples, references)
        if summary is not None:
            phases[name] = summary
    return CellSummary(
        mode=mode,
        concurrency=concurrency,
        trials=len(trials),
        phases=phases,
        storage=_storage(trials),
        settle_s=bootstrap([c.settle_s for c in trials if c.settle_s is not None]),
        cold=_cold_words(trials[-1]),
        rss_max_bytes=bootstrap([float(m) for c in trials if (m := _rss_max(c)) is not None]),
    )


def _facts(cell: CellFacts, phase: str) -> list[PhaseFacts]:
    wanted = PUT_PARTS if phase == "put" else (phase,)
    return [p for p in cell.phases if p.phase in wanted and not p.skipped]


def _throughput(cell: CellFacts, phase: str) -> float | None:
    """MB/s over the wall time of a phase; requests per second where bytes say nothing."""
    facts = _facts(cell, phase)
    wall_s = sum(f.wall_s for f in facts)
    if not facts or wall_s <= 0:
        return None
    if phase in LATENCY_PHASES:
        return sum(f.operations for f in facts) / wall_s
    return sum(f.payload_bytes for f in facts) / MB / wall_s


def _by_trial(cells: list[CellFacts], value: Callable[[CellFacts], float | None]) -> dict[int, float]:
    return {c.trial: v for c in cells if (v := value(c)) is not None}


def _phase(
    name: str, trials: list[CellFacts], samples: list[Sample], references: dict[str, list[CellFacts]]
) -> PhaseSummary | None:
    facts = [f for cell in trials for f in _facts(cell, name)]
    if not facts:
        skipped = [p.skipped for cell in trials for p in cell.phases if p.phase == name and p.skipped]
        if not skipped:
            return None
        return PhaseSummary(phase=name, operations=0, failed=0, payload_bytes=0, skipped=skipped[0])
    wanted = PUT_PARTS if name == "put" else (name,)
    rows = [s for s in samples if s.phase in wanted and not s.failed]
    speed = _by_trial(trials, lambda c: _throughput(c, name))

    def ratio_to(reference: str) -> Interval | None:
        other = references[reference]
        if not other or trials[0].mode == reference:
            return None
        return paired_ratio(speed, _by_trial(other, lambda c: _throughput(c, name)))

    def over_trials(value: Callable[[CellFacts], float | None]) -> Interval | None:
        return bootstrap(list(_by_trial(trials, value).values()))

    return PhaseSummary(
        phase=name,
        operations=sum(f.operations for f in facts),
        failed=sum(f.failed for f in facts),
        payload_bytes=sum(f.payload_bytes for f in facts),
        throughput_mb_s=None if name in LATENCY_PHASES else bootstrap(list(speed.values())),
        requests_s=over_trials(lambda c: _rate(c, name)),
        latency_ms=quantiles([s.total_s for s in rows]),
        ttfb_ms=quantiles([s.ttfb_s for s in rows]),
        to_passthrough=ratio_to(PASSTHROUGH),
        to_direct=ratio_to(DIRECT),
        cpu_s_per_gb=over_trials(lambda c: _cpu_per_gb(c, name)),
        cpu_ms_per_request=over_trials(lambda c: _cpu_ms_per_request(c, name)),
        rss_max_bytes=over_trials(lambda c: _most(c, name, "server_rss_max_bytes")),
        rss_mean_bytes=over_trials(lambda c: _most(c, name, "server_rss_mean_bytes")),
        disk_write_bytes=over_trials(lambda c: _sum(c, name, "server_disk_write_bytes")),
        disk_read_bytes=over_trials(lambda c: _sum(c, name, "server_disk_read_bytes")),
    )


def _rate(cell: CellFacts, phase: str) -> float | None:
    facts = _facts(cell, phase)
    wall_s = sum(f.wall_s for f in facts)
    return sum(f.operations for f in facts) / wall_s if wall_s > 0 else None


def _cpu_s(cell: CellFacts, phase: str) -> float | None:
    """CPU seconds of the server. What PUT leaves to the background is PUT's cost, so settling is added to it."""
    facts = _facts(cell, phase) + (_facts(cell, "settle") if phase == "put" else [])
    known = [f.server_cpu_s for f in facts if f.server_cpu_s is not None]
    return sum(known) if len(known) == len(facts) and facts else None


def _cpu_per_gb(cell: CellFacts, phase: str) -> float | None:
    cpu_s, payload = _cpu_s(cell, phase), sum(f.payload_bytes for f in _facts(cell, phase))
    return cpu_s / (payload / GB) if cpu_s is not None and payload and phase not in LATENCY_PHASES else None


def _cpu_ms_per_request(cell: CellFacts, phase: str) -> float | None:
    cpu_s, operations = _cpu_s(cell, phase), sum(f.operations for f in _facts(cell, phase))
    return cpu_s * 1000 / operations if cpu_s is not None and operations else None


def _most(cell: CellFacts, phase: str, name: str) -> float | None:
    known = [float(v) for f in _facts(cell, phase) if (v := getattr(f, name)) is not None]
    return max(known) if known else None


def _sum(cell: CellFacts, phase: str, name: str) -> float | None:
    known = [float(v) for f in _facts(cell, phase) if (v := getattr(f, name)) is not None]
    return sum(known) if known else None


def _rss_max(cell: CellFacts) -> int | None:
    return max((p.server_rss_max_bytes for p in cell.phases if p.server_rss_max_bytes is not None), default=None)


def _cold_words(cell: CellFacts) -> dict[str, str]:
    facts = cell.cold
    if facts is None:
        return {}
    resident = "not measurable" if facts.resident_fraction is None else f"{facts.resident_fraction:.1%}"
    return {
        "cache drop": "by the admin API" if facts.cache_drop_api else "no API for it",
        "process": "restarted" if facts.process_restarted else "kept running",
        "kernel cache": facts.kernel_cache,
        "stored pages still cached": resident,
    }


# Storage


def _storage(trials: list[CellFacts]) -> StorageSummary | None:
    counted = [c for c in trials if c.storage is not None]
    if not counted:
        return None
    last = counted[-1].storage
    assert last is not None
    ratios = [
        c.storage.best / c.storage.logical_bytes
        for c in counted
        if c.storage and c.storage.best is not None and c.storage.logical_bytes
    ]
    saved = _saved(counted[-1])
    overhead = None if last.best is None else last.best - (last.logical_bytes - sum(saved.values()))
    return StorageSummary(
        logical_bytes=last.logical_bytes,
        stored_ratio=bootstrap(ratios),
        unsettled_ratio=bootstrap(
            [c.deferral.stored_bytes / c.storage.logical_bytes for c in counted if c.deferral and c.storage]
        ),
        deferred_share=bootstrap(
            [c.deferral.deferred / c.deferral.bodies for c in counted if c.deferral and c.deferral.bodies]
        ),
        stored_bytes=last.best,
        counts={
            "accounting (admin API)": last.account_total,
            "backend listing": last.backend_listed,
            "metrics": last.metrics_total,
            "object headers": last.header_total,
        },
        parts=last.account_parts,
        saved_bytes=saved,
        overhead_bytes=overhead,
        families=_families(counted[-1]),
    )


def _saved(cell: CellFacts) -> dict[str, int]:
    """What each stage removed, by the objects' own headers; by the metrics where headers are off."""
    if cell.objects and all(o.stored_bytes is not None for o in cell.objects):
        found = {"dedup": 0, "zstd": 0, "delta": 0}
        for entry in cell.objects:
            if entry.form in found and entry.stored_bytes is not None:
                found[entry.form] += entry.logical_bytes - entry.stored_bytes
        return found if cell.mode in COMPRESSING_MODES else {}
    return dict(cell.saved_bytes)


def _families(cell: CellFacts) -> list[FamilySummary]:
    found: dict[str, FamilySummary] = {}
    for entry in cell.objects:
        family = found.setdefault(
            entry.family,
            FamilySummary(
                family=entry.family, expectation=entry.expectation, objects=0, logical_bytes=0, stored_bytes=0, forms={}
            ),
        )
        family.objects += 1
        family.logical_bytes += entry.logical_bytes
        if entry.stored_bytes is None or family.stored_bytes is None:
            family.stored_bytes = None
        else:
            family.stored_bytes += entry.stored_bytes
            if entry.logical_bytes and entry.expectation != "small":
                family.by_version.append((entry.version_order, round(entry.stored_bytes / entry.logical_bytes, 6)))
        if entry.form:
            family.forms[entry.form] = family.forms.get(entry.form, 0) + 1
        if entry.reason:
            family.reasons = dict(Counter(family.reasons) + Counter([entry.reason]))
    return list(found.values())


# What is said first


def _headlines(cells: list[CellSummary]) -> list[Headline]:
    lowest: dict[str, CellSummary] = {}
    for cell in cells:
        if cell.mode not in lowest or cell.concurrency < lowest[cell.mode].concurrency:
            lowest[cell.mode] = cell
    rows = []
    for cell in lowest.values():
        put, cold, warm = (cell.phases.get(name) for name in ("put", "cold_get", "warm_get"))
        row = Headline(
            mode=cell.mode,
            stored_ratio=cell.storage.stored_ratio if cell.storage else None,
            unsettled_ratio=cell.storage.unsettled_ratio if cell.storage else None,
            deferred_share=cell.storage.deferred_share if cell.storage else None,
            put_cpu_s_per_gb=put.cpu_s_per_gb if put else None,
            get_cpu_s_per_gb=warm.cpu_s_per_gb if warm else None,
            rss_max_bytes=cell.rss_max_bytes,
        )
        for name, phase in (("put", put), ("cold_get", cold), ("warm_get", warm)):
            if phase is not None:
                setattr(row, name, phase.throughput_mb_s)
                setattr(row, f"{name}_to_passthrough", phase.to_passthrough)
                setattr(row, f"{name}_to_direct", phase.to_direct)
        row.verdict = _verdict(row)
        rows.append(row)
    return rows


def _verdict(row: Headline) -> str:
    """The one sentence an operator takes home, in ratios to passthrough (to direct, for passthrough itself)."""
    if row.mode == DIRECT:
        return ""
    reference = "direct" if row.mode == PASSTHROUGH else "passthrough"
    parts = []
    for label, name in (("PUT", "put"), ("cold GET", "cold_get"), ("warm GET", "warm_get")):
        ratio: Interval | None = getattr(row, f"{name}_to_{reference}")
        if ratio is not None:
            parts.append(f"{label} {ratio.median:.2f}×")
    if row.stored_ratio is not None:
        parts.append(f"stored {row.stored_ratio.median:.2f}×")
        if row.unsettled_ratio and row.deferred_share and any(row.deferred_share.values):
            parts[-1] += f" ({row.unsettled_ratio.median:.2f}× before settling)"
    return f"{mode_title(row.mode)}: {', '.join(parts)} (of {reference})" if parts else ""


def _break_even(cells: list[CellSummary]) -> list[BreakEven]:
    """Where each reducing mode begins to pay: from its PUT speed, reduction and CPU cost at the lowest concurrency."""
    lowest = min((c.concurrency for c in cells), default=0)
    base = next((c for c in cells if c.mode == PASSTHROUGH and c.concurrency == lowest), None)
    found = []
    for cell in cells:
        put = cell.phases.get("put")
        if (
            cell.mode not in COMPRESSING_MODES
            or cell.concurrency != lowest
            or put is None
            or put.throughput_mb_s is None
        ):
            continue
        if cell.storage is None or cell.storage.stored_ratio is None:
            continue
        ratio, speed = cell.storage.stored_ratio.median, put.throughput_mb_s.median
        base_cpu = base.phases["put"].cpu_s_per_gb if base and "put" in base.phases else None
        extra = (put.cpu_s_per_gb.median if put.cpu_s_per_gb else 0.0) - (base_cpu.median if base_cpu else 0.0)
        found.append(
            BreakEven(
                mode=cell.mode,
                put_mb_s=speed,
                stored_ratio=ratio,
                link_mbit_s=speed * 8 if ratio < 1 else None,
                extra_cpu_s_per_gb=max(0.0, extra),
                usd_per_gb_month=storage_price(max(0.0, extra), ratio),
            )
        )
    return found


def storage_price(extra_cpu_s_per_gb: float, stored_ratio: float) -> float | None:
    """The price per GB and month above which saved bytes pay for the CPU that saved them; `None` when none are
    saved.
    """
    if stored_ratio >= 1:
        return None
    return extra_cpu_s_per_gb / 3600 * CPU_USD_PER_HOUR / ((1 - stored_ratio) * RETENTION_MONTHS)

"""`summary.json`: what a run says, as a schema. `summarize` computes it, reports draw it, `compare` compares it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from taxbench.records import SCHEMA_VERSION, Environment, Strict
from taxbench.statistics import Interval, Quantiles

Severity = Literal["fatal", "unpublishable", "label", "note"]
"""`fatal`: the numbers may not be used. `unpublishable`: the machine was not quiet. `label`: true, with a condition
that must be quoted along. `note`: worth an explanation."""


class Finding(Strict):
    """Something a guard has to say."""

    severity: Severity
    code: str
    where: str = ""
    message: str


class PhaseSummary(Strict):
    """One phase at one concurrency of one mode, over all trials. MB and GB are decimal and logical."""

    phase: str
    operations: int
    failed: int
    payload_bytes: int
    throughput_mb_s: Interval | None = None
    requests_s: Interval | None = None
    latency_ms: Quantiles | None = None
    ttfb_ms: Quantiles | None = None
    to_passthrough: Interval | None = Field(
        default=None, description="throughput relative to passthrough, paired by trial"
    )
    to_direct: Interval | None = Field(default=None, description="throughput relative to direct, paired by trial")
    cpu_s_per_gb: Interval | None = Field(default=None, description="the server process; PUT includes settling")
    cpu_ms_per_request: Interval | None = None
    rss_max_bytes: Interval | None = None
    rss_mean_bytes: Interval | None = None
    disk_write_bytes: Interval | None = None
    disk_read_bytes: Interval | None = None
    skipped: str = ""


class FamilySummary(Strict):
    """What a mode made of one family of artifacts (last trial; storage does not vary between trials of one build)."""

    family: str
    expectation: str
    objects: int
    logical_bytes: int
    stored_bytes: int | None
    forms: dict[str, int]
    reasons: dict[str, int] = Field(default_factory=dict)
    by_version: list[tuple[int, float]] = Field(default_factory=list, description="(version order, stored / logical)")


class StorageSummary(Strict):
    """Stored bytes of a mode: how many, where they are, and where the rest went."""

    logical_bytes: int
    stored_ratio: Interval | None
    unsettled_ratio: Interval | None = Field(
        default=None, description="the same when the uploads had ended, before background work was waited for"
    )
    deferred_share: Interval | None = Field(
        default=None, description="uploads that were stored first and encoded while settling, as a share of all"
    )
    stored_bytes: int | None
    counts: dict[str, int | None] = Field(description="the independent counts, last trial")
    parts: dict[str, int] = Field(description="the accounting identity, last trial")
    saved_bytes: dict[str, int] = Field(description="dedup, zstd, delta: logical bytes each stage removed")
    overhead_bytes: int | None = Field(default=None, description="stored minus what the stages left")
    families: list[FamilySummary] = Field(default_factory=list)


class CellSummary(Strict):
    """One mode at one concurrency."""

    mode: str
    concurrency: int
    trials: int
    phases: dict[str, PhaseSummary]
    storage: StorageSummary | None = None
    settle_s: Interval | None = None
    cold: dict[str, str] = Field(default_factory=dict, description="what cold achieved, in words")
    rss_max_bytes: Interval | None = None


class Headline(Strict):
    """One row of the tax table, at the lowest concurrency."""

    mode: str
    put: Interval | None = None
    put_to_passthrough: Interval | None = None
    put_to_direct: Interval | None = None
    cold_get: Interval | None = None
    cold_get_to_passthrough: Interval | None = None
    cold_get_to_direct: Interval | None = None
    warm_get: Interval | None = None
    warm_get_to_passthrough: Interval | None = None
    warm_get_to_direct: Interval | None = None
    stored_ratio: Interval | None = None
    unsettled_ratio: Interval | None = None
    deferred_share: Interval | None = None
    put_cpu_s_per_gb: Interval | None = None
    get_cpu_s_per_gb: Interval | None = None
    rss_max_bytes: Interval | None = None
    verdict: str = ""


class BreakEven(Strict):
    """Where a mode begins to pay against passthrough."""

    mode: str
    put_mb_s: float
    stored_ratio: float
    link_mbit_s: float | None = Field(description="it is the faster upload on links below this speed; absent: on none")
    extra_cpu_s_per_gb: float
    usd_per_gb_month: float | None = Field(description="it is the cheaper store above this price; absent: at none")


class Summary(Strict):
    """`summary.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    artifacts_digest: str
    artifacts: int
    logical_bytes: int
    publishable: bool
    findings: list[Finding]
    headline: list[Headline]
    cells: list[CellSummary]
    break_even: list[BreakEven]
    environment: Environment

    def cell(self, mode: str, concurrency: int) -> CellSummary | None:
        return next((c for c in self.cells if c.mode == mode and c.concurrency == concurrency), None)

    @property
    def fatal(self) -> bool:
        return any(f.severity == "fatal" for f in self.findings)

"""What a run leaves behind, apart from CSV rows: the facts of the machine, of every cell, of every study.

These models are the schema of the JSON files. Raw facts only: everything that is computed from them is in `summary`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION: Literal[1] = 1


class Strict(BaseModel):
    """A record that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid")


class MachineFacts(Strict):
    """The machine the client ran on."""

    cpu_model: str
    cpu_count: int
    memory_bytes: int
    kernel: str
    os: str
    filesystem: str = ""
    virtualized: str = ""
    python: str = ""
    libraries: dict[str, str] = Field(default_factory=dict)


class Ceiling(Strict):
    """What the client itself can move, measured against a server that stores nothing. MB are 10^6 bytes."""

    concurrency: int
    put_mb_s: float
    get_mb_s: float
    requests_s: float


class Noise(Strict):
    """What else happened on the machine while the run went on, in fractions of all its CPU time (0 to 1)."""

    steal_fraction: float
    foreign_fraction: float = Field(description="CPU used by neither the client nor the measured server")
    load_before: float = Field(description="one-minute load average before the first cell")
    swap_in_pages: int = 0


class Environment(Strict):
    """`environment.json`: everything needed to judge a run and to repeat it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    started_at: str = Field(description="UTC, ISO 8601")
    taxbench: str
    command: list[str] = Field(description="the exact command line; credentials never stand in it")
    profile: str
    seed: int
    trials: int
    modes: list[str]
    concurrency: list[int]
    phases: list[str]
    cell_order: list[str] = Field(description="`t001/mode/c1` in the order they ran")
    payload_hash: str
    machine: MachineFacts
    single_machine: bool
    ceilings: list[Ceiling]
    noise: Noise
    servers: dict[str, dict[str, str]] = Field(description="facts about the server of each mode")
    buckets: dict[str, str]
    compression_verified: bool = True
    failed_studies: dict[str, str] = Field(default_factory=dict, description="study -> why it could not be finished")
    killed_servers: dict[str, int] = Field(default_factory=dict, description="mode -> times it ignored SIGTERM")
    wall_s: float = 0.0


class ColdFacts(Strict):
    """What "cold" achieved. Nothing here is assumed: `resident_fraction` was measured after the caches were dropped."""

    connections_closed: bool = True
    cache_drop_api: bool = False
    process_restarted: bool = False
    kernel_cache: Literal["drop_caches", "fadvise", "untouched", "unknown"] = "unknown"
    resident_fraction: float | None = Field(
        default=None, description="sampled pages of stored files still in the page cache"
    )


class PhaseFacts(Strict):
    """One phase of one cell, as the server's process saw it. Monotonic seconds for `started_s` and `ended_s`."""

    phase: str
    started_s: float
    ended_s: float
    operations: int
    failed: int
    payload_bytes: int
    wall_s: float
    client_cpu_s: float
    server_cpu_s: float | None = None
    server_rss_mean_bytes: int | None = None
    server_rss_max_bytes: int | None = None
    server_disk_read_bytes: int | None = None
    server_disk_write_bytes: int | None = None
    network_bytes: int | None = None
    skipped: str = ""


class StorageCounts(Strict):
    """Stored bytes of one cell, counted as many ways as the target allows. `None`: this target cannot say."""

    objects: int
    logical_bytes: int
    account_total: int | None = None
    account_parts: dict[str, int] = Field(default_factory=dict)
    store_total: int | None = Field(default=None, description="the accounting of the whole store, all buckets")
    store_parts: dict[str, int] = Field(default_factory=dict)
    backend_said: int | None = Field(default=None, description="what the server believes its backend holds")
    backend_listed: int | None = Field(default=None, description="the sizes of the backend's files, counted by us")
    backend_blobs: int | None = None
    metrics_total: int | None = None
    metrics_parts: dict[str, int] = Field(default_factory=dict)
    header_total: int | None = Field(default=None, description="sum of x-deltaweir-stored-bytes over all objects")

    @property
    def best(self) -> int | None:
        """The count to quote: the bucket's account without what only waits for collection, else the backend's listing,
        else the headers."""
        if self.account_total is not None:
            return self.account_total - self.account_parts.get("tombstoned", 0)
        return self.header_total if self.backend_listed is None else self.backend_listed


class ObjectFacts(Strict):
    """What HEAD says about one stored object."""

    artifact: str
    family: str
    version_order: int
    expectation: str
    logical_bytes: int
    stored_bytes: int | None
    form: str = ""
    reason: str = ""


class DeferralFacts(Strict):
    """What a store left for later when the uploads had ended, before anybody waited for it to settle."""

    bodies: int
    deferred: int = Field(description="bodies that were stored without a base because the codec was saturated")
    stored_bytes: int = Field(description="the bucket's account at that moment, without what waits for collection")


class CanaryFacts(Strict):
    """Whether known plaintext was found in what the server wrote."""

    scanned_bytes: int
    scanned_files: int
    content_found: list[str] = Field(description="files, relative to their root, that hold canary content")
    name_found: list[str] = Field(description="blob files that hold the canary's key name")
    skipped: str = ""


class CounterFacts(Strict):
    """What the counters did between the first and the last scrape of the cell."""

    backwards: list[str]
    restarts_seen: int
    restarts_ordered: int


class CellFacts(Strict):
    """`<mode>/c<N>/cell_t<T>.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    trial: int
    mode: str
    concurrency: int
    bucket: str
    prefix: str
    observed_compression: str = ""
    observed_encryption: str = ""
    phases: list[PhaseFacts]
    settle_s: float | None = None
    settled: bool | None = None
    deferral: DeferralFacts | None = None
    cold: ColdFacts | None = None
    storage: StorageCounts | None = None
    objects: list[ObjectFacts] = Field(default_factory=list)
    canary: CanaryFacts | None = None
    counters: CounterFacts | None = None
    saved_bytes: dict[str, int] = Field(
        default_factory=dict, description="deltaweir_saved_bytes_total by stage, this cell"
    )


class Point(Strict):
    """One resource sample. `t_s` is monotonic; counters are cumulative, gauges are as read."""

    t_s: float
    server_cpu_s: float | None = None
    server_rss_bytes: int | None = None
    server_disk_read_bytes: int | None = None
    server_disk_write_bytes: int | None = None
    client_cpu_s: float | None = None
    machine_busy_s: float
    machine_steal_s: float
    network_bytes: int
    external: dict[str, float] = Field(default_factory=dict)


class Marker(Strict):
    """Where a phase begins or ends on the axis of the samples."""

    t_s: float
    event: Literal["begin", "end"]
    trial: int
    mode: str
    concurrency: int
    phase: str


class Timeseries(Strict):
    """`resource_timeseries.json`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    interval_s: float
    epoch_s: float = Field(default=0.0, description="Unix time at `t_s` 0, for dashboards; 0 in bundles of before")
    samples: list[Point]
    markers: list[Marker]

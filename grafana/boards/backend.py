"""Where bytes lie, what that takes, what it costs."""

from __future__ import annotations

from boards.panel import (
    MONEY_UNIT,
    PRICE,
    Board,
    Panel,
    Query,
    Row,
    catalog,
    increase,
    mean,
    quantile,
    rate,
    select,
    textbox,
    total,
)

STORED = catalog("deltaweir_bucket_stored_bytes", "bucket, kind")
MONTH_S = 30 * 24 * 3600
REQUEST_PRICE = textbox("request_price", "Request price, $ per million", "5")

CALLS = Row(
    "Calls",
    [
        Panel(
            "Calls by operation",
            [Query(rate("deltaweir_backend_requests_total", "backend, op"), "{{backend}} {{op}}")],
            "reqps",
            "Calls to backends; repeated ones count each time.",
            stacked=True,
        ),
        Panel(
            "Calls that failed",
            [Query(rate("deltaweir_backend_requests_total", "backend, op, code", code="!~ok|absent|abandoned"),
                   "{{backend}} {{op}}: {{code}}")],
            "reqps",
            "Before any repetition. abandoned (the client went away) and absent are not failures.",
        ),
        Panel(
            "Repeated calls",
            [Query(rate("deltaweir_backend_retries_total", "backend, reason"), "{{backend}}: {{reason}}")],
            "reqps",
            "Only calls that are safe to repeat are. The local backend repeats none.",
        ),
        Panel(
            "Latency",
            [
                Query(quantile(q, "deltaweir_backend_seconds", "backend, op"),
                      f"{{{{backend}}}} {{{{op}}}} p{round(q * 100)}")
                for q in (0.5, 0.99)
            ],
            "s",
            "For reads, to the first byte.",
        ),
        Panel(
            "Bytes moved",
            [Query(rate("deltaweir_backend_bytes_total", "backend, dir"), "{{backend}} {{dir}}")],
            "Bps",
            "Written and read, tables included.",
        ),
        Panel(
            "Backend calls per S3 request",
            [Query(f"{rate('deltaweir_backend_requests_total')} / {rate('deltaweir_http_requests_total')}", "calls")],
            "none",
            "Inline objects and cached tables need none; a cold read of a large delta needs several.",
        ),
        Panel(
            "Read amplification",
            [
                Query(
                    f"{rate('deltaweir_backend_bytes_total', dir='read')} / "
                    f"{rate('deltaweir_http_response_bytes_total', op='GetObject')}",
                    "read from backends per byte sent",
                )
            ],
            "none",
            "Below 1 compression and caches win; above 1 bases and short ranges read more than clients asked for.",
        ),
    ],
)  # fmt: skip

COST = Row(
    "Cost",
    [
        Panel(
            "Storage a month",
            [Query(f"{STORED} / 1e12 * $price")],
            MONEY_UNIT,
            "Stored terabytes times the price typed in above.",
            kind="stat",
            width=6,
            decimals=2,
        ),
        Panel(
            "Saved a month",
            [Query(f"({catalog('deltaweir_bucket_logical_bytes', 'bucket')} - {STORED}) / 1e12 * $price")],
            MONEY_UNIT,
            "What the same objects would cost uncompressed, minus what they cost.",
            kind="stat",
            width=6,
            decimals=2,
        ),
        Panel(
            "Requests a month at this pace",
            [
                Query(
                    f"{rate('deltaweir_backend_requests_total', op='!probe')} * {MONTH_S} / 1e6 * $request_price",
                )
            ],
            MONEY_UNIT,
            "Backend calls of the last minutes, continued for 30 days, times the price typed in "
            "above. Free on a local disk.",
            kind="stat",
            width=6,
            decimals=2,
        ),
        Panel(
            "Free on disks",
            [
                Query(
                    f"min by (place) ({select('deltaweir_disk_bytes', state='free')} / ignoring (state) "
                    f"{select('deltaweir_disk_bytes', state='size')})",
                    "{{place}}",
                )
            ],
            "percentunit",
            "Of the file systems of the data directory and of local backends. Near 0 uploads are refused.",
            kind="bargauge",
            width=6,
            max=1,
        ),
    ],
)

CATALOG = Row(
    "Catalog, caches, collector",
    [
        Panel(
            "Catalog commits",
            [Query(quantile(q, "deltaweir_catalog_commit_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.99)],
            "s",
            "Every acknowledged write waits for one.",
        ),
        Panel(
            "Operations per commit",
            [Query(mean("deltaweir_catalog_batch_ops"), "mean")],
            "none",
            "Concurrent writes share a commit, so that one flush serves many.",
        ),
        Panel(
            "Cache hits",
            [
                Query(
                    f"{rate('deltaweir_cache_hits_total', 'kind, tier')} / "
                    f"({rate('deltaweir_cache_hits_total', 'kind, tier')} + "
                    f"{rate('deltaweir_cache_misses_total', 'kind, tier')})",
                    "{{kind}} ({{tier}})",
                )
            ],
            "percentunit",
            "Share of lookups that needed no backend call.",
            max=1,
        ),
        Panel(
            "Cache size",
            [Query(total("deltaweir_cache_bytes", "kind, tier"), "{{kind}} ({{tier}})")],
            "bytes",
            "Decoded base segments, base windows in use or idle, tables of blobs, and what codecs keep.",
            stacked=True,
        ),
        Panel(
            "Cache evictions",
            [Query(rate("deltaweir_cache_evictions_total", "kind, tier"), "{{kind}} ({{tier}})")],
            "ops",
            "Entries dropped for room: with many misses beside them, memory_bytes_max is too small "
            "for the working set.",
        ),
        Panel(
            "Collector",
            [
                Query(increase("deltaweir_gc_deleted_blobs_total"), "blobs deleted"),
                Query(increase("deltaweir_gc_runs_total"), "runs"),
                Query(increase("deltaweir_gc_errors_total"), "errors"),
                Query(increase("deltaweir_gc_refusals_total"), "refusals"),
                Query(select("deltaweir_gc_trash_files"), "files listed for removal"),
                Query(increase("deltaweir_backend_uploads_aborted_total"), "uploads aborted"),
            ],
            "none",
            "In the time shown.",
            kind="bargauge",
        ),
        Panel(
            "Freed by the collector",
            [Query(rate("deltaweir_gc_reclaimed_bytes_total"), "freed")],
            "Bps",
            "Stored bytes given back to backends.",
        ),
        Panel(
            "Since the last good collection",
            [
                Query(
                    f"time() - max by (job) ({select('deltaweir_gc_last_success_timestamp_seconds')} > 0)",
                    "{{instance}}",
                )
            ],
            "s",
            "A sawtooth as high as gc.interval; one that keeps rising needs a look.",
        ),
    ],
)

JOBS = Row(
    "Background jobs",
    [
        Panel(
            "Running now",
            [Query(total("deltaweir_job_running", "job_name"), "{{job_name}}")],
            "none",
            "Processes that run the job: one at most, but for the moment in which a lease changes hands.",
        ),
        Panel(
            "Runs that ended",
            [Query(increase("deltaweir_job_runs_total", "job_name, outcome"), "{{job_name}} {{outcome}}")],
            "none",
            "In the time shown. Interrupted ones are gone on with, by whichever process is there.",
            kind="bargauge",
        ),
        Panel(
            "How long runs took",
            [Query(quantile(0.95, "deltaweir_job_seconds", "job_name"), "{{job_name}} 95 %")],
            "s",
            "From the lease to the outcome.",
        ),
        Panel(
            "Progress",
            [Query(f"max by (job_name, state) ({select('deltaweir_job_progress')})", "{{job_name}} {{state}}")],
            "none",
            "In the job's own unit; a total of 0 is not known.",
        ),
        Panel(
            "Waiting",
            [Query(f"max by (job_name) ({select('deltaweir_job_backlog')})", "{{job_name}}")],
            "none",
            "What waits for a job. One that only grows needs a look: paused, failing, or too slow.",
        ),
        Panel(
            "Writer epochs lost",
            [Query(total("deltaweir_writer_epochs_lost_total", "instance"), "{{instance}}")],
            "none",
            "Processes that were silent for longer than storage.writer_lease; their writes under way were refused.",
        ),
        Panel(
            "Leases lost",
            [Query(increase("deltaweir_job_leases_lost_total", "job_name"), "{{job_name}}")],
            "none",
            "Runs that ended because another process had taken over: this one was stopped, or the catalog "
            "away, for half a minute.",
        ),
        Panel(
            "Since the last good run",
            [
                Query(
                    f"time() - max by (job_name) ({select('deltaweir_job_last_success_timestamp_seconds')} > 0)",
                    "{{job_name}}",
                )
            ],
            "s",
            "A sawtooth as high as the job's interval; one that keeps rising needs a look.",
        ),
    ],
)

NOTIFICATIONS = Row(
    "Events for webhooks",
    [
        Panel(
            "Delivered",
            [
                Query(rate("deltaweir_notifications_delivered_total", "webhook"), "{{webhook}}"),
                Query(rate("deltaweir_notifications_failed_total", "webhook"), "{{webhook}} failed"),
            ],
            "ops",
            "Events that webhooks took, and attempts that failed and are repeated.",
        ),
        Panel(
            "Waiting events",
            [Query(f"max by (webhook) ({select('deltaweir_notifications_waiting')})", "{{webhook}}")],
            "none",
            "Past notifications.waiting_max the next ones are lost.",
        ),
        Panel(
            "The first of them waits for",
            [Query(f"max by (webhook) ({select('deltaweir_notifications_oldest_age_seconds')})", "{{webhook}}")],
            "s",
            "Past notifications.keep it is given up.",
        ),
        Panel(
            "Lost events",
            [Query(f"max by (webhook) ({select('deltaweir_notifications_lost')})", "{{webhook}}")],
            "none",
            "Since the store was made: too many waited, or they waited too long.",
        ),
    ],
)

BOARD = Board(
    uid="deltaweir-backend",
    title="deltaweir: backend and cost",
    description="Where bytes lie, what that takes, what it costs.",
    rows=[CALLS, COST, CATALOG, JOBS, NOTIFICATIONS],
    variables=[PRICE, REQUEST_PRICE],
)

"""The process: CPU, memory against its budget, descriptors, and the canary for delayed acknowledgements."""

from __future__ import annotations

from boards.panel import Board, Panel, Query, Row, buckets, catalog, mean, quantile, rate, select, total


def each(metric: str, **labels: str) -> str:
    """A figure of each instance."""
    return f"sum by (instance) ({select(metric, **labels)})"


PROCESS = Row(
    "Process",
    [
        Panel(
            "CPU",
            [Query(rate("process_cpu_seconds_total", "instance"), "{{instance}}")],
            "none",
            "Cores in use. The counter has whole seconds, so short spans look stepped.",
        ),
        Panel(
            "Memory",
            [
                Query(each("process_resident_memory_bytes"), "{{instance}} resident"),
                Query(each("deltaweir_memory_budget_bytes", state="limit"), "{{instance}} budget"),
                Query(each("deltaweir_memory_budget_bytes", state="used"), "{{instance}} budget used"),
            ],
            "bytes",
            "Resident memory stays near the budget at most: every buffered byte, base window and "
            "codec job holds a permit (I8).",
        ),
        Panel(
            "Allocator",
            [
                Query(each("deltaweir_allocator_bytes", state="allocated"), "{{instance}} allocated"),
                Query(each("deltaweir_allocator_bytes", state="resident"), "{{instance}} resident"),
                Query(each("deltaweir_resident_bytes", kind="anonymous"), "{{instance}} anonymous"),
                Query(each("deltaweir_resident_bytes", kind="file"), "{{instance}} pages of files"),
            ],
            "bytes",
            "What is allocated is in use: the panel Cache size says by what. Resident beyond that is kept for "
            "the next allocation, and given back when idle. Anonymous beyond the allocator's is SQLite's and zstd's.",
        ),
        Panel(
            "Address space",
            [Query(each("process_virtual_memory_bytes"), "{{instance}}")],
            "bytes",
            "Reserved, not used; it says little unless the machine forbids overcommitting.",
        ),
        Panel(
            "Descriptors",
            [
                Query(each("process_open_fds"), "{{instance}} open"),
                Query(each("process_max_fds"), "{{instance}} limit"),
            ],
            "none",
            "Connections, spool and blob files.",
        ),
        Panel(
            "Threads",
            [
                Query(each("process_threads"), "{{instance}} process"),
                Query(total("deltaweir_codec_threads", "state"), "codec {{state}}"),
            ],
            "none",
            "The number is fixed but for threads that wait for files.",
        ),
        Panel(
            "Up since",
            [Query(f"time() - max by (instance) ({select('process_start_time_seconds')})", "{{instance}}")],
            "s",
            "A line that falls to 0 is a restart.",
        ),
    ],
)

REQUESTS = Row(
    "Requests",
    [
        Panel(
            "Small responses",
            [Query(quantile(q, "deltaweir_small_response_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99)],
            "s",
            "Requests that carry and get less than 1500 bytes. A median that jumps to 40 ms is a "
            "delayed acknowledgement meeting Nagle's algorithm.",
        ),
        Panel(
            "Under way",
            [Query(total("deltaweir_http_inflight", "op"), "{{op}}")],
            "none",
            "Requests being answered now.",
            stacked=True,
        ),
        Panel(
            "Refused for want of room",
            [Query(rate("deltaweir_rejected_total", "reason"), "{{reason}}")],
            "reqps",
            "Which bound was met. Clients got 503 SlowDown or no connection.",
        ),
        Panel(
            "Size of uploads",
            [Query(buckets("deltaweir_http_request_body_bytes"), "{{le}}")],
            "bytes",
            "Bodies of PutObject and UploadPart.",
            kind="heatmap",
        ),
        Panel(
            "Mean size of uploads",
            [Query(mean("deltaweir_http_request_body_bytes", "op"), "{{op}}")],
            "bytes",
            "With framing, as received.",
        ),
        Panel(
            "Open multipart uploads",
            [Query(catalog("deltaweir_multipart_inflight"), "open")],
            "none",
            "From the catalog, every ten seconds. Uploads nobody completes are aborted after limits.upload_age_max.",
        ),
    ],
)

BOARD = Board(
    uid="deltaweir-runtime",
    title="deltaweir: runtime",
    description="CPU, memory against its budget, descriptors, and the canary for delayed acknowledgements.",
    rows=[PROCESS, REQUESTS],
)

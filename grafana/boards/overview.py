"""Is it well, how fast is it, what does it save."""

from __future__ import annotations

from boards.panel import MONEY_UNIT, PRICE, Board, Panel, Query, Row, catalog, quantile, rate, select

LOGICAL = catalog("deltaweir_bucket_logical_bytes", "bucket")
STORED = catalog("deltaweir_bucket_stored_bytes", "bucket, kind")
REQUESTS = rate("deltaweir_http_requests_total")
SERVER_ERRORS = rate("deltaweir_http_requests_total", code="~5..")

STATE = Row(
    "Now",
    [
        Panel(
            "Instances up",
            [Query(f"count({select('deltaweir_build_info')})")],
            "none",
            "Servers that answered the last scrape.",
            kind="stat",
            width=3,
        ),
        Panel(
            "Version",
            [Query(f"count by (version, commit) ({select('deltaweir_build_info')})", "{{version}} {{commit}}")],
            "none",
            "Servers per build. Two builds at once outside an upgrade are a mistake.",
            kind="stat",
            width=5,
        ),
        Panel("Requests", [Query(REQUESTS)], "reqps", "S3 requests answered per second.", kind="stat", width=4),
        Panel(
            "Server errors",
            [Query(f"({SERVER_ERRORS} or vector(0)) / {REQUESTS}")],
            "percentunit",
            "Share of requests answered with 5xx; 503 SlowDown included, because a client had to try again.",
            kind="stat",
            width=4,
            decimals=2,
        ),
        Panel(
            "GET, 99th percentile to first byte",
            [Query(quantile(0.99, "deltaweir_http_ttfb_seconds", op="GetObject"))],
            "s",
            "From the end of the request's head to the head of the answer.",
            kind="stat",
            width=4,
        ),
        Panel(
            "Objects",
            [Query(catalog("deltaweir_bucket_objects", "bucket"))],
            "short",
            "Current versions in all buckets, from the catalog.",
            kind="stat",
            width=4,
        ),
    ],
)

SAVINGS = Row(
    "What is stored and what it saves",
    [
        Panel(
            "Logical",
            [Query(LOGICAL)],
            "decbytes",
            "What clients believe they stored.",
            kind="stat",
            width=4,
        ),
        Panel(
            "Stored",
            [Query(STORED)],
            "decbytes",
            "What lies on the backends for it: whole content, deltas, bases kept only for others, overhead.",
            kind="stat",
            width=4,
        ),
        Panel(
            "Effective ratio",
            [Query(f"{LOGICAL} / {STORED}")],
            "none",
            "Logical bytes per stored byte. Below 1 the overhead of small or incompressible objects "
            "outweighs the savings.",
            kind="stat",
            width=4,
            decimals=2,
        ),
        Panel(
            "Saved",
            [Query(f"{LOGICAL} - {STORED}")],
            "decbytes",
            "Logical minus stored. Read from the catalog, so it survives restarts.",
            kind="stat",
            width=4,
        ),
        Panel(
            "Saved a month",
            [Query(f"({LOGICAL} - {STORED}) / 1e12 * $price")],
            MONEY_UNIT,
            "Saved terabytes (10¹² bytes) times the price typed in above. Requests and CPU are not "
            "deducted: see Backend and cost.",
            kind="stat",
            width=4,
            decimals=2,
        ),
        Panel(
            "Spent a month",
            [Query(f"{STORED} / 1e12 * $price")],
            MONEY_UNIT,
            "Stored terabytes times the price typed in above.",
            kind="stat",
            width=4,
            decimals=2,
        ),
        Panel(
            "Logical and stored",
            [Query(LOGICAL, "logical"), Query(STORED, "stored")],
            "decbytes",
            "The distance between the lines is what is saved.",
        ),
        Panel(
            "Ratio by bucket",
            [
                Query(
                    f"{catalog('deltaweir_bucket_logical_bytes', 'bucket', 'bucket')} / "
                    f"({catalog('deltaweir_bucket_stored_bytes', 'bucket, kind', 'bucket')} > 0)",
                    "{{bucket}}",
                )
            ],
            "none",
            "Configured buckets and the hundred oldest others by name; the rest together as _other.",
        ),
        Panel(
            "Stored by kind",
            [Query(catalog("deltaweir_bucket_stored_bytes", "bucket, kind", "kind"), "{{kind}}")],
            "decbytes",
            "base_only is content no key shows any more, kept because deltas need it; overhead is "
            "tables, keysets, and "
            "blobs about to be purged.",
            stacked=True,
        ),
    ],
)

TRAFFIC = Row(
    "Traffic",
    [
        Panel(
            "Requests by operation",
            [Query(rate("deltaweir_http_requests_total", "op"), "{{op}}")],
            "reqps",
            "Unknown: refused before it was clear which operation was meant.",
            stacked=True,
        ),
        Panel(
            "Requests by status",
            [Query(rate("deltaweir_http_requests_total", "code"), "{{code}}")],
            "reqps",
            "499: the client went away before it had an answer.",
            stacked=True,
        ),
        Panel(
            "Throughput",
            [
                Query(rate("deltaweir_http_request_bytes_total"), "received"),
                Query(rate("deltaweir_http_response_bytes_total"), "sent"),
            ],
            "Bps",
            "Body bytes, as clients see them.",
        ),
        Panel(
            "Time to first byte",
            [
                Query(quantile(q, "deltaweir_http_ttfb_seconds", "op", op="~GetObject|HeadObject|PutObject|UploadPart"),
                      f"{{{{op}}}} p{round(q * 100)}")
                for q in (0.5, 0.99)
            ],
            "s",
            "For PUT it includes receiving the body, because the answer's head is the acknowledgement.",
        ),
        Panel(
            "Whole time, 99th percentile",
            [Query(quantile(0.99, "deltaweir_http_request_seconds", "op"), "{{op}}")],
            "s",
            "To the last byte of the answer; slow clients count.",
        ),
        Panel(
            "Refused and cut",
            [
                Query(rate("deltaweir_rejected_total", "reason"), "refused: {{reason}}"),
                Query(rate("deltaweir_http_cut_total", "op"), "cut: {{op}}"),
            ],
            "reqps",
            "Refused: connections or requests past a limit (503 SlowDown). Cut: answers that could "
            "not be ended honestly.",
        ),
    ],
)  # fmt: skip

BOARD = Board(
    uid="deltaweir-overview",
    title="deltaweir: overview",
    description="Is it well, how fast is it, what does it save.",
    rows=[STATE, SAVINGS, TRAFFIC],
    variables=[PRICE],
)

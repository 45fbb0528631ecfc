"""A benchmark run as the server saw it, with the run and its phases drawn in.

`grafana/annotate.py RESULTS` posts the annotations of a run that `docs/benchmark` made.
"""

from __future__ import annotations

from boards.panel import Board, Json, Panel, Query, Row, catalog, quantile, rate, select

GB = "1e9"
BODY_BYTES = f"({rate('deltaweir_http_request_bytes_total')} + {rate('deltaweir_http_response_bytes_total')})"


def tagged(name: str, color: str, *tags: str) -> Json:
    """Annotations that carry all of these tags."""
    return {
        "name": name,
        "datasource": {"type": "datasource", "uid": "-- Grafana --"},
        "enable": True,
        "iconColor": color,
        "type": "tags",
        "target": {"type": "tags", "tags": list(tags), "matchAny": False, "limit": 500},
    }


RUN = tagged("Runs", "purple", "taxbench", "run")
PHASE = tagged("Phases", "light-blue", "taxbench", "phase")

SPEED = Row(
    "Speed",
    [
        Panel(
            "PUT",
            [Query(rate("deltaweir_http_request_bytes_total", "op", op="~PutObject|UploadPart"), "{{op}}")],
            "Bps",
            "Bytes received for objects.",
            width=12,
        ),
        Panel(
            "GET",
            [Query(rate("deltaweir_http_response_bytes_total", "op", op="GetObject"), "{{op}}")],
            "Bps",
            "Bytes of objects sent.",
            width=12,
        ),
        Panel(
            "To first byte",
            [
                Query(quantile(q, "deltaweir_http_ttfb_seconds", "op", op="~PutObject|GetObject|UploadPart"),
                      f"{{{{op}}}} p{round(q * 100)}")
                for q in (0.5, 0.9, 0.99)
            ],
            "s",
            "As the server saw it; the report's figures are the client's.",
            width=12,
        ),
        Panel(
            "Requests",
            [Query(rate("deltaweir_http_requests_total", "op, code"), "{{op}} {{code}}")],
            "reqps",
            "A phase with 5xx in it is not believed by the report.",
            width=12,
        ),
    ],
)  # fmt: skip

COST = Row(
    "What it cost the server",
    [
        Panel(
            "CPU",
            [Query(rate("process_cpu_seconds_total", "instance"), "{{instance}}")],
            "none",
            "Cores in use by the server; the client's are in the report.",
        ),
        Panel(
            "CPU per GB",
            [
                Query(
                    f"{rate('process_cpu_seconds_total')} / ({BODY_BYTES} / {GB})",
                    "CPU seconds",
                )
            ],
            "s",
            "Per 10⁹ body bytes in and out.",
        ),
        Panel(
            "Memory",
            [Query(f"sum by (instance) ({select('process_resident_memory_bytes')})", "{{instance}}")],
            "bytes",
            "Resident memory of the server, file cache not included.",
        ),
        Panel(
            "Codec queue, 90th percentile",
            [Query(quantile(0.9, "deltaweir_codec_queue_seconds"), "p90")],
            "s",
            "Above the client's own upload time the effort falls.",
        ),
        Panel(
            "Effort",
            [Query(f"max by (instance) ({select('deltaweir_effort_level')})", "{{instance}}")],
            "none",
            "1 fast, 2 balanced, 3 high, 4 max.",
            max=4,
        ),
        Panel(
            "Backend bytes",
            [Query(rate("deltaweir_backend_bytes_total", "dir"), "{{dir}}")],
            "Bps",
            "A cold GET reads; a warm one does not.",
        ),
    ],
)

STORED = Row(
    "What it stored",
    [
        Panel(
            "Stored share of what was put",
            [
                Query(
                    f"{rate('deltaweir_stored_bytes_total', 'form')} / {rate('deltaweir_logical_bytes_total', 'form')}",
                    "{{form}}",
                )
            ],
            "percentunit",
            "By form, while it is put. The report counts what lies on the backend in the end.",
        ),
        Panel(
            "Buckets: logical",
            [Query(catalog("deltaweir_bucket_logical_bytes", "bucket", "bucket"), "{{bucket}}")],
            "decbytes",
            "The same objects go into the bucket of each mode.",
        ),
        Panel(
            "Buckets: stored",
            [Query(catalog("deltaweir_bucket_stored_bytes", "bucket, kind", "bucket, kind"), "{{bucket}} {{kind}}")],
            "decbytes",
            "What each mode made of them.",
            stacked=True,
        ),
    ],
)

BOARD = Board(
    uid="deltaweir-benchmark",
    title="deltaweir: benchmark",
    description="A benchmark run as the server saw it, with the run and its phases drawn in.",
    rows=[SPEED, COST, STORED],
    annotations=[RUN, PHASE],
    span="now-1h",
)

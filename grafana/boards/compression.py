"""What storing less costs, and why each body was stored as it was."""

from __future__ import annotations

from boards.panel import Board, Panel, Query, Row, buckets, catalog, mean, quantile, rate, select, total

GB = "1e9"
CPU = rate("process_cpu_seconds_total")
LOGICAL = rate("deltaweir_logical_bytes_total")
BODY_BYTES = f"({rate('deltaweir_http_request_bytes_total')} + {rate('deltaweir_http_response_bytes_total')})"

SPEED = Row(
    "Speed and its price",
    [
        Panel(
            "PUT by form",
            [Query(rate("deltaweir_logical_bytes_total", "form"), "{{form}}")],
            "Bps",
            "Logical bytes stored per second, by the form they ended in.",
            stacked=True,
        ),
        Panel(
            "GET",
            [Query(rate("deltaweir_http_response_bytes_total", op="GetObject"), "sent")],
            "Bps",
            "Object bytes sent per second.",
        ),
        Panel(
            "GET answers by form",
            [Query(rate("deltaweir_http_ttfb_seconds_count", "form", op="GetObject"), "{{form}}")],
            "reqps",
            "Which forms are read. No form: the answer was an error or 304.",
            stacked=True,
        ),
        Panel(
            "GET to first byte by form, 95th percentile",
            [Query(quantile(0.95, "deltaweir_http_ttfb_seconds", "form", op="GetObject"), "{{form}}")],
            "s",
            "The tax on reads: how much later a delta or zstd object begins than a raw one.",
        ),
        Panel(
            "CPU per GB of traffic",
            [Query(f"{CPU} / ({BODY_BYTES} / {GB})", "all of the server")],
            "s",
            "CPU seconds of the whole process per 10⁹ body bytes in and out. Stable where wall time is not.",
        ),
        Panel(
            "Encoding per GB stored",
            [
                Query(
                    f"{rate('deltaweir_encode_seconds_sum')} / ({LOGICAL} / {GB})",
                    "encoding",
                ),
                Query(
                    f"{rate('deltaweir_wasted_encode_seconds_total')} / ({LOGICAL} / {GB})",
                    "of it thrown away",
                ),
            ],
            "s",
            "Codec time per 10⁹ logical bytes; thrown away: deltas that came out larger than what "
            "they were to replace.",
        ),
    ],
)

DECISIONS = Row(
    "Decisions",
    [
        Panel(
            "Bodies by form and reason",
            [Query(rate("deltaweir_plan_total", "form, reason"), "{{form}}: {{reason}}")],
            "ops",
            "Why each body was stored as it was. Much base-useless or busy means wasted effort; much "
            "no-base, that nothing "
            "similar is in the bucket.",
            stacked=True,
        ),
        Panel(
            "Stored share of a body",
            [Query(buckets("deltaweir_reduction_ratio"), "{{le}}")],
            "percentunit",
            "Stored bytes as a share of logical bytes, body by body; lower is better.",
            kind="heatmap",
        ),
        Panel(
            "Mean stored share by form",
            [Query(mean("deltaweir_reduction_ratio", "form"), "{{form}}")],
            "percentunit",
            "Means over bodies, not bytes: small bodies count as much as large ones.",
        ),
        Panel(
            "Saved by stage",
            [Query(rate("deltaweir_saved_bytes_total", "stage"), "{{stage}}")],
            "Bps",
            "Bytes not stored thanks to each stage.",
            stacked=True,
        ),
        Panel(
            "Stored by form",
            [Query(rate("deltaweir_stored_bytes_total", "form"), "{{form}}")],
            "Bps",
            "Bytes written for new bodies.",
            stacked=True,
        ),
        Panel(
            "Bases considered",
            [Query(mean("deltaweir_base_candidates"), "mean per region")],
            "none",
            "Candidates that were found for 64 MiB of a body, by name and by similarity.",
        ),
        Panel(
            "Bases chosen",
            [Query(rate("deltaweir_base_choices_total", "source"), "{{source}}")],
            "ops",
            "How the chosen bases were found. None: regions without one.",
            stacked=True,
        ),
        Panel(
            "Trials of candidates",
            [Query(quantile(q, "deltaweir_base_trial_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.99)],
            "s",
            "A sample is encoded where sketches leave doubt. The first trial against a base includes its index.",
        ),
    ],
)

CODEC = Row(
    "Codec",
    [
        Panel(
            "Encoding a segment",
            [
                Query(quantile(q, "deltaweir_encode_seconds", "codec"), f"{{{{codec}}}} p{round(q * 100)}")
                for q in (0.5, 0.99)
            ],
            "s",
            "Segments have 4 MiB. The check by decoding is included.",
        ),
        Panel(
            "Decoding a segment",
            [
                Query(quantile(q, "deltaweir_decode_seconds", "codec"), f"{{{{codec}}}} p{round(q * 100)}")
                for q in (0.5, 0.99)
            ],
            "s",
            "What a reader waits for beyond the backend.",
        ),
        Panel(
            "Waiting for a codec thread",
            [Query(quantile(q, "deltaweir_codec_queue_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99)],
            "s",
            "Rises when uploads bring work faster than it is done; the effort then falls.",
        ),
        Panel(
            "Threads",
            [Query(total("deltaweir_codec_threads", "state"), "{{state}}")],
            "none",
            "Codec threads in all and busy; hashing are the threads of the hash pool at work.",
        ),
        Panel(
            "Effort",
            [Query(f"max by (instance) ({select('deltaweir_effort_level')})", "{{instance}}")],
            "none",
            "Effort the last segment got: 0 not now (stored, shrunk later), 1 fast, 2 balanced, 3 high, 4 max; 0 "
            "also before the first.",
            max=4,
        ),
        Panel(
            "Base bytes by source",
            [Query(rate("deltaweir_base_fetch_bytes_total", "source"), "{{source}}")],
            "Bps",
            "Bytes of bases used for deltas. From the backend they cost requests and bandwidth.",
            stacked=True,
        ),
        Panel(
            "Small objects packed",
            [
                Query(rate("deltaweir_packed_bytes_total", "when"), "bytes {{when}}"),
                Query(rate("deltaweir_packed_objects_total"), "objects"),
            ],
            "none",
            "Small objects that moved into packs, per second, and the stored bytes they took before and take after.",
        ),
    ],
)

STREAMS = Row(
    "Compressed files",
    [
        Panel(
            "Deflate streams",
            [Query(rate("deltaweir_view_streams_total", "result"), "{{result}}")],
            "ops",
            "Streams of wheels, jars, archives and the like that were encoded over a base. Same: the base has the "
            "stream bit for bit, and it stays closed.",
            stacked=True,
        ),
        Panel(
            "Choices of their encoders",
            [Query(rate("deltaweir_view_steps_total", "result"), "{{result}}")],
            "ops",
            "Literals and matches in stored views. Predicted from the base cost next to nothing, replayed ones cost "
            "time to read, written ones cost bytes: many of these mean an encoder that is not known.",
            stacked=True,
        ),
        Panel(
            "Text encoded",
            [Query(rate("deltaweir_view_text_bytes_total"), "plain bytes")],
            "Bps",
            "Plain text of opened streams, and the bytes around them, on its way through the codec.",
        ),
        Panel(
            "Views decoded",
            [Query(rate("deltaweir_decode_seconds_count", codec="view"), "units")],
            "ops",
            "Units that readers, scrubs and the converter decoded: each up to 4 MiB of text.",
        ),
    ],
)

CONVERSION = Row(
    "Stored now, shrunk later",
    [
        Panel(
            "Waiting for the converter",
            [
                Query(catalog("deltaweir_deferred_blobs"), "blobs"),
            ],
            "none",
            "Blobs that were stored without a base because the codec was saturated, or whose bucket wants a higher "
            "effort than an upload gets.",
        ),
        Panel(
            "Bytes that wait",
            [Query(catalog("deltaweir_deferred_bytes"), "plain bytes")],
            "decbytes",
            "Logical bytes of them.",
        ),
        Panel(
            "Longest wait",
            [Query(f"max by (instance) ({select('deltaweir_deferred_oldest_age_seconds')})", "{{instance}}")],
            "s",
            "Beyond `convert.defer_age_max` the converter works although no core is idle.",
        ),
        Panel(
            "Blobs encoded anew",
            [Query(rate("deltaweir_convert_blobs_total", "reason, result"), "{{reason}}: {{result}}")],
            "ops",
            "Why, and how it ended. Kept: it would have gained nothing. Failed: the log has the blob.",
            stacked=True,
        ),
        Panel(
            "Stored bytes before and after",
            [Query(rate("deltaweir_convert_stored_bytes_total", "reason, when"), "{{reason}}: {{when}}")],
            "Bps",
            "What conversions save. Hot deltas and a move to another backend need not save anything.",
        ),
        Panel(
            "Bytes of hot content",
            [Query(f"max({select('deltaweir_heat_bytes')})", "bytes")],
            "decbytes",
            "Stored bytes that deltas take more because they are read often: at most 5 % of what deltas save.",
        ),
        Panel(
            "Parts put together",
            [Query(rate("deltaweir_merged_extents_total"), "extents")],
            "ops",
            "Small extents of objects that came in many parts, which became few long ones.",
        ),
    ],
)

BOARD = Board(
    uid="deltaweir-compression",
    title="deltaweir: compression tax",
    description="What storing less costs, and why each body was stored as it was.",
    rows=[SPEED, DECISIONS, CODEC, STREAMS, CONVERSION],
)

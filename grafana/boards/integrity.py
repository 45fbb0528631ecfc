"""Is every byte what it was, who may ask, do the clocks agree."""

from __future__ import annotations

from boards.panel import Board, Panel, Query, Row, increase, quantile, rate, select

DAMAGE = Row(
    "Damage (each of these should be 0)",
    [
        Panel(
            "Reads that met damage",
            [Query(increase("deltaweir_integrity_errors_total"))],
            "none",
            "Requests in the time shown that failed because stored bytes were missing or wrong. No "
            "wrong byte left (I4).",
            kind="stat",
            width=6,
            decimals=0,
        ),
        Panel(
            "Seals that did not open",
            [Query(increase("deltaweir_aead_failures_total"))],
            "none",
            "Chunks, tables and catalog rows of encrypted buckets that did not authenticate, in the time shown.",
            kind="stat",
            width=6,
            decimals=0,
        ),
        Panel(
            "Checksums that were wrong",
            [Query(increase("deltaweir_checksum_failures_total", where="!request"))],
            "none",
            "Stored chunks, segments and rows of plain buckets, and deltas that did not decode to "
            "what they were made from.",
            kind="stat",
            width=6,
            decimals=0,
        ),
        Panel(
            "Answers cut off",
            [Query(increase("deltaweir_http_cut_total"))],
            "none",
            "Answers that had begun and were cut, in the time shown.",
            kind="stat",
            width=6,
            decimals=0,
        ),
        Panel(
            "Failures by place",
            [
                Query(rate("deltaweir_checksum_failures_total", "where"), "checksum: {{where}}"),
                Query(rate("deltaweir_aead_failures_total", "reason"), "seal: {{reason}}"),
                Query(rate("deltaweir_audit_failures_total"), "lines of the audit log"),
                Query(rate("deltaweir_access_log_failures_total"), "lines of the access log"),
                Query(rate("deltaweir_log_failures_total"), "lines of the log"),
            ],
            "ops",
            "request: a client's body was not what the client said; that one is not damage here. "
            "Lines of the logs could not be written, or not brought to the disk.",
            width=12,
        ),
        Panel(
            "Requests that met damage",
            [
                Query(rate("deltaweir_integrity_errors_total"), "stored bytes missing or wrong"),
                Query(rate("deltaweir_http_cut_total", "op"), "cut: {{op}}"),
            ],
            "reqps",
            "Clients saw 500 or a closed connection.",
            width=12,
        ),
    ],
)

SCRUB = Row(
    "Scrub",
    [
        Panel(
            "In quarantine",
            [Query(f"max({select('deltaweir_quarantined_blobs')})")],
            "none",
            "Damaged blobs that the last scrub left. `deltaweir scrub --quarantined` names what they reach.",
            kind="stat",
            width=6,
            decimals=0,
        ),
        Panel(
            "Verified",
            [Query(rate("deltaweir_scrub_objects_total", "result"), "{{result}}")],
            "ops",
            "Blobs a scrub looked at. unreachable: the backend could not be asked; the next scrub does. "
            "copy_only: a base that is damaged and could not be written anew.",
            width=9,
        ),
        Panel(
            "What a recovery needs",
            [
                Query(rate("deltaweir_scrub_recovery_documents_total", "kind, outcome"), "{{kind}}: {{outcome}}"),
            ],
            "ops",
            "Keysets, ownership records, lineage, newest backup and its journal. restored: written again, or covered "
            "by a new backup. damaged: it could not be; recover nothing before you have looked.",
            width=12,
        ),
        Panel(
            "Read by scrubs",
            [Query(rate("deltaweir_scrub_bytes_total"), "read")],
            "Bps",
            "Held down by scrub.bytes_per_second.",
            width=9,
        ),
        Panel(
            "Bases stored twice",
            [Query(f"max({select('deltaweir_base_copies')})")],
            "none",
            "Bases, packs, and what else many objects need, that have a second copy.",
            kind="stat",
            width=6,
            decimals=0,
        ),
        Panel(
            "Second copies",
            [
                Query(rate("deltaweir_base_copies_made_total", "result"), "copies: {{result}}"),
                Query(rate("deltaweir_base_copy_reads_total", "result"), "reads: {{result}}"),
            ],
            "ops",
            "Copies written, and reads that met a damaged base: served from the other copy, or damaged in both. "
            "Any read here is damage at rest: run a scrub.",
            width=9,
        ),
        Panel(
            "Bytes of second copies",
            [Query(f"max({select('deltaweir_base_copy_bytes')})", "copies")],
            "bytes",
            "Part of overhead.",
            width=9,
        ),
    ],
)

SAFETY = Row(
    "If the catalog were lost now",
    [
        Panel(
            "Not in the journal yet",
            [Query(f"max by (instance) ({select('deltaweir_journal_lag_seconds')})", "{{instance}}")],
            "s",
            "Age of the oldest change that only the catalog has. Normal up to backup.journal_seconds.",
        ),
        Panel(
            "Changes that wait",
            [Query(f"max by (instance) ({select('deltaweir_journal_lag_entries')})", "{{instance}}")],
            "none",
            "Mutations of the catalog that are not in the backend's journal yet.",
        ),
        Panel(
            "Shipped",
            [
                Query(rate("deltaweir_journal_shipped_entries_total"), "mutations"),
                Query(rate("deltaweir_journal_errors_total"), "failed shipments"),
            ],
            "ops",
            "Mutations that went to the backend's journal, and what did not.",
        ),
        Panel(
            "Writes are refused",
            [Query(f"max by (instance, reason) ({select('deltaweir_writes_refused')})", "{{instance}} {{reason}}")],
            "none",
            "1 while the catalog is not the newest state of its store, or a backend is not its own.",
        ),
        Panel(
            "Looks at the store",
            [Query(rate("deltaweir_catalog_looks_total", "outcome"), "{{outcome}}")],
            "ops",
            "How often the catalog was compared with its store's journal and owner records.",
        ),
    ],
)

SEALING = Row(
    "Encryption",
    [
        Panel(
            "Through AES-256-GCM",
            [Query(rate("deltaweir_seal_bytes_total", "dir"), "{{dir}}")],
            "Bps",
            "seal: written to encrypted buckets, after compression. open: read from them.",
            width=12,
        ),
        Panel(
            "Sealed share of what is written",
            [
                Query(
                    f"{rate('deltaweir_seal_bytes_total', dir='seal')} / "
                    f"{rate('deltaweir_backend_bytes_total', dir='written')}",
                    "sealed",
                )
            ],
            "percentunit",
            "Of the bytes written to backends. Tables and keysets are not counted as sealed here.",
            width=12,
        ),
        Panel(
            "Encrypted writes are refused",
            [Query(f"max by (instance) ({select('deltaweir_sealing_refused')})", "{{instance}}")],
            "none",
            "1 while the key provider has not answered for longer than storage.key_lifetime. Reads go on.",
            width=24,
        ),
    ],
)

ACCESS = Row(
    "Signatures and clocks",
    [
        Panel(
            "Accepted",
            [Query(rate("deltaweir_auth_total", "reason", result="ok"), "{{reason}}")],
            "reqps",
            "Signatures in headers, presigned URLs, anonymous requests.",
        ),
        Panel(
            "Refused",
            [Query(rate("deltaweir_auth_total", "reason", result="refused"), "{{reason}}")],
            "reqps",
            "By S3's error code. AccessDenied: signed well, but not allowed.",
            stacked=True,
        ),
        Panel(
            "Refused share",
            [Query(f"{rate('deltaweir_auth_total', result='refused')} / {rate('deltaweir_auth_total')}", "refused")],
            "percentunit",
            "A step is a client with old credentials, a policy that changed, or somebody trying keys.",
        ),
        Panel(
            "Distance of clocks",
            [Query(quantile(q, "deltaweir_clock_skew_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.99)],
            "s",
            "Between the date of a signature and this machine's clock. A high median is this "
            "machine's fault, a high 99th "
            "percentile a client's. Past 900 s requests are refused (RequestTimeTooSkewed).",
        ),
    ],
)

BOARD = Board(
    uid="deltaweir-integrity",
    title="deltaweir: encryption and integrity",
    description="Is every byte what it was, who may ask, do the clocks agree.",
    rows=[DAMAGE, SCRUB, SAFETY, SEALING, ACCESS],
    span="now-24h",
)

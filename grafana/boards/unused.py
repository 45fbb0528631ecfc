"""Metrics that no panel shows, and why: the one place that says so."""

UNUSED = {
    "deltaweir_allocator_given_back_bytes_total": "rises where memory is at its bound; the memory itself is shown",
    "deltaweir_unsealed_documents_total": "not zero when somebody forges documents: the log names them",
    "deltaweir_unsealed_buckets_total": "not zero when somebody changed a bucket's row: the log names it",
    "deltaweir_key_provider_calls_total": "there only where a key provider keeps the KEK; its runbook asks for it",
    "deltaweir_memory_waiting": "readers that take nothing are let go while it is not zero; what is refused is shown",
    "deltaweir_spool_bytes": "only segments of bodies that arrive slowly while memory is short are spooled",
    "deltaweir_gc_trash_bytes": "the files beside it are shown; their bytes are in the report of gc",
    "deltaweir_bucket_noncurrent_versions": "what history costs is in `stats` and `explain`, per bucket",
    "deltaweir_bucket_noncurrent_bytes": "as the versions beside it",
    "deltaweir_bucket_delete_markers": "as the versions beside it",
    "deltaweir_catalog_damaged": "the collector's refusals show it, and the log says what to do",
    "deltaweir_trace_spans_total": "there only where [traces] is on; the guide to traces says what to watch",
    "deltaweir_disk_full": "an alert tells, and the free space beside it is shown",
    "deltaweir_disk_reserve_bytes": "its runbook asks for it when a disk is full",
}

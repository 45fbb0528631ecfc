"""Metrics that no panel shows, and why: the one place that says so."""

UNUSED = {
    "deltaweir_spool_bytes": "nothing is spooled: bodies are encoded as they arrive, within the memory budget",
}

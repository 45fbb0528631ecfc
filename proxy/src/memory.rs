//! Where the memory of this process is, for whoever looks at `/metrics`: what the allocator has
//! given out and what it keeps, and which of the resident pages are the process's own.

use crate::metrics::Metrics;
use tikv_jemalloc_ctl::{epoch, stats};

/// Sets the gauges of memory as they are now.
pub(crate) fn observe(metrics: &Metrics) {
    for (state, bytes) in allocator() {
        metrics.allocator_bytes.with_label_values(&[state]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (kind, name) in [("anonymous", "RssAnon"), ("file", "RssFile"), ("shared", "RssShmem")] {
        if let Some(bytes) = kilobytes(&status, name).map(|kilobytes| kilobytes * 1024) {
            metrics.resident_bytes.with_label_values(&[kind]).set(bytes);
        }
    }
}

/// The allocator's figures, all of one moment; none where it keeps none.
fn allocator() -> Vec<(&'static str, usize)> {
    // What is read below is as old as the last call of this.
    let _ = epoch::advance();
    let figures = [
        ("allocated", stats::allocated::read()),
        ("active", stats::active::read()),
        ("metadata", stats::metadata::read()),
        ("resident", stats::resident::read()),
        ("retained", stats::retained::read()),
    ];
    figures.into_iter().filter_map(|(state, bytes)| Some((state, bytes.ok()?))).collect()
}

/// A line of `/proc/PID/status` such as `RssAnon:     123 kB`.
fn kilobytes(status: &str, name: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

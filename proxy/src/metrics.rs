//! Every metric in one table.

/// Handles of every metric.
pub struct Metrics {}

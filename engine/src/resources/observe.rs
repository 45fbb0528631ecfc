//! What backends and the catalog report, as metrics.

use crate::metrics::Metrics;
use catalog::CommitObserver;
use std::{sync::Arc, time::Duration};
use storage_backends::{Direction, ErrorKind, Observer, Op, Outcome};

/// Counts the requests of one configured backend.
pub struct BackendMetrics {
    /// Its configured name.
    pub backend: String,
    /// Where they are counted.
    pub metrics: Arc<Metrics>,
}

impl Observer for BackendMetrics {
    fn request(&self, op: Op, outcome: Outcome, busy: Duration) {
        let (backend, op) = (self.backend.as_str(), op.as_str());
        self.metrics.backend_requests_total.with_label_values(&[backend, op, outcome.as_str()]).inc();
        self.metrics.backend_seconds.with_label_values(&[backend, op]).observe(busy.as_secs_f64());
    }

    fn bytes(&self, direction: Direction, count: u64) {
        self.metrics.backend_bytes_total.with_label_values(&[self.backend.as_str(), direction.as_str()]).inc_by(count);
    }

    fn retry(&self, _: Op, reason: ErrorKind) {
        self.metrics.backend_retries_total.with_label_values(&[self.backend.as_str(), reason.as_str()]).inc();
    }
}

/// Counts the catalog's commits.
pub struct CatalogMetrics(pub Arc<Metrics>);

impl CommitObserver for CatalogMetrics {
    fn committed(&self, operations: usize, elapsed: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "at most a few hundred operations")]
        self.0.catalog_batch_ops.observe(operations as f64);
        self.0.catalog_commit_seconds.observe(elapsed.as_secs_f64());
    }
}

//! Uploads in parts that a process left behind, and who can abort them.

use crate::{BlobName, Result};
use async_trait::async_trait;
use std::time::Duration;

/// Says of a blob's name whether no living process can be writing it.
pub type IsNobodys<'a> = &'a (dyn Fn(&BlobName) -> bool + Sync);

/// Uploads in parts that were begun and neither completed nor aborted: a power cut leaves such, and
/// no listing of blobs shows them.
#[async_trait]
pub trait UnfinishedUploads: Send + Sync + 'static {
    /// Aborts those of blobs that were begun at least `age_min` ago, by the store's clock, and are
    /// nobody's; gives their number.
    ///
    /// # Errors
    /// Those of a listing.
    async fn abort(&self, age_min: Duration, is_nobodys: IsNobodys<'_>) -> Result<u64>;
}

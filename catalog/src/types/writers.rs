//! The nouns of writers.

use super::ids::UnixMs;
use serde::{Deserialize, Serialize};

/// A process that may write: its epoch is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWriter {
    /// Its epoch.
    pub epoch: u32,
    /// How long ago it gave a sign of life, by the catalog's clock; 0 where no other can have the
    /// catalog.
    pub silent_ms: UnixMs,
}

//! What is written when a plain object is, and who can.

use crate::{ByteStream, Result};
use async_trait::async_trait;
use std::collections::BTreeMap;

/// A part's size in bytes while the object has few enough of them.
const PART_BYTES: u64 = 8 << 20;
/// Parts an upload may have.
const PARTS_MAX: u64 = 10_000;

/// What is written beside the content.
#[derive(Clone, Debug, Default)]
pub struct PlainPut {
    /// The exact length of the content in bytes.
    pub len: u64,
    /// Content headers by name.
    pub headers: BTreeMap<String, String>,
    /// User metadata by name without the prefix; values as they stand in a header.
    pub user_metadata: BTreeMap<String, String>,
    /// Storage class, when it is not the standard one.
    pub storage_class: Option<String>,
}

impl PlainPut {
    /// Bytes of memory that writing it takes: what a caller with a memory budget takes a permit
    /// for.
    pub fn buffered_bytes(&self) -> u64 {
        self.len.min(self.part_bytes())
    }

    pub(super) fn part_bytes(&self) -> u64 {
        self.len.div_ceil(PARTS_MAX).max(PART_BYTES)
    }
}

/// A store of plain objects that can be written to.
#[async_trait]
pub trait PlainWriter: Send + Sync + 'static {
    /// Writes an object, replacing one that is there. When it fails nothing of it is visible, and
    /// parts that were sent are given up.
    ///
    /// # Errors
    /// Those of the body; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the body has
    /// another length, or the key, a header or metadata cannot be written there.
    async fn write(&self, key: &str, object: &PlainPut, body: ByteStream) -> Result<()>;
}

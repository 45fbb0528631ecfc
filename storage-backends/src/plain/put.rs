//! What is written when a plain object is, and who can.

use crate::{ByteStream, Result};
use async_trait::async_trait;
use std::{collections::BTreeMap, fmt};

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

/// How long a key may be in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBound {
    /// 1,024 bytes: S3 and Google.
    Bytes,
    /// 1,024 characters: Azure. A character beyond U+FFFF is counted twice here.
    Characters,
}

impl KeyBound {
    const LEN_MAX: usize = 1024;

    /// Whether the key is short enough.
    pub fn admits(self, key: &str) -> bool {
        let len = match self {
            KeyBound::Bytes => key.len(),
            KeyBound::Characters => key.encode_utf16().count(),
        };
        len <= Self::LEN_MAX
    }
}

/// As in "longer than 1024 bytes".
impl fmt::Display for KeyBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self {
            KeyBound::Bytes => "bytes",
            KeyBound::Characters => "characters",
        };
        write!(f, "{} {unit}", Self::LEN_MAX)
    }
}

/// A store of plain objects that can be written to.
#[async_trait]
pub trait PlainWriter: Send + Sync + 'static {
    /// How long a key may be here, a configured prefix included.
    fn key_bound(&self) -> KeyBound;

    /// Writes an object, replacing one that is there. When it fails nothing of it is visible, and
    /// parts that were sent are given up.
    ///
    /// # Errors
    /// Those of the body; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the body has
    /// another length, or the key, a header or metadata cannot be written there.
    async fn write(&self, key: &str, object: &PlainPut, body: ByteStream) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azure_counts_characters_and_the_others_bytes() {
        let (ascii, umlauts, clefs) = ("k".repeat(1024), "\u{e4}".repeat(1024), "\u{1d11e}".repeat(512));
        for (bound, admitted) in [(KeyBound::Bytes, [true, false, false]), (KeyBound::Characters, [true; 3])] {
            assert_eq!([&ascii, &umlauts, &clefs].map(|key| bound.admits(key)), admitted, "{bound}");
            assert!(![&ascii, &umlauts, &clefs].iter().any(|key| bound.admits(&format!("{key}k"))), "{bound}");
        }
        assert_eq!(KeyBound::Characters.to_string(), "1024 characters");
    }
}

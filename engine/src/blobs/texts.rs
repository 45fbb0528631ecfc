//! Plain text of deflate streams that was opened, kept for the next reader.

use deflate_view::{Malformed, Match, Opened, Opening};
use moka::{policy::EvictionPolicy, sync::Cache};
use object_format::blob::segment_digest;
use std::sync::Arc;

/// Plain text that was opened, by what it was opened from: content under names that cannot become
/// stale (E16).
#[derive(Clone)]
pub(crate) struct OpenedTexts(Cache<[u8; 16], Arc<Opened>>);

impl OpenedTexts {
    /// Texts and matches of at most so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let weigh = |opened: &Arc<Opened>| {
            opened.plain.capacity() + opened.matches.capacity() * size_of::<Match>() + size_of::<Opened>()
        };
        let cache = Cache::builder()
            .max_capacity(bytes_max)
            // A reader goes on along a base: the newest text is wanted before the most used one.
            .eviction_policy(EvictionPolicy::lru())
            .weigher(move |_, opened| u32::try_from(weigh(opened)).unwrap_or(u32::MAX))
            .build();
        Self(cache)
    }

    /// Forgets them all.
    pub(crate) fn clear(&self) {
        self.0.invalidate_all();
    }

    /// An opening's text. Call it on the codec pool.
    pub(crate) fn open(&self, opening: &Opening, window: &[u8], bytes: &[u8]) -> Result<Arc<Opened>, Malformed> {
        let mut name = Vec::with_capacity(bytes.len() + window.len() + 24);
        // All that the result depends on: another base or window is another name.
        for number in [opening.plain_at, opening.block_bit % 8, opening.step_bits, u64::from(opening.plain_len)] {
            name.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(gaps) = opening.own_gaps() {
            name.extend_from_slice(&gaps.name());
        }
        name.extend_from_slice(window);
        name.extend_from_slice(bytes);
        // Units that lie side by side are decoded at the same time and share an opening: the second
        // one waits for the first, which waits for nobody.
        self.0
            .try_get_with(segment_digest(&name), || opening.open(window, bytes).map(Arc::new))
            .map_err(|error: Arc<Malformed>| (*error).clone())
    }
}

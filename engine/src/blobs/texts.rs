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

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weighted_size()
    }

    /// Gives back what was dropped.
    pub(crate) fn tidy(&self) {
        self.0.run_pending_tasks();
    }

    /// Forgets them all.
    pub(crate) fn clear(&self) {
        self.0.invalidate_all();
    }

    /// An opening's text. Call it on the codec pool.
    pub(crate) fn open(&self, opening: &Opening, window: &[u8], bytes: &[u8]) -> Result<Arc<Opened>, Malformed> {
        let name = name(opening, window, bytes);
        // Units that lie side by side are decoded at the same time and share an opening: the second
        // one waits for the first, which waits for nobody.
        self.0
            .try_get_with(segment_digest(&name), || opening.open(window, bytes).map(Arc::new))
            .map_err(|error: Arc<Malformed>| (*error).clone())
    }
}

/// All that an opening's text depends on: another base or window is another name.
fn name(opening: &Opening, window: &[u8], bytes: &[u8]) -> Vec<u8> {
    let gaps = opening.own_gaps().map(|gaps| gaps.name()).unwrap_or_default();
    let mut name = Vec::with_capacity(gaps.len() + window.len() + bytes.len() + 48);
    let place = [opening.plain_at, opening.block_bit % 8, opening.step_bits, u64::from(opening.plain_len)];
    // Lengths first, so that the end of one thing is not mistaken for the beginning of the next. No
    // table of gaps is empty: a length of 0 stands for none.
    let lens = [gaps.len() as u64, window.len() as u64];
    for number in place.into_iter().chain(lens) {
        name.extend_from_slice(&number.to_le_bytes());
    }
    for bytes in [&gaps, window, bytes] {
        name.extend_from_slice(bytes);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use deflate_view::{ScanLimits, Scanner};

    #[test]
    fn a_table_of_gaps_is_not_mistaken_for_a_window_or_for_bytes_of_a_stream() {
        // A stored block of a hundred zeros, in two IDAT chunks.
        let stream = [&[1, 100, 0, 155, 255][..], &[0; 100]].concat();
        let chunks = [b"\0\0\0\x2aIDAT\x78\x01", &stream[..40], b"-crc\0\0\0\x45IDAT", &stream[40..], &[0, 100, 0, 1]];
        let picture = chunks.concat();
        let index = Scanner::index(&picture, ScanLimits::default());
        let (cut, _) = Opening::all(&index.streams[0]).next().expect("its start");
        let bytes = &picture[cut.bytes().start as usize..cut.bytes().end as usize];
        let gaps = cut.own_gaps().expect("a gap among its bytes").name();
        let whole = Opening { gaps: None, ..cut.clone() };
        let cut_name = name(&cut, &[], bytes);
        // The same bytes, one after the other, and different texts.
        assert_ne!(cut_name, name(&whole, &[], &[&gaps[..], bytes].concat()));
        assert_ne!(cut_name, name(&whole, &gaps, bytes));
        assert_ne!(cut_name, name(&whole, &[], bytes));
        assert_eq!(cut_name, name(&cut.clone(), &[], bytes));
    }
}

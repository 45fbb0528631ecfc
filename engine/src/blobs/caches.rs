//! What has been read of blobs, kept for the next reader: under immutable ids, so that staleness is
//! impossible (E16), and weighed as it lies in memory. Content has a part of the one budget (I8),
//! taken out of it when the engine is opened; tables are bounded by it and lie beside it.

use crate::{
    blobs::texts::OpenedTexts,
    metrics::{IntCounter, Metrics},
};
use bytes::Bytes;
use moka::future::Cache;
use object_format::{BlobId, ChunkCheck, Segment, ViewAddress};
use std::{hash::Hash, sync::Arc};

/// What an entry takes beside its key and what its value says of itself: its nodes in the table and
/// in the queues that decide what goes, counts of references, and what the allocator rounds up.
const ENTRY_BYTES: usize = 400;
/// Opened plain text of bases takes so much less memory than decoded segments.
const TEXT_SHARE: u64 = 2;
/// Decoded segments take this part of a budget.
const DECODED_SHARE: u64 = 8;
/// Manifests, pages of segments, pages of checks, and rows of bases take a part of this size each …
const TABLES_SHARE: u64 = 64;
/// … and no more than this: they lie beside the budget, in what the process itself takes.
const TABLES_BYTES_MAX: u64 = 16 << 20;

/// How many bytes caches may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheBytes {
    /// Decoded segments.
    pub(crate) decoded: u64,
    /// Manifests; and as much each for pages of segments, pages of checks, and rows of bases.
    pub(crate) tables: u64,
}

impl CacheBytes {
    /// For a reader that reads one blob and is gone: what it needs twice is one table at most.
    pub(crate) const NONE: Self = Self { decoded: 0, tables: 256 << 10 };

    /// The part of a budget that caches have for good.
    pub(crate) fn of(budget_bytes: u64) -> Self {
        Self { decoded: budget_bytes / DECODED_SHARE, tables: (budget_bytes / TABLES_SHARE).min(TABLES_BYTES_MAX) }
    }

    /// What of it the budget is charged for: content. The tables are small beside it.
    pub(crate) fn charged(self) -> u64 {
        self.decoded + self.texts()
    }

    /// Of all caches together, with the rows of bases.
    #[cfg(test)]
    pub(crate) fn all(self) -> u64 {
        self.charged() + 4 * self.tables
    }

    fn texts(self) -> u64 {
        self.decoded / TEXT_SHARE
    }
}

/// The caches of one reader of blobs.
pub(super) struct Caches<M: Send + Sync + 'static> {
    pub(super) manifests: Cache<BlobId, Arc<M>>,
    pub(super) segment_pages: Cache<(BlobId, u64), Arc<Vec<Segment>>>,
    pub(super) check_pages: Cache<(BlobId, u64), Arc<Vec<ChunkCheck>>>,
    pub(super) decoded: Cache<(BlobId, u64), Bytes>,
    pub(super) texts: OpenedTexts,
}

impl<M: Send + Sync + 'static> Caches<M> {
    /// Nothing kept yet.
    pub(super) fn new(bytes: CacheBytes, bytes_of_manifest: fn(&M) -> usize, metrics: &Metrics) -> Self {
        let evictions = |kind: &str| metrics.cache_evictions_total.with_label_values(&[kind, "memory"]);
        Self {
            manifests: weighed(
                bytes.tables,
                move |manifest: &Arc<M>| bytes_of_manifest(manifest),
                evictions("manifest"),
            ),
            segment_pages: weighed(bytes.tables, |page: &Arc<Vec<Segment>>| bytes_of_segments(page), evictions("page")),
            check_pages: weighed(
                bytes.tables,
                |page: &Arc<Vec<ChunkCheck>>| page.capacity() * size_of::<ChunkCheck>(),
                evictions("page"),
            ),
            decoded: weighed(bytes.decoded, Bytes::len, evictions("base")),
            texts: OpenedTexts::new(bytes.texts()),
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.manifests.invalidate_all();
        self.segment_pages.invalidate_all();
        self.check_pages.invalidate_all();
        self.decoded.invalidate_all();
        self.texts.clear();
    }

    /// Gives back what they have dropped.
    pub(super) async fn tidy(&self) {
        self.manifests.run_pending_tasks().await;
        self.segment_pages.run_pending_tasks().await;
        self.check_pages.run_pending_tasks().await;
        self.decoded.run_pending_tasks().await;
        self.texts.tidy();
    }

    /// Bytes that they hold, by their kinds.
    pub(super) fn bytes(&self) -> [(&'static str, u64); 4] {
        [
            ("manifest", self.manifests.weighted_size()),
            ("page", self.segment_pages.weighted_size() + self.check_pages.weighted_size()),
            ("base", self.decoded.weighted_size()),
            ("text", self.texts.bytes()),
        ]
    }
}

/// A cache of at most `bytes_max` bytes. What leaves it for room is counted.
pub(crate) fn weighed<K, V>(
    bytes_max: u64,
    bytes_of: impl Fn(&V) -> usize + Send + Sync + 'static,
    evicted: IntCounter,
) -> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::builder()
        .max_capacity(bytes_max)
        .weigher(move |_, value| u32::try_from(ENTRY_BYTES + bytes_of(value)).unwrap_or(u32::MAX))
        .eviction_listener(move |_, _, cause| {
            if cause.was_evicted() {
                evicted.inc();
            }
        })
        .build()
}

fn bytes_of_segments(page: &Vec<Segment>) -> usize {
    let footprints: usize = page.iter().map(|segment| segment.footprint.capacity()).sum();
    page.capacity() * size_of::<Segment>() + footprints * size_of::<ViewAddress>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tables_of_small_blobs_are_weighed_with_what_their_place_takes() {
        let metrics = Metrics::new();
        let bytes = CacheBytes::of(64 << 20);
        let caches = Caches::<u64>::new(bytes, |_| size_of::<u64>(), &metrics);
        for number in 0..10_000 {
            let id = BlobId::new(number, [0; 12]);
            caches.manifests.insert(id, Arc::new(1)).await;
            caches.check_pages.insert((id, 0), Arc::new(vec![[1; 16]])).await;
        }
        caches.tidy().await;
        assert_eq!(bytes.tables, 1 << 20);
        for entries in [caches.manifests.entry_count(), caches.check_pages.entry_count()] {
            assert!((1000..=(1 << 20) / ENTRY_BYTES as u64).contains(&entries), "{entries} entries in 1 MiB");
        }
        let kept: u64 = caches.bytes().iter().map(|(_, bytes)| bytes).sum();
        assert!(kept <= bytes.all(), "{kept} bytes");
    }

    #[test]
    fn content_takes_three_sixteenths_of_any_budget_and_tables_no_more_than_64_mib_beside_it() {
        for budget in [64 << 20, 256 << 20, 1 << 30, 64_u64 << 30] {
            let bytes = CacheBytes::of(budget);
            assert_eq!(bytes.charged(), budget * 3 / 16);
            assert_eq!(bytes.all() - bytes.charged(), (budget / 16).min(64 << 20));
        }
    }
}

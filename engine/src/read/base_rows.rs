//! The rows of the whole blobs that a delta needs, kept with the delta's id: edges do not change
//! while it lives. A view has up to 256 ranges (I2), so they are bounded by bytes, not by deltas.

use crate::{blobs::caches::weighed, metrics::Metrics};
use catalog::BlobRow;
use moka::future::Cache;
use object_format::BlobId;
use std::sync::Arc;

/// Rows by delta.
pub(crate) type BaseRows = Cache<BlobId, Arc<Vec<BlobRow>>>;

/// Nothing kept yet, and never more than `bytes_max`.
pub(crate) fn base_rows(bytes_max: u64, metrics: &Metrics) -> BaseRows {
    let evicted = metrics.cache_evictions_total.with_label_values(&["base_row", "memory"]);
    weighed(bytes_max, |rows: &Arc<Vec<BlobRow>>| memory_bytes(rows), evicted)
}

/// Memory of one delta's rows.
fn memory_bytes(rows: &[BlobRow]) -> usize {
    let beside = |row: &BlobRow| {
        let original = row.original.as_ref().map_or(0, |original| original.key.capacity() + original.etag.capacity());
        row.backend.capacity() + row.inline.as_ref().map_or(0, Vec::capacity) + original
    };
    rows.iter().map(|row| size_of::<BlobRow>() + beside(row)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{BlobForm, BlobKey, BlobState, BucketId, FormBytes};

    const BYTES_MAX: u64 = 16 << 20;

    fn row(inline: usize) -> BlobRow {
        BlobRow {
            id: BlobKey([1; 16]),
            bucket: BucketId(1),
            key_epoch: 0,
            backend: "local".into(),
            form: BlobForm::Whole,
            state: BlobState::Live,
            plain_len: 1,
            stored_len: 1,
            root_offset: 0,
            root_len: 1,
            root_tag: [0; 16],
            digest: None,
            forms: FormBytes::default(),
            inline: (inline > 0).then(|| vec![0; inline]),
            original: None,
            pack: false,
            compartment: None,
            copy: None,
        }
    }

    #[tokio::test]
    async fn rows_of_many_wide_views_are_bounded_by_their_bytes() {
        let kept = base_rows(BYTES_MAX, &Metrics::new());
        let wide = Arc::new(vec![row(0); 256]);
        for number in 0..2_000_u32 {
            kept.insert(BlobId::new(number, [0; 12]), wide.clone()).await;
        }
        kept.run_pending_tasks().await;
        assert!(kept.weighted_size() <= BYTES_MAX, "{} bytes", kept.weighted_size());
        let rows = kept.entry_count() * 256;
        assert!((20_000..60_000).contains(&rows), "{rows} rows fill the cache");
    }

    #[test]
    fn a_row_with_its_blob_inside_weighs_as_much_more() {
        assert_eq!(memory_bytes(&[row(4096)]), memory_bytes(&[row(0)]) + 4096);
        assert_eq!(memory_bytes(&[]), 0);
    }
}

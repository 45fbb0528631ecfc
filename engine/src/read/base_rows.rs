//! The rows of the whole blobs that a delta needs, kept with the delta's id: edges do not change
//! while it lives. A view has up to 256 ranges (I2), so they are bounded by bytes, not by deltas.

use catalog::BlobRow;
use moka::future::Cache;
use object_format::BlobId;
use std::{mem::size_of, sync::Arc};

/// Most bytes of rows that are kept.
const BASE_ROWS_BYTES_MAX: u64 = 16 << 20;

/// Rows by delta.
pub(crate) type BaseRows = Cache<BlobId, Arc<Vec<BlobRow>>>;

/// Nothing kept yet.
pub(crate) fn base_rows() -> BaseRows {
    Cache::builder()
        .max_capacity(BASE_ROWS_BYTES_MAX)
        .weigher(|_, rows: &Arc<Vec<BlobRow>>| u32::try_from(weight(rows)).unwrap_or(u32::MAX))
        .build()
}

/// Memory of one delta's rows, and of its place in the cache.
fn weight(rows: &[BlobRow]) -> usize {
    let beside = |row: &BlobRow| {
        let original = row.original.as_ref().map_or(0, |original| original.key.len() + original.etag.len());
        row.backend.len() + row.inline.as_ref().map_or(0, Vec::len) + original
    };
    256 + rows.iter().map(|row| size_of::<BlobRow>() + beside(row)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{BlobForm, BlobKey, BlobState, BucketId, FormBytes};

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
        let kept = base_rows();
        let wide = Arc::new(vec![row(0); 256]);
        for number in 0..2_000_u32 {
            kept.insert(BlobId::new(number, [0; 12]), wide.clone()).await;
        }
        kept.run_pending_tasks().await;
        assert!(kept.weighted_size() <= BASE_ROWS_BYTES_MAX, "{} bytes", kept.weighted_size());
        let rows = kept.entry_count() * 256;
        assert!((20_000..60_000).contains(&rows), "{rows} rows fill the cache");
    }

    #[test]
    fn a_row_with_its_blob_inside_weighs_as_much_more() {
        assert_eq!(weight(&[row(4096)]), weight(&[row(0)]) + 4096);
        assert_eq!(weight(&[]), 256);
    }
}

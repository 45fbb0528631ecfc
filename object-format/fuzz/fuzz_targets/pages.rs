//! Segment and check pages whose check and directory fit, under any sizes and view lengths.

#![no_main]

#[allow(dead_code)]
#[path = "../../examples/blob_vectors/vectors/kit.rs"]
mod kit;

use kit::{Draft, Page, Unit};
use libfuzzer_sys::fuzz_target;
use object_format::{BlobId, whole};

fuzz_target!(|input: (Vec<u8>, u32, Option<Vec<u8>>, [u64; 3], u64)| {
    let (segment_page, count, check_page, sizes, view_len) = input;
    let mut draft = Draft::with_view();
    draft.view[24..32].copy_from_slice(&view_len.to_le_bytes());
    let mut tables = draft.tables();
    tables.segment_pages = vec![Page { unit: Unit { kind: 2, index: 0, bytes: segment_page }, count }];
    if let Some(bytes) = check_page {
        tables.check_pages = vec![Page { unit: Unit { kind: 3, index: 0, bytes }, count: 1 }];
    }
    // Sizes near the right ones, so that the pages are reached.
    tables.sizes = [sizes[0] % (6 << 30), tables.sizes[1] + sizes[1] % 3, sizes[2] % 2000];
    if let Ok(opened) = whole::open(&tables.blob(), BlobId(kit::BLOB_ID), None) {
        let stored: u64 = opened.segments.iter().map(|segment| u64::from(segment.stored_len)).sum();
        assert_eq!(stored, opened.payload.len() as u64);
    }
});

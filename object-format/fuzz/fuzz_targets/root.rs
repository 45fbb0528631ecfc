//! Roots whose check fits: no bytes make the parser panic or allocate beyond the root's own length.

#![no_main]

#[allow(dead_code)]
#[path = "../../examples/blob_vectors/vectors/kit.rs"]
mod kit;

use libfuzzer_sys::fuzz_target;
use object_format::{BlobId, whole};

fuzz_target!(|root: Vec<u8>| {
    let blob = kit::Draft::with_view().tables().manifest().ending_with(root).blob();
    let _ = whole::open(&blob, BlobId(kit::BLOB_ID), None);
});

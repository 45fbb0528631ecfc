//! Whole blobs as they come, with and without a key. The vectors are a good corpus: what follows
//! their header is a blob.

#![no_main]

use libfuzzer_sys::fuzz_target;
use object_format::{BlobId, DomainKey, Header, whole};

fuzz_target!(|blob: &[u8]| {
    let Some(Ok(header)) = blob.get(..object_format::HEADER_LEN).map(Header::decode) else {
        return;
    };
    let key = DomainKey::new(header.key_id, header.key_epoch, *b"a domain key of 32 bytes, public");
    let _ = whole::open(blob, header.blob_id, Some(&key));
    if let Ok(opened) = whole::open(blob, header.blob_id, None) {
        assert_eq!(opened.root.payload_len, opened.payload.len() as u64);
        assert!(whole::open(blob, BlobId([0xee; 16]), None).is_err() || header.blob_id == BlobId([0xee; 16]));
    }
});

//! Headers, trailers, keyset documents and sealed rows: what is parsed before anything is
//! authenticated. What is accepted is written back the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use object_format::{BlobOpener, DomainKey, Header, KeyId, TRAILER_LEN, keyset::Keyset, row};

fuzz_target!(|input: (u64, &[u8])| {
    let (stored_len, bytes) = input;
    if let Ok(header) = Header::decode(bytes) {
        assert_eq!(header.encode(), bytes);
    }
    if let Ok(place) = BlobOpener::root_place(bytes, stored_len) {
        assert_eq!(place.offset + u64::from(place.len) + TRAILER_LEN as u64, stored_len);
    }
    if let Ok(keyset) = Keyset::decode(bytes) {
        assert_eq!(keyset.encode().expect("what was read can be written"), bytes);
    }
    let key = DomainKey::new(KeyId([0; 16]), 0, [0; 32]);
    let context = row::RowContext { bucket: 0, key: "", version_id: [0; 16], part: None, extents_digest: [0; 32] };
    assert!(row::open(&key, &context, bytes).is_err(), "a forged row");
});

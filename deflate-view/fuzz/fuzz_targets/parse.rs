//! No parse over any text makes the decoder panic, or give another number of bytes than it was
//! asked for.

#![no_main]

use deflate_view::{Base, NestedParse, StoredUnit, UNIT_LEN_MAX, decode_parse, decode_unit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, Vec<u8>, Vec<u8>)| {
    let (len, text, parse) = input;
    let len = 1 + len as usize % if len % 64 == 0 { UNIT_LEN_MAX } else { 5000 };
    if let Ok((bytes, _)) = decode_parse(&parse, &text, Base { matches: &[], opened: &[] }, &[], len) {
        assert_eq!(bytes.len(), len);
    }
    // The same parse as that of nested streams, and of what it gives.
    let nested = Some(NestedParse { outer_len: len, parse: &parse });
    let (text_len, parts) = (text.len(), Vec::new());
    let stored = StoredUnit { object_len: len, text_len, parts, delta: &[], parse: &parse, gaps: Default::default(), nested };
    if let Ok(bytes) = decode_unit(&stored, &text, &[], Base::default()) {
        assert_eq!(bytes.len(), len);
    }
});

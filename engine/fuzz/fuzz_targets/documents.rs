//! Any bytes as a document of recovery: journal, backup part, backup index, lineage. They are
//! refused, or come out as they went in.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    engine::fuzzing::document(kind, bytes);
});

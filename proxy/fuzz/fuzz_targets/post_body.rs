//! The body of a form in pieces of any size: its fields stay within their bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|pieces: Vec<&[u8]>| deltaweir::fuzzing::post_body(&pieces));

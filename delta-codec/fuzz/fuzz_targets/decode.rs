//! No delta makes the decoder panic, read outside of its inputs, or ask for more memory than the
//! format allows.

#![no_main]

use delta_codec::{Decoder, SEGMENT_LEN_MAX, summarize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, Vec<u8>, Vec<u8>)| {
    let (target_len, footprint, delta) = input;
    // Mostly small targets, now and then the largest and one too large.
    let target_len = match target_len % 64 {
        0 => SEGMENT_LEN_MAX,
        1 => SEGMENT_LEN_MAX + 1,
        _ => target_len as usize % 5000,
    };
    let mut target = vec![0; target_len];
    let decoded = Decoder::new().decode(&footprint, &delta, &mut target);
    if decoded.is_ok() {
        summarize(&delta, target_len).expect("what decodes has a summary");
    }
});

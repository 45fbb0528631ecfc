//! No frame makes `whole::decompress` panic, and what is compressed comes back.

#![no_main]

use delta_codec::whole;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, Vec<u8>)| {
    let (plain_len, bytes) = input;
    let _ = whole::decompress(&bytes, &mut vec![0; usize::from(plain_len)]);
    let mut frame = Vec::new();
    if whole::compress(&bytes, 1, usize::MAX, &mut frame).is_some() {
        let mut back = vec![0; bytes.len()];
        whole::decompress(&frame, &mut back).expect("what was compressed decompresses");
        assert_eq!(back, bytes);
    }
    let _ = whole::looks_incompressible(&bytes);
});

//! Nothing makes `planes::decompress` panic, and what is taken apart comes back.

#![no_main]

use delta_codec::planes::{self, Width, WordLayout};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u16, Vec<u8>)| {
    let (way, plain_len, bytes) = input;
    let _ = planes::decompress(&bytes, &mut vec![0; usize::from(plain_len)]);
    let width = [Width::Two, Width::Four, Width::Eight][usize::from(way % 3)];
    let words = WordLayout { width, head: usize::from(way >> 4) % width as usize, rotated: way & 8 != 0 };
    let mut stored = Vec::new();
    if planes::compress_as(&bytes, words, 1, usize::MAX, &mut stored).is_some() {
        let mut back = vec![0; bytes.len()];
        planes::decompress(&stored, &mut back).expect("what was taken apart comes together");
        assert_eq!(back, bytes);
    }
    let _ = planes::guess(&bytes, bytes.len());
});

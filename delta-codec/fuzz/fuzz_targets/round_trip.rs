//! decode(encode(base, target)) is the target, at every effort and within any limits.

#![no_main]

use delta_codec::{BaseIndex, Decoder, Effort, EncodeJob, Encoder, FootprintLimits, WindowUnit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u32, u8, Vec<(u16, bool)>, Vec<u8>, Vec<u8>)| {
    let (effort, stored_bytes_max, ranges_max, cuts, window, target) = input;
    let effort = [Effort::Fast, Effort::Balanced, Effort::High, Effort::Max][usize::from(effort % 4)];
    let index = BaseIndex::build(&window, effort);
    let mut layout = Vec::new();
    let mut rest = window.len() as u32;
    for (len, divisible) in cuts {
        let plain_len = u32::from(len).min(rest);
        if plain_len > 0 {
            layout.push(WindowUnit { plain_len, stored_len: plain_len, divisible });
            rest -= plain_len;
        }
    }
    if rest > 0 {
        layout.push(WindowUnit { plain_len: rest, stored_len: rest, divisible: true });
    }
    let job = EncodeJob {
        window: &window,
        index: &index,
        layout: &layout,
        target: &target,
        effort,
        limits: FootprintLimits { stored_bytes_max: stored_bytes_max.into(), ranges_max: ranges_max.into() },
        delta_len_max: usize::MAX,
    };
    let mut delta = Vec::new();
    let Some(encoded) = Encoder::new().encode(&job, &mut delta) else {
        assert!(target.is_empty(), "a delta of any length is welcome");
        return;
    };
    let slice = |range: &delta_codec::BaseRange| &window[range.offset as usize..][..range.len as usize];
    let footprint: Vec<u8> = encoded.footprint.iter().flat_map(slice).copied().collect();
    let mut back = vec![0; target.len()];
    Decoder::new().decode(&footprint, &delta, &mut back).expect("what was encoded decodes");
    assert_eq!(back, target);
});

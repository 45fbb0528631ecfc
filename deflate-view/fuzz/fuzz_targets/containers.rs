//! Any bytes, fed in any pieces, are cut into units that give exactly these bytes back.

#![no_main]

use deflate_view::{
    AHEAD_LEN, Base, CutLimits, Cutter, ScanLimits, Scanner, decode_unit, encode_unit, recognise,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, bool, Vec<u8>)| {
    let (piece_len, small, object) = input;
    let limits = ScanLimits::default();
    let mut scanner = Scanner::new(limits);
    object.chunks(usize::from(piece_len).max(1)).for_each(|piece| scanner.feed(piece));
    let index = scanner.finish();
    assert_eq!(index.streams, Scanner::index(&object, limits).streams, "pieces change what is found");
    let limits =
        if small { CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 } } else { CutLimits::default() };
    let mut cutter = Cutter::new(index.streams.iter().collect(), object.len() as u64, limits);
    let mut back = Vec::new();
    loop {
        let at = cutter.position() as usize;
        let ahead = &object[at..object.len().min(at + AHEAD_LEN)];
        let Some(unit) = cutter.next(ahead).expect("streams that were found") else { break };
        let base = Base { matches: &[], opened: &[] };
        let replay = recognise(&unit);
        let parses = encode_unit(&unit, base, &[], (replay, replay), false).expect("its own text");
        let stored = parses.stored(&unit, Vec::new(), &[]);
        back.extend(decode_unit(&stored, &unit.text, &[], base).expect("what was encoded decodes"));
    }
    assert_eq!(back, object);
});

//! No stored segment or unit makes a reader panic; one that is read is written to the same bytes.

#![no_main]

use deflate_view::{SegmentForm, StoredSegment, StoredUnit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, Vec<u8>)| {
    let (plain_len, bytes) = input;
    if let Ok(unit) = StoredUnit::read(&bytes) {
        let mut written = Vec::new();
        unit.write(&mut written);
        assert_eq!(StoredUnit::read(&written), Ok(unit));
    }
    for form in [SegmentForm::Whole, SegmentForm::Gapped] {
        let Ok(segment) = StoredSegment::read(&bytes, plain_len % (8 << 20), form) else { continue };
        for unit in &segment.units {
            let Ok(stored) = form.unit(&bytes[unit.place.clone()]) else { continue };
            for part in &stored.parts {
                let _ = segment.openings_of(part);
            }
        }
        for opening in &segment.openings {
            let _ = (opening.bytes(), opening.own_gaps());
        }
    }
});

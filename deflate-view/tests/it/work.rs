//! How long decoding a stored unit takes, as it is reckoned from counts, and what a byte saved may
//! cost.

use deflate_view::{CutLimits, ReplayId, Replaying, ScanLimits, Scanner, StoredPiece, Unit, UnitBase, UnitDelta};

use crate::kit::{units, vectors};

/// The first unit of a container, and its bytes.
fn first_unit(name: &str) -> (Unit, Vec<u8>) {
    let vector = vectors("container").into_iter().find(|vector| vector.name == name).expect("the vector");
    let index = Scanner::index(&vector.bytes, ScanLimits::default());
    let unit = units(&vector.bytes, &index, CutLimits::default()).remove(0);
    let own = vector.bytes[unit.object.start as usize..unit.object.end as usize].to_vec();
    (unit, own)
}

fn stored(unit: &Unit, own: &[u8], replay: u8, ns_per_byte_max: Option<u64>) -> StoredPiece {
    let id = ReplayId::from_number(replay).expect("an encoder");
    let delta = UnitDelta { delta: &[], runs: &[], parts: Vec::new() };
    let replaying = Replaying { id, ns_per_byte_max, keeps_answers: false };
    StoredPiece::of(unit, &delta, &UnitBase::default(), replaying, own).expect("it gives its bytes back")
}

#[test]
fn a_unit_without_replays_costs_its_text_and_its_steps() {
    let (unit, own) = first_unit("zlib_9");
    let piece = stored(&unit, &own, 0, None);
    let counts = piece.counts;
    assert_eq!((counts.searched, counts.replayed), (counts.steps, 0), "without a base no step is known");
    assert_eq!(piece.reading_ns, unit.text.len() as u64 + counts.steps * 52 + counts.missed * 300);
}

#[test]
fn every_search_counts_and_those_of_patient_encoders_count_more() {
    let search_ns = |name, replay| {
        let (unit, own) = first_unit(name);
        let piece = stored(&unit, &own, replay, None);
        assert_eq!(piece.counts.searched, piece.counts.steps, "without a base every step is searched for");
        assert_eq!(piece.counts.missed, 0, "the encoder that made it");
        (piece.reading_ns - unit.text.len() as u64) / piece.counts.searched - 52
    };
    let found =
        [("zlib_1", 1), ("zlib_6", 6), ("zlib_8", 8), ("zlib_9", 9)].map(|(name, replay)| search_ns(name, replay));
    assert_eq!(found, [100, 180, 650, 650]);
}

#[test]
fn a_unit_is_replayed_while_that_costs_no_more_for_each_byte_it_saves_than_it_may() {
    let (unit, own) = first_unit("zlib_9");
    let (free, bare) = (stored(&unit, &own, 9, None), stored(&unit, &own, 0, None));
    assert!(free.stored_len() < bare.stored_len() && free.reading_ns > bare.reading_ns);
    let price = (free.reading_ns - bare.reading_ns) / (bare.stored_len() - free.stored_len()) as u64;
    for (ns_per_byte, expected) in [(1, &bare), (price / 2, &bare), (price * 2, &free), (u64::MAX, &free)] {
        let piece = stored(&unit, &own, 9, Some(ns_per_byte));
        assert_eq!((piece.counts, piece.reading_ns), (expected.counts, expected.reading_ns), "{ns_per_byte}");
        assert_eq!(piece.stored_len(), expected.stored_len());
    }
}

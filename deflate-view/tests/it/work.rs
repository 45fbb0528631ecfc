//! How long decoding a stored unit takes, as it is reckoned from counts, and what a byte saved may
//! cost.

use deflate_view::{
    CutLimits, ReplayId, Replaying, ScanLimits, Scanner, StoredPiece, Unit, UnitBase, UnitCheck, UnitDelta,
};

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
    let replaying = Replaying { id, ns_per_byte_max, search_ns: 0, check: UnitCheck::AtOnce { keeps_answers: false } };
    StoredPiece::of(unit, &delta, &UnitBase::default(), replaying, own).expect("it gives its bytes back")
}

#[test]
fn a_unit_without_replays_costs_its_text_and_its_steps() {
    let (unit, own) = first_unit("zlib_9");
    let piece = stored(&unit, &own, 0, None);
    let counts = piece.counts;
    assert_eq!((counts.searched, counts.replayed), (counts.steps, 0), "without a base no step is known");
    assert_eq!(piece.reading_ns, unit.text.len() as u64 * 3 / 10 + counts.steps * 52 + counts.missed * 145);
}

#[test]
fn what_a_search_looks_at_counts_and_so_does_what_it_enters() {
    let of = |name, replay| {
        let (unit, own) = first_unit(name);
        let piece = stored(&unit, &own, replay, None);
        let counts = piece.counts;
        assert_eq!(counts.searched, counts.steps, "without a base every step is searched for");
        assert_eq!(counts.missed, 0, "the encoder that made it");
        let text_len = unit.text.len() as u64;
        assert!((text_len / 10 * 9..=text_len).contains(&counts.work.entered), "every place once: {counts:?}");
        (piece.reading_ns - text_len * 3 / 10 - 52 * counts.steps, counts)
    };
    for (name, replay, enter, look) in
        [("zlib_1", 1, 20, 27), ("zlib_6", 6, 20, 27), ("zlib_8", 8, 55, 37), ("zlib_9", 9, 55, 37)]
    {
        let (ns, counts) = of(name, replay);
        assert!(counts.work.looks > 0);
        assert_eq!(ns, (counts.work.entered * enter + counts.work.looks * look) / 10, "{name}");
    }
    assert!(of("zlib_6", 6).1.work.looks > of("zlib_1", 1).1.work.looks, "patience looks at more places");
}

#[test]
fn an_encoder_whose_searches_were_seen_to_cost_too_much_is_not_asked_again() {
    let (unit, own) = first_unit("zlib_9");
    let asked = |search_ns| {
        let delta = UnitDelta { delta: &[], runs: &[], parts: Vec::new() };
        let id = ReplayId::from_number(9).expect("an encoder");
        let replaying =
            Replaying { id, ns_per_byte_max: Some(100), search_ns, check: UnitCheck::AtOnce { keeps_answers: false } };
        StoredPiece::of(&unit, &delta, &UnitBase::default(), replaying, &own).expect("its bytes").search_ns
    };
    let seen = asked(0).expect("nothing was seen before");
    assert!((4..2000).contains(&seen), "{seen}");
    assert_eq!(asked(1_000_000), None);
}

#[test]
fn a_unit_is_replayed_while_that_costs_no_more_for_each_byte_it_saves_than_it_may() {
    let (unit, own) = first_unit("dump_points");
    let (free, bare) = (stored(&unit, &own, 6, None), stored(&unit, &own, 0, None));
    assert!(free.stored_len() < bare.stored_len() && free.reading_ns > bare.reading_ns);
    let price = (free.reading_ns - bare.reading_ns) / (bare.stored_len() - free.stored_len()) as u64;
    for (ns_per_byte, expected) in [(1, &bare), (price / 2, &bare), (price * 2, &free), (u64::MAX, &free)] {
        let piece = stored(&unit, &own, 6, Some(ns_per_byte));
        assert_eq!((piece.counts, piece.reading_ns), (expected.counts, expected.reading_ns), "{ns_per_byte}");
        assert_eq!(piece.stored_len(), expected.stored_len());
    }
}

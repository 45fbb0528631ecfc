//! How much work decoding a stored unit is, and that it can be bounded: in counts, not in times.

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

fn stored(unit: &Unit, own: &[u8], replay: u8, work_per_byte_max: u64) -> StoredPiece {
    let id = ReplayId::from_number(replay).expect("an encoder");
    let delta = UnitDelta { delta: &[], runs: &[], parts: Vec::new() };
    let replaying = Replaying { id, work_per_byte_max };
    StoredPiece::of(unit, &delta, &UnitBase::default(), replaying, own).expect("it gives its bytes back")
}

#[test]
fn a_unit_without_replays_is_as_much_work_as_its_text() {
    let (unit, own) = first_unit("zlib_9");
    let piece = stored(&unit, &own, 0, u64::MAX);
    assert_eq!((piece.counts.searched, piece.counts.replayed), (0, 0));
    assert_eq!(piece.work, unit.text.len() as u64);
}

#[test]
fn every_search_counts_and_those_of_patient_encoders_count_more() {
    let work = |name, replay| {
        let (unit, own) = first_unit(name);
        let piece = stored(&unit, &own, replay, u64::MAX);
        assert_eq!(piece.counts.searched, piece.counts.steps, "without a base every step is searched for");
        assert_eq!(piece.counts.missed, 0, "the encoder that made it");
        (piece.work - unit.text.len() as u64) / piece.counts.searched
    };
    let works = [("zlib_1", 1), ("zlib_6", 6), ("zlib_8", 8), ("zlib_9", 9)].map(|(name, replay)| work(name, replay));
    assert_eq!(works, [8, 16, 72, 72]);
}

#[test]
fn a_unit_above_the_bound_is_written_without_replays_and_one_below_it_is_not() {
    let (unit, own) = first_unit("zlib_9");
    let free = stored(&unit, &own, 9, u64::MAX);
    let needed = free.work.div_ceil(own.len() as u64);
    assert_eq!(stored(&unit, &own, 9, needed).counts, free.counts);
    let bounded = stored(&unit, &own, 9, needed - 1);
    assert_eq!(bounded.counts.searched, 0);
    assert!(bounded.work < free.work);
}

//! What nobody should store: parses with bytes changed. Containers are damaged in `tests/bounds`.

use deflate_view::{CutLimits, ReplayId, decode_parse, encode_parse};

use crate::kit::{OwnedBase, Random, units, vectors};

/// Short containers, so that many fit in little time; every kind is among them.
fn seeds() -> Vec<Vec<u8>> {
    let all = vectors("container");
    let short = all.into_iter().map(|vector| vector.bytes).filter(|bytes| (1..9_500).contains(&bytes.len()));
    let seeds: Vec<_> = short.collect();
    assert!(seeds.len() >= 25);
    seeds
}

#[test]
fn mutated_parses_give_errors_or_bytes_of_the_right_length() {
    let seeds = seeds();
    let mut random = Random(7);
    let mut refused = 0;
    for number in 0..2_000 {
        let object = &seeds[random.below(seeds.len())];
        let index = deflate_view::Scanner::index(object, deflate_view::ScanLimits::default());
        let unit = units(object, &index, CutLimits::default()).swap_remove(0).outermost().clone();
        let replay = ReplayId::from_number(number as u8 % 16).expect("a number");
        let base = OwnedBase::default();
        let mut parse = encode_parse(&unit, base.borrow(), &[], replay).bytes;
        for _ in 0..=random.below(3) {
            let at = random.below(parse.len());
            match random.below(3) {
                0 => parse.truncate(at),
                1 => parse.push(random.below(256) as u8),
                _ => parse.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            }
        }
        match decode_parse(&parse, &unit.text, base.borrow(), &[], unit.len()) {
            Ok((bytes, _)) => assert_eq!(bytes.len(), unit.len()),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1_000, "{refused}");
}

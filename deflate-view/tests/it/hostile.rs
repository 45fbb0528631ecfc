//! What nobody should send: containers with bytes changed, and parses with bytes changed. No panic,
//! no wrong byte, bounded time.

use std::time::{Duration, Instant};

use deflate_view::{CutLimits, ReplayId, decode_parse, encode_parse};

use crate::kit::{OwnedBase, Random, units, vectors, whole_there_and_back};

/// A container and up to four changes: a byte, a run of another's bytes, a cut, a run twice.
fn mutate(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 | 1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            2 => bytes.truncate(at.max(1)),
            3 => {
                let from = random.below(other.len());
                let taken = &other[from..other.len().min(from + random.below(300))];
                bytes.splice(at..at, taken.iter().copied());
            }
            _ => {
                let run = bytes[at..bytes.len().min(at + random.below(500))].to_vec();
                bytes.splice(at..at, run);
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

/// Short ones, so that many fit in little time; every kind is among them.
fn seeds() -> Vec<Vec<u8>> {
    let all = vectors("container");
    let short = all.into_iter().map(|vector| vector.bytes).filter(|bytes| (1..9_500).contains(&bytes.len()));
    let seeds: Vec<_> = short.collect();
    assert!(seeds.len() >= 25);
    seeds
}

fn mutated_containers(count: usize, seed: u64) {
    let seeds = seeds();
    let mut random = Random(seed);
    let mut with_parts = 0;
    for number in 0..count {
        let (one, other) = (random.below(seeds.len()), random.below(seeds.len()));
        let object = mutate(&seeds[one], &seeds[other], &mut random);
        let limits = match number % 3 {
            0 => CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 },
            _ => CutLimits::default(),
        };
        let started = Instant::now();
        with_parts += usize::from(whole_there_and_back(&object, limits) > 0);
        assert!(started.elapsed() < Duration::from_secs(5), "number {number} of seed {seed}");
    }
    assert!(with_parts > count / 10, "only {with_parts} of {count} had a stream");
}

/// As many as `DELTAWEIR_MUTATED_CONTAINERS` says (tests/campaigns/test_mutated_containers.py).
#[test]
fn mutated_containers_come_back_or_stay_raw() {
    let asked = std::env::var("DELTAWEIR_MUTATED_CONTAINERS").ok();
    let count = asked.map_or(1_000, |count| count.parse().expect("a number"));
    mutated_containers(count, 20_261_123);
}

#[test]
fn mutated_parses_give_errors_or_bytes_of_the_right_length() {
    let seeds = seeds();
    let mut random = Random(7);
    let mut refused = 0;
    for number in 0..2_000 {
        let object = &seeds[random.below(seeds.len())];
        let index = deflate_view::Scanner::index(object, deflate_view::ScanLimits::default());
        let unit = units(object, &index, CutLimits::default()).swap_remove(0);
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

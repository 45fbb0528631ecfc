//! Containers by real encoders: which streams are found, and that each comes back bit for bit.

use deflate_view::{CutLimits, Index, ReplayId, ScanLimits, Scanner, Stream, bytes_to_open, open};
use sha2::{Digest, Sha256};

use crate::kit::{OwnedBase, Random, Vector, there_and_back, units, vectors, whole_there_and_back};

const SMALL: CutLimits = CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 };

fn container(name: &str) -> Vector {
    vectors("container").into_iter().find(|vector| vector.name == name).expect("a container")
}

fn told(vector: &Vector) -> Vec<String> {
    let index = Scanner::index(&vector.bytes, ScanLimits::default());
    let one = |stream: &Stream| {
        let bytes = bytes_to_open(stream, &(0..stream.plain_len));
        let bytes = &vector.bytes[bytes.start as usize..bytes.end as usize];
        let opened = open(stream, 0..stream.plain_len, bytes).expect("a stream that was found");
        let kind = stream.container.name();
        let digest = hex::encode(&Sha256::digest(&opened.plain)[..8]);
        let gaps = stream.gaps.as_ref().map(|gaps| format!(":{}:{}", gaps.count(), gaps.len()));
        let gaps = gaps.unwrap_or_default();
        format!("{kind}:{}:{}:{}:{digest}{gaps}", stream.start, stream.end, stream.plain_len)
    };
    index.streams.iter().map(one).collect()
}

/// A stream as a vector tells it, its gaps as how many there are and their bytes.
fn expected(told: &str) -> String {
    let Some((stream, runs)) = told.split_once('/') else { return told.to_owned() };
    let (stream, first) = stream.rsplit_once(':').expect("a piece");
    let runs = format!("{first}/{runs}");
    let one = |run: &str| {
        let numbers: Vec<u64> = run.split('/').map(|number| number.parse().expect("a number")).collect();
        (numbers[2], numbers[1] * numbers[2])
    };
    let (count, len) = runs.split('+').map(one).fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    format!("{stream}:{count}:{len}")
}

#[test]
fn every_stream_of_a_container_is_found_and_nothing_else() {
    for vector in vectors("container") {
        let streams = vector.field("streams").split(' ').filter(|stream| *stream != "none");
        let expected: Vec<String> = streams.map(expected).collect();
        assert_eq!(told(&vector), expected, "{}", vector.name);
    }
}

#[test]
fn pieces_of_any_size_give_the_same_streams_and_access_points_as_near_to_each_other() {
    for vector in vectors("container") {
        let whole = Scanner::index(&vector.bytes, ScanLimits::default());
        for size in [1, 7, 333, 4096] {
            let mut scanner = Scanner::new(ScanLimits::default());
            vector.bytes.chunks(size).for_each(|piece| scanner.feed(piece));
            let index = scanner.finish();
            assert_eq!(index.len, whole.len);
            let without = |index: &Index| -> Vec<Stream> {
                index.streams.iter().map(|stream| Stream { points: Vec::new(), ..stream.clone() }).collect()
            };
            assert!(without(&index) == without(&whole), "{} in pieces of {size}", vector.name);
            let points = |index: &Index| index.streams.iter().map(|stream| stream.points.len()).sum::<usize>();
            assert_eq!(points(&index), points(&whole), "{} in pieces of {size}", vector.name);
        }
    }
}

/// A container with some bytes changed, removed or repeated.
fn mutated(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut object = seed.to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(object.len());
        let to = object.len().min(at + 1 + random.below(40));
        match random.below(4) {
            0 => drop(object.drain(at..to)),
            1 => object = [&object[..to], &object[at..]].concat(),
            2 => object.extend_from_slice(&seed[at.min(seed.len())..]),
            _ => object[at] ^= 1 << random.below(8),
        }
        if object.is_empty() {
            return seed.to_vec();
        }
    }
    object
}

#[test]
fn a_mutated_container_has_the_same_streams_however_it_is_fed() {
    let cut = |vector: &Vector| vector.field("streams").contains('/') && vector.bytes.len() < 60_000;
    let seeds: Vec<Vector> = vectors("container").into_iter().filter(cut).collect();
    assert!(seeds.len() >= 3, "{}", seeds.len());
    let mut random = Random(11);
    let (mut found, mut lost) = (0, 0);
    for number in 0..90 {
        let seed = &seeds[number % seeds.len()];
        let object = mutated(&seed.bytes, &mut random);
        let told = |sizes: &mut dyn FnMut() -> usize| {
            let mut scanner = Scanner::new(ScanLimits::default());
            let mut rest = &object[..];
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(sizes().min(rest.len()));
                scanner.feed(piece);
                rest = behind;
            }
            let index = scanner.finish();
            index.streams.into_iter().map(|stream| Stream { points: Vec::new(), ..stream }).collect::<Vec<_>>()
        };
        let whole = told(&mut || usize::MAX);
        assert!(told(&mut || 1) == whole, "{}, {number}, byte by byte", seed.name);
        assert!(told(&mut || 1 + random.below(3000)) == whole, "{}, {number}, in pieces", seed.name);
        if whole.iter().any(|stream| stream.gaps.is_some()) { found += 1 } else { lost += 1 }
    }
    assert!(found > 15 && lost > 15, "{found} {lost}");
}

#[test]
fn what_follows_a_stream_in_pieces_has_no_bearing_on_it() {
    // A piece of one byte, and another behind it: no stream is cut so, but the one before is over.
    let seeds = vectors("container").into_iter().filter(|vector| vector.field("streams").contains('/'));
    let mut tried = 0;
    for seed in seeds {
        let whole = Scanner::index(&seed.bytes, ScanLimits::default()).streams;
        let [stream] = &whole[..] else { continue };
        if stream.container.name() != "png" {
            continue;
        }
        let end = stream.end as usize + 4;
        let tail = [&[0; 4][..], &1u32.to_be_bytes(), b"IDATx", &[0; 4], &1u32.to_be_bytes(), b"IDATy"].concat();
        let mut object = [&seed.bytes[..end], &tail].concat();
        object.extend_from_slice(&tail);
        let index = Scanner::index(&object, ScanLimits::default());
        assert!(index.streams == whole, "{}", seed.name);
        tried += 1;
    }
    assert!(tried > 0);
}

#[test]
fn all_streams_in_pieces_share_one_bound_on_the_runs_of_their_gaps() {
    let one = vectors("container")
        .into_iter()
        .find(|vector| vector.field("streams").contains('/') && !vector.field("streams").contains(' '))
        .expect("a stream in pieces");
    let object = one.bytes.repeat(5);
    let of = |gap_runs_max| {
        let index = Scanner::index(&object, ScanLimits { gap_runs_max, ..ScanLimits::default() });
        index.streams.iter().filter(|stream| stream.gaps.is_some()).count()
    };
    let runs = one.field("streams").matches('/').count() / 2;
    assert_eq!(of(usize::MAX), 5);
    assert_eq!(of(3 * runs), 3);
    assert_eq!(of(runs - 1), 0);
}

#[test]
fn every_container_comes_back_from_units_of_any_size() {
    for vector in vectors("container").iter().filter(|vector| !vector.bytes.is_empty()) {
        let parts = whole_there_and_back(&vector.bytes, CutLimits::default());
        assert_eq!(parts == 0, vector.field("streams") == "none", "{}", vector.name);
        assert!(whole_there_and_back(&vector.bytes, SMALL) >= parts, "{}", vector.name);
        whole_there_and_back(&vector.bytes, CutLimits { text_len_max: 70_001, unit_len_max: 9_999 });
    }
}

#[test]
fn a_known_encoder_is_replayed_without_a_miss() {
    let mut known = 0;
    for vector in vectors("container").iter().filter(|vector| vector.field("replay") != "any") {
        let replay = vector.field("replay").parse().ok().and_then(ReplayId::from_number).expect("an encoder's number");
        let index = Scanner::index(&vector.bytes, ScanLimits::default());
        for unit in units(&vector.bytes, &index, CutLimits::default()) {
            let counts = there_and_back(&vector.bytes, &unit, &OwnedBase::default(), &[], replay);
            assert!(counts.steps > 1000, "{}", vector.name);
            assert_eq!(counts.missed, 0, "{} of {} steps of {}", counts.missed, counts.steps, vector.name);
        }
        known += 1;
    }
    assert_eq!(known, 13);
}

#[test]
fn a_stream_with_more_plain_text_than_allowed_is_left_raw() {
    let long = container("zlib_points");
    let limits = ScanLimits { stream_plain_len_max: 1_000_000, ..ScanLimits::default() };
    assert!(Scanner::index(&long.bytes, limits).streams.is_empty());
    assert_eq!(Scanner::index(&long.bytes, ScanLimits::default()).streams.len(), 1);
}

#[test]
fn a_part_behind_an_access_point_is_opened_without_the_streams_beginning() {
    let long = container("zlib_points");
    let index = Scanner::index(&long.bytes, ScanLimits::default());
    let [stream] = index.streams.as_slice() else { panic!("one stream") };
    let [point] = stream.points.as_slice() else { panic!("one access point") };
    let whole = open(stream, 0..stream.plain_len, &long.bytes[stream.start as usize..]).expect("a stream");
    // Between the header of its block and the point nothing is read.
    let mut holed = long.bytes.clone();
    let from = (stream.start + point.block_bit / 8) as usize + 300;
    let to = (stream.start + point.bit / 8) as usize;
    assert!(to > from + 5_000);
    holed[from..to].fill(0xff);
    for start in [point.plain_at, point.plain_at + 1, 1_400_000] {
        let needed = bytes_to_open(stream, &(start..start + 50_000));
        let bytes = &holed[needed.start as usize..needed.end as usize];
        let part = open(stream, start..start + 50_000, bytes).expect("a part");
        let (mut plain, mut matches) = (Vec::new(), Vec::new());
        whole.append_to(start as usize..start as usize + 50_000, &mut plain, &mut matches);
        assert!(part.plain == plain && part.matches == matches, "{start}");
    }
    // The bytes before the point alone are enough for what lies before it.
    let before = bytes_to_open(stream, &(1000..2000));
    assert!(before.end < stream.end);
    let part = open(stream, 1000..2000, &long.bytes[before.start as usize..before.end as usize]).expect("a part");
    assert!(part.plain == whole.plain[1000..2000]);
}

#[test]
fn a_part_has_the_same_bytes_and_matches_as_the_whole() {
    let long = container("zlib_6");
    let index = Scanner::index(&long.bytes, ScanLimits::default());
    let [stream] = index.streams.as_slice() else { panic!("one stream") };
    let bytes = &long.bytes[stream.start as usize..stream.end as usize];
    let whole = open(stream, 0..stream.plain_len, bytes).expect("a stream");
    for (start, end) in [(0, 1), (1000, 50_000), (149_000, stream.plain_len), (70_000, 70_001)] {
        let part = open(stream, start..end, bytes).expect("a stream");
        let (mut plain, mut matches) = (Vec::new(), Vec::new());
        whole.append_to(start as usize..end as usize, &mut plain, &mut matches);
        assert!(part.plain == plain && part.matches == matches, "{start}..{end}");
    }
}

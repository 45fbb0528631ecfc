//! Streams in the plain text of streams.

use deflate_view::{CutLimits, ScanLimits, Scanner, Stream};

use crate::kit::{Random, units, vectors, whole_there_and_back, wrapped};

const SMALL: CutLimits = CutLimits { text_len_max: 64 << 10, unit_len_max: 4 << 10 };

fn streams(object: &[u8]) -> Vec<Stream> {
    Scanner::index(object, ScanLimits::default()).streams
}

fn container(name: &str) -> Vec<u8> {
    vectors("container").into_iter().find(|vector| vector.name == name).expect("a container").bytes
}

#[test]
fn streams_in_plain_text_are_found_and_those_in_theirs_stay_closed() {
    let [layer] = &streams(&container("nested_new"))[..] else { panic!("one stream") };
    assert_eq!(layer.nested.len(), 2);
    let [outer] = &streams(&container("nested_twice"))[..] else { panic!("one stream") };
    let [inside] = &outer.nested[..] else { panic!("one nested stream") };
    assert!(inside.nested.is_empty() && inside.points.is_empty());
    assert_eq!((inside.digest, inside.plain_len), (layer.digest, layer.plain_len), "the same stream, one level below");
}

#[test]
fn a_container_in_plain_text_has_the_streams_that_it_has_alone() {
    let (mut found, mut nested) = (0, 0);
    for vector in vectors("container").iter().filter(|vector| vector.bytes.len() > 100) {
        // What is cut into pieces stays closed there.
        let limits = ScanLimits { cut: false, ..ScanLimits::default() };
        let alone = Scanner::index(&vector.bytes, limits).streams;
        let object = wrapped(&vector.bytes, 999);
        let of_object = streams(&object);
        let [outer] = &of_object[..] else { panic!("{}: one stream", vector.name) };
        let place = |stream: &Stream| (stream.start, stream.end, stream.plain_len, stream.digest);
        // Plain text of a nested stream is bounded from the first byte on: a bomb stays closed.
        let expected: Vec<_> = alone.iter().filter(|stream| stream.plain_len < 32 << 20).map(place).collect();
        assert_eq!(outer.nested.iter().map(place).collect::<Vec<_>>(), expected, "{}", vector.name);
        found += expected.len();
        for limits in [CutLimits::default(), SMALL, CutLimits { text_len_max: 70_001, unit_len_max: 9_999 }] {
            whole_there_and_back(&object, limits);
            let index = Scanner::index(&object, ScanLimits::default());
            nested += units(&object, &index, limits).iter().map(deflate_view::Unit::nested_parts).sum::<usize>();
        }
    }
    assert!(found >= 36 && nested > 60, "{found} streams, {nested} parts");
}

#[test]
fn containers_between_other_bytes_come_back_from_units_of_any_size() {
    let all: Vec<_> = vectors("container")
        .into_iter()
        .map(|one| one.bytes)
        .filter(|bytes| (100..9_500).contains(&bytes.len()))
        .collect();
    let mut random = Random(11);
    for _ in 0..60 {
        let mut plain = Vec::new();
        for _ in 0..=random.below(12) {
            let one = &all[random.below(all.len())];
            plain.extend_from_slice(&one[random.below(one.len() / 8)..one.len() - random.below(9)]);
        }
        let object = wrapped(&plain, 1 + random.below(60_000) as u16);
        let limits = CutLimits { text_len_max: 64 << 10, unit_len_max: 4096 + random.below(80_000) };
        whole_there_and_back(&object, limits);
    }
}

#[test]
fn a_scan_that_is_told_to_leaves_plain_text_alone() {
    let object = container("nested_old");
    let limits = ScanLimits { nested: false, ..ScanLimits::default() };
    let index = Scanner::index(&object, limits);
    assert!(index.streams.len() == 1 && index.streams[0].nested.is_empty());
    assert!(units(&object, &index, CutLimits::default()).iter().all(|unit| unit.nested_parts() == 0));
}

#[test]
fn all_nested_streams_share_one_bound_on_plain_text_and_one_on_their_number() {
    let one = container("zip_plain");
    let plain: Vec<u8> = (0..40).flat_map(|_| one.clone()).collect();
    let object = wrapped(&plain, 60_000);
    let nested = |limits| Scanner::index(&object, limits).streams[0].nested.len();
    assert_eq!(nested(ScanLimits::default()), 80);
    assert_eq!(nested(ScanLimits { streams_max: 30, ..ScanLimits::default() }), 30);
    assert!(
        streams(&container("nested_bomb"))[0].nested.is_empty(),
        "the bomb stays closed, and what it lies in does not"
    );
    // 16 bytes for each byte of the object are more than these have.
    let bomb = container("bomb");
    let bombs: Vec<u8> = (0..4).flat_map(|_| bomb.clone()).collect();
    let limits = ScanLimits { rich_plain_len_max: 100 << 20, ..ScanLimits::default() };
    assert_eq!(Scanner::index(&wrapped(&bombs, 60_000), limits).streams[0].nested.len(), 2);
}

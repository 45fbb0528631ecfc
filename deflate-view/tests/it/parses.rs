//! Parses predicted from a base: one encoder's from another's of the same text, and of texts that
//! differ.

use deflate_view::{Container, CutLimits, ReplayId, Run, ScanLimits, Scanner, Unit, open};

use crate::kit::{OwnedBase, there_and_back, units, vectors};

/// The only unit of a container of one stream, and its stream as a base.
fn unit_and_base(name: &str) -> (Vec<u8>, Unit, OwnedBase, usize) {
    let all = vectors("container");
    let vector = all.iter().find(|vector| vector.name == name).expect("a container");
    let index = Scanner::index(&vector.bytes, ScanLimits::default());
    let [stream] = index.streams.as_slice() else { panic!("one stream") };
    assert_eq!(stream.container, Container::Gzip);
    let bytes = &vector.bytes[stream.start as usize..stream.end as usize];
    let opened = open(stream, 0..stream.plain_len, bytes).expect("a stream");
    let whole = 0..opened.plain.len() as u32;
    let base = OwnedBase { matches: opened.matches, opened: std::iter::once(whole).collect() };
    let [unit] = &units(&vector.bytes, &index, CutLimits::default())[..] else { panic!("one unit") };
    (vector.bytes.clone(), unit.clone(), base, stream.start as usize)
}

/// The whole text was copied, its header not among it.
fn all_of(unit: &Unit, header: usize) -> Vec<Run> {
    let len = (unit.text.len() - header - 8) as u32;
    vec![Run { at: header as u32, len, base: 0, is_equal: true }]
}

#[test]
fn a_stream_is_predicted_from_itself_in_a_few_bytes() {
    let (object, unit, base, header) = unit_and_base("zlib_6");
    let runs = all_of(&unit, header);
    let counts = there_and_back(&object, &unit, &base, &runs, ReplayId::default());
    assert_eq!(counts.missed, 0);
    let parse = deflate_view::encode_parse(&unit, base.borrow(), &runs, ReplayId::default());
    assert!(parse.bytes.len() < 100, "{}", parse.bytes.len());
}

#[test]
fn another_encoders_parse_is_predicted_in_part_and_replayed_for_the_rest() {
    let (object, unit, _, header) = unit_and_base("zlib_9");
    let (_, _, base, _) = unit_and_base("zlib_4");
    let runs = all_of(&unit, header);
    let alone = there_and_back(&object, &unit, &base, &runs, ReplayId::default());
    assert!(alone.missed > 0 && alone.missed < alone.steps / 2, "{alone:?}");
    let replayed = there_and_back(&object, &unit, &base, &runs, ReplayId::from_number(9).expect("zlib at 9"));
    assert_eq!(replayed.missed, replayed.replayed);
}

#[test]
fn any_runs_and_any_base_give_the_bytes_back() {
    let (object, unit, base, _) = unit_and_base("go_6");
    let len = unit.text.len() as u32;
    let scattered: Vec<Run> = (0..len / 1000)
        .map(|k| Run { at: k * 1000 + k % 7, len: 400 + k % 500, base: (k * 7919) % (len / 2), is_equal: false })
        .collect();
    for replay in [0, 1, 6, 12] {
        let replay = ReplayId::from_number(replay).expect("a number");
        there_and_back(&object, &unit, &base, &scattered, replay);
        there_and_back(&object, &unit, &OwnedBase::default(), &scattered, replay);
    }
}

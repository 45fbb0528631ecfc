//! Segments of units: every vector, and openings from access points.

use std::sync::Arc;

use deflate_view::{
    BaseBytes, Malformed, Opened, Opening, ScanLimits, Scanner, SegmentForm, SegmentView, StoredSegment, UnitBase,
    decode_unit, open,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::kit::{Vector, held_against_vectors, vectors};
use crate::units::apply;

fn windows(frame: &[u8], len: usize) -> Result<Vec<u8>, Malformed> {
    let mut plain = vec![0; len];
    if len == 0 {
        return Ok(plain);
    }
    match zstd::zstd_safe::decompress(&mut plain[..], frame) {
        Ok(found) if found == len => Ok(plain),
        _ => Err(Malformed("windows of another length")),
    }
}

fn opened(object: &[u8], segment: &StoredSegment, windows: &[u8]) -> Result<Vec<Opened>, Malformed> {
    let mut at = 0;
    let one = |opening: &Opening| {
        let window = &windows[at..at + opening.window_len()];
        at += opening.window_len();
        let bytes = opening.bytes();
        let bytes =
            object.get(bytes.start as usize..bytes.end as usize).ok_or(Malformed("an opening past its base"))?;
        // What is only there for its table is not read.
        if opening.plain_at > 0 { Ok(Opened::default()) } else { opening.open(window, bytes) }
    };
    segment.openings.iter().map(one).collect()
}

fn decode(vector: &Vector, object: &[u8]) -> Result<Vec<u8>, Malformed> {
    let plain_len = vector.field("plain-length").parse().expect("a length");
    let form = if vector.has("coding", "5") { SegmentForm::Gapped } else { SegmentForm::Whole };
    let segment = StoredSegment::read(&vector.bytes, plain_len, form)?;
    let windows = windows(&vector.bytes[segment.windows.clone()], segment.windows_len())?;
    let opened = opened(object, &segment, &windows)?;
    let view = BaseBytes(vec![(0, object.to_vec())]);
    let mut content = Vec::new();
    for unit in &segment.units {
        let stored = form.unit(&vector.bytes[unit.place.clone()])?;
        let base = UnitBase::of(&stored.parts, &segment, &view, |number| Ok(Arc::new(opened[number].clone())))?;
        if stored.object_len != unit.object_len as usize {
            return Err(Malformed("a unit of another length"));
        }
        let (text, runs) = apply(stored.delta, &base.bytes, stored.text_len);
        let plain = decode_unit(&stored, &text, &runs, base.parse())?;
        if xxh3_128(&plain).to_le_bytes() != unit.digest {
            return Err(Malformed("a unit of another digest"));
        }
        content.extend(plain);
    }
    Ok(content)
}

#[test]
fn every_segment_gives_its_content_or_the_refusal_that_is_expected() {
    let (good, bad) = held_against_vectors("segment", decode);
    assert!(good >= 3 && bad >= 14, "{good} good, {bad} bad");
}

/// The same numbers as in docs/format/test_deflate_view_v1.py.
#[test]
fn the_work_of_a_segment_with_gaps_counts_the_bytes_that_are_joined_for_it() {
    let works = [
        ("segment_gaps_base", 279_142),
        ("segment_gaps_dump", 279_142),
        ("segment_gaps_picture", 208_186),
        ("segment_gaps_point", 1_067_833),
        ("segment_gaps_units", 1_457_302),
    ];
    for vector in vectors("segment").iter().filter(|vector| works.iter().any(|(name, _)| *name == vector.name)) {
        let plain_len: u32 = vector.field("plain-length").parse().expect("a length");
        let unpack =
            |frame: &[u8], plain: &mut [u8]| windows(frame, plain.len()).map(|found| plain.copy_from_slice(&found));
        let whole = std::slice::from_ref(&(0..u64::MAX));
        let of = (plain_len, SegmentForm::Gapped);
        let (_, plan) = SegmentView::plan(vector.bytes.clone(), of, &(0..plain_len), whole, unpack).expect("a plan");
        let found = (vector.name.as_str(), plan.work_bytes);
        assert!(works.contains(&found), "{found:?}");
    }
}

#[test]
fn an_opening_is_the_same_whatever_the_bytes_of_its_window_are_that_no_match_reads() {
    let (mut read, mut all) = (0, 0);
    for container in vectors("container") {
        let index = Scanner::index(&container.bytes, ScanLimits::default());
        let pairs = index.streams.iter().flat_map(Opening::all);
        for (opening, window) in pairs.filter(|(opening, _)| opening.plain_at > 0) {
            let bytes = &container.bytes[opening.bytes().start as usize..opening.bytes().end as usize];
            let open = |window: &[u8]| opening.open(window, bytes).expect("a stream that was found");
            let as_it_was = open(window);
            let reads = as_it_was.window_reads(window.len());
            let mut other: Vec<u8> = window.iter().map(|byte| !byte).collect();
            reads.iter().for_each(|range| other[range.clone()].copy_from_slice(&window[range.clone()]));
            assert!(open(&other) == as_it_was, "{} at {}", container.name, opening.plain_at);
            for range in &reads {
                let mut spoiled = window.to_vec();
                spoiled[range.start] ^= 1;
                assert!(open(&spoiled) != as_it_was, "{} does not read {}", container.name, range.start);
                read += range.len();
            }
            all += window.len();
        }
    }
    assert!(0 < read && read < all, "{read} of {all} bytes are read");
}

#[test]
fn what_is_opened_piece_by_piece_is_what_is_opened_at_once() {
    let (mut points, mut streams) = (0, 0);
    for container in vectors("container") {
        let index = Scanner::index(&container.bytes, ScanLimits::default());
        for stream in &index.streams {
            let whole = &container.bytes[stream.start as usize..stream.end as usize];
            let at_once = open(stream, 0..stream.plain_len, whole).expect("a stream that was found");
            let mut pieces = Opened::default();
            for (opening, window) in Opening::all(stream) {
                let bytes = opening.bytes();
                let piece = opening.open(window, &container.bytes[bytes.start as usize..bytes.end as usize]);
                let piece = piece.expect("a stream that was found");
                piece.append_to(0..piece.plain.len(), &mut pieces.plain, &mut pieces.matches);
                points += usize::from(opening.plain_at > 0);
                assert!(opening.open(&[window, &[0]].concat(), whole).is_err());
            }
            assert!(pieces == at_once, "{} at {}", container.name, stream.start);
            streams += 1;
        }
    }
    assert!(points >= 1 && streams > 30, "{points} points in {streams} streams");
}

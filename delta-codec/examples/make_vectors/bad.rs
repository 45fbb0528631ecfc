//! Deltas that must be refused, in the order of docs/format/delta-v1.md §7.

use delta_codec::SEGMENT_LEN_MAX;

use crate::kit::{
    DIAGONALS, GAPS, Hand, LITERALS, Outside, SUB, change, coded, frame, framed, number, raw_frame, stored,
};
use crate::{Expect, Footprint, Vector};

const BASE: Footprint = Footprint::Lcg(1, 1000);

fn vector(name: &'static str, about: &'static str, target_len: usize, delta: Vec<u8>) -> Vector {
    Vector { name, about, footprint: BASE, delta, expect: Expect::Malformed { target_len } }
}

/// A delta that would decode to 44 bytes: copy 16, sub run 4, copy 20, literals 4.
fn sound() -> Hand {
    Hand {
        copies: vec![(0, 16, change(40)), (4, 20, 0)],
        sub: vec![1, 2, 3, 4],
        literals: b"tail".to_vec(),
        ..Hand::default()
    }
}

/// The literals of [`sound`] as 40 bytes (of a target of 80), written by the caller.
fn with_literals(stream: Vec<u8>) -> Vec<u8> {
    sound().with(LITERALS, stream).bytes()
}

pub(crate) fn vectors() -> Vec<Vector> {
    let plain = [b'z'; 40];
    let good_frame = frame(&plain, &[], Outside::Bare);
    let tail_framed = |frame: &[u8]| with_literals(framed(40, 2, frame));
    vec![
        // 1. Lengths.
        vector("target_empty", "a target of no bytes", 0, vec![0, 0]),
        vector(
            "target_too_long",
            "a target of 4 MiB and one byte",
            SEGMENT_LEN_MAX + 1,
            Hand::default().with(LITERALS, coded(SEGMENT_LEN_MAX, 1, &[0])).bytes(),
        ),
        Vector {
            footprint: Footprint::Lcg(1, (32 << 20) + 1),
            ..vector("footprint_too_long", "a footprint of 32 MiB and one byte", 10, vec![0, 0])
        },
        // 2. Forms and ends.
        vector("delta_empty", "nothing at all", 10, vec![]),
        vector("form_unknown", "form 2", 10, vec![2, 0]),
        vector("form_copy_cut", "form 0 without a source", 10, vec![0]),
        vector("form_copy_with_tail", "a byte after form 0", 10, vec![0, 0, 0]),
        vector("form_streams_cut", "form 1 without a number of copies", 10, vec![1]),
        vector(
            "streams_missing_one",
            "the literals are not there",
            40,
            without_last(&Hand { literals: vec![], ..sound() }.bytes(), 1),
        ),
        vector("streams_cut", "the last literal is not there", 44, without_last(&sound().bytes(), 1)),
        vector("streams_with_tail", "a byte after the literals", 44, [sound().bytes(), vec![0]].concat()),
        // 3. Numbers.
        vector("number_not_minimal", "source 0 in two bytes", 10, vec![0, 0x80, 0]),
        vector("number_too_large", "source 2^32", 10, vec![0, 0x80, 0x80, 0x80, 0x80, 0x10]),
        vector("number_too_long", "a source of six bytes", 10, vec![0, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
        vector("number_cut", "a source that ends early", 10, vec![0, 0x80]),
        vector(
            "copies_not_minimal",
            "the number of copies in two bytes where one would do",
            44,
            replaced(&sound().bytes(), 1, &[0x82, 0x00]),
        ),
        vector(
            "instruction_number_too_long",
            "a gap of five bytes",
            44,
            sound().with(GAPS, stored(&[0x80, 0x80, 0x80, 0x80, 0x01, 4])).bytes(),
        ),
        vector(
            "instruction_number_not_minimal",
            "a gap of 0 in two bytes",
            44,
            sound().with(GAPS, stored(&[0x80, 0, 4])).bytes(),
        ),
        vector("instruction_number_cut", "the last gap ends early", 44, sound().with(GAPS, stored(&[0, 0x84])).bytes()),
        // 4. Numbers of copies.
        vector(
            "copies_more_than_room",
            "six copies in 44 bytes",
            44,
            Hand { copies: vec![(0, 1, 0); 6], literals: vec![0; 38], ..Hand::default() }.bytes(),
        ),
        vector("copies_billions", "2^32 - 1 copies", 44, Hand { claimed_copies: Some(u32::MAX), ..sound() }.bytes()),
        vector(
            "copies_fewer_than_numbers",
            "one copy claimed, numbers for two",
            44,
            Hand { claimed_copies: Some(1), ..sound() }.bytes(),
        ),
        vector(
            "copies_more_than_numbers",
            "three copies claimed, numbers for two",
            44,
            Hand { claimed_copies: Some(3), ..sound() }.bytes(),
        ),
        vector("gaps_one_too_many", "three gaps for two copies", 44, sound().with(GAPS, stored(&[0, 4, 0])).bytes()),
        vector(
            "diagonals_one_too_few",
            "one diagonal for two copies",
            44,
            sound().with(DIAGONALS, stored(&number(change(40)))).bytes(),
        ),
        // 5. Codings.
        vector("coding_4", "a coding that does not exist", 80, with_literals(coded(40, 4, &plain))),
        vector("coding_7", "the last coding that does not exist", 80, with_literals(coded(40, 7, &plain))),
        vector(
            "context_for_sub",
            "coding 3 outside the literals",
            44,
            sound().with(SUB, framed(4, 3, &raw_frame(0, &[1, 2, 3, 4]))).bytes(),
        ),
        vector(
            "context_for_gaps",
            "coding 3 in an instruction stream",
            44,
            sound().with(GAPS, framed(2, 3, &raw_frame(0, &[0, 4]))).bytes(),
        ),
        vector("repeated_no_times", "coding 1 with length 0", 40, with_literals(coded(0, 1, &[9]))),
        vector("repeated_without_byte", "coding 1 that ends before its byte", 44, with_literals(coded(4, 1, &[]))),
        vector(
            "stored_longer_than_delta",
            "coding 0 with more bytes than there are",
            80,
            with_literals(coded(40, 0, &plain[..39])),
        ),
        vector("literals_longer_than_target", "more literals than target", 44, with_literals(coded(45, 1, b"x"))),
        vector(
            "sub_longer_than_target",
            "half a gigabyte of sub bytes",
            44,
            sound().with(SUB, coded((1 << 29) - 1, 1, b"x")).bytes(),
        ),
        vector(
            "gaps_longer_than_copies_allow",
            "nine bytes of gaps for two copies",
            44,
            sound().with(GAPS, coded(9, 1, &[0])).bytes(),
        ),
        // 6. Frames.
        vector("frame_empty", "a frame of no bytes", 80, tail_framed(&[])),
        vector(
            "frame_with_magic",
            "a frame with its magic number",
            80,
            tail_framed(&frame(&plain, &[], Outside::Magic)),
        ),
        vector(
            "frame_with_content_size",
            "a frame that states its content size",
            80,
            tail_framed(&frame(&plain, &[], Outside::ContentSize)),
        ),
        vector(
            "frame_with_checksum",
            "a frame with a checksum",
            80,
            tail_framed(&frame(&plain, &[], Outside::Checksum)),
        ),
        vector(
            "frame_window_too_large",
            "a window of 2^27 and an eighth",
            80,
            tail_framed(&raw_frame(17 << 3 | 1, &plain)),
        ),
        vector("frame_window_enormous", "a window of almost 4 TiB", 80, tail_framed(&raw_frame(0xff, &plain))),
        vector("frame_cut", "a frame without its last byte", 80, tail_framed(without_last(&good_frame, 1).as_slice())),
        vector("frame_with_tail", "a byte after the frame", 80, tail_framed(&[good_frame.clone(), vec![0]].concat())),
        vector(
            "frame_twice",
            "two frames of half the content each",
            80,
            tail_framed(&[raw_frame(0, &plain[..20]), raw_frame(0, &plain[20..])].concat()),
        ),
        vector(
            "frame_too_little",
            "a frame of 39 bytes for 40",
            80,
            tail_framed(&frame(&plain[..39], &[], Outside::Bare)),
        ),
        vector(
            "frame_too_much",
            "a frame of 41 bytes for 40",
            80,
            tail_framed(&frame(&[b'z'; 41], &[], Outside::Bare)),
        ),
        vector(
            "frame_reserved_block",
            "a block of the reserved type",
            80,
            tail_framed(&[0, 0, 0x47, 0x01, 0, 1, 2, 3]),
        ),
        vector(
            "frame_garbage",
            "a compressed block of garbage",
            80,
            tail_framed(&[0, 0, 0x45, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ),
        vector(
            "frame_longer_than_delta",
            "a frame length past the end of the delta",
            80,
            with_literals(coded(40, 2, &[number(1 << 20), good_frame.clone()].concat())),
        ),
        vector(
            "frame_match_before_start",
            "a frame made over a context that coding 2 does not have",
            140,
            over_missing_context(),
        ),
        // 7. Instructions.
        vector("copy_form_past_footprint", "form 0 that ends one byte past the footprint", 11, vec![0, 0xde, 0x07]),
        vector("copy_form_source_past_footprint", "form 0 that begins past the footprint", 1, vec![0, 0xe8, 0x07]),
        vector("copy_form_source_enormous", "form 0 with source 2^32 - 1", 10, vec![0, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        vector(
            "copy_before_footprint",
            "a source of -1",
            44,
            Hand { copies: vec![(0, 44, change(-1))], ..Hand::default() }.bytes(),
        ),
        vector(
            "copy_past_footprint",
            "a copy that ends one byte past the footprint",
            44,
            Hand { copies: vec![(0, 44, change(957))], ..Hand::default() }.bytes(),
        ),
        vector(
            "copy_empty_past_footprint",
            "an empty copy one byte past the end of the footprint",
            44,
            Hand { copies: vec![(0, 0, change(1001))], literals: vec![0; 44], ..Hand::default() }.bytes(),
        ),
        vector(
            "copy_second_before_footprint",
            "a second copy whose diagonal leads below 0",
            44,
            Hand { copies: vec![(0, 20, change(5)), (0, 20, change(-26))], literals: vec![0; 4], ..Hand::default() }
                .bytes(),
        ),
        vector(
            "sub_run_past_footprint",
            "a sub run, then an empty copy, beyond the end",
            44,
            Hand { copies: vec![(0, 4, change(996)), (40, 0, 0)], sub: vec![0; 40], ..Hand::default() }.bytes(),
        ),
        vector("copies_past_target", "copies longer than the target", 39, Hand { literals: vec![], ..sound() }.bytes()),
        vector("gap_past_target", "a gap longer than the target", 44, sound().with(GAPS, stored(&[0, 0x2d])).bytes()),
        vector(
            "gap_enormous",
            "a gap of 2^28 - 1",
            44,
            sound().with(GAPS, stored(&[0, 0xff, 0xff, 0xff, 0x7f])).bytes(),
        ),
        vector("sub_too_short", "three sub bytes for a run of four", 44, sound().with(SUB, stored(&[1, 2, 3])).bytes()),
        vector(
            "sub_too_long",
            "five sub bytes for a run of four",
            44,
            sound().with(SUB, stored(&[1, 2, 3, 4, 5])).bytes(),
        ),
        vector("literals_too_short", "three literals for a tail of four", 44, with_literals(stored(b"tai"))),
        vector("literals_too_long", "five literals for a tail of four", 44, with_literals(stored(b"tails"))),
        vector(
            "sub_as_literals",
            "the gap's bytes stand in literals, its code says sub",
            44,
            Hand { sub: vec![], literals: b"1234tail".to_vec(), ..sound() }.bytes(),
        ),
    ]
}

/// A frame whose matches reach before its start.
fn over_missing_context() -> Vec<u8> {
    let base = BASE.bytes();
    let literals: Vec<u8> = base[56..156].chunks(20).rev().flatten().copied().collect();
    let frame = frame(&literals, &base[..400], Outside::Bare);
    Hand { copies: vec![(0, 40, change(16))], ..Hand::default() }.with(LITERALS, framed(100, 2, &frame)).bytes()
}

fn without_last(bytes: &[u8], count: usize) -> Vec<u8> {
    bytes[..bytes.len() - count].to_vec()
}

/// `bytes` with the one at `at` replaced.
fn replaced(bytes: &[u8], at: usize, by: &[u8]) -> Vec<u8> {
    [&bytes[..at], by, &bytes[at + 1..]].concat()
}

//! Deltas that must be refused, in the order of docs/format/delta-v1.md §7.

use delta_codec::SEGMENT_LEN_MAX;

use crate::arm64;
use crate::kit::{
    DIAGONALS, DISTANCES, GAPS, Hand, LITERALS, Outside, References, SUB, WORDS, change, coded, frame, framed, number,
    raw_frame, stored,
};
use crate::{Expect, Footprint, Vector};

const BASE: Footprint = Footprint::Lcg(1, 1000);

pub(crate) fn vector(name: &'static str, about: &'static str, target_len: usize, delta: Vec<u8>) -> Vector {
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

/// A delta of form 2 that would decode to 48 bytes: copy 16, a sub run of 8 (2 equal, a word, 2
/// equal), copy 20, literals 4.
fn sound_words() -> Hand {
    Hand { literals: b"tail".to_vec(), ..Hand::of_words(&[(0, 16, change(40)), (8, 20, 0)], &[2, 2], &[256]) }
}

/// [`sound_words`] with other distances and words.
fn other_words(distances: &[u32], words: &[i32]) -> Vec<u8> {
    Hand { words: Some((distances.to_vec(), words.to_vec())), ..sound_words() }.bytes()
}

/// The literals of [`sound`] as 40 bytes (of a target of 80), written by the caller.
fn with_literals(stream: Vec<u8>) -> Vec<u8> {
    sound().with(LITERALS, stream).bytes()
}

pub(crate) fn vectors() -> Vec<Vector> {
    streams().into_iter().chain(words()).chain(predicted()).chain(arm64::bad()).collect()
}

/// Forms 0 and 1.
fn streams() -> Vec<Vector> {
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
        vector("form_unknown", "form 5", 10, vec![5, 0]),
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

/// Form 2, in the same order.
fn words() -> Vec<Vector> {
    let distances = |stream: Vec<u8>| sound_words().with(DISTANCES, stream).bytes();
    let words = |stream: Vec<u8>| sound_words().with(WORDS, stream).bytes();
    let literals = |stream: Vec<u8>| sound_words().with(LITERALS, stream).bytes();
    let whole = sound_words().bytes();
    vec![
        // 2. Forms and ends.
        vector("form_words_cut", "form 2 without a number of copies", 48, vec![2]),
        vector("words_as_form_1", "a delta of form 2 that says it is form 1", 48, replaced(&whole, 0, &[1])),
        vector("words_as_form_3", "a delta of form 2 that says it is form 3", 48, replaced(&whole, 0, &[3])),
        vector(
            "words_from_form_1",
            "a delta of form 1 that says it is form 2",
            44,
            replaced(&sound().bytes(), 0, &[2]),
        ),
        vector("words_missing_literals", "form 2 without its sixth stream", 44, without_last(&whole, 5)),
        vector("words_delta_cut", "form 2: the last literal is not there", 48, without_last(&whole, 1)),
        vector("words_with_tail", "form 2: a byte after the literals", 48, [whole.clone(), vec![0]].concat()),
        // 3. Numbers.
        vector("distance_not_minimal", "a distance of 2 in two bytes", 48, distances(stored(&[2, 0x82, 0]))),
        vector("distance_too_long", "a distance of five bytes", 48, distances(stored(&[2, 0x80, 0x80, 0x80, 0x80, 1]))),
        vector(
            "distance_too_long_not_minimal",
            "a distance of 2 in five bytes",
            48,
            distances(stored(&[2, 0x82, 0x80, 0x80, 0x80, 0])),
        ),
        vector("distance_cut", "the last distance ends early", 48, distances(stored(&[2, 0x82]))),
        // 4. Numbers of copies.
        vector(
            "words_copies_more_than_room",
            "form 2: six copies in 44 bytes",
            44,
            Hand { literals: vec![0; 38], ..Hand::of_words(&[(0, 1, 0); 6], &[], &[]) }.bytes(),
        ),
        vector(
            "words_copies_fewer_than_numbers",
            "form 2: one copy claimed, numbers for two",
            48,
            Hand { claimed_copies: Some(1), ..sound_words() }.bytes(),
        ),
        // 5. Codings.
        vector("distances_in_coding_4", "a coding that does not exist", 48, distances(coded(2, 4, &[2, 2]))),
        vector("words_in_coding_4", "a coding that does not exist", 48, words(coded(4, 4, &[0, 1, 0, 0]))),
        vector(
            "context_for_distances",
            "coding 3 for the distances",
            48,
            distances(framed(2, 3, &raw_frame(0, &[2, 2]))),
        ),
        vector("context_for_words", "coding 3 for the words", 48, words(framed(4, 3, &raw_frame(0, &[0, 1, 0, 0])))),
        vector("distances_repeated_no_times", "coding 1 with length 0", 48, distances(coded(0, 1, &[2]))),
        vector("words_repeated_no_times", "coding 1 with length 0", 48, words(coded(0, 1, &[1]))),
        vector(
            "distances_longer_than_target",
            "half a gigabyte of distances",
            48,
            distances(coded((1 << 29) - 1, 1, &[0])),
        ),
        vector("words_longer_than_target", "half a gigabyte of words", 48, words(coded((1 << 29) - 4, 1, &[0]))),
        vector("words_longer_than_room", "48 bytes of words after two distances", 48, words(coded(48, 1, &[0]))),
        vector(
            "words_literals_longer_than_room",
            "43 literals after two distances and a word",
            48,
            literals(coded(43, 1, b"x")),
        ),
        vector(
            "words_and_distances_above_target",
            "nothing wrong but that distances and words are one byte longer than the target",
            44,
            Hand::of_words(&[(0, 8, change(40)), (36, 0, 0)], &[0; 9], &[9; 9]).bytes(),
        ),
        vector(
            "words_and_literals_above_target",
            "nothing wrong but that the three together are one byte longer than the target",
            48,
            Hand { literals: b"tail".to_vec(), ..Hand::of_words(&[(0, 8, change(40)), (36, 0, 0)], &[0; 9], &[9; 9]) }
                .bytes(),
        ),
        vector("words_of_three_bytes", "three quarters of a word", 48, words(stored(&[0, 1, 0]))),
        vector("words_of_five_bytes", "a word and a quarter", 48, words(stored(&[0, 1, 0, 0, 0]))),
        vector(
            "words_cut",
            "two words but for their last byte",
            48,
            Hand { words: Some((vec![0, 0], vec![])), ..sound_words() }
                .with(WORDS, stored(&[0, 1, 0, 0, 0, 1, 0]))
                .bytes(),
        ),
        vector(
            "words_part_short",
            "a last word of which three bytes count, and only they are there",
            43,
            Hand { literals: b"tail".to_vec(), ..Hand::of_words(&[(0, 16, change(40)), (3, 20, 0)], &[0], &[]) }
                .with(WORDS, stored(&[1, 2, 3]))
                .bytes(),
        ),
        vector("words_part_repeated", "five times the same byte", 48, words(coded(5, 1, &[0]))),
        vector("words_part_in_zstd", "five bytes in a frame", 48, words(framed(5, 2, &raw_frame(0, &[0, 1, 0, 0, 0])))),
        // 6. Frames.
        vector(
            "distances_frame_too_little",
            "a frame of one byte for two",
            48,
            distances(framed(2, 2, &raw_frame(0, &[2]))),
        ),
        vector(
            "words_frame_too_much",
            "a frame of eight bytes for four",
            48,
            words(framed(4, 2, &raw_frame(0, &[0, 1, 0, 0, 0, 0, 0, 0]))),
        ),
        vector(
            "words_frame_window_too_large",
            "a window of 2^27 and an eighth",
            48,
            words(framed(4, 2, &raw_frame(17 << 3 | 1, &[0, 1, 0, 0]))),
        ),
        // 7. Instructions.
        vector(
            "words_copy_past_footprint",
            "form 2: a copy that ends one byte past the footprint",
            48,
            Hand::of_words(&[(0, 0, change(953)), (8, 40, 0)], &[8], &[]).bytes(),
        ),
        vector(
            "words_run_past_footprint",
            "a sub run of form 2, then an empty copy, beyond the end",
            44,
            Hand::of_words(&[(0, 4, change(996)), (40, 0, 0)], &[40], &[]).bytes(),
        ),
        vector("words_past_target", "form 2: copies longer than the target", 43, literals(stored(&[]))),
        vector("distance_past_run", "a distance one byte past the end of its run", 48, other_words(&[9], &[])),
        vector(
            "distance_past_run_later",
            "a second distance one byte past the end of its run",
            48,
            other_words(&[2, 3], &[256]),
        ),
        vector(
            "distance_past_run_and_word",
            "a distance that leaves room for a word with the copy alone",
            48,
            other_words(&[12], &[256]),
        ),
        vector("distance_enormous", "a distance of 2^28 - 1", 48, other_words(&[2, (1 << 28) - 1], &[256])),
        vector("distances_none", "no distances at all", 48, other_words(&[], &[256])),
        vector(
            "distances_one_too_few",
            "equal bytes at the end that no distance counts",
            48,
            other_words(&[2], &[256]),
        ),
        vector("distances_one_too_many", "three distances where two would do", 48, other_words(&[2, 2, 2], &[256])),
        vector(
            "distance_after_last_word",
            "a distance of 0 where the run has ended with its word",
            48,
            other_words(&[4, 0], &[256]),
        ),
        vector(
            "distance_for_empty_run",
            "a distance of 0 for a sub run of length 0",
            40,
            Hand { literals: b"tail".to_vec(), ..Hand::of_words(&[(0, 16, change(40)), (0, 20, 0)], &[0], &[]) }
                .bytes(),
        ),
        vector(
            "distance_without_run",
            "a distance, and no sub run",
            20,
            Hand { literals: vec![0; 16], ..Hand::of_words(&[(0, 4, change(40))], &[0], &[]) }.bytes(),
        ),
        vector(
            "word_without_run",
            "a word, and no sub run",
            20,
            Hand { literals: vec![0; 16], ..Hand::of_words(&[(0, 4, change(40))], &[], &[0]) }.bytes(),
        ),
        vector("words_none", "no words at all", 48, other_words(&[2, 2], &[])),
        vector("words_one_too_few", "one word for a run of two", 48, other_words(&[0, 0], &[256])),
        vector("words_one_too_many", "two words for a run of one", 48, other_words(&[2, 2], &[256, 0])),
        vector(
            "word_after_last_distance",
            "a word where the run has ended with equal bytes",
            48,
            other_words(&[8], &[256]),
        ),
        vector("words_literals_too_short", "form 2: three literals for a tail of four", 48, literals(stored(b"tai"))),
        vector("words_literals_too_long", "form 2: five literals for a tail of four", 48, literals(stored(b"tails"))),
        vector(
            "words_as_literals",
            "the gap's bytes stand in literals, its code says sub",
            48,
            Hand { literals: b"12345678tail".to_vec(), words: Some((vec![], vec![])), ..sound_words() }.bytes(),
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

pub(crate) fn without_last(bytes: &[u8], count: usize) -> Vec<u8> {
    bytes[..bytes.len() - count].to_vec()
}

/// `bytes` with the one at `at` replaced.
pub(crate) fn replaced(bytes: &[u8], at: usize, by: &[u8]) -> Vec<u8> {
    [&bytes[..at], by, &bytes[at + 1..]].concat()
}

/// A delta of form 3 that would decode to 140 bytes: copy 16, a sub run of 100, copy 20, literals
/// 4.
pub(crate) fn with_references(predictor: Vec<u8>) -> Vec<u8> {
    of_form(false, predictor)
}

pub(crate) fn of_form(is_form_4: bool, predictor: Vec<u8>) -> Vec<u8> {
    Hand {
        literals: b"tail".to_vec(),
        predictor: Some(predictor),
        is_form_4,
        ..Hand::of_words(&[(0, 16, change(40)), (100, 20, 0)], &[100], &[])
    }
    .bytes()
}

/// As many knots as 140 bytes have room for.
pub(crate) fn references() -> References {
    References { near: vec![(0, 3), (7, 0)], far: vec![(9, 4), (1, 1)], kinds: vec![1], ..References::default() }
}

fn predicted() -> Vec<Vector> {
    let of = |name, about, predictor: Vec<u8>| vector(name, about, 140, with_references(predictor));
    let instead = |kinds: Option<Vec<u8>>, starts: Option<Vec<u8>>, shifts: Option<Vec<u8>>| {
        references().with_streams(
            &kinds.unwrap_or(stored(&[1])),
            &starts.unwrap_or(stored(&[0, 7, 9, 1])),
            &shifts.unwrap_or(stored(&[3, 0, 4, 1])),
        )
    };
    let whole = with_references(references().bytes());
    let seams = |seams: &[(u32, u32)]| References { seams: seams.to_vec(), ..references() }.bytes();
    let knots = |near: &[(u32, u32)], far: &[(u32, u32)]| {
        References { near: near.to_vec(), far: far.to_vec(), kinds: vec![1], ..References::default() }.bytes()
    };
    vec![
        vector("predicted_cut", "form 3 without a number of copies", 140, vec![3]),
        vector("predicted_as_form_2", "a delta of form 3 that says it is form 2", 140, replaced(&whole, 0, &[2])),
        vector("predicted_as_form_4", "a delta of form 3 that says it is form 4", 140, replaced(&whole, 0, &[4])),
        vector("predicted_with_tail", "form 3: a byte after the literals", 140, [whole.clone(), vec![0]].concat()),
        of("predicted_missing", "form 3 without what is predicted", Vec::new()),
        of("seams_more_than_ranges", "sixteen seams", seams(&[(1, 1); 16])),
        of("seam_past_footprints", "a seam one past the longest footprint", seams(&[(1 << 25, 0), (1, 0)])),
        of("seams_leave_out_too_much", "2^27 + 1 bytes left out", seams(&[(1, 1 << 27), (1, 1)])),
        of("seams_cut", "a seam without what it leaves out", vec![1, 1]),
        of("near_more_than_room", "three knots for 140 bytes", knots(&[(1, 1); 3], &[])),
        of("far_more_than_room", "three knots for 140 bytes", knots(&[], &[(1, 1); 3])),
        of(
            "near_billions",
            "2^32 - 1 knots",
            [number(0), number(u32::MAX), number(0), stored(&[1]), stored(&[]), stored(&[])].concat(),
        ),
        of("kinds_none", "no kinds", instead(Some(stored(&[])), None, None)),
        of("kinds_one_too_many", "two kinds for one block", instead(Some(stored(&[1, 1])), None, None)),
        of("kind_unknown", "kind 4", instead(Some(stored(&[4])), None, None)),
        of("context_for_kinds", "coding 3 for the kinds", instead(Some(framed(1, 3, &raw_frame(0, &[1]))), None, None)),
        of("context_for_starts", "coding 3", instead(None, Some(framed(4, 3, &raw_frame(0, &[0, 7, 9, 1]))), None)),
        of("context_for_shifts", "coding 3", instead(None, None, Some(framed(4, 3, &raw_frame(0, &[3, 0, 4, 1]))))),
        of(
            "starts_two_at_one_place",
            "a number 0 that is not its table's first",
            instead(None, Some(stored(&[0, 7, 9, 0])), None),
        ),
        of("starts_past_the_end", "a start of 2^32", knots(&[(u32::MAX, 3), (1, 0)], &[])),
        of("starts_one_too_few", "three numbers for four knots", instead(None, Some(stored(&[0, 7, 9])), None)),
        of("starts_one_too_many", "five numbers for four knots", instead(None, Some(stored(&[0, 7, 9, 1, 1])), None)),
        of(
            "starts_not_minimal",
            "a number of two bytes that needs one",
            instead(None, Some(stored(&[0, 0x87, 0, 9, 1])), None),
        ),
        of("starts_too_long", "a stream longer than its knots allow", instead(None, Some(coded(21, 1, &[1])), None)),
        of("shifts_one_too_few", "three codes for four knots", instead(None, None, Some(stored(&[3, 0, 4])))),
        of("shifts_one_too_many", "five codes for four knots", instead(None, None, Some(stored(&[3, 0, 4, 1, 1])))),
        of(
            "shifts_too_large",
            "a code of 2^32",
            instead(None, None, Some(stored(&[3, 0, 4, 0x80, 0x80, 0x80, 0x80, 0x10]))),
        ),
        of("shifts_too_long", "a stream longer than its knots allow", instead(None, None, Some(coded(21, 1, &[1])))),
    ]
}

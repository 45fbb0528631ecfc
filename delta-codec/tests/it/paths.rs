//! The encoder takes the path it should: each test fails when the thing it is about never happens.

use super::{FORM_STREAMS, FORM_WORDS, encode, gather, noise, raw_layout};
use delta_codec::{BaseIndex, Effort, EncodeJob, Encoder, FootprintLimits, WindowUnit, summarize};

const LIMITS: FootprintLimits = FootprintLimits { stored_bytes_max: 8 << 20, ranges_max: 16 };

#[test]
fn a_segment_that_is_one_copy_is_a_few_bytes() {
    let window = noise(3 << 20, 1);
    for effort in super::EFFORTS {
        let (encoded, delta) =
            encode(&window, &raw_layout(window.len()), &window[1_234_567..2_345_678], effort, LIMITS);
        assert!(delta.len() <= 6, "{effort:?}: {}", delta.len());
        assert_eq!(encoded.copied_bytes, 1_111_111);
    }
}

#[test]
fn a_whole_window_that_repeats_itself_is_still_one_copy() {
    let window = noise(1 << 20, 4);
    let (_, delta) = encode(&window, &raw_layout(window.len()), &window, Effort::Balanced, LIMITS);
    assert!(delta.len() <= 16);
}

#[test]
fn changed_addresses_become_words() {
    let window = noise(200_000, 2);
    let mut target = window.clone();
    for place in target[1000..199_000].chunks_mut(40) {
        let moved = u32::from_le_bytes([place[0], place[1], place[2], place[3]]).wrapping_add(0x7310);
        place[..4].copy_from_slice(&moved.to_le_bytes());
    }
    let (_, delta) = encode(&window, &raw_layout(window.len()), &target, Effort::Balanced, LIMITS);
    let summary = summarize(&delta, target.len()).expect("what was encoded is well-formed");
    // One sub run: 4950 words of four bytes, each 36 bytes after the one before.
    assert_eq!((delta[0], summary.copies), (FORM_WORDS, 2));
    assert_eq!(summary.sub_bytes, 4950 * 5);
    assert_eq!(summary.literal_bytes, 0);
    assert!(delta.len() < 100, "{}", delta.len());
}

#[test]
fn where_words_would_be_longer_than_the_target_sub_bytes_take_their_place() {
    let window = noise(200_000, 2);
    let mut target = window.clone();
    target[1000..199_000].iter_mut().step_by(4).for_each(|byte| *byte = byte.wrapping_add(0x10));
    let (_, delta) = encode(&window, &raw_layout(window.len()), &target, Effort::Balanced, LIMITS);
    let summary = summarize(&delta, target.len()).expect("what was encoded is well-formed");
    assert_eq!((delta[0], summary.literal_bytes), (FORM_STREAMS, 0));
    // From the first difference to the last.
    assert_eq!(summary.sub_bytes, 49_499 * 4 + 1);
    assert!(delta.len() < 200, "{}", delta.len());
}

#[test]
fn a_table_whose_entries_all_changed_is_followed_past_one_that_was_added() {
    let window = noise(240_000, 22);
    // Entries of 24 bytes; each has a number that grew, and every 300th is followed by another one.
    // No 16 bytes in a row are equal.
    let mut target = window[..24_000].to_vec();
    for (number, entry) in window[24_000..].chunks(24).enumerate() {
        let start = target.len();
        target.extend_from_slice(entry);
        target[start] = target[start].wrapping_add(3);
        target[start + 12] = target[start + 12].wrapping_add(5);
        if number % 300 == 299 {
            target.extend_from_slice(&noise(24, 100 + number as u64));
        }
    }
    for effort in super::EFFORTS {
        let (_, delta) = encode(&window, &raw_layout(window.len()), &target, effort, LIMITS);
        let summary = summarize(&delta, target.len()).expect("what was encoded is well-formed");
        // Up to a whole stretch of 64 bytes and the entry are lost each of the 29 times.
        assert!(summary.literal_bytes < 30 * 100, "{effort:?}: {summary:?}");
    }
}

#[test]
fn literals_are_compressed_over_the_base_around_them() {
    let window = noise(400_000, 20);
    // Now and then 700 bytes are replaced by pieces of themselves in another order, too short for
    // the index.
    let mut target = Vec::new();
    for chunk in window.chunks(8000) {
        let (kept, replaced) = chunk.split_at(7300);
        target.extend_from_slice(kept);
        target.extend(replaced.chunks(14).rev().flatten());
    }
    let layout = raw_layout(window.len());
    let (_, with) = encode(&window, &layout, &target, Effort::Balanced, LIMITS);
    let (_, without) = encode(&window, &layout, &target, Effort::Fast, LIMITS);
    let (with, without) = (summarize(&with, target.len()), summarize(&without, target.len()));
    let (with, without) = (with.expect("well-formed"), without.expect("well-formed"));
    assert!(with.context && !without.context);
    assert!(with.literal_bytes > 10_000, "{with:?}");
    assert!(with.literal_bytes_stored * 2 < without.literal_bytes_stored, "{with:?} {without:?}");
}

#[test]
fn max_finds_what_no_word_of_the_index_shows() {
    let window = noise(600_000, 21);
    // Every 20,000 bytes of the target, 2,000 come from elsewhere in the same neighbourhood with
    // each twelfth byte changed.
    let mut target = window[..400_000].to_vec();
    for start in (10_000..390_000).step_by(20_000) {
        let moved = &window[start + 5000..start + 7000];
        target[start..start + 2000].copy_from_slice(moved);
        target[start..start + 2000].iter_mut().step_by(12).for_each(|byte| *byte = byte.wrapping_add(1));
    }
    let layout = raw_layout(window.len());
    let literals = |effort| {
        let (_, delta) = encode(&window, &layout, &target, effort, LIMITS);
        summarize(&delta, target.len()).expect("what was encoded is well-formed").literal_bytes
    };
    assert!(literals(Effort::High) > 30_000, "{}", literals(Effort::High));
    assert!(literals(Effort::Max) < 100, "{}", literals(Effort::Max));
}

#[test]
fn bytes_that_moved_are_copied_from_where_they_were() {
    let window = noise(1 << 20, 8);
    let target = [&window[700_000..], &window[..300_000], &window[300_000..700_000]].concat();
    let (encoded, delta) = encode(&window, &raw_layout(window.len()), &target, Effort::Balanced, LIMITS);
    assert!(encoded.copied_bytes as usize > target.len() - 64);
    assert!(delta.len() < 64, "{}", delta.len());
}

#[test]
fn the_footprint_leaves_out_what_is_not_needed() {
    let window = noise(8 << 20, 5);
    let target = [&window[100_000..160_000], &window[6_000_000..6_100_000]].concat();
    let (encoded, _) = encode(&window, &raw_layout(window.len()), &target, Effort::Fast, LIMITS);
    assert_eq!(encoded.footprint.len(), 2);
    assert!(gather(&window, &encoded.footprint).len() <= 6 * 65_536);
}

#[test]
fn units_that_cannot_be_divided_are_needed_whole_or_not_at_all() {
    let window = noise(4 << 20, 6);
    let layout = vec![WindowUnit { plain_len: 1 << 20, stored_len: 1 << 19, divisible: false }; 4];
    let target = &window[(1 << 20) + 10_000..(1 << 20) + 60_000];
    let (encoded, _) = encode(&window, &layout, target, Effort::Balanced, LIMITS);
    assert_eq!((encoded.footprint[0].offset, encoded.footprint[0].len), (1 << 20, 1 << 20));
    // With less than one unit's worth there is no footprint at all, and the delta is all literals.
    let poor = FootprintLimits { stored_bytes_max: (1 << 19) - 1, ranges_max: 16 };
    let (encoded, delta) = encode(&window, &layout, target, Effort::Balanced, poor);
    assert_eq!((encoded.footprint.len(), encoded.copied_bytes), (0, 0));
    assert!(delta.len() > target.len());
}

#[test]
fn a_delta_that_is_not_smaller_than_asked_is_given_up() {
    let window = noise(100_000, 7);
    let layout = raw_layout(window.len());
    let index = BaseIndex::build(&window, Effort::Balanced);
    let mut target = window[..50_000].to_vec();
    target.extend_from_slice(&noise(1000, 70));
    let mut job = EncodeJob {
        window: &window,
        index: &index,
        layout: &layout,
        target: &target,
        effort: Effort::Balanced,
        limits: LIMITS,
        delta_len_max: usize::MAX,
    };
    let mut out = b"before".to_vec();
    let mut encoder = Encoder::new();
    encoder.encode(&job, &mut out).expect("a delta of any length is welcome");
    let len = out.len() - 6;
    assert!(out.starts_with(b"before") && len > 1000);
    for (delta_len_max, fits) in [(len + 1, true), (len, false), (1000, false), (0, false)] {
        out.truncate(6);
        job.delta_len_max = delta_len_max;
        assert_eq!(encoder.encode(&job, &mut out).is_some(), fits, "{delta_len_max}");
        assert_eq!(out.len(), if fits { len + 6 } else { 6 });
    }
    // Nothing to copy: given up without compressing, although zeros would shrink.
    job.target = &[0; 4096];
    job.delta_len_max = 4096;
    assert_eq!(encoder.encode(&job, &mut out), None);
}

#[test]
fn jobs_outside_their_bounds_are_given_up() {
    let window = noise(1000, 1);
    let index = BaseIndex::build(&window, Effort::Balanced);
    let good = EncodeJob {
        window: &window,
        index: &index,
        layout: &raw_layout(1000),
        target: &window,
        effort: Effort::Balanced,
        limits: LIMITS,
        delta_len_max: usize::MAX,
    };
    let mut encoder = Encoder::new();
    let mut tried = |job: &EncodeJob<'_>| encoder.encode(job, &mut Vec::new()).is_some();
    assert!(tried(&good));
    assert!(!tried(&EncodeJob { target: &[], ..good }));
    assert!(!tried(&EncodeJob { target: &vec![0; delta_codec::SEGMENT_LEN_MAX + 1], ..good }));
    assert!(!tried(&EncodeJob { layout: &raw_layout(999), ..good }));
    assert!(!tried(&EncodeJob { layout: &[], ..good }));
}

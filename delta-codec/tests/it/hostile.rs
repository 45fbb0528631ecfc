//! Deltas that were changed, cut, made up, or given the wrong footprint: an error or some bytes,
//! never a panic.

use proptest::prelude::*;
use proptest::sample::Index;

use super::{
    FORM_PREDICTED, FORM_PREDICTED_ARM64, FORM_STREAMS, FORM_WORDS, arm64_program, decode, encode, gather, noise,
    program, raw_layout,
};
use delta_codec::{Effort, FOOTPRINT_LEN_MAX, FootprintLimits, SEGMENT_LEN_MAX, summarize, whole};

const FORMS: [u8; 2] = [FORM_STREAMS, FORM_WORDS];
const PREDICTED: [u8; 2] = [FORM_PREDICTED, FORM_PREDICTED_ARM64];

/// A footprint, a delta that has all streams of its form in use, and its target.
fn rich_delta(form: u8) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let window: Vec<u8> = noise(30_000, 11).into_iter().map(|byte| byte & 0x3f).collect();
    let mut target = window[5000..].to_vec();
    let is_changed = |at: usize| match form {
        FORM_WORDS => at % 90 == 10,
        // As words these would be longer than the target.
        _ => at.is_multiple_of(4) && at % 1700 >= 100,
    };
    for at in (100..24_000).filter(|at| is_changed(*at)) {
        target[at] = target[at].wrapping_add((at % 7) as u8 + 1);
    }
    for at in (1000..20_000).step_by(1700) {
        let own: Vec<u8> = window[at..at + 150].iter().rev().copied().collect();
        let replaced = if form == FORM_WORDS { at..at } else { at..at + 150 };
        target.splice(replaced, own);
    }
    let (encoded, delta) =
        encode(&window, &raw_layout(window.len()), &target, Effort::Balanced, FootprintLimits::default());
    (gather(&window, &encoded.footprint), delta, target)
}

/// A delta of form 3 or 4, as above.
fn predicted_delta(form: u8) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (window, target) = match form {
        FORM_PREDICTED => (program(150, 0), program(150, 32)),
        _ => (arm64_program(60, 0, 12), arm64_program(60, 32, 700)),
    };
    let (encoded, delta) = encode(&window, &raw_layout(window.len()), &target, Effort::Max, FootprintLimits::default());
    assert_eq!(delta[0], form);
    (gather(&window, &encoded.footprint), delta, target)
}

#[test]
fn the_rich_deltas_are_rich() {
    for (form, copies_min) in FORMS.into_iter().zip([10, 20]) {
        let (footprint, delta, target) = rich_delta(form);
        let summary = summarize(&delta, target.len()).expect("well-formed");
        assert_eq!(delta[0], form, "{summary:?}");
        assert!(
            summary.copies > copies_min && summary.sub_bytes > 100 && summary.literal_bytes > 1000 && summary.context,
            "{summary:?}"
        );
        assert_eq!(decode(&footprint, &delta, target.len()), Ok(target));
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (footprint, delta, target) in FORMS.map(rich_delta).into_iter().chain(PREDICTED.map(predicted_delta)) {
        for len in 0..delta.len() {
            assert!(decode(&footprint, &delta[..len], target.len()).is_err(), "{len} of {}", delta.len());
        }
    }
}

#[test]
fn bytes_after_the_end_and_other_lengths_are_errors() {
    let (footprint, mut delta, target) = rich_delta(FORM_WORDS);
    for len in [0, 1, target.len() - 1, target.len() + 1, SEGMENT_LEN_MAX, SEGMENT_LEN_MAX + 1] {
        assert!(decode(&footprint, &delta, len).is_err(), "{len}");
    }
    delta.push(0);
    assert!(decode(&footprint, &delta, target.len()).is_err());
}

#[test]
fn a_footprint_that_is_too_short_or_too_long_is_an_error() {
    let (footprint, delta, target) = rich_delta(FORM_WORDS);
    assert!(decode(&footprint[..footprint.len() / 2], &delta, target.len()).is_err());
    assert!(decode(&[], &delta, target.len()).is_err());
    assert!(decode(&vec![0; FOOTPRINT_LEN_MAX + 1], &[0, 0], 10).is_err());
    assert_eq!(decode(&vec![0; FOOTPRINT_LEN_MAX], &[0, 0], 10), Ok(vec![0; 10]));
}

#[test]
fn another_footprint_of_the_same_length_never_gives_the_target() {
    let (footprint, delta, target) = rich_delta(FORM_WORDS);
    let other = noise(footprint.len(), 12);
    assert_ne!(decode(&other, &delta, target.len()), Ok(target));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_deltas_never_panic(changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6), cut in any::<Index>(), shift in 0usize..3, form in 0usize..4) {
        let (footprint, mut delta, target) = RICH.with(|rich| rich[form].clone());
        for (at, byte) in changes {
            let at = at.index(delta.len());
            delta[at] = byte;
        }
        if shift == 0 {
            delta.remove(cut.index(delta.len()));
        }
        let _ = decode(&footprint, &delta, target.len());
    }

    #[test]
    fn changed_heads_never_panic(changes in prop::collection::vec((0usize..24, any::<u8>()), 1..4), len in 1usize..30_000, form in 0usize..4) {
        let (footprint, mut delta, _) = RICH.with(|rich| rich[form].clone());
        for (at, byte) in changes {
            delta[at] = byte;
        }
        let _ = decode(&footprint, &delta, len);
    }

    #[test]
    fn made_up_deltas_never_panic(form in 0u8..6, bytes in prop::collection::vec(prop_oneof![0u8..40, any::<u8>()], 0..60), footprint_len in 0usize..300, len in 1usize..400) {
        let delta = [vec![form], bytes].concat();
        let _ = decode(&noise(footprint_len, 1), &delta, len);
    }

    #[test]
    fn made_up_frames_never_panic(frame in prop::collection::vec(any::<u8>(), 0..60), len in 0usize..400) {
        let frame = [vec![0x28, 0xb5, 0x2f, 0xfd], frame].concat();
        let _ = whole::decompress(&frame, &mut vec![0; len]);
    }
}

thread_local! {
    static RICH: [(Vec<u8>, Vec<u8>, Vec<u8>); 4] = [rich_delta(FORM_STREAMS), rich_delta(FORM_WORDS), predicted_delta(FORM_PREDICTED), predicted_delta(FORM_PREDICTED_ARM64)];
}

//! decode(encode(base, target)) is the target, for every kind of pair we could think of.

use proptest::prelude::*;
use proptest::sample::Index;

use super::{
    EFFORTS, FORM_PREDICTED, FORM_PREDICTED_ARM64, FORM_WORDS, arm64_program, decode, encode, gather, noise, program,
    raw_layout,
};
use delta_codec::{BaseIndex, Decoder, Effort, EncodeJob, Encoder, FootprintLimits, SEGMENT_LEN_MAX, WindowUnit};

/// One change to a string of bytes.
#[derive(Clone, Debug)]
enum Edit {
    Overwrite(Index, Vec<u8>),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Move(Index, Index, usize),
    AddToEvery(usize, u8),
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |index: &Index, bytes: &Vec<u8>| index.index(bytes.len() + 1);
        match self {
            Edit::Overwrite(at, new) => {
                let at = place(at, bytes);
                for (old, new) in bytes[at..].iter_mut().zip(new) {
                    *old = *new;
                }
            }
            Edit::Insert(at, new) => {
                let at = place(at, bytes);
                bytes.splice(at..at, new.iter().copied());
            }
            Edit::Remove(at, len) => {
                let at = place(at, bytes);
                let end = bytes.len().min(at + len);
                bytes.drain(at..end);
            }
            Edit::Move(from, to, len) => {
                let from = place(from, bytes);
                let end = bytes.len().min(from + len);
                let moved: Vec<u8> = bytes.drain(from..end).collect();
                let to = place(to, bytes);
                bytes.splice(to..to, moved);
            }
            Edit::AddToEvery(step, amount) => {
                bytes.iter_mut().step_by(*step).for_each(|byte| *byte = byte.wrapping_add(*amount));
            }
        }
    }
}

fn edit() -> impl Strategy<Value = Edit> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        (any::<Index>(), bytes()).prop_map(|(at, new)| Edit::Overwrite(at, new)),
        (any::<Index>(), bytes()).prop_map(|(at, new)| Edit::Insert(at, new)),
        (any::<Index>(), 0usize..5000).prop_map(|(at, len)| Edit::Remove(at, len)),
        (any::<Index>(), any::<Index>(), 0usize..8000).prop_map(|(from, to, len)| Edit::Move(from, to, len)),
        (9usize..300, any::<u8>()).prop_map(|(step, amount)| Edit::AddToEvery(step, amount)),
    ]
}

/// Windows of noise, of text-like bytes, and of few distinct bytes; from nothing to some blocks.
fn window() -> impl Strategy<Value = Vec<u8>> {
    (0usize..200_000, any::<u64>(), prop::sample::select(vec![0u8, 1, 3, 31, 255]))
        .prop_map(|(len, seed, mask)| noise(len, seed).into_iter().map(|byte| byte & mask).collect())
}

fn layout_of(window_len: usize, cuts: &[(Index, bool)]) -> Vec<WindowUnit> {
    let mut ends: Vec<(usize, bool)> =
        cuts.iter().map(|(at, divisible)| (at.index(window_len + 1), *divisible)).collect();
    ends.push((window_len, true));
    ends.sort_unstable();
    let mut start = 0;
    let mut layout = Vec::new();
    for (end, divisible) in ends {
        if end > start {
            let plain_len = (end - start) as u32;
            layout.push(WindowUnit {
                plain_len,
                stored_len: if divisible { plain_len } else { plain_len / 3 + 1 },
                divisible,
            });
            start = end;
        }
    }
    layout
}

fn effort() -> impl Strategy<Value = Effort> {
    prop::sample::select(EFFORTS.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn edited_targets_come_back(window in window(), edits in prop::collection::vec(edit(), 0..12), effort in effort()) {
        let mut target = window.clone();
        edits.iter().for_each(|edit| edit.apply(&mut target));
        target.push(1);
        let (encoded, delta) = encode(&window, &raw_layout(window.len()), &target, effort, FootprintLimits::default());
        let footprint = gather(&window, &encoded.footprint);
        prop_assert_eq!(decode(&footprint, &delta, target.len()), Ok(target));
    }

    #[test]
    fn any_layout_and_any_limits_keep_the_target_and_the_limits(
        window in window(), edits in prop::collection::vec(edit(), 0..8), effort in effort(),
        cuts in prop::collection::vec((any::<Index>(), any::<bool>()), 0..20),
        stored_bytes_max in 0u64..300_000, ranges_max in 0usize..5,
    ) {
        let mut target = window.clone();
        edits.iter().for_each(|edit| edit.apply(&mut target));
        target.push(1);
        let layout = layout_of(window.len(), &cuts);
        let limits = FootprintLimits { stored_bytes_max, ranges_max };
        let (encoded, delta) = encode(&window, &layout, &target, effort, limits);
        prop_assert!(encoded.footprint.len() <= ranges_max);
        prop_assert!(stored_cost(&layout, &encoded.footprint) <= stored_bytes_max);
        prop_assert!(encoded.copied_bytes <= target.len() as u64);
        let footprint = gather(&window, &encoded.footprint);
        prop_assert_eq!(decode(&footprint, &delta, target.len()), Ok(target));
    }

    #[test]
    fn unrelated_targets_come_back(window in window(), target in window(), effort in effort()) {
        prop_assume!(!target.is_empty());
        let (encoded, delta) = encode(&window, &raw_layout(window.len()), &target, effort, FootprintLimits::default());
        prop_assert_eq!(decode(&gather(&window, &encoded.footprint), &delta, target.len()), Ok(target));
    }

    #[test]
    fn tiny_windows_and_tiny_targets_come_back(
        window in prop::collection::vec(0u8..3, 0..70), target in prop::collection::vec(0u8..3, 1..70), effort in effort(),
    ) {
        let (encoded, delta) = encode(&window, &raw_layout(window.len()), &target, effort, FootprintLimits::default());
        prop_assert_eq!(decode(&gather(&window, &encoded.footprint), &delta, target.len()), Ok(target));
    }
}

/// What the backend must give for `ranges`; panics unless every range begins and ends where a unit
/// or a 64 KiB block does.
fn stored_cost(layout: &[WindowUnit], ranges: &[delta_codec::BaseRange]) -> u64 {
    let mut cost = 0;
    let mut covered = 0;
    let mut start = 0u64;
    for unit in layout {
        let step = if unit.divisible { 65_536 } else { unit.plain_len };
        let mut at = 0;
        while at < unit.plain_len {
            let len = step.min(unit.plain_len - at);
            let (first, last) = (start + u64::from(at), start + u64::from(at + len));
            if ranges.iter().any(|range| range.offset <= first && last <= range.offset + u64::from(range.len)) {
                cost += (u64::from(unit.stored_len) * u64::from(len)).div_ceil(u64::from(unit.plain_len));
                covered += u64::from(len);
            }
            at += len;
        }
        start += u64::from(unit.plain_len);
    }
    assert_eq!(
        covered,
        ranges.iter().map(|range| u64::from(range.len)).sum::<u64>(),
        "a range that is not made of whole blocks"
    );
    cost
}

#[test]
fn a_target_of_one_byte_comes_back() {
    for window in [vec![], vec![7], noise(100, 1)] {
        for effort in EFFORTS {
            let (encoded, delta) = encode(&window, &raw_layout(window.len()), &[7], effort, FootprintLimits::default());
            assert_eq!(decode(&gather(&window, &encoded.footprint), &delta, 1), Ok(vec![7]));
        }
    }
}

#[test]
fn the_longest_segment_comes_back_at_every_effort() {
    let window = noise(SEGMENT_LEN_MAX + 100_000, 3);
    let mut target = window[50_000..50_000 + SEGMENT_LEN_MAX].to_vec();
    for at in (0..target.len()).step_by(7001) {
        target[at] ^= 0x55;
    }
    for effort in EFFORTS {
        let (encoded, delta) = encode(&window, &raw_layout(window.len()), &target, effort, FootprintLimits::default());
        assert!(delta.len() < target.len() / 100, "{effort:?}: {}", delta.len());
        assert!(
            decode(&gather(&window, &encoded.footprint), &delta, target.len()).as_ref() == Ok(&target),
            "{effort:?}"
        );
    }
}

#[test]
fn buffers_kept_between_segments_leave_nothing_behind() {
    let window = noise(400_000, 9);
    let layout = raw_layout(window.len());
    let index = BaseIndex::build(&window, Effort::Balanced);
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    for round in 0..40usize {
        let start = round * 7919 % 300_000;
        let mut target = window[start..start + 1 + round * 2500].to_vec();
        target.extend_from_slice(&b"a tail of its own, "[..].repeat(round));
        let job = EncodeJob {
            window: &window,
            index: &index,
            layout: &layout,
            target: &target,
            effort: Effort::Balanced,
            limits: FootprintLimits::default(),
            delta_len_max: usize::MAX,
        };
        let (mut kept, mut fresh) = (Vec::new(), Vec::new());
        let encoded = encoder.encode(&job, &mut kept).expect("a delta of any length is welcome");
        assert_eq!(Encoder::new().encode(&job, &mut fresh), Some(encoded.clone()));
        assert!(kept == fresh, "round {round}: the delta depends on what was encoded before");
        let mut back = vec![0; target.len()];
        decoder.decode(&gather(&window, &encoded.footprint), &kept, &mut back).expect("what was encoded decodes");
        assert!(back == target, "round {round}");
    }
}

/// The last of `steps` versions. Each changes 16 bytes at 40 places, and adds one where the series
/// is `uneven`.
fn drifted(first: &[u8], steps: u64, uneven: bool) -> Vec<u8> {
    let mut version = first.to_vec();
    for step in 0..steps {
        for change in noise(40 * 19, 1000 + step).chunks_exact(19) {
            let at = change[..3].iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte)) % (version.len() - 16);
            version[at..at + 16].copy_from_slice(&change[3..]);
        }
        if uneven {
            version.insert(version.len() / 2, step as u8);
        }
    }
    version
}

#[test]
fn a_version_between_two_bases_takes_less_than_half_over_both() {
    let first = noise(250_000, 31);
    for uneven in [false, true] {
        let [before, target, after] = [4, 14, 24].map(|steps| drifted(&first, steps, uneven));
        let window = [&before[..], &after].concat();
        let over = |window: &[u8]| {
            encode(window, &raw_layout(window.len()), &target, Effort::Balanced, FootprintLimits::default())
        };
        let ((encoded, delta), (_, over_one)) = (over(&window), over(&before));
        assert!(delta.len() * 2 < over_one.len(), "{} of {}", delta.len(), over_one.len());
        let back = decode(&gather(&window, &encoded.footprint), &delta, target.len());
        assert!(back.as_ref() == Ok(&target), "uneven: {uneven}");
    }
}

#[test]
fn copied_runs_say_which_bytes_of_the_footprint_lie_beside_which_of_the_target() {
    let window = noise(200_000, 1);
    let mut target = window[50_000..150_000].to_vec();
    target.splice(30_000..30_000, noise(500, 2));
    target[60_000..].iter_mut().step_by(40).for_each(|byte| *byte = byte.wrapping_add(3));
    for (target, least) in [(target, 80_000), (window[1000..9000].to_vec(), 8000)] {
        let index = BaseIndex::build(&window, Effort::Balanced);
        let layout = raw_layout(window.len());
        let job = EncodeJob {
            window: &window,
            index: &index,
            layout: &layout,
            target: &target,
            effort: Effort::Balanced,
            limits: FootprintLimits::default(),
            delta_len_max: usize::MAX,
        };
        let mut delta = Vec::new();
        let encoded = Encoder::new().encode(&job, &mut delta).expect("a delta of any length");
        let footprint = gather(&window, &encoded.footprint);
        let mut decoder = Decoder::new();
        decoder.decode(&footprint, &delta, &mut vec![0; target.len()]).expect("what was encoded decodes");
        let (mut at, mut covered) = (0, 0);
        for run in decoder.copied_runs() {
            assert!(run.len > 0 && run.at >= at);
            at = run.at + run.len;
            covered += run.len;
            let beside = &footprint[run.source as usize..(run.source + run.len) as usize];
            assert_eq!(run.is_equal, beside == &target[run.at as usize..at as usize]);
        }
        assert!(covered >= least, "{covered}");
    }
}

/// Of the delta of `target` against `base`, which must decode.
fn form_and_len(base: &[u8], target: &[u8], effort: Effort) -> (u8, usize) {
    let (encoded, delta) = encode(base, &raw_layout(base.len()), target, effort, FootprintLimits::default());
    let footprint = gather(base, &encoded.footprint);
    assert!(decode(&footprint, &delta, target.len()).as_deref() == Ok(target), "it decodes to something else");
    (delta[0], delta.len())
}

#[test]
fn references_that_moved_with_their_code_are_predicted() {
    let (base, target) = (program(8000, 0), program(8000, 32));
    let (form, words) = form_and_len(&base, &target, Effort::Balanced);
    assert_eq!(form, FORM_WORDS);
    let (form, predicted) = form_and_len(&base, &target, Effort::Max);
    assert_eq!(form, FORM_PREDICTED);
    assert!(predicted * 4 < words, "{predicted} of {words}");
}

#[test]
fn references_of_aarch64_code_are_predicted_wherever_its_pages_begin() {
    let (base, target) = (arm64_program(1500, 0, 0), arm64_program(1500, 16, 0));
    let (form, words) = form_and_len(&base, &target, Effort::Balanced);
    assert_eq!(form, FORM_WORDS);
    for (before_base, before_target) in [(0, 0), (512, 3584), (4, 0), (1001, 2003)] {
        let (base, target) = (arm64_program(1500, 0, before_base), arm64_program(1500, 16, before_target));
        let (form, predicted) = form_and_len(&base, &target, Effort::Max);
        assert_eq!(form, FORM_PREDICTED_ARM64);
        // What lies before the code is new.
        let predicted = predicted - before_target;
        assert!(predicted * 20 < words, "{predicted} of {words} with {before_base} and {before_target} before it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn aarch64_code_comes_back(
        functions in 40usize..150,
        insert in (1usize..200).prop_map(|words| 4 * words),
        before in 0usize..5000,
        before_target in 0usize..5000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
    ) {
        let (base, mut target) = (arm64_program(functions, 0, before), arm64_program(functions, insert, before_target));
        for (at, byte) in changes {
            let at = at.index(target.len());
            target[at] = byte;
        }
        let (form, _) = form_and_len(&base, &target, Effort::Max);
        prop_assert_eq!(form, FORM_PREDICTED_ARM64);
    }
}

//! Deltas that decode, each with the target its author worked out from the document.

use delta_codec::{BaseIndex, Effort, EncodeJob, Encoder, FootprintLimits, SEGMENT_LEN_MAX, WindowUnit};

use crate::kit::{GAPS, Hand, LITERALS, Outside, SUB, change, coded, frame, framed, lcg, raw_frame};
use crate::{Expect, Footprint, Vector};

const BASE: Footprint = Footprint::Lcg(1, 1000);

fn vector(name: &'static str, about: &'static str, footprint: Footprint, delta: Vec<u8>, target: Vec<u8>) -> Vector {
    Vector { name, about, footprint, delta, expect: Expect::Target(target) }
}

pub(crate) fn vectors() -> Vec<Vector> {
    let base = BASE.bytes();
    let text = b"Alle Vektoren sind gleich, aber manche sind gleicher als andere. ".repeat(3);
    let literals_only = Hand { literals: text.clone(), ..Hand::default() };
    vec![
        vector(
            "copy_in_two_bytes",
            "form 0: the target is a piece of the footprint",
            BASE,
            vec![0, 100],
            base[100..900].to_vec(),
        ),
        vector("copy_of_all", "form 0 with source 0 and the footprint's own length", BASE, vec![0, 0], base.clone()),
        vector(
            "copy_of_last_byte",
            "form 0: the last byte, a source of two bytes",
            BASE,
            vec![0, 0xe7, 0x07],
            base[999..].to_vec(),
        ),
        vector(
            "literals_without_copies",
            "form 1 without copies: all streams there, four of them empty",
            Footprint::Empty,
            literals_only.bytes(),
            text.clone(),
        ),
        vector(
            "literals_one_byte",
            "the shortest target",
            Footprint::Empty,
            Hand { literals: vec![7], ..Hand::default() }.bytes(),
            vec![7],
        ),
        vector(
            "literals_in_zstd",
            "coding 2",
            Footprint::Empty,
            literals_only.clone().with(LITERALS, framed(text.len(), 2, &frame(&text, &[], Outside::Bare))).bytes(),
            text.clone(),
        ),
        vector(
            "literals_over_empty_context",
            "coding 3 without copies: the context is empty, and the frame as in coding 2",
            BASE,
            literals_only.clone().with(LITERALS, framed(text.len(), 3, &frame(&text, &[], Outside::Bare))).bytes(),
            text.clone(),
        ),
        vector(
            "literals_largest_window",
            "a window of exactly 2^27 bytes",
            Footprint::Empty,
            literals_only.with(LITERALS, framed(text.len(), 2, &raw_frame(17 << 3, &text))).bytes(),
            text.clone(),
        ),
        vector(
            "repeated_literals",
            "coding 1",
            Footprint::Empty,
            Hand::default().with(LITERALS, coded(5000, 1, b"x")).bytes(),
            vec![b'x'; 5000],
        ),
        vector(
            "copies_and_literals",
            "two copies, the second from before the first, literals before, between and after",
            BASE,
            Hand {
                copies: vec![(3, 100, change(497)), (4, 50, change(-404))],
                literals: b"abcdefgHIJ".to_vec(),
                ..Hand::default()
            }
            .bytes(),
            [b"abc", &base[500..600], b"defg", &base[200..250], b"HIJ"].concat(),
        ),
        vector(
            "sub_run",
            "differences on the diagonal of the copy before",
            BASE,
            sub_run().bytes(),
            sub_run_target(&base),
        ),
        vector(
            "sub_run_repeated",
            "the sub stream in coding 1",
            BASE,
            Hand { copies: vec![(0, 16, change(40)), (4, 20, 0)], ..Hand::default() }
                .with(SUB, coded(4, 1, &[0x10]))
                .bytes(),
            [
                base[40..56].to_vec(),
                base[56..60].iter().map(|byte| byte.wrapping_add(16)).collect(),
                base[60..80].to_vec(),
            ]
            .concat(),
        ),
        vector(
            "sub_run_first",
            "a sub run before the first copy counts on diagonal 0",
            BASE,
            Hand { copies: vec![(4, 20, 0)], sub: vec![1, 2, 3, 255], ..Hand::default() }.bytes(),
            [
                vec![
                    base[0].wrapping_add(1),
                    base[1].wrapping_add(2),
                    base[2].wrapping_add(3),
                    base[3].wrapping_sub(1),
                ],
                base[4..24].to_vec(),
            ]
            .concat(),
        ),
        vector(
            "sub_run_long",
            "a sub run has no length limit of its own",
            BASE,
            Hand { copies: vec![(0, 0, 0), (1000, 0, 0)], sub: vec![1; 1000], ..Hand::default() }.bytes(),
            base.iter().map(|byte| byte.wrapping_add(1)).collect(),
        ),
        vector(
            "literal_run_on_the_same_diagonal",
            "code 1: the diagonal stays, the gap is literal all the same",
            BASE,
            Hand { copies: vec![(0, 30, change(10)), (5, 30, 1)], literals: b"vwxyz".to_vec(), ..Hand::default() }
                .bytes(),
            [&base[10..40], b"vwxyz", &base[45..75]].concat(),
        ),
        vector(
            "empty_copies",
            "an empty copy ends one sub run, another sets the diagonal of the next, a third stands at the footprint's very end",
            BASE,
            Hand {
                copies: vec![(0, 20, change(100)), (4, 0, 0), (6, 0, change(670)), (4, 20, 0), (936, 0, change(-760))],
                sub: vec![9; 8],
                literals: [b"middle".to_vec(), lcg(5, 936)].concat(),
                ..Hand::default()
            }
            .bytes(),
            [
                base[100..120].to_vec(),
                base[120..124].iter().map(|byte| byte.wrapping_add(9)).collect(),
                b"middle".to_vec(),
                base[800..804].iter().map(|byte| byte.wrapping_add(9)).collect(),
                base[804..824].to_vec(),
                lcg(5, 936),
            ]
            .concat(),
        ),
        vector(
            "gaps_in_zstd",
            "an instruction stream in coding 2",
            Footprint::Lcg(2, 4000),
            Hand { copies: vec![(0, 40, 1); 100], ..Hand::default() }
                .with(GAPS, framed(100, 2, &frame(&[0; 100], &[], Outside::Bare)))
                .bytes(),
            lcg(2, 4000),
        ),
        context_near(&base),
        context_far(),
        context_at_both_ends(),
        by_the_library(),
        longest_target(),
    ]
}

fn sub_run() -> Hand {
    Hand { copies: vec![(0, 16, change(40)), (4, 20, 0)], sub: vec![1, 0, 0, 200], ..Hand::default() }
}

fn sub_run_target(base: &[u8]) -> Vec<u8> {
    let mut target = base[40..80].to_vec();
    target[16] = target[16].wrapping_add(1);
    target[19] = target[19].wrapping_add(200);
    target
}

/// Literals over the region between two copies that are near each other: [p - 32, n + 32).
fn context_near(base: &[u8]) -> Vector {
    let literals: Vec<u8> = base[300..400].chunks(10).rev().flatten().copied().collect();
    let hand = Hand {
        copies: vec![(0, 100, change(200)), (100, 100, change(50))],
        literals: literals.clone(),
        ..Hand::default()
    };
    let stream = framed(100, 3, &frame(&literals, &base[268..482], Outside::Bare));
    let target = [&base[200..300], &literals, &base[450..550]].concat();
    vector(
        "context_near",
        "coding 3: the context is what lies between two near copies",
        BASE,
        hand.with(LITERALS, stream).bytes(),
        target,
    )
}

/// Literals over two regions, one after the previous copy and one before the next.
fn context_far() -> Vector {
    let base = lcg(3, 40_000);
    let literals: Vec<u8> =
        [&base[1100..1150], &base[29_900..29_950]].concat().chunks(10).rev().flatten().copied().collect();
    let hand = Hand {
        copies: vec![(0, 100, change(1000)), (100, 100, change(28_800))],
        literals: literals.clone(),
        ..Hand::default()
    };
    let context = [&base[1068..1588], &base[29_512..30_032]].concat();
    let stream = framed(100, 3, &frame(&literals, &context, Outside::Bare));
    let target = [&base[1000..1100], &literals, &base[30_000..30_100]].concat();
    // The second copy begins at 1000 + 28,800 + 200 = 30,000 of the footprint: 200 bytes of target stand before it.
    vector(
        "context_far",
        "coding 3: the context is one region at each of two distant copies",
        Footprint::Lcg(3, 40_000),
        hand.with(LITERALS, stream).bytes(),
        target,
    )
}

/// Literals before the first and after the last copy; regions clamped to the footprint and grown together.
fn context_at_both_ends() -> Vector {
    let base = lcg(4, 600);
    let head: Vec<u8> = base[..60].chunks(12).rev().flatten().copied().collect();
    let tail: Vec<u8> = base[520..590].chunks(14).rev().flatten().copied().collect();
    let literals = [head.clone(), tail.clone()].concat();
    let hand = Hand { copies: vec![(60, 420, change(40))], literals: literals.clone(), ..Hand::default() };
    // [100 - 376 - 32, 100 + 32) and [520 - 32, 520 + 396 + 32), clamped to the footprint.
    let context = [&base[..132], &base[488..]].concat();
    let stream = framed(literals.len(), 3, &frame(&literals, &context, Outside::Bare));
    let target = [&head, &base[100..520], &tail].concat();
    vector(
        "context_at_both_ends",
        "coding 3: regions are clamped to the footprint",
        Footprint::Lcg(4, 600),
        hand.with(LITERALS, stream).bytes(),
        target,
    )
}

/// What the encoder itself makes of an edited base.
fn by_the_library() -> Vector {
    let base = lcg(6, 60_000);
    let mut target = base[1000..].to_vec();
    for at in (500..50_000).step_by(100) {
        target[at] = target[at].wrapping_add(4);
    }
    for at in (2000..40_000).step_by(5000) {
        let moved: Vec<u8> = base[at + 1000..at + 1200].chunks(11).rev().flatten().copied().collect();
        target.splice(at..at + 200, moved);
    }
    let index = BaseIndex::build(&base, Effort::Balanced);
    let job = EncodeJob {
        window: &base,
        index: &index,
        layout: &[WindowUnit { plain_len: 60_000, stored_len: 60_000, divisible: true }],
        target: &target,
        effort: Effort::Balanced,
        limits: FootprintLimits::default(),
        delta_len_max: usize::MAX,
    };
    let mut delta = Vec::new();
    Encoder::new().encode(&job, &mut delta).expect("a delta of any length is welcome");
    vector("by_the_library", "an edited base, encoded at effort balanced", Footprint::Lcg(6, 60_000), delta, target)
}

fn longest_target() -> Vector {
    let delta = Hand::default().with(LITERALS, coded(SEGMENT_LEN_MAX, 1, &[0])).bytes();
    vector("longest_target", "4 MiB of zeros in nine bytes", Footprint::Empty, delta, vec![0; SEGMENT_LEN_MAX])
}

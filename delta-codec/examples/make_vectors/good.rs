//! Deltas that decode, each with the target its author worked out from the document.

use delta_codec::{BaseIndex, Effort, EncodeJob, Encoder, FootprintLimits, SEGMENT_LEN_MAX, WindowUnit};

use crate::arm64;
use crate::kit::{
    DISTANCES, GAPS, Hand, LITERALS, Outside, References, SUB, WORDS, change, coded, frame, framed, lcg, raw_frame,
};
use crate::{Expect, Footprint, Vector};

const CODE: Footprint = Footprint::Lcg(5, 20_000);
/// AArch64 code.
const ARM64: Footprint = Footprint::Arm64(7, 1270);
const BASE: Footprint = Footprint::Lcg(1, 1000);

fn vector(name: &'static str, about: &'static str, footprint: Footprint, delta: Vec<u8>, target: Vec<u8>) -> Vector {
    Vector { name, about, footprint, delta, expect: Expect::Target(target) }
}

pub(crate) fn vectors() -> Vec<Vector> {
    streams().into_iter().chain(words()).chain(predicted()).chain(arm64::good()).collect()
}

/// Forms 0 and 1.
fn streams() -> Vec<Vector> {
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

/// Form 2.
fn words() -> Vec<Vector> {
    let base = BASE.bytes();
    // base[56..60] is 0x12d6_ef5b, base[58..62] is 0xa248_12d6.
    let (across, below) = (0x00b7_ed2a, -0x12d6_ef5c);
    vec![
        vector(
            "words_run",
            "a distance, a word whose sum carries through its bytes, equal bytes to the end of the run",
            BASE,
            Hand::of_words(&[(0, 16, change(40)), (12, 20, 0)], &[2, 6], &[across]).bytes(),
            [&base[40..58], &[0, 0, 0, 0xa3], &base[62..88]].concat(),
        ),
        vector(
            "words_end_with_the_run",
            "a run that ends just after a word: no distance follows",
            BASE,
            Hand::of_words(&[(0, 16, change(40)), (6, 20, 0)], &[2], &[across]).bytes(),
            [&base[40..58], &[0, 0, 0, 0xa3], &base[62..82]].concat(),
        ),
        vector(
            "words_negative",
            "a sum below zero that borrows through all four bytes and past them, then -1",
            BASE,
            Hand::of_words(&[(0, 16, change(40)), (8, 20, 0)], &[0, 0], &[below, -1]).bytes(),
            [base[40..56].to_vec(), vec![0xff; 4], plus(&base[60..64], -1), base[64..84].to_vec()].concat(),
        ),
        vector(
            "words_modulo",
            "a sum above 2^32, and the difference that is furthest from zero",
            BASE,
            Hand::of_words(&[(0, 16, change(42)), (9, 20, 0)], &[0, 1], &[0x7db7_ed2a, i32::MIN]).bytes(),
            [&base[42..58], &[0, 0, 0, 0x20], &base[62..66], &[base[66] ^ 0x80], &base[67..87]].concat(),
        ),
        vector(
            "words_part",
            "last words of 3, 2 and 1 bytes: the upper bytes of the difference mean nothing",
            BASE,
            Hand::of_words(
                &[(0, 20, change(40)), (3, 20, 0), (4, 20, 0), (6, 20, 0)],
                &[0, 2, 0, 1],
                &[0x55b7_ed2a, -0x7fff_fffe, 4, 0x7fff_ff01],
            )
            .bytes(),
            [
                base[40..60].to_vec(),
                plus(&base[60..63], 0x00b7_ed2a),
                base[63..85].to_vec(),
                plus(&base[85..87], 2),
                base[87..107].to_vec(),
                plus(&base[107..111], 4),
                base[111..112].to_vec(),
                plus(&base[112..113], 1),
                base[113..133].to_vec(),
            ]
            .concat(),
        ),
        vector(
            "words_part_at_the_end",
            "a last word of one byte that is the last one of footprint and target",
            BASE,
            Hand::of_words(&[(0, 20, change(970)), (10, 0, 0)], &[5, 0], &[-5, 0x0102_0304]).bytes(),
            [base[970..995].to_vec(), plus(&base[995..999], -5), plus(&base[999..], 4)].concat(),
        ),
        vector(
            "words_first_distance_zero",
            "a word at the start of a run, another just behind it",
            BASE,
            Hand::of_words(&[(0, 16, change(40)), (11, 20, 0)], &[0, 0, 3], &[70_000, -70_000]).bytes(),
            [base[40..56].to_vec(), plus(&base[56..60], 70_000), plus(&base[60..64], -70_000), base[64..87].to_vec()]
                .concat(),
        ),
        vector(
            "words_first",
            "a sub run before the first copy counts on diagonal 0",
            BASE,
            Hand::of_words(&[(7, 20, 0)], &[1, 2], &[300]).bytes(),
            [base[..1].to_vec(), plus(&base[1..5], 300), base[5..27].to_vec()].concat(),
        ),
        vector(
            "words_without_words",
            "sub runs that are one distance each, the second of two bytes",
            BASE,
            Hand::of_words(&[(0, 16, change(40)), (4, 20, 0), (300, 0, 0)], &[4, 300], &[]).bytes(),
            base[40..380].to_vec(),
        ),
        vector(
            "words_of_no_length",
            "sub runs of length 0 before, between and after: they take neither a distance nor a word",
            BASE,
            Hand::of_words(&[(0, 20, 0), (0, 10, change(20)), (0, 10, 0), (5, 10, 0), (0, 4, 0)], &[1], &[513]).bytes(),
            [base[..20].to_vec(), base[40..61].to_vec(), plus(&base[61..65], 513), base[65..79].to_vec()].concat(),
        ),
        vector(
            "words_repeated",
            "distances and words in coding 1",
            BASE,
            Hand::of_words(&[(0, 16, change(40)), (40, 20, 0)], &[], &[])
                .with(DISTANCES, coded(5, 1, &[4]))
                .with(WORDS, coded(20, 1, &[1]))
                .bytes(),
            [
                base[40..56].to_vec(),
                base[56..96].chunks(8).flat_map(|piece| moved(piece, 4, 0x0101_0101)).collect(),
                base[96..116].to_vec(),
            ]
            .concat(),
        ),
        vector(
            "words_in_zstd",
            "distances and words in coding 2",
            BASE,
            Hand::of_words(&[(1000, 0, 0)], &[], &[])
                .with(DISTANCES, framed(100, 2, &frame(&[6; 100], &[], Outside::Bare)))
                .with(WORDS, framed(400, 2, &frame(&(-4096_i32).to_le_bytes().repeat(100), &[], Outside::Bare)))
                .bytes(),
            base.chunks(10).flat_map(|piece| moved(piece, 6, -4096)).collect(),
        ),
        vector(
            "words_as_long_as_target",
            "distances, words and literals that together are just as long as the target",
            BASE,
            Hand { literals: b"tail".to_vec(), ..Hand::of_words(&[(0, 8, change(40)), (32, 0, 0)], &[0; 8], &[9; 8]) }
                .bytes(),
            [
                base[40..48].to_vec(),
                base[48..80].chunks(4).flat_map(|piece| plus(piece, 9)).collect(),
                b"tail".to_vec(),
            ]
            .concat(),
        ),
        vector(
            "words_no_copies",
            "form 2 without copies: all six streams there, five of them empty",
            Footprint::Empty,
            Hand { literals: b"nothing but literals".to_vec(), ..Hand::of_words(&[], &[], &[]) }.bytes(),
            b"nothing but literals".to_vec(),
        ),
        words_over_context(&base),
    ]
}

/// `bytes`, at most four, read as a little-endian number, plus a difference.
fn plus(bytes: &[u8], difference: i32) -> Vec<u8> {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(word).wrapping_add_signed(difference).to_le_bytes()[..bytes.len()].to_vec()
}

/// `distance` bytes as they are, the rest moved.
fn moved(piece: &[u8], distance: usize, difference: i32) -> Vec<u8> {
    [piece[..distance].to_vec(), plus(&piece[distance..], difference)].concat()
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

/// As [`context_near`], between sub runs: they add nothing to the context.
fn words_over_context(base: &[u8]) -> Vector {
    let literals: Vec<u8> = base[300..400].chunks(10).rev().flatten().copied().collect();
    let hand = Hand {
        literals: literals.clone(),
        ..Hand::of_words(
            &[(0, 90, change(100)), (10, 100, 0), (100, 50, change(50)), (6, 44, 0)],
            &[3, 3, 2],
            &[1_000_000, -1_000_000],
        )
    };
    let stream = framed(100, 3, &frame(&literals, &base[268..482], Outside::Bare));
    let target = [
        base[100..190].to_vec(),
        moved(&base[190..197], 3, 1_000_000),
        base[197..300].to_vec(),
        literals,
        base[450..502].to_vec(),
        plus(&base[502..506], -1_000_000),
        base[506..550].to_vec(),
    ]
    .concat();
    vector(
        "words_over_context",
        "form 2 with literals in coding 3, sub runs before and after them",
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
    // The second copy begins at 1000 + 28,800 + 200 = 30,000 of the footprint: 200 bytes of target
    // stand before it.
    vector(
        "context_far",
        "coding 3: the context is one region at each of two distant copies",
        Footprint::Lcg(3, 40_000),
        hand.with(LITERALS, stream).bytes(),
        target,
    )
}

/// Literals before the first and after the last copy; regions clamped to the footprint and grown
/// together.
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

/// Copy 16, a sub run on a diagonal of 40, copy 20.
pub(crate) fn predicted_run(name: &'static str, about: &'static str, len: usize, references: &References) -> Vector {
    let footprint = if references.pages.is_some() { ARM64 } else { CODE };
    let base = footprint.bytes();
    let hand = Hand {
        predictor: Some(references.bytes()),
        is_form_4: references.pages.is_some(),
        ..Hand::of_words(&[(0, 16, change(40)), (len as u32, 20, 0)], &[5, len as u32 - 9], &[7])
    };
    let mut run = references.predict(&base[56..56 + len], 56, 16);
    run.splice(5..9, plus(&run[5..9], 7));
    vector(name, about, footprint, hand.bytes(), [&base[40..56], &run, &base[56 + len..76 + len]].concat())
}

fn predicted() -> Vec<Vector> {
    // Addresses of near lie around 2^28, as much on either side.
    let near = vec![(0, change(1000)), (200_000_000, 0), (50_000_000, change(-3000)), (150_000_000, 1)];
    let far =
        vec![(0x1000_0000, change(4096)), (0x4000_0000, 0), (0x2000_0000, change(-1)), (0x7000_0000, change(70_000))];
    let of = |kinds: &[u8]| References {
        near: near.clone(),
        far: far.clone(),
        kinds: kinds.to_vec(),
        ..References::default()
    };
    vec![
        predicted_run("predicted_code", "three blocks of code, four knots", 9000, &of(&[1, 1, 1])),
        predicted_run("predicted_pointers", "blocks of pointers between others", 9000, &of(&[0, 2, 2])),
        predicted_run("predicted_addresses", "each kind of block once", 13_000, &of(&[3, 1, 2, 0])),
        predicted_run(
            "predicted_nothing",
            "all blocks plain, no knots",
            9000,
            &References { kinds: vec![0; 3], ..References::default() },
        ),
        predicted_run(
            "predicted_without_knots",
            "code and addresses without knots",
            9000,
            &References { kinds: vec![1, 3, 2], ..References::default() },
        ),
        predicted_run(
            "predicted_wrapping",
            "shifts that pass 2^31, and knots at both ends of the addresses",
            5000,
            &References {
                near: vec![(0, u32::MAX), (1, u32::MAX - 1), (u32::MAX - 1, 5)],
                far: vec![(0, change(i32::MAX)), (u32::MAX, change(i32::MAX))],
                kinds: vec![1, 3],
                ..References::default()
            },
        ),
        predicted_past_block(&of(&[2, 1])),
        predicted_short_runs("predicted_short_runs", "runs that end within references", &of(&[1, 3])),
        predicted_short_runs(
            "predicted_seams",
            "three seams, two at one place, and one past all runs",
            &References { seams: vec![(40, 100_000_000), (0, 1 << 16), (3000, 5), (1 << 24, 1)], ..of(&[1, 3]) },
        ),
    ]
}

/// A copy to two bytes before a block of code, then a sub run whose next whole address begins in
/// that block.
fn predicted_past_block(references: &References) -> Vector {
    let (base, at, diagonal) = (CODE.bytes(), 4094, 508);
    let hand = Hand {
        predictor: Some(references.bytes()),
        ..Hand::of_words(&[(0, at as u32, change(diagonal as i32)), (40, 20, 0)], &[40], &[])
    };
    let from = diagonal + at;
    let run = references.predict(&base[from..from + 40], from, at);
    let target = [&base[diagonal..from], &run, &base[from + 40..from + 60]].concat();
    vector("predicted_past_block", "an address that begins behind the end of its block", CODE, hand.bytes(), target)
}

/// Many runs that end within fields, begin within them, or are shorter than one.
pub(crate) fn predicted_short_runs(name: &'static str, about: &'static str, references: &References) -> Vector {
    let footprint = if references.pages.is_some() { ARM64 } else { CODE };
    let base = footprint.bytes();
    let (mut copies, mut distances, mut target) = (Vec::new(), Vec::new(), Vec::new());
    for len in (1..31).cycle().take(200) {
        copies.push((len as u32, 9, if copies.is_empty() { change(0) } else { 0 }));
        distances.push(len as u32);
        let at = target.len();
        target.extend(references.predict(&base[at..at + len], at, at));
        target.extend_from_slice(&base[at + len..at + len + 9]);
    }
    copies[0] = (1, 9, 0);
    let hand = Hand {
        predictor: Some(references.bytes()),
        is_form_4: references.pages.is_some(),
        ..Hand::of_words(&copies, &distances, &[])
    };
    vector(name, about, footprint, hand.bytes(), target)
}

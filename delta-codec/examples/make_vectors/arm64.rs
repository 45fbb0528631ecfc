//! AArch64 code of vectors, and its references as docs/format/delta-v1.md §5.2 predicts them, word
//! for word as it is written there.

use crate::Vector;
use crate::bad::{of_form, references, replaced, vector, with_references, without_last};
use crate::good::{predicted_run, predicted_short_runs};
use crate::kit::{References, change, shift_of, stored};

/// Instructions of which most are references; registers are few, so that ADRPs are used.
pub(crate) fn code(seed: u64, count: usize) -> Vec<u8> {
    let noise = crate::kit::lcg(seed, 8 * count);
    let instruction = |bytes: &[u8]| {
        let [kind, register, from, _, rest @ ..] = bytes else { return [0; 4] };
        let rest = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let (register, from) = (u32::from(register % 3), u32::from(from % 3) << 5);
        let low = rest & 0xfff << 10;
        let word = match kind % 16 {
            0 => 0x1400_0000 | rest & 0x03ff_ffff,
            // BL, not far.
            1 | 2 => 0x9400_0000 | (rest & 0xffff).wrapping_sub(0x8000) & 0x03ff_ffff,
            // ADRP up to 2 MiB behind it, or before it.
            3..=6 => 0x9000_0000 | register | (rest & 3) << 29 | (rest >> 8 & 0x7f).wrapping_sub(64) << 5 & 0x00ff_ffe0,
            // ADRP of anything, of the register that is none, too.
            7 => 0x9000_0000 | rest & 0x60ff_ffff,
            8..=10 => 0x9100_0000 | low | from | register,
            // Loads and stores of each size, of vectors, too.
            11 => 0x3900_0000 | low | from | (rest & 31) | rest & 0xc4c0_0000,
            // Those of 16 bytes, whose lower bits are large.
            12 => 0x3d80_0000 | low | from | (rest & 31) | rest & 0x0040_0000,
            13 => 0xf940_0000 | low | from | register,
            _ => 0xaa00_03e0 | rest & 0x001f_0000 | register,
        };
        word.to_le_bytes()
    };
    noise.chunks(8).flat_map(instruction).collect()
}

/// Walks a block of kind 4 from `i` on, and says where `i` is then.
pub(crate) fn block(references: &References, run: &mut [u8], mut i: usize, o: usize, p: usize) -> usize {
    let (u, w) = references.pages.map_or((0, 0), |(u, w)| (i64::from(u), i64::from(w)));
    let (g, end) = (run.len(), ((p + i) / 4096 + 1) * 4096 - p);
    let mut held: [Option<(i64, usize, bool)>; 32] = [None; 32];
    while i < end && i < g {
        let here = (o + i) as i64;
        if (here + u) % 4 != 0 {
            i += 1;
            continue;
        }
        if i + 4 > g {
            return g;
        }
        let c = word(run, i);
        let n = (c >> 5 & 31) as usize;
        if c & 0x7c00_0000 == 0x1400_0000 {
            let v = i64::from(c & 0x03ff_ffff);
            let a = here + 4 * if v < 1 << 25 { v } else { v - (1 << 26) };
            if let Some(s) = shift_of(&references.near, a + (1 << 28)) {
                let distance = a + signed(s) - (p + i) as i64;
                if distance % 4 == 0 {
                    put(run, i, c & 0xfc00_0000 | (distance / 4).rem_euclid(1 << 26) as u32);
                }
            }
        } else if c & 0x9f00_0000 == 0x9000_0000 {
            let v = i64::from((c >> 5 & 0x7_ffff) * 4 + (c >> 29 & 3));
            let v = if v < 1 << 20 { v } else { v - (1 << 21) };
            if c & 31 != 31 {
                held[(c & 31) as usize] = Some(((here + u) / 4096 * 4096 - u + 4096 * v, i, false));
            }
        } else if let Some(k) = scale(c)
            && let Some((page, j, settled)) = held[n]
        {
            let d = i64::from(c >> 10 & 0xfff) << k;
            let a = page + d;
            let near = d < 4096 && (-(1 << 28)..1 << 28).contains(&(a - here));
            if i - j > 64 {
                held[n] = None;
            } else {
                if near && let Some(s) = shift_of(&references.near, a + (1 << 28)) {
                    let t = a + signed(s) + w;
                    let low = t.rem_euclid(4096) as u32;
                    if low.is_multiple_of(1 << k) {
                        put(run, i, c & 0xffc0_03ff | (low >> k) << 10);
                        if !settled {
                            let pages = (t.div_euclid(4096) - ((p + j) as i64 + w) / 4096).rem_euclid(1 << 21) as u32;
                            put(run, j, word(run, j) & 0x9f00_001f | (pages % 4) << 29 | (pages / 4) << 5);
                        }
                        held[n] = Some((page, j, true));
                    }
                }
                if (c & 31) as usize == n {
                    held[n] = None;
                }
            }
        }
        i += 4;
    }
    i
}

/// A shift counts modulo 2^32, from -2^31 on.
fn signed(shift: i64) -> i64 {
    i64::from(shift as u32 as i32)
}

fn scale(c: u32) -> Option<u32> {
    match c {
        _ if c & 0xffc0_0000 == 0x9100_0000 => Some(0),
        _ if c & 0xff80_0000 == 0x3d80_0000 => Some(4),
        _ if c & 0x3b00_0000 == 0x3900_0000 => Some(c >> 30),
        _ => None,
    }
}

fn word(run: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([run[at], run[at + 1], run[at + 2], run[at + 3]])
}

fn put(run: &mut [u8], at: usize, word: u32) {
    run[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Vectors of form 4 that decode.
pub(crate) fn good() -> Vec<Vector> {
    let of = |kinds: &[u8], pages: (u32, u32)| References {
        // Some near 2^28, where most of the code's references lead.
        near: vec![
            (0, change(1000)),
            (268_000_000, 0),
            (400_000, change(-3000)),
            (20_000, change(3004)),
            (20_000, change(40_964)),
            (300_000, change(-1)),
            (1_000_000, change(1)),
            (200_000_000, 0),
        ],
        far: vec![(0x1000_0000, change(4096)), (0x4000_0000, 0), (0x5000_0000, change(70_000))],
        kinds: kinds.to_vec(),
        seams: Vec::new(),
        pages: Some(pages),
    };
    vec![
        predicted_run("arm64_code", "two blocks of AArch64 code, eight knots", 5000, &of(&[4, 4], (1236, 3004))),
        predicted_run("arm64_pages_alike", "base and target at the beginning of a page", 5000, &of(&[4, 4], (0, 0))),
        predicted_run("arm64_unaligned", "no instruction stands where one can be", 5000, &of(&[4, 4], (4095, 4093))),
        predicted_run(
            "arm64_seams",
            "an odd number of bytes left out before the code, and the base page makes up for it",
            5000,
            &References { seams: vec![(3, 13), (2000, 1 << 20)], ..of(&[4, 4], (3, 1)) },
        ),
        predicted_run("arm64_between", "AArch64 code, then code of x86-64", 5000, &of(&[4, 1], (4, 8))),
        predicted_run("arm64_behind", "addresses, then AArch64 code", 5000, &of(&[3, 4], (4092, 4095))),
        predicted_run("arm64_nowhere", "form 4 without AArch64 code", 5000, &of(&[1, 2], (17, 18))),
        predicted_run(
            "arm64_without_knots",
            "AArch64 code without knots",
            5000,
            &References { kinds: vec![4, 4], pages: Some((0, 0)), ..References::default() },
        ),
        predicted_run(
            "arm64_wrapping",
            "shifts that pass 2^31",
            5000,
            &References {
                near: vec![(0, u32::MAX), (1 << 28, u32::MAX - 1), (100_000, 9)],
                kinds: vec![4, 4],
                pages: Some((8, 12)),
                ..References::default()
            },
        ),
        predicted_short_runs("arm64_short_runs", "runs that end within references", &of(&[4, 4], (2048, 2044))),
    ]
}

/// Form 4: what it has that form 3 does not have, and a few of the same mistakes.
pub(crate) fn bad() -> Vec<Vector> {
    let good = || References { kinds: vec![4], pages: Some((8, 4095)), ..references() };
    let of = |name, about, predictor: Vec<u8>| vector(name, about, 140, of_form(true, predictor));
    let pages = |base, target| References { pages: Some((base, target)), ..good() }.bytes();
    let kinds = |kinds: &[u8]| References { kinds: kinds.to_vec(), ..good() }.bytes();
    let streams = |kinds: &[u8], starts: &[u8], shifts: &[u8]| {
        good().with_streams(&stored(kinds), &stored(starts), &stored(shifts))
    };
    let whole = of_form(true, good().bytes());
    vec![
        vector("arm64_cut", "form 4 without a number of copies", 140, vec![4]),
        vector("arm64_as_form_2", "a delta of form 4 that says it is form 2", 140, replaced(&whole, 0, &[2])),
        vector("arm64_as_form_3", "a delta of form 4 that says it is form 3", 140, replaced(&whole, 0, &[3])),
        vector("arm64_as_form_5", "a delta of form 4 that says it is form 5", 140, replaced(&whole, 0, &[5])),
        vector("arm64_with_tail", "form 4: a byte after the literals", 140, [whole.clone(), vec![0]].concat()),
        vector("arm64_delta_cut", "form 4: the last literal is not there", 140, without_last(&whole, 1)),
        of("arm64_missing", "form 4 without what is predicted", Vec::new()),
        of("arm64_pages_missing", "form 4 without its pages", References { pages: None, ..good() }.bytes()),
        of("arm64_base_page_past_end", "a base page of 4096", pages(4096, 0)),
        of("arm64_target_page_past_end", "a target page of 4096", pages(0, 4096)),
        of("arm64_target_page_enormous", "a target page of 2^32 - 1", pages(0, u32::MAX)),
        of("arm64_page_not_minimal", "a base page in two bytes that needs one", {
            let bytes = good().bytes();
            [&[0x88, 0], &bytes[1..]].concat()
        }),
        of("arm64_kind_unknown", "kind 5", kinds(&[5])),
        of("arm64_kinds_none", "form 4 without kinds", kinds(&[])),
        of("arm64_kinds_one_too_many", "form 4: two kinds for one block", kinds(&[4, 4])),
        of(
            "arm64_seams_more_than_ranges",
            "form 4 with sixteen seams",
            References { seams: vec![(1, 1); 16], ..good() }.bytes(),
        ),
        of(
            "arm64_near_more_than_room",
            "form 4: three knots for 140 bytes",
            References { near: vec![(1, 1); 3], ..good() }.bytes(),
        ),
        of("arm64_starts_two_at_one_place", "form 4: a second knot at 0", streams(&[4], &[0, 0, 9, 1], &[3, 0, 4, 1])),
        of("arm64_shifts_one_too_few", "form 4: three codes for four knots", streams(&[4], &[0, 7, 9, 1], &[3, 0, 4])),
        vector("arm64_kind_in_form_3", "form 3 with kind 4", 140, {
            with_references(References { pages: None, ..good() }.bytes())
        }),
    ]
}

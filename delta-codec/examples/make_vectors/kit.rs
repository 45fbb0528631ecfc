//! Writes deltas by hand, right or wrong: nothing here asks the library what is allowed.

use zstd::zstd_safe::{CCtx, CParameter, FrameFormat};

use crate::arm64;

/// A delta of form 1, of form 2 when there are `words`, or of form 3 or 4 when there is a
/// `predictor`, as its author wants it. Streams are stored unless `instead` says otherwise.
#[derive(Clone, Default)]
pub(crate) struct Hand {
    /// (gap, copy length, diagonal code) of each copy.
    pub(crate) copies: Vec<(u32, u32, u32)>,
    pub(crate) sub: Vec<u8>,
    /// Form 2: distances and differences, in place of `sub`.
    pub(crate) words: Option<(Vec<u32>, Vec<i32>)>,
    pub(crate) literals: Vec<u8>,
    /// Forms 3 and 4: all that stands between diagonals and distances.
    pub(crate) predictor: Option<Vec<u8>>,
    pub(crate) is_form_4: bool,
    /// Instead of the true number.
    pub(crate) claimed_copies: Option<u32>,
    /// Whole streams, head included, instead of the stored ones: gaps, copy lengths, diagonals, sub
    /// or distances, words (form 2 alone), literals.
    pub(crate) instead: [Option<Vec<u8>>; 6],
}

impl Hand {
    /// A delta of form 2 without literals.
    pub(crate) fn of_words(copies: &[(u32, u32, u32)], distances: &[u32], words: &[i32]) -> Self {
        Hand { copies: copies.to_vec(), words: Some((distances.to_vec(), words.to_vec())), ..Hand::default() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let form = match (&self.words, &self.predictor) {
            (_, Some(_)) => 3 + u8::from(self.is_form_4),
            (Some(_), None) => 2,
            (None, None) => 1,
        };
        let mut out = vec![form];
        out.extend(number(self.claimed_copies.unwrap_or(self.copies.len() as u32)));
        let column = |pick: fn(&(u32, u32, u32)) -> u32| {
            self.copies.iter().flat_map(|copy| number(pick(copy))).collect::<Vec<u8>>()
        };
        let (sub, words) = match &self.words {
            None => (self.sub.clone(), None),
            Some((distances, words)) => (
                distances.iter().flat_map(|&distance| number(distance)).collect(),
                Some(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
            ),
        };
        let contents = [
            Some(column(|copy| copy.0)),
            Some(column(|copy| copy.1)),
            Some(column(|copy| copy.2)),
            Some(sub),
            words,
            Some(self.literals.clone()),
        ];
        for (stream, (content, instead)) in contents.iter().zip(&self.instead).enumerate() {
            if stream == SUB {
                out.extend(self.predictor.iter().flatten());
            }
            if let Some(content) = content {
                out.extend(instead.clone().unwrap_or_else(|| stored(content)));
            }
        }
        out
    }

    /// The same with one stream written otherwise.
    pub(crate) fn with(mut self, stream: usize, bytes: Vec<u8>) -> Self {
        self.instead[stream] = Some(bytes);
        self
    }
}

/// What forms 3 and 4 say about references: (step, code) of each knot of both tables, and the
/// kinds.
#[derive(Clone, Default)]
pub(crate) struct References {
    /// Footprint bytes since the seam before, base bytes left out.
    pub(crate) seams: Vec<(u32, u32)>,
    pub(crate) near: Vec<(u32, u32)>,
    pub(crate) far: Vec<(u32, u32)>,
    pub(crate) kinds: Vec<u8>,
    /// Form 4: base page and target page.
    pub(crate) pages: Option<(u32, u32)>,
}

impl References {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let column = |pick: fn(&(u32, u32)) -> u32| {
            self.near.iter().chain(&self.far).flat_map(|knot| number(pick(knot))).collect::<Vec<u8>>()
        };
        self.with_streams(&stored(&self.kinds), &stored(&column(|knot| knot.0)), &stored(&column(|knot| knot.1)))
    }

    /// The same with streams that the caller has written.
    pub(crate) fn with_streams(&self, kinds: &[u8], starts: &[u8], shifts: &[u8]) -> Vec<u8> {
        let seams = self.seams.iter().flat_map(|&(step, left_out)| [number(step), number(left_out)].concat());
        let pages = self.pages.iter().flat_map(|&(base, target)| [number(base), number(target)].concat());
        let mut counts: Vec<u8> = pages.chain(number(self.seams.len() as u32)).chain(seams).collect();
        counts.extend(number(self.near.len() as u32));
        counts.extend(number(self.far.len() as u32));
        [&counts, kinds, starts, shifts].concat()
    }

    /// The base bytes of a run at `q` in the footprint and `p` in the target as §5.1 and §5.2
    /// predict them, word for word as it is written there.
    pub(crate) fn predict(&self, base: &[u8], q: usize, p: usize) -> Vec<u8> {
        let mut run = base.to_vec();
        let (mut seam, mut o) = (0, q);
        for &(step, left_out) in &self.seams {
            seam += step as usize;
            if seam <= q {
                o += left_out as usize;
            }
        }
        let mut i = 0;
        while i < run.len() {
            let kind = self.kinds[(p + i) / 4096];
            let step = match kind {
                0 => 1,
                4 => arm64::block(self, &mut run, i, o, p) - i,
                1 => match lead(&run[i..]) {
                    None => 1,
                    Some(lead) => self.predict_code(&mut run, i + lead, o, p).map_or(1, |()| lead + 4),
                },
                _ => {
                    let step = if kind == 2 { 8 } else { 4 };
                    if (q + i).is_multiple_of(step) {
                        if let Some(field) = run[i..].first_chunk_mut::<4>() {
                            let value = u32::from_le_bytes(*field);
                            let shift = shift_of(&self.far, i64::from(value)).unwrap_or(0);
                            *field = value.wrapping_add(shift as u32).to_le_bytes();
                        }
                        step
                    } else {
                        step - (q + i) % step
                    }
                }
            };
            i += step;
        }
        run
    }

    fn predict_code(&self, run: &mut [u8], at: usize, o: usize, p: usize) -> Option<()> {
        let field = run.get_mut(at..)?.first_chunk_mut::<4>()?;
        let value = i64::from(i32::from_le_bytes(*field));
        if !(-(1 << 28)..1 << 28).contains(&value) {
            return None;
        }
        let shift = shift_of(&self.near, (o + at + 4) as i64 + value + (1 << 28))?;
        *field = ((value + shift + o as i64 - p as i64) as u32).to_le_bytes();
        Some(())
    }
}

/// How many bytes before a field stand at the front.
fn lead(rest: &[u8]) -> Option<usize> {
    match *rest {
        [0xe8 | 0xe9, ..] => Some(1),
        [first, ..] if [0x05, 0x0d, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d].contains(&first) => Some(1),
        [0x0f, 0x80..=0x8f, ..] => Some(2),
        _ => None,
    }
}

pub(crate) fn shift_of(knots: &[(u32, u32)], address: i64) -> Option<i64> {
    let (mut start, mut shift, mut found) = (0, 0i64, None);
    for &(step, code) in knots {
        start += i64::from(step);
        if code > 0 {
            let change = i64::from(code - 1);
            shift += if change % 2 == 0 { change / 2 } else { -(change + 1) / 2 };
        }
        if start > address {
            break;
        }
        found = (code > 0).then_some(shift);
    }
    found
}

pub(crate) const GAPS: usize = 0;
pub(crate) const DIAGONALS: usize = 2;
pub(crate) const SUB: usize = 3;
/// Form 2 has them where form 1 has sub.
pub(crate) const DISTANCES: usize = SUB;
pub(crate) const WORDS: usize = 4;
pub(crate) const LITERALS: usize = 5;

pub(crate) fn number(mut value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// The diagonal code of a change other than 0.
pub(crate) fn change(change: i32) -> u32 {
    ((change << 1) ^ (change >> 31)) as u32 + 1
}

/// A stream's head, then its payload.
pub(crate) fn coded(plain_len: usize, coding: u32, payload: &[u8]) -> Vec<u8> {
    [number((plain_len as u32) << 3 | coding), payload.to_vec()].concat()
}

pub(crate) fn stored(content: &[u8]) -> Vec<u8> {
    coded(content.len(), 0, content)
}

/// A zstd stream of the given coding (2 or 3) around any frame.
pub(crate) fn framed(plain_len: usize, coding: u32, frame: &[u8]) -> Vec<u8> {
    coded(plain_len, coding, &[number(frame.len() as u32), frame.to_vec()].concat())
}

/// How [`frame`] writes the outside of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    Bare,
    Magic,
    ContentSize,
    Checksum,
}

/// One zstd frame.
pub(crate) fn frame(plain: &[u8], prefix: &[u8], outside: Outside) -> Vec<u8> {
    let mut zstd = CCtx::create();
    let mut set = |parameter| assert!(zstd.set_parameter(parameter).is_ok(), "zstd knows its parameters");
    if outside != Outside::Magic {
        set(CParameter::Format(FrameFormat::Magicless));
    }
    set(CParameter::ContentSizeFlag(outside == Outside::ContentSize));
    set(CParameter::ChecksumFlag(outside == Outside::Checksum));
    if !prefix.is_empty() {
        zstd.ref_prefix(prefix).expect("a prefix can be referred to");
    }
    let mut out = Vec::with_capacity(zstd::zstd_safe::compress_bound(plain.len()));
    zstd.compress2(&mut out, plain).expect("there is room for the frame");
    out
}

/// A frame made of raw blocks, whose window the caller chooses.
pub(crate) fn raw_frame(window_descriptor: u8, plain: &[u8]) -> Vec<u8> {
    let block_header = (plain.len() as u32) << 3 | 1;
    [&[0, window_descriptor], &block_header.to_le_bytes()[..3], plain].concat()
}

/// Bytes that look random and that any language can make: the top bytes of a linear congruential
/// generator.
pub(crate) fn lcg(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

//! Writes deltas by hand, right or wrong: nothing here asks the library what is allowed.

use zstd::zstd_safe::{CCtx, CParameter, FrameFormat};

/// A delta of form 1, or of form 2 when there are `words`, as its author wants it. Streams are
/// stored unless `instead` says otherwise.
#[derive(Clone, Default)]
pub(crate) struct Hand {
    /// (gap, copy length, diagonal code) of each copy.
    pub(crate) copies: Vec<(u32, u32, u32)>,
    pub(crate) sub: Vec<u8>,
    /// Form 2: distances and differences, in place of `sub`.
    pub(crate) words: Option<(Vec<u32>, Vec<i32>)>,
    pub(crate) literals: Vec<u8>,
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
        let mut out = vec![if self.words.is_some() { 2 } else { 1 }];
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
        for (content, instead) in contents.iter().zip(&self.instead) {
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

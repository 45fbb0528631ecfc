//! Streams that their container cuts into pieces, put together while they are read.

use crate::gaps::{Gaps, PIECE_LEN_MAX};
use crate::inflate::Input;

/// A piece before another has at least so many bytes: shorter ones would take more in framing than
/// opening them saves.
const PIECE_LEN_MIN: u32 = 32;
/// Most bytes of a block in an archive of `pg_dump`, which writes 4 KiB to 128 KiB.
const BLOCK_LEN_MAX: u32 = 1 << 20;
/// Most runs of gaps of a stream; one that is cut less evenly stays closed.
const RUNS_MAX: usize = 1 << 12;

/// How a container cuts a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cutting {
    /// Into IDAT chunks: the check of one, the length of the next, and its type.
    Png,
    /// Into blocks, the length of each before it.
    PgDump,
}

impl Cutting {
    fn gap_len(self) -> usize {
        match self {
            Self::Png => 12,
            Self::PgDump => 5,
        }
    }

    /// Bytes of the piece that a gap announces; `None` where it is no gap.
    pub(crate) fn piece_len(self, gap: &[u8]) -> Option<u32> {
        match (self, gap) {
            (Self::Png, &[_, _, _, _, a, b, c, d, b'I', b'D', b'A', b'T']) => {
                Some(u32::from_be_bytes([a, b, c, d])).filter(|len| *len < 1 << 31)
            }
            (Self::PgDump, &[0, a, b, c, d]) => {
                Some(u32::from_le_bytes([a, b, c, d])).filter(|len| *len <= BLOCK_LEN_MAX)
            }
            _ => None,
        }
        .filter(|len| *len > 0)
    }
}

/// Bytes that are taken beyond those that were read: as many as were read, but no fewer than the
/// longest header of a block has, and no more than the caches of a core hold.
const AHEAD_LEN_MIN: u64 = 1 << 10;
const AHEAD_LEN_MAX: u64 = 64 << 10;

/// How far [`Joiner::take`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// As far as is worth it for now.
    Enough,
    /// To the end of what is there, or of the stream's pieces.
    All,
    /// The first piece is followed by no other: the stream lies in one piece.
    Whole,
}

/// Takes an object's bytes and gives those of a stream.
pub(crate) struct Joiner {
    cutting: Cutting,
    /// Bytes of the piece at hand, and how many are left of it.
    piece: u32,
    left: u32,
    /// Bytes of the object from the stream's first one on that were taken.
    taken: u64,
    gaps: Gaps,
    /// No piece follows, or none that is worth it.
    is_over: bool,
    joined: Vec<u8>,
    /// Bytes of the stream before `joined`.
    joined_at: u64,
}

impl Joiner {
    /// Of a stream whose first piece has so many bytes.
    pub(crate) fn new(cutting: Cutting, piece: u32) -> Self {
        Self {
            cutting,
            piece,
            left: piece,
            taken: 0,
            gaps: Gaps::default(),
            is_over: false,
            joined: Vec::new(),
            joined_at: 0,
        }
    }

    /// Takes what follows of `rest`, the object's bytes from the first one on that was not taken,
    /// and of which no more will come when `is_all`. So many bytes of the stream have been `read`.
    pub(crate) fn take(&mut self, mut rest: &[u8], read: u64, is_all: bool) -> Taken {
        let wanted = read + read.clamp(AHEAD_LEN_MIN, AHEAD_LEN_MAX);
        while !self.is_over {
            let room = wanted.saturating_sub(self.joined_at + self.joined.len() as u64);
            let taken = rest.len().min(self.left as usize).min(room as usize);
            self.joined.extend_from_slice(&rest[..taken]);
            self.taken += taken as u64;
            self.left -= taken as u32;
            rest = &rest[taken..];
            if self.left > 0 {
                return if rest.is_empty() { Taken::All } else { Taken::Enough };
            }
            let gap_len = self.cutting.gap_len();
            let piece = match rest.get(..gap_len) {
                Some(gap) => self.cutting.piece_len(gap),
                None if is_all => None,
                None => return Taken::All,
            };
            match piece {
                Some(piece) if self.is_worth_it() => {
                    self.gaps.push(self.piece, gap_len as u32);
                    (self.piece, self.left) = (piece, piece);
                    self.taken += gap_len as u64;
                    rest = &rest[gap_len..];
                }
                // What looked like the length of a piece was something else.
                None if self.gaps.is_empty() => return Taken::Whole,
                // A stream that goes on behind this ends too early, and stays closed.
                _ => self.is_over = true,
            }
        }
        Taken::All
    }

    /// Whether opening it is worth another gap behind the piece at hand.
    fn is_worth_it(&self) -> bool {
        (PIECE_LEN_MIN..=PIECE_LEN_MAX as u32).contains(&self.piece)
            && self.gaps.runs_with(self.piece, self.cutting.gap_len() as u32) <= RUNS_MAX
    }

    /// Bytes of the object from the stream's first one on that were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes of the stream that were taken; no more will come when `is_all`, or when they are over.
    pub(crate) fn input(&self, is_all: bool) -> Input<'_> {
        Input { bytes: &self.joined, at: self.joined_at, is_all: is_all || self.is_over }
    }

    /// Forgets bytes of the stream before a place in it.
    pub(crate) fn forget(&mut self, before: u64) {
        let dropped = (before.saturating_sub(self.joined_at) as usize).min(self.joined.len());
        self.joined.drain(..dropped);
        self.joined_at += dropped as u64;
    }

    /// Its gaps.
    pub(crate) fn gaps(&self) -> &Gaps {
        &self.gaps
    }
}

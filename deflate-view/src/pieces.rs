//! Streams that their container cuts into pieces, put together while they are read.

use crate::Malformed;
use crate::gaps::Gaps;
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

/// Takes an object's bytes and gives those of a stream.
pub(crate) struct Joiner {
    cutting: Cutting,
    /// Bytes of the piece at hand, and how many are left of it.
    piece: u32,
    left: u64,
    /// Bytes of the object from the stream's first one on that were taken.
    taken: u64,
    gaps: Gaps,
    /// No piece follows.
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
            left: piece.into(),
            taken: 0,
            gaps: Gaps::default(),
            is_over: false,
            joined: Vec::new(),
            joined_at: 0,
        }
    }

    /// Takes what follows of `bytes`, the first of which lies at `at` of the object, in which the
    /// stream starts at `start`.
    ///
    /// # Errors
    /// [`Malformed`] when it is cut in a way that is not worth opening it.
    pub(crate) fn take(&mut self, bytes: &[u8], at: u64, start: u64) -> Result<(), Malformed> {
        while !self.is_over {
            let rest = bytes.get((start + self.taken - at) as usize..).unwrap_or_default();
            if self.left > 0 {
                let taken = rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.joined.extend_from_slice(&rest[..taken]);
                self.taken += taken as u64;
                self.left -= taken as u64;
                if taken == rest.len() {
                    return Ok(());
                }
            }
            let gap_len = self.cutting.gap_len();
            let Some(gap) = bytes.get((start + self.taken - at) as usize..).and_then(|rest| rest.get(..gap_len)) else {
                return Ok(());
            };
            match self.cutting.piece_len(gap) {
                Some(piece) => {
                    self.gaps.push(self.piece, gap_len as u32);
                    if self.piece < PIECE_LEN_MIN || self.gaps.runs() > RUNS_MAX {
                        return Err(Malformed("a stream in too many pieces"));
                    }
                    self.piece = piece;
                    self.left = piece.into();
                    self.taken += gap_len as u64;
                }
                // What looked like the length of a piece was something else.
                None if self.gaps.is_empty() => self.left = u64::MAX,
                None => self.is_over = true,
            }
        }
        Ok(())
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

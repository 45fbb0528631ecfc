//! A stream's MD5, and feeding many at once.

use crate::{
    lanes::{LANES_MAX, advance, lanes},
    rounds::{BLOCK, INITIAL, State},
    scalar,
};

/// The MD5 of a stream under way (RFC 1321).
#[derive(Clone, Debug)]
pub struct Md5 {
    state: State,
    /// What has come of a block that is not whole.
    rest: [u8; BLOCK],
    /// Bytes of the stream so far.
    len: u64,
}

impl Default for Md5 {
    fn default() -> Self {
        Self::new()
    }
}

impl Md5 {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self { state: INITIAL, rest: [0; BLOCK], len: 0 }
    }

    /// Takes the stream's next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let whole = self.fill_block(bytes);
        let run = &whole[..whole.len() / BLOCK * BLOCK];
        scalar::advance(&mut self.state, run);
        self.keep(run.len() as u64, &whole[run.len()..]);
    }

    /// The digest, 16 bytes.
    pub fn finalize(mut self) -> [u8; 16] {
        let bits = self.len.wrapping_mul(8);
        let zeros = (BLOCK + 55 - self.filled()) % BLOCK;
        let mut padding = [0; 2 * BLOCK];
        padding[0] = 0x80;
        padding[zeros + 1..zeros + 9].copy_from_slice(&bits.to_le_bytes());
        self.update(&padding[..zeros + 9]);
        let mut digest = [0; 16];
        for (place, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(self.state) {
            *place = word.to_le_bytes();
        }
        digest
    }

    /// Bytes of the block that is not whole.
    fn filled(&self) -> usize {
        (self.len % BLOCK as u64) as usize
    }

    /// Completes the block that was begun, if there is one and there are bytes enough; gives the
    /// bytes behind it, none when it is not complete yet.
    fn fill_block<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let filled = self.filled();
        if filled == 0 {
            return bytes;
        }
        let (taken, behind) = bytes.split_at(bytes.len().min(BLOCK - filled));
        self.rest[filled..filled + taken.len()].copy_from_slice(taken);
        self.len += taken.len() as u64;
        if self.filled() == 0 {
            scalar::advance(&mut self.state, &self.rest);
        }
        behind
    }

    /// Counts bytes that the state has taken, and keeps those of a block that is not whole.
    fn keep(&mut self, taken: u64, rest: &[u8]) {
        if !rest.is_empty() {
            self.rest[..rest.len()].copy_from_slice(rest);
        }
        self.len += taken + rest.len() as u64;
    }
}

/// Takes the next bytes of each of these streams, as [`Md5::update`] would one after the other.
/// Fastest when there are as many as [`lanes`] and their bytes are of one length: those that are
/// left go on while the others have ended, until one is alone.
pub fn update_all(streams: &mut [(&mut Md5, &[u8])]) {
    for (stream, bytes) in &mut *streams {
        *bytes = stream.fill_block(bytes);
    }
    // The longest first: what advances together then ends together, or nearly so.
    streams.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(bytes.len()));
    for group in streams.chunks_mut(lanes()) {
        update_group(group);
    }
}

/// The same of at most [`LANES_MAX`] streams that have no block begun, the longest first.
fn update_group(group: &mut [(&mut Md5, &[u8])]) {
    let mut left = group.iter().take_while(|(_, bytes)| bytes.len() >= BLOCK).count();
    while left > 0 {
        let mut states = [State::default(); LANES_MAX];
        let mut runs: [&[u8]; LANES_MAX] = [&[]; LANES_MAX];
        for (lane, (stream, bytes)) in group[..left].iter().enumerate() {
            (states[lane], runs[lane]) = (stream.state, bytes);
        }
        let taken = advance(&mut states[..left], &runs[..left]);
        for (lane, (stream, bytes)) in group[..left].iter_mut().enumerate() {
            stream.state = states[lane];
            stream.len += taken as u64;
            *bytes = &bytes[taken..];
        }
        left = group[..left].iter().take_while(|(_, bytes)| bytes.len() >= BLOCK).count();
    }
    for (stream, bytes) in group {
        stream.keep(0, bytes);
        *bytes = &[];
    }
}

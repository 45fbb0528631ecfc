//! Finds deflate streams by content in the bytes of an object, whatever its name, and notes where
//! reading may begin inside them.

use crate::containers::{Announced, BEFORE_LEN, Container, FirstPiece, Signature};
use crate::inflate::{Input, Stopped};
use crate::pieces::{Joiner, Taken};
use crate::reading::Reading;
use crate::stream::{Index, Stream};

/// Plain bytes that are read at a time.
const STEP_LEN: usize = 256 << 10;
/// Bytes of a stream that are kept to be looked through again when it turns out to be none.
const KEPT_LEN: usize = 256 << 10;
/// Longest header before a stream that is read: a zip member's with its name and extra field.
const HEADER_LEN_MAX: usize = 30 + 2 * 65_535;
/// Bytes that may be read in vain before others have been seen.
const VAIN_LEN: u64 = 1 << 20;
/// Bytes that a stream counts besides its own when it turns out to be none: it is made ready for.
const FALSE_START_LEN: u64 = 512;
/// Plain bytes that count as one byte read in vain.
const VAIN_PLAIN_PER_BYTE: u64 = 8;
/// Plain bytes for each of a stream's own above which it counts as rich.
const RICH_RATIO: u64 = 200;
/// Plain bytes that rich streams may have for each byte of the object before them.
const RICH_PLAIN_PER_BYTE: u64 = 16;

/// Bounds of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Shorter streams are left alone.
    pub stream_len_min: u64,
    /// Most plain bytes of one stream; one that has more is left alone.
    pub stream_plain_len_max: u64,
    /// Most plain bytes of all streams together that inflate to more than 200 times their length,
    /// besides 16 for each byte of the object before them; what has more is left alone.
    pub rich_plain_len_max: u64,
    /// Most streams; what comes after them is left alone.
    pub streams_max: usize,
    /// Most access points of all streams; there are none after them. Each takes 32 KiB of memory.
    pub points_max: usize,
    /// Streams in the plain text of streams are found, too: a jar in a layer. They have the bounds
    /// of rich streams for themselves, whatever their ratio.
    pub nested: bool,
    /// Streams that their container cuts into pieces are found, too.
    pub cut: bool,
    /// Most runs of gaps of all streams; one that has more is left alone. Each takes 12 bytes of
    /// memory.
    pub gap_runs_max: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            stream_len_min: 48,
            stream_plain_len_max: 4 << 30,
            rich_plain_len_max: 32 << 20,
            streams_max: 1 << 20,
            points_max: usize::MAX,
            nested: true,
            cut: true,
            gap_runs_max: 1 << 16,
        }
    }
}

/// One thing that may be the beginning of a container, and where.
struct Search {
    signature: Signature,
    /// Where it is found next, from where the scan stands on.
    next: Option<u64>,
    /// Everything before this place has been looked through.
    searched: u64,
}

/// Why reading a stream stopped.
enum Read {
    /// It has ended.
    Done,
    /// More bytes are needed.
    Starved,
    /// It is none, or one that is left alone.
    None,
}

/// What is bounded for all streams together.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    streams: usize,
    gap_runs: usize,
    /// Bytes that were read of what turned out to be no stream.
    vain: u64,
    /// Plain bytes that were read of rich streams, and of what turned out to be none.
    rich: u64,
}

/// Takes the plain text of streams as it is read, that of streams which turn out to be none among
/// it.
pub type TextSink = Box<dyn FnMut(&[u8]) + Send>;

/// Reads an object in pieces of any size. Memory: the last piece, half a megabyte, and the index.
pub struct Scanner {
    limits: ScanLimits,
    points_left: usize,
    /// In the plain text of a stream: most bytes to be read in vain. Then
    /// `limits` has the most plain bytes of rich streams, and every stream counts as one.
    vain_max: Option<u64>,
    sink: Option<TextSink>,
    searches: [Search; 4],
    pending: Vec<u8>,
    /// Bytes of the object before `pending`.
    pending_at: u64,
    /// Where the scan stands.
    at: u64,
    spent: Spent,
    /// By the scanners of plain text, one after another: what they find has no bearing on the
    /// object's own streams.
    nested_spent: Spent,
    reading: Option<Box<Reading>>,
    /// Looks through the plain text of the stream that is being read.
    nested: Option<Box<Scanner>>,
    streams: Vec<Stream>,
}

impl Scanner {
    /// At the start of an object.
    pub fn new(limits: ScanLimits) -> Self {
        Self {
            limits,
            points_left: limits.points_max,
            vain_max: None,
            sink: None,
            searches: Signature::ALL.map(|signature| Search { signature, next: None, searched: 0 }),
            pending: Vec::new(),
            pending_at: 0,
            at: 0,
            spent: Spent::default(),
            nested_spent: Spent::default(),
            reading: None,
            nested: None,
            streams: Vec::new(),
        }
    }

    /// Of the plain text of a stream.
    fn in_plain_text(limits: ScanLimits) -> Self {
        let limits = ScanLimits { points_max: 0, nested: false, cut: false, ..limits };
        Self { vain_max: Some(0), ..Self::new(limits) }
    }

    /// The same, telling `sink` the plain text of streams.
    pub fn with_sink(limits: ScanLimits, sink: TextSink) -> Self {
        Self { sink: Some(sink), ..Self::new(limits) }
    }

    /// The index of an object that lies in memory.
    pub fn index(object: &[u8], limits: ScanLimits) -> Index {
        let mut scanner = Self::new(limits);
        object.chunks(1 << 20).for_each(|piece| scanner.feed(piece));
        scanner.finish()
    }

    /// The next bytes of the object.
    pub fn feed(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
        self.work(false);
        self.drop_read();
    }

    /// The index, after the last byte.
    pub fn finish(mut self) -> Index {
        self.work(true);
        Index { streams: self.streams, len: self.pending_at + self.pending.len() as u64 }
    }

    fn end(&self) -> u64 {
        self.pending_at + self.pending.len() as u64
    }

    fn work(&mut self, is_all: bool) {
        loop {
            let goes_on = match self.reading.take() {
                Some(reading) => self.read(reading, is_all),
                None => self.look(is_all),
            };
            if !goes_on {
                break;
            }
        }
    }

    /// Looks for the next container; false when more bytes are needed.
    fn look(&mut self, is_all: bool) -> bool {
        let Some((found, signature)) = self.next_signature() else {
            self.at = self.end().saturating_sub(Signature::LEN_MAX as u64 - 1).max(self.at);
            return false;
        };
        if self.spent.streams >= self.limits.streams_max
            || self.spent.vain > self.vain_max.unwrap_or(VAIN_LEN + found / 4)
        {
            self.at = found + 1;
            return true;
        }
        let place = (found - self.pending_at) as usize;
        let before = &self.pending[place.saturating_sub(BEFORE_LEN)..place];
        match signature.read(before, &self.pending[place..], is_all) {
            Announced::Stream(len, container, first) => {
                self.begin(container, found, len as u64, first);
                true
            }
            Announced::Short if !is_all && self.pending.len() - place <= HEADER_LEN_MAX => {
                self.at = found;
                false
            }
            Announced::Vain(vain) => {
                self.spent.vain += vain;
                self.at = found + 1;
                true
            }
            Announced::Short | Announced::None => {
                self.at = found + 1;
                true
            }
        }
    }

    /// The nearest signature from here on.
    fn next_signature(&mut self) -> Option<(u64, Signature)> {
        let (at, end, pending_at) = (self.at, self.end(), self.pending_at);
        let pending = &self.pending;
        for search in &mut self.searches {
            if search.next.is_some_and(|next| next >= at) {
                continue;
            }
            let from = at.max(search.searched).max(pending_at);
            let rest = pending.get((from - pending_at) as usize..).unwrap_or_default();
            search.next = search.signature.find(rest).map(|found| from + found as u64);
            // Its first bytes may be the last ones here.
            let searched = search.next.unwrap_or(end.saturating_sub(Signature::LEN_MAX as u64 - 1));
            search.searched = searched.max(search.searched);
        }
        let nearest = self.searches.iter().filter_map(|search| Some((search.next?, search.signature)));
        nearest.min_by_key(|(next, _)| *next)
    }

    fn begin(&mut self, container: Container, found: u64, header_len: u64, first: Option<FirstPiece>) {
        self.nested = self.limits.nested.then(|| Box::new(Self::in_plain_text(self.limits)));
        let first = first.filter(|_| self.limits.cut);
        self.reading = Some(Box::new(Reading::new(container, found, header_len, first)));
    }

    /// Goes on with a stream; false when more bytes are needed.
    fn read(&mut self, reading: Box<Reading>, is_all: bool) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let goes_on = self.read_pending(&pending, reading, is_all);
        self.pending = pending;
        goes_on
    }

    fn read_pending(&mut self, pending: &[u8], mut reading: Box<Reading>, is_all: bool) -> bool {
        let read = match reading.joiner.take() {
            Some(joiner) => self.inflate_pieces(pending, &mut reading, joiner, is_all),
            None => {
                let input = reading.input(pending, self.pending_at, is_all);
                self.inflate(&mut reading, input)
            }
        };
        match read {
            Read::Done => self.found(*reading),
            Read::Starved => {
                self.reading = Some(reading);
                return false;
            }
            Read::None => {
                let plain_len = reading.plain_len();
                let vain = reading.len().max(plain_len / VAIN_PLAIN_PER_BYTE);
                self.spent.vain += reading.header_len + FALSE_START_LEN + vain;
                self.spent.rich += if self.is_rich(&reading) { plain_len } else { 0 };
                // What is kept is looked through for other containers, however it was fed.
                let end = reading.end();
                self.at = if end - reading.start > KEPT_LEN as u64 { end } else { reading.start };
            }
        }
        true
    }

    /// Reads on in a stream that may lie in pieces, a little of which is taken at a time: it may
    /// turn out to be none at once.
    fn inflate_pieces(&mut self, pending: &[u8], reading: &mut Reading, mut joiner: Joiner, is_all: bool) -> Read {
        loop {
            let rest = (reading.start + joiner.taken() - self.pending_at) as usize;
            let rest = pending.get(rest..).unwrap_or_default();
            let taken = joiner.take(rest, reading.inflater.bit() / 8, is_all);
            if taken == Taken::Whole {
                let input = reading.input(pending, self.pending_at, is_all);
                return self.inflate(reading, input);
            }
            let read = self.inflate(reading, joiner.input(is_all && taken == Taken::All));
            joiner.forget(reading.inflater.bit() / 8);
            if !matches!(read, Read::Starved) || taken == Taken::All {
                reading.joiner = Some(joiner);
                return read;
            }
        }
    }

    /// Reads on as far as the input goes.
    fn inflate(&mut self, reading: &mut Reading, input: Input<'_>) -> Read {
        loop {
            let known = reading.plain.len();
            let stopped = reading.inflater.run(input, &mut reading.plain, known + STEP_LEN, None);
            if let Some(sink) = &mut self.sink {
                sink(&reading.plain[known..]);
            }
            if let Some(mut nested) = self.nested.take() {
                let read_to = reading.start + reading.inflater.bit() / 8;
                self.share(&mut nested, read_to, |nested| nested.feed(&reading.plain[known..]));
                self.nested = Some(nested);
            }
            reading.note(input, known);
            let plain_len = reading.plain_len();
            let is_too_much = plain_len > self.limits.stream_plain_len_max
                || (self.is_rich(reading)
                    && self.spent.rich.saturating_add(plain_len) > self.rich_plain_len_max(reading.start));
            match stopped {
                _ if is_too_much => return Read::None,
                Err(_) => return Read::None,
                Ok(Stopped::Done) => match reading.is_right(input) {
                    Some(true) => return Read::Done,
                    Some(false) => return Read::None,
                    None => return Read::Starved,
                },
                Ok(Stopped::Full) => reading.note_point(&mut self.points_left),
                Ok(Stopped::Starved) => {
                    reading.note_point(&mut self.points_left);
                    reading.forget();
                    return Read::Starved;
                }
            }
            reading.forget();
        }
    }

    /// Whether a stream inflates to so much that it shares a bound with others.
    fn is_rich(&self, reading: &Reading) -> bool {
        self.vain_max.is_some() || reading.plain_len() / reading.len().max(1) > RICH_RATIO
    }

    /// Keeps a stream that has ended.
    fn found(&mut self, mut reading: Reading) {
        let mut found = reading.stream();
        self.at = found.end;
        self.spent.rich += if self.is_rich(&reading) { found.plain_len } else { 0 };
        let gap_runs = self.spent.gap_runs + found.gaps.as_ref().map_or(0, |gaps| gaps.runs());
        if found.end - found.start >= self.limits.stream_len_min && gap_runs <= self.limits.gap_runs_max {
            self.spent.gap_runs = gap_runs;
            if let Some(mut nested) = self.nested.take() {
                self.share(&mut nested, found.end, |nested| nested.work(true));
                found.nested = nested.streams;
            }
            self.spent.streams += 1;
            self.streams.push(found);
        }
    }

    /// Lets a scanner of plain text work within what is left of its level's bounds when `read_to`
    /// bytes of the object have been read.
    fn share(&mut self, nested: &mut Self, read_to: u64, work: impl FnOnce(&mut Self)) {
        nested.limits.rich_plain_len_max = self.rich_plain_len_max(read_to);
        nested.vain_max = Some(VAIN_LEN + read_to / 4);
        nested.spent = self.nested_spent;
        nested.sink = self.sink.take();
        work(nested);
        self.sink = nested.sink.take();
        self.nested_spent = nested.spent;
    }

    /// Most plain bytes of rich streams up to one that begins at `start`.
    fn rich_plain_len_max(&self, start: u64) -> u64 {
        if self.vain_max.is_some() {
            return self.limits.rich_plain_len_max;
        }
        self.limits.rich_plain_len_max.saturating_add(start.saturating_mul(RICH_PLAIN_PER_BYTE))
    }

    fn drop_read(&mut self) {
        let needed = match &self.reading {
            Some(reading) => {
                let read_to = reading.place();
                if read_to - reading.start > KEPT_LEN as u64 { read_to } else { reading.start }
            }
            None => self.at,
        };
        let needed = needed.saturating_sub(BEFORE_LEN as u64);
        let dropped = (needed.saturating_sub(self.pending_at) as usize).min(self.pending.len());
        self.pending.drain(..dropped);
        self.pending_at += dropped as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::Cutting;

    /// Bytes that look like the beginning of a stream in pieces, refused at their first bit.
    fn false_starts(len: usize) -> Vec<u8> {
        b"\x7f\xff\xff\xffIDAT\x78\x9c\x07".iter().copied().cycle().take(len).collect()
    }

    #[test]
    fn streams_that_end_at_their_first_bit_share_the_bound_on_bytes_read_in_vain() {
        let object = false_starts(8 << 20);
        for size in [1 << 20, 4 << 20] {
            let mut scanner = Scanner::new(ScanLimits::default());
            object.chunks(size).for_each(|piece| scanner.feed(piece));
            let bound = VAIN_LEN + object.len() as u64 / 4;
            let one = FALSE_START_LEN + 6;
            assert!((bound - one..=bound + one).contains(&scanner.spent.vain), "{}", scanner.spent.vain);
        }
    }

    #[test]
    fn trials_of_zlib_streams_share_the_bound_on_bytes_read_in_vain() {
        let object = b"\x78\x9c\x02\x1c".repeat(1 << 20);
        let mut scanner = Scanner::new(ScanLimits::default());
        object.chunks(1 << 20).for_each(|piece| scanner.feed(piece));
        let bound = VAIN_LEN + object.len() as u64 / 4;
        assert!((bound - 512..=bound + 512).contains(&scanner.spent.vain), "{}", scanner.spent.vain);
    }

    #[test]
    fn a_stream_is_taken_as_far_as_it_is_worth_it_and_not_at_all_when_it_lies_in_one_piece() {
        let object = vec![7; 4 << 20];
        let mut joiner = Joiner::new(Cutting::Png, 1 << 30);
        let mut read = 0;
        for expected in [1 << 10, 2 << 10, 4 << 10] {
            assert_eq!(joiner.take(&object[joiner.taken() as usize..], read, false), Taken::Enough);
            assert_eq!(joiner.taken(), expected);
            read = expected;
            joiner.forget(read);
        }
        joiner.take(&object[joiner.taken() as usize..], 1 << 20, false);
        assert_eq!(joiner.taken(), (1 << 20) + (64 << 10));
        let mut joiner = Joiner::new(Cutting::Png, 100);
        assert_eq!(joiner.take(&object, 0, false), Taken::Whole);
        assert_eq!(joiner.taken(), 100);
    }

    #[test]
    fn a_piece_too_long_for_a_table_of_gaps_is_the_last_one() {
        let mut joiner = Joiner::new(Cutting::Png, u32::MAX - 2);
        let piece = vec![7; 1 << 20];
        let mut read = 0;
        while joiner.taken() < u64::from(u32::MAX - 2) {
            let left = u64::from(u32::MAX - 2) - joiner.taken();
            let before = joiner.taken();
            joiner.take(&piece[..left.min(1 << 20) as usize], read + (1 << 20), false);
            read += joiner.taken() - before;
            joiner.forget(read);
        }
        assert_eq!(joiner.take(b"\0\0\0\0\0\0\x10\0IDAT1234", read, false), Taken::All);
        assert!(joiner.gaps().is_empty() && joiner.input(false).is_all);
    }
}

//! Finds deflate streams by content in the bytes of an object, whatever its name, and notes where
//! reading may begin inside them.

use memchr::memmem::Finder;
use xxhash_rust::xxh3::Xxh3;

use crate::alphabet::WINDOW_LEN;
use crate::inflate::{Inflater, Input, Stopped};

/// Plain bytes between two access points.
pub const POINT_SPACING: u64 = 1 << 20;
/// Plain bytes that are read at a time.
const STEP_LEN: usize = 256 << 10;
/// Bytes of a stream that are kept to be looked through again when it turns out to be none.
const KEPT_LEN: usize = 256 << 10;
/// Longest header before a stream that is read: a zip member's with its name and extra field.
const HEADER_LEN_MAX: usize = 30 + 2 * 65_535;
/// Bytes that may be read in vain before others have been seen.
const VAIN_LEN: u64 = 1 << 20;
/// Plain bytes that count as one byte read in vain.
const VAIN_PLAIN_PER_BYTE: u64 = 8;
/// Plain bytes for each of a stream's own above which it counts as rich.
const RICH_RATIO: u64 = 200;
/// Plain bytes that rich streams may have for each byte of the object before them.
const RICH_PLAIN_PER_BYTE: u64 = 16;

/// Which container said that there is a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// A member of a zip file (also a wheel, jar, office document …).
    Zip,
    /// A member of a gzip file.
    Gzip,
    /// The IDAT chunk of a PNG file.
    Png,
}

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
        }
    }
}

/// Where reading may begin inside a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Plain bytes of the stream before it.
    pub plain_at: u64,
    /// Bits of the stream before the header of its block, and before itself.
    pub block_bit: u64,
    /// Bits of the stream before the next step.
    pub bit: u64,
    /// The plain bytes before it, up to 32 KiB.
    pub window: Vec<u8>,
}

/// A deflate stream in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Who said so.
    pub container: Container,
    /// The object's bytes before it.
    pub start: u64,
    /// The object's bytes up to its last.
    pub end: u64,
    /// Its plain bytes.
    pub plain_len: u64,
    /// XXH3-64 of its own bytes: equal streams have equal digests.
    pub digest: u64,
    /// Access points about every [`POINT_SPACING`] plain bytes, the start not among them.
    pub points: Vec<Point>,
    /// Streams in its plain text, in order and disjoint, their places counted in it. They have no
    /// access points, and no streams in theirs.
    pub nested: Vec<Stream>,
}

/// The streams of an object, in order and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The streams.
    pub streams: Vec<Stream>,
    /// Bytes of the object.
    pub len: u64,
}

/// A stream that is being read.
struct Reading {
    container: Container,
    start: u64,
    inflater: Inflater,
    plain: Vec<u8>,
    /// Plain bytes before `plain`.
    plain_before: u64,
    points: Vec<Point>,
    digest: Xxh3,
    digested: u64,
    /// Looks through its plain text.
    nested: Option<Scanner>,
}

/// One thing that may be the beginning of a container.
struct Signature {
    finder: Finder<'static>,
    container: Container,
    /// Where it is found next, from where the scan stands on.
    next: Option<u64>,
    /// Everything before this place has been looked through.
    searched: u64,
}

/// What is bounded for all streams together.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    streams: usize,
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
    signatures: [Signature; 3],
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
    streams: Vec<Stream>,
}

/// What a header says.
enum Header {
    /// A stream begins so many bytes further on.
    Stream(usize),
    /// It is none.
    None,
    /// The rest of it is not there yet.
    Short,
}

impl Scanner {
    /// At the start of an object.
    pub fn new(limits: ScanLimits) -> Self {
        let signature = |bytes: &'static [u8], container| Signature {
            finder: Finder::new(bytes),
            container,
            next: None,
            searched: 0,
        };
        Self {
            limits,
            points_left: limits.points_max,
            vain_max: None,
            sink: None,
            signatures: [
                signature(b"PK\x03\x04", Container::Zip),
                signature(b"\x1f\x8b\x08", Container::Gzip),
                signature(b"IDAT", Container::Png),
            ],
            pending: Vec::new(),
            pending_at: 0,
            at: 0,
            spent: Spent::default(),
            nested_spent: Spent::default(),
            reading: None,
            streams: Vec::new(),
        }
    }

    /// Of the plain text of a stream.
    fn in_plain_text(limits: ScanLimits) -> Self {
        let limits = ScanLimits { points_max: 0, nested: false, ..limits };
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
        let Some((found, container)) = self.next_signature() else {
            self.at = self.end().saturating_sub(3).max(self.at);
            return false;
        };
        if self.spent.streams >= self.limits.streams_max
            || self.spent.vain > self.vain_max.unwrap_or(VAIN_LEN + found / 4)
        {
            self.at = found + 1;
            return true;
        }
        let place = (found - self.pending_at) as usize;
        match read_header(container, &self.pending[place..]) {
            Header::Stream(len) => {
                self.begin(container, found + len as u64);
                true
            }
            Header::Short if !is_all && self.pending.len() - place <= HEADER_LEN_MAX => {
                self.at = found;
                false
            }
            Header::Short | Header::None => {
                self.at = found + 1;
                true
            }
        }
    }

    /// The nearest signature from here on.
    fn next_signature(&mut self) -> Option<(u64, Container)> {
        let (at, end, pending_at) = (self.at, self.end(), self.pending_at);
        let pending = &self.pending;
        for signature in &mut self.signatures {
            if signature.next.is_some_and(|next| next >= at) {
                continue;
            }
            let from = at.max(signature.searched).max(pending_at);
            let rest = pending.get((from - pending_at) as usize..).unwrap_or_default();
            signature.next = signature.finder.find(rest).map(|found| from + found as u64);
            // Its first bytes may be the last ones here.
            signature.searched = signature.next.unwrap_or(end.saturating_sub(3)).max(signature.searched);
        }
        let nearest = self.signatures.iter().filter_map(|signature| Some((signature.next?, signature.container)));
        nearest.min_by_key(|(next, _)| *next)
    }

    fn begin(&mut self, container: Container, start: u64) {
        self.reading = Some(Box::new(Reading {
            container,
            start,
            inflater: Inflater::new(),
            plain: Vec::new(),
            plain_before: 0,
            points: Vec::new(),
            digest: Xxh3::new(),
            digested: start,
            nested: self.limits.nested.then(|| Scanner::in_plain_text(self.limits)),
        }));
    }

    /// Goes on with a stream; false when more bytes are needed.
    fn read(&mut self, reading: Box<Reading>, is_all: bool) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let goes_on = self.read_pending(&pending, reading, is_all);
        self.pending = pending;
        goes_on
    }

    fn read_pending(&mut self, pending: &[u8], mut reading: Box<Reading>, is_all: bool) -> bool {
        let from = reading.start.max(self.pending_at);
        let bytes = pending.get((from - self.pending_at) as usize..);
        let input = Input { bytes: bytes.unwrap_or_default(), at: from - reading.start, is_all };
        loop {
            let known = reading.plain.len();
            let stopped = reading.inflater.run(input, &mut reading.plain, known + STEP_LEN, None);
            if let Some(sink) = &mut self.sink {
                sink(&reading.plain[known..]);
            }
            if let Some(mut nested) = reading.nested.take() {
                let read_to = reading.start + reading.inflater.bit() / 8;
                self.share(&mut nested, read_to, |nested| nested.feed(&reading.plain[known..]));
                reading.nested = Some(nested);
            }
            let read_to = reading.start + reading.inflater.bit().div_ceil(8);
            reading.digest_until(pending, self.pending_at, read_to);
            let plain_len = reading.plain_before + reading.plain.len() as u64;
            let read_len = read_to - reading.start;
            let is_rich = self.vain_max.is_some() || plain_len / read_len.max(1) > RICH_RATIO;
            let is_too_much = plain_len > self.limits.stream_plain_len_max
                || (is_rich && self.spent.rich.saturating_add(plain_len) > self.rich_plain_len_max(reading.start));
            match stopped {
                Ok(Stopped::Done) if !is_too_much => {
                    self.at = read_to;
                    self.spent.rich += if is_rich { plain_len } else { 0 };
                    if read_len >= self.limits.stream_len_min {
                        let mut found = reading.stream(read_to);
                        if let Some(mut nested) = reading.nested.take() {
                            self.share(&mut nested, read_to, |nested| nested.work(true));
                            found.nested = nested.streams;
                        }
                        self.spent.streams += 1;
                        self.streams.push(found);
                    }
                    return true;
                }
                Ok(Stopped::Full) if !is_too_much => reading.note_point(&mut self.points_left),
                Ok(Stopped::Starved) if !is_too_much => {
                    reading.note_point(&mut self.points_left);
                    reading.forget();
                    self.reading = Some(reading);
                    return false;
                }
                _ => {
                    self.spent.vain += read_len.max(plain_len / VAIN_PLAIN_PER_BYTE);
                    self.spent.rich += if is_rich { plain_len } else { 0 };
                    // What is still there is looked through for other containers.
                    self.at = reading.start.max(self.pending_at);
                    return true;
                }
            }
            reading.forget();
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
                let read_to = reading.start + reading.inflater.bit() / 8;
                if read_to - reading.start > KEPT_LEN as u64 { read_to } else { reading.start }
            }
            None => self.at.saturating_sub(4),
        };
        let dropped = (needed.saturating_sub(self.pending_at) as usize).min(self.pending.len());
        self.pending.drain(..dropped);
        self.pending_at += dropped as u64;
    }
}

impl Reading {
    fn digest_until(&mut self, pending: &[u8], pending_at: u64, read_to: u64) {
        if let Some(bytes) = pending.get((self.digested - pending_at) as usize..(read_to - pending_at) as usize) {
            self.digest.update(bytes);
            self.digested = read_to;
        }
    }

    /// Notes that reading may begin here, when the last such place is far enough.
    fn note_point(&mut self, left: &mut usize) {
        let plain_at = self.plain_before + self.plain.len() as u64;
        let last = self.points.last().map_or(0, |point| point.plain_at);
        if plain_at < last + POINT_SPACING || self.inflater.is_in_stored() || *left == 0 {
            return;
        }
        *left -= 1;
        let bit = self.inflater.bit();
        let block_bit = self.inflater.block_bit().unwrap_or(bit);
        let window = self.plain[self.plain.len().saturating_sub(WINDOW_LEN)..].to_vec();
        self.points.push(Point { plain_at, block_bit, bit, window });
    }

    /// Forgets plain bytes that nothing refers to any more.
    fn forget(&mut self) {
        let kept = self.plain.len().min(WINDOW_LEN);
        let dropped = self.plain.len() - kept;
        self.plain.drain(..dropped);
        self.plain_before += dropped as u64;
    }

    fn stream(&mut self, end: u64) -> Stream {
        Stream {
            container: self.container,
            start: self.start,
            end,
            plain_len: self.plain_before + self.plain.len() as u64,
            digest: self.digest.digest(),
            points: std::mem::take(&mut self.points),
            nested: Vec::new(),
        }
    }
}

/// Whether the bytes hold what looks like the beginning of a stream: cheap, and mostly right. One
/// that begins in other bytes is not seen.
pub fn may_hold_streams(bytes: &[u8]) -> bool {
    let kinds: [(&[u8], Container); 3] =
        [(b"PK\x03\x04", Container::Zip), (b"\x1f\x8b\x08", Container::Gzip), (b"IDAT", Container::Png)];
    // Three bytes and a few flags are found in noise, too; what encoders write behind them is not
    // (RFC 1952 §2.3.1).
    let usual = |container, header: &[u8]| match (container, header.get(8..10)) {
        (Container::Gzip, Some(&[level, system])) => matches!(level, 0 | 2 | 4) && matches!(system, 0..14 | 255),
        _ => true,
    };
    kinds.into_iter().any(|(signature, container)| {
        let mut found = memchr::memmem::find_iter(bytes, signature).map(|at| &bytes[at..]);
        found.any(|header| usual(container, header) && !matches!(read_header(container, header), Header::None))
    })
}

fn read_header(container: Container, bytes: &[u8]) -> Header {
    match container {
        Container::Zip => zip_header(bytes),
        Container::Gzip => gzip_header(bytes),
        Container::Png => png_header(bytes),
    }
}

/// A local header (APPNOTE 4.3.7): deflated, not encrypted. Lengths may come after the stream or in
/// an extra field; the stream says itself where it ends.
fn zip_header(bytes: &[u8]) -> Header {
    let Some(fixed) = bytes.first_chunk::<30>() else { return Header::Short };
    let number = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let (flags, method) = (number(6), number(8));
    let len = 30 + usize::from(number(26)) + usize::from(number(28));
    match () {
        () if method != 8 || flags & 1 != 0 => Header::None,
        () if bytes.len() < len => Header::Short,
        () => Header::Stream(len),
    }
}

/// RFC 1952 §2.3.
fn gzip_header(bytes: &[u8]) -> Header {
    let Some(fixed) = bytes.first_chunk::<10>() else { return Header::Short };
    let flags = fixed[3];
    if flags & 0xe0 != 0 {
        return Header::None;
    }
    let mut len = 10;
    if flags & 4 != 0 {
        let Some(extra) = bytes.get(len..).and_then(<[u8]>::first_chunk::<2>) else { return Header::Short };
        len += 2 + usize::from(u16::from_le_bytes(*extra));
    }
    for text in [8, 16] {
        if flags & text != 0 {
            let rest = bytes.get(len..).unwrap_or_default();
            let Some(end) = memchr::memchr(0, &rest[..rest.len().min(4096)]) else {
                return if rest.len() >= 4096 { Header::None } else { Header::Short };
            };
            len += end + 1;
        }
    }
    len += usize::from(flags & 2 != 0) * 2;
    if bytes.len() < len { Header::Short } else { Header::Stream(len) }
}

/// `IDAT` and a zlib header (RFC 1950) without a dictionary. A stream that goes on in another chunk
/// is left alone.
fn png_header(bytes: &[u8]) -> Header {
    let Some(start) = bytes.first_chunk::<6>() else { return Header::Short };
    let zlib = u16::from_be_bytes([start[4], start[5]]);
    if start[4] & 15 != 8 || start[4] >> 4 > 7 || start[5] & 32 != 0 || zlib % 31 != 0 {
        return Header::None;
    }
    Header::Stream(6)
}

//! A base as its plain view, and its parts as a reader opens them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use deflate_view::{BasePart, Index, Match, Opened, Stream, bytes_to_open, open};

/// Plain bytes that are opened and kept at once.
const CHUNK_LEN: u64 = 1 << 20;
/// Chunks that are kept.
const CHUNKS_MAX: usize = 96;

/// A run of the view.
pub(crate) struct Piece {
    /// Where it lies in the view.
    pub(crate) view: Range<usize>,
    pub(crate) from: From,
}

/// Where its bytes come from: the object's own from here on, or the plain text of a stream.
pub(crate) enum From {
    Object(u64),
    Stream(usize),
}

/// The base with its streams opened, those left alone that the target has as they are.
pub(crate) struct View {
    pub(crate) bytes: Vec<u8>,
    pub(crate) matches: Vec<Match>,
    pub(crate) pieces: Vec<Piece>,
}

impl View {
    pub(crate) fn new(object: &[u8], index: &Index, kept: &HashSet<(u64, u64)>) -> Self {
        let mut view = Self { bytes: Vec::new(), matches: Vec::new(), pieces: Vec::new() };
        let mut at = 0;
        for (number, stream) in index.streams.iter().enumerate() {
            if kept.contains(&identity(stream)) {
                continue;
            }
            view.add_object(object, at..stream.start);
            let whole = 0..stream.plain_len;
            let bytes = &object[stream.start as usize..stream.end as usize];
            let opened = open(stream, whole, bytes).expect("a stream that was found");
            let start = view.bytes.len();
            opened.append_to(0..opened.plain.len(), &mut view.bytes, &mut view.matches);
            view.pieces.push(Piece { view: start..view.bytes.len(), from: From::Stream(number) });
            at = stream.end;
        }
        view.add_object(object, at..object.len() as u64);
        view
    }

    fn add_object(&mut self, object: &[u8], range: Range<u64>) {
        if !range.is_empty() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&object[range.start as usize..range.end as usize]);
            self.pieces.push(Piece { view: start..self.bytes.len(), from: From::Object(range.start) });
        }
    }

    /// A run of the view as parts that a reader can name.
    pub(crate) fn parts(&self, run: Range<usize>, index: &Index, out: &mut Vec<BasePart>) {
        let first = self.pieces.partition_point(|piece| piece.view.end <= run.start);
        for piece in self.pieces[first..].iter().take_while(|piece| piece.view.start < run.end) {
            let start = (run.start.max(piece.view.start) - piece.view.start) as u64;
            let end = (run.end.min(piece.view.end) - piece.view.start) as u64;
            let len = (end - start) as u32;
            out.push(match piece.from {
                From::Object(at) => BasePart::Object { at: at + start, len },
                From::Stream(stream) => {
                    BasePart::Plain { stream_at: index.streams[stream].start, plain_at: start, len }
                }
            });
        }
    }
}

/// What two equal streams have in common.
pub(crate) fn identity(stream: &Stream) -> (u64, u64) {
    (stream.digest, stream.end - stream.start)
}

/// The footprint of a unit, put together.
#[derive(Default)]
pub(crate) struct Footprint {
    pub(crate) bytes: Vec<u8>,
    pub(crate) matches: Vec<Match>,
    pub(crate) opened: Vec<Range<u32>>,
}

/// Opens parts of a base, and keeps those used last.
pub(crate) struct Reader<'a> {
    object: &'a [u8],
    index: &'a Index,
    chunks: HashMap<(usize, u64), Opened>,
    order: VecDeque<(usize, u64)>,
    pub(crate) opened_bytes: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(object: &'a [u8], index: &'a Index) -> Self {
        Self { object, index, chunks: HashMap::new(), order: VecDeque::new(), opened_bytes: 0 }
    }

    pub(crate) fn footprint(&mut self, parts: &[BasePart]) -> Footprint {
        let mut footprint = Footprint::default();
        for part in parts {
            match part {
                BasePart::Object { at, len } => {
                    footprint.bytes.extend_from_slice(&self.object[*at as usize..*at as usize + *len as usize]);
                }
                BasePart::Nested { .. } => unreachable!("no view of this study has nested streams"),
                BasePart::Plain { stream_at, plain_at, len } => {
                    let stream = self.index.streams.binary_search_by_key(stream_at, |stream| stream.start);
                    let stream = stream.expect("a stream that was found");
                    let plain = *plain_at..*plain_at + u64::from(*len);
                    let start = footprint.bytes.len() as u32;
                    let mut at = plain.start;
                    while at < plain.end {
                        let number = at / CHUNK_LEN;
                        let chunk_at = number * CHUNK_LEN;
                        let end = plain.end.min(chunk_at + CHUNK_LEN);
                        let chunk = self.chunk(stream, number);
                        let range = (at - chunk_at) as usize..(end - chunk_at) as usize;
                        chunk.append_to(range, &mut footprint.bytes, &mut footprint.matches);
                        at = end;
                    }
                    footprint.opened.push(start..footprint.bytes.len() as u32);
                }
            }
        }
        footprint
    }

    fn chunk(&mut self, stream: usize, number: u64) -> &Opened {
        let key = (stream, number);
        if !self.chunks.contains_key(&key) {
            let found = &self.index.streams[stream];
            let plain = number * CHUNK_LEN..((number + 1) * CHUNK_LEN).min(found.plain_len);
            let bytes = bytes_to_open(found, &plain);
            let bytes = &self.object[bytes.start as usize..bytes.end as usize];
            self.opened_bytes += plain.end - plain.start;
            let opened = open(found, plain, bytes).expect("a stream that was found");
            if self.order.len() >= CHUNKS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.chunks.remove(&oldest);
            }
            self.chunks.insert(key, opened);
            self.order.push_back(key);
        }
        &self.chunks[&key]
    }
}

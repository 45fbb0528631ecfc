//! Scans: which deflate streams some content has, and what their text resembles; those of bases are
//! kept for the next object that differs from them.

use crate::{
    bases::text::{TextSketch, TextSketcher},
    bucket::BucketHandle,
};
use catalog::Extent;
use deflate_view::{Index, Point, ScanLimits, Scanner, Stream};
use object_format::{BlobId, ViewRange};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// Streams of an object that are opened; those behind them are raw.
const STREAMS_MAX: usize = 1 << 16;
/// Memory of an access point.
const POINT_BYTES: u64 = (32 << 10) + size_of::<Point>() as u64;
/// A base's access points take this part of the memory of scans at most …
const BASE_SHARE: u64 = 2;
/// … those of content that is only scanned so far this, …
const TARGET_SHARE: u64 = 4;
/// … and the rest is for scans that are kept.
const KEPT_QUARTERS: u64 = 3;

/// What some content is scanned for, which decides how many access points are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanFor {
    /// To say what is in it, or what its text resembles: none, since nobody keeps them.
    Report,
    /// To be encoded anew. It may become a base if it stays as it is.
    Target,
    /// To be a base: its text is opened piece by piece, within the memory that one piece may take.
    Base,
}

impl ScanFor {
    fn points_max(self, scan_bytes_max: u64) -> usize {
        let bytes = match self {
            Self::Report => 0,
            Self::Target => scan_bytes_max / TARGET_SHARE,
            Self::Base => scan_bytes_max / BASE_SHARE,
        };
        usize::try_from(bytes / POINT_BYTES).unwrap_or(usize::MAX)
    }
}

/// The streams of an object, and what it resembles.
pub(crate) struct Scanned {
    /// The streams.
    pub(crate) index: Index,
    /// Their text.
    pub(crate) text: TextSketch,
    /// Its own bytes: the same where it has no streams.
    bytes: TextSketch,
    /// There may be more access points than there was memory for.
    lacks_points: bool,
}

impl Scanned {
    /// True for content that has no streams.
    pub(crate) fn is_plain(&self) -> bool {
        self.index.streams.is_empty()
    }

    /// What the catalog's index is asked for.
    pub(super) fn asked(&self) -> Vec<u32> {
        let mut hooks = self.text.asked();
        hooks.extend(self.bytes.asked());
        hooks.sort_unstable();
        hooks.dedup();
        hooks
    }

    /// Without the streams that no base can have, because they would have to be opened in too large
    /// a piece.
    fn of_base(mut self) -> Self {
        self.index.retain_openable();
        if self.is_plain() {
            self.text = self.bytes.clone();
        }
        self
    }

    /// About how much memory it takes.
    fn memory_bytes(&self) -> u64 {
        let of_stream = |stream: &Stream| {
            let points: usize = stream.points.iter().map(|point| size_of::<Point>() + point.window.capacity()).sum();
            size_of::<Stream>() + points + stream.nested.len() * size_of::<Stream>()
        };
        let streams: usize = self.index.streams.iter().map(of_stream).sum();
        streams as u64 + self.text.memory_bytes() + self.bytes.memory_bytes()
    }
}

/// Content on its way through a scanner.
pub(crate) struct Scanning {
    scanner: Scanner,
    text: Arc<Mutex<TextSketcher>>,
    bytes: TextSketcher,
    wanted: ScanFor,
    points_max: usize,
}

impl Scanning {
    /// Of content in a bucket, with access points in a part of the memory of scans.
    pub(super) fn new(bucket: &BucketHandle, wanted: ScanFor, scan_bytes_max: u64) -> Self {
        let points_max = wanted.points_max(scan_bytes_max);
        let limits = ScanLimits { streams_max: STREAMS_MAX, points_max, ..ScanLimits::default() };
        let empty = || TextSketcher::new(bucket.similarity_secret());
        let text = Arc::new(Mutex::new(empty()));
        let sink = text.clone();
        let sink = move |plain: &[u8]| sink.lock().unwrap_or_else(PoisonError::into_inner).update(plain);
        Self { scanner: Scanner::with_sink(limits, Box::new(sink)), text, bytes: empty(), wanted, points_max }
    }

    /// The next bytes. Call it on a pool.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.scanner.feed(bytes);
        self.bytes.update(bytes);
    }

    /// What was found, after the last byte.
    pub(super) fn finish(self) -> Scanned {
        let index = self.scanner.finish();
        let points: usize = index.streams.iter().map(|stream| stream.points.len()).sum();
        let bytes = self.bytes.finish();
        // Without streams, an unpacked tree for example, its own bytes are its text.
        let text = match Arc::into_inner(self.text).filter(|_| !index.streams.is_empty()) {
            Some(text) => text.into_inner().unwrap_or_else(PoisonError::into_inner).finish(),
            None => bytes.clone(),
        };
        let scanned = Scanned { index, text, bytes, lacks_points: points >= self.points_max };
        if self.wanted == ScanFor::Base { scanned.of_base() } else { scanned }
    }
}

/// A scan beside something else.
pub(crate) type ScanningBeside = Arc<tokio::sync::Mutex<Option<Scanning>>>;

/// What some content consists of: blob, offset and length of each range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangesName(Vec<(BlobId, u64, u64)>);

impl RangesName {
    /// Of a base.
    pub(super) fn of_view(ranges: &[ViewRange]) -> Self {
        Self(ranges.iter().map(|range| (range.blob, range.offset, range.len)).collect())
    }

    /// Of an object.
    pub(crate) fn of_object(extents: &[Extent]) -> Self {
        Self(extents.iter().map(|extent| (BlobId(extent.blob.0), extent.offset, extent.len)).collect())
    }
}

/// Scans of bases, by what these consist of: immutable content, never stale.
pub(super) struct Scans {
    kept: Mutex<VecDeque<(RangesName, Arc<Scanned>)>>,
    bytes_max: u64,
}

impl Scans {
    /// In their part of the memory of scans.
    pub(super) fn new(scan_bytes_max: u64) -> Self {
        Self { kept: Mutex::default(), bytes_max: scan_bytes_max / 4 * KEPT_QUARTERS }
    }

    /// One that is kept. It is the last to go then.
    pub(super) fn get(&self, name: &RangesName) -> Option<Arc<Scanned>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|(other, _)| other == name)?;
        let found = kept.remove(place)?;
        let scanned = found.1.clone();
        kept.push_front(found);
        Some(scanned)
    }

    /// Keeps the scan of a base, and drops those that nobody asked for longest.
    pub(super) fn keep(&self, name: RangesName, scanned: &Arc<Scanned>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(other, _)| *other != name);
        kept.push_front((name, scanned.clone()));
        let mut bytes = 0;
        let fits = |(_, scanned): &(RangesName, Arc<Scanned>)| {
            bytes += scanned.memory_bytes();
            bytes <= self.bytes_max
        };
        let count = kept.iter().map(fits).take_while(|fits| *fits).count();
        // One base is in use, however large.
        kept.truncate(count.max(1));
    }

    /// Keeps the scan of content that stays as it is, and may be a base next.
    pub(super) fn keep_target(&self, name: RangesName, scanned: Scanned) {
        if !scanned.lacks_points {
            self.keep(name, &Arc::new(scanned.of_base()));
        }
    }

    /// Forgets them all.
    pub(super) fn clear(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(number: u8) -> RangesName {
        RangesName(vec![(BlobId([number; 16]), 0, 1)])
    }

    /// A scan that takes so many bytes and what it takes beside its points.
    fn scan(bytes: usize, lacks_points: bool) -> Scanned {
        let point = Point { plain_at: 1 << 20, block_bit: 0, bit: 9, window: vec![0; bytes] };
        let stream = Stream {
            container: deflate_view::Container::Gzip,
            start: 0,
            end: 1000,
            plain_len: 2 << 20,
            digest: 1,
            points: vec![point],
            nested: Vec::new(),
            gaps: None,
        };
        let index = Index { streams: vec![stream], len: 1000 };
        Scanned { index, text: TextSketch::default(), bytes: TextSketch::default(), lacks_points }
    }

    #[test]
    fn as_many_scans_are_kept_as_there_is_memory_for_and_the_last_asked_for_go_last() {
        let scans = Scans::new(4 << 20);
        for number in 0..4 {
            scans.keep_target(named(number), scan(900 << 10, false));
            assert!(scans.get(&named(0)).is_some(), "{number}");
        }
        let kept: Vec<bool> = (0..4).map(|number| scans.get(&named(number)).is_some()).collect();
        assert_eq!(kept, [true, false, true, true]);
        scans.keep(named(9), &Arc::new(scan(5 << 20, false)));
        assert!(scans.get(&named(9)).is_some(), "the one in use");
        assert!(scans.get(&named(3)).is_none());
        scans.clear();
        assert!(scans.get(&named(9)).is_none());
    }

    #[test]
    fn content_whose_points_did_not_fit_is_scanned_again_as_a_base() {
        let scans = Scans::new(4 << 20);
        scans.keep_target(named(1), scan(1000, true));
        assert!(scans.get(&named(1)).is_none());
        let (few, more) = (ScanFor::Target.points_max(4 << 20), ScanFor::Base.points_max(4 << 20));
        assert!(few > 0 && more == 2 * few || more == 2 * few + 1, "{few} {more}");
        assert_eq!(ScanFor::Report.points_max(4 << 20), 0);
    }
}

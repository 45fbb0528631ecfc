//! An object with and without what stands in the gaps of its streams.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::gaps::{Gaps, without};
use crate::stream::Stream;

/// A stream with gaps in an object.
struct GappedStream {
    start: u64,
    end: u64,
    /// Bytes of the object before it, without gaps.
    joined: u64,
    gaps: Arc<Gaps>,
}

impl GappedStream {
    fn joined_end(&self) -> u64 {
        self.joined + self.gaps.joined_before(self.end - self.start)
    }
}

/// The streams with gaps in an object, and its bytes with and without these.
#[derive(Default)]
pub(crate) struct Gapped(Vec<GappedStream>);

impl Gapped {
    /// Of streams in order.
    pub(crate) fn new<'a>(streams: impl Iterator<Item = &'a Stream>) -> Self {
        let (mut all, mut before) = (Vec::new(), 0);
        for stream in streams {
            let Some(gaps) = &stream.gaps else { continue };
            all.push(GappedStream {
                start: stream.start,
                end: stream.end,
                joined: stream.start - before,
                gaps: Arc::clone(gaps),
            });
            before += gaps.len();
        }
        Self(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the object before a place, without gaps.
    pub(crate) fn joined_before(&self, place: u64) -> u64 {
        match self.0[..self.0.partition_point(|stream| stream.start <= place)].last() {
            None => place,
            Some(stream) if place < stream.end => stream.joined + stream.gaps.joined_before(place - stream.start),
            Some(stream) => stream.joined_end() + (place - stream.end),
        }
    }

    /// Where the byte lies before which there are so many without gaps.
    pub(crate) fn place_of(&self, joined: u64) -> u64 {
        match self.0[..self.0.partition_point(|stream| stream.joined <= joined)].last() {
            None => joined,
            Some(stream) if joined < stream.joined_end() => stream.start + stream.gaps.place_of(joined - stream.joined),
            Some(stream) => stream.end + (joined - stream.joined_end()),
        }
    }

    /// The gaps, or parts of them, within a range of the object.
    fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|stream| stream.end <= range.start);
        let last = range.end;
        let streams = self.0[first..].iter().take_while(move |stream| stream.start < last);
        streams.flat_map(move |stream| {
            let within = range.start.max(stream.start)..range.end.min(stream.end);
            let within = within.start - stream.start..within.end - stream.start;
            stream.gaps.within(within).map(|gap| gap.start + stream.start..gap.end + stream.start)
        })
    }

    /// Bytes of gaps within a range.
    pub(crate) fn len_within(&self, range: Range<u64>) -> u64 {
        self.within(range).map(|gap| gap.end - gap.start).sum()
    }

    /// Bytes from a place on without the gaps.
    pub(crate) fn joined<'a>(&self, place: u64, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        without(self.within(place..place + bytes.len() as u64), place, bytes).0
    }

    /// The gaps in a unit's bytes from `place` on, counted from there, and what stands in them.
    pub(crate) fn unit(&self, place: u64, bytes: &[u8]) -> (Gaps, Vec<u8>) {
        let range = place..place + bytes.len() as u64;
        let gaps = Gaps::at(self.within(range.clone()).map(|gap| gap.start - place..gap.end - place));
        (gaps, without(self.within(range), place, bytes).1)
    }
}

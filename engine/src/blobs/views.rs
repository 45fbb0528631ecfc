//! Segments that are deflate views (docs/format/deflate-view-v1.md §12): the units that cover a
//! range are decoded over just the base bytes they name.
//!
//! ```text
//! stored bytes -> units that cover the range -> base bytes they name -> plain text opened (and kept) -> units decoded and compared
//! ```

use crate::{
    blobs::open::{BaseReader, Blobs, Manifest, damaged, pieces_of},
    error::EngineError,
    metrics::Metrics,
    resources::pool::Scratch,
};
use deflate_view::{
    Base, BasePart, Malformed, Match, Opened, Opening, Run, SegmentUnit, StoredSegment, StoredUnit, decode_parse,
};
use futures::{StreamExt, TryStreamExt, future};
use moka::sync::Cache;
use object_format::{Segment, ViewAddress, ViewRange, blob::segment_digest};
use std::{ops::Range, sync::Arc, time::Instant};

/// Ranges of a base that lie no farther apart are read as one.
const GAP_READ: u64 = 128 << 10;
/// Base ranges that are read at the same time.
const READS_AT_ONCE: usize = 8;

/// Plain text that was opened, by what it was opened from: content under names that cannot become
/// stale (E16).
#[derive(Clone)]
pub(crate) struct OpenedTexts(Cache<[u8; 16], Arc<Opened>>);

impl OpenedTexts {
    /// Texts and matches of at most so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let weigh = |opened: &Arc<Opened>| {
            opened.plain.capacity() + opened.matches.capacity() * size_of::<Match>() + size_of::<Opened>()
        };
        let cache = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(move |_, opened| u32::try_from(weigh(opened)).unwrap_or(u32::MAX))
            .build();
        Self(cache)
    }

    /// Forgets them all.
    pub(crate) fn clear(&self) {
        self.0.invalidate_all();
    }

    /// An opening's text. Call it on the codec pool.
    pub(crate) fn open(&self, opening: &Opening, window: &[u8], bytes: &[u8]) -> Result<Arc<Opened>, Malformed> {
        let mut name = Vec::with_capacity(bytes.len() + window.len() + 24);
        // All that the result depends on: another base or window is another name.
        for number in [opening.plain_at, opening.block_bit % 8, opening.step_bits, u64::from(opening.plain_len)] {
            name.extend_from_slice(&number.to_le_bytes());
        }
        name.extend_from_slice(window);
        name.extend_from_slice(bytes);
        let name = segment_digest(&name);
        if let Some(hit) = self.0.get(&name) {
            return Ok(hit);
        }
        let opened = Arc::new(opening.open(window, bytes)?);
        self.0.insert(name, opened.clone());
        Ok(opened)
    }
}

/// Bytes of a base view, by view address: the runs that were read, ascending and disjoint.
#[derive(Default)]
pub(crate) struct ViewBytes(Vec<(u64, Vec<u8>)>);

impl ViewBytes {
    /// The bytes of a range.
    ///
    /// # Errors
    /// [`Malformed`] when they were not read, because nobody said that they would be needed.
    pub(crate) fn get(&self, range: Range<u64>) -> Result<&[u8], Malformed> {
        let after = self.0.partition_point(|(at, _)| *at <= range.start);
        let run = after.checked_sub(1).map(|index| &self.0[index]);
        run.and_then(|(at, bytes)| bytes.get((range.start - at) as usize..(range.end - at) as usize))
            .ok_or(Malformed("base bytes outside of what is read"))
    }
}

/// Ranges in as few runs as there can be, ascending; gaps of up to `gap` bytes between them are
/// filled.
pub(crate) fn joined(mut ranges: Vec<Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end.saturating_add(gap);
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
    ranges
}

/// The footprint of a unit, put together.
#[derive(Default)]
pub(crate) struct UnitBase {
    pub(crate) bytes: Vec<u8>,
    pub(crate) matches: Vec<Match>,
    pub(crate) opened: Vec<Range<u32>>,
}

impl UnitBase {
    /// The bytes of `parts`; `opened` gives the text of an opening by its number in `segment`.
    pub(crate) fn of(
        parts: &[BasePart],
        segment: &StoredSegment,
        view: &ViewBytes,
        opened: impl Fn(usize) -> Result<Arc<Opened>, Malformed>,
    ) -> Result<Self, Malformed> {
        let mut base = Self::default();
        base.bytes.reserve(parts.iter().map(|part| part.len() as usize).sum());
        for part in parts {
            match *part {
                BasePart::Object { at, len } => base.bytes.extend_from_slice(view.get(at..at + u64::from(len))?),
                BasePart::Plain { plain_at, len, .. } => {
                    let start = base.bytes.len() as u32;
                    for number in segment.openings_of(part)? {
                        let plain = segment.openings[number].plain();
                        let from = plain.start.max(plain_at) - plain.start;
                        let to = plain.end.min(plain_at + u64::from(len)) - plain.start;
                        opened(number)?.append_to(from as usize..to as usize, &mut base.bytes, &mut base.matches);
                    }
                    base.opened.push(start..base.bytes.len() as u32);
                }
            }
        }
        Ok(base)
    }

    /// What the parse is predicted from.
    pub(crate) fn parse(&self) -> Base<'_> {
        Base { matches: &self.matches, opened: &self.opened }
    }
}

/// What was copied in the delta that the scratch's decoder decoded last.
pub(crate) fn copied_runs(scratch: &Scratch) -> Vec<Run> {
    let one = |run: delta_codec::CopiedRun| Run { at: run.at, len: run.len, base: run.source, is_equal: run.is_equal };
    scratch.decoder.copied_runs().map(one).collect()
}

/// A segment's stored bytes with all that decoding its units needs.
struct Decoding {
    stored: Vec<u8>,
    segment: StoredSegment,
    /// The windows of its openings, and where in them each begins.
    windows: Vec<u8>,
    windows_at: Vec<usize>,
    view: ViewBytes,
}

impl Decoding {
    /// Takes stored bytes apart. Which of its units cover `within`, and the base ranges they need.
    fn plan(stored: Vec<u8>, segment: &Segment, within: &Range<u32>) -> Result<(Self, Plan), Malformed> {
        let taken = StoredSegment::read(&stored, segment.plain_len)?;
        let (mut units, mut needed, mut at, mut start) = (Vec::new(), Vec::new(), 0, None);
        let mut needs_windows = false;
        for (number, unit) in taken.units.iter().enumerate() {
            let end = at + unit.object_len;
            if end > within.start && at < within.end {
                start.get_or_insert(at);
                units.push(number);
                for part in StoredUnit::read(&stored[unit.place.clone()])?.parts {
                    match part {
                        BasePart::Object { at, len } => needed.push(at..at + u64::from(len)),
                        BasePart::Plain { .. } => needed.extend(taken.openings_of(&part)?.map(|number| {
                            needs_windows |= taken.openings[number].plain_at > 0;
                            taken.openings[number].bytes()
                        })),
                    }
                }
            }
            at = end;
        }
        let covers = |range: &Range<u64>| {
            let holds = |run: &ViewAddress| run.offset <= range.start && range.end <= run.offset + u64::from(run.len);
            segment.footprint.iter().any(holds)
        };
        let needed = joined(needed, 0);
        if !needed.iter().all(covers) {
            return Err(Malformed("base bytes outside of the footprint"));
        }
        let mut windows = Vec::new();
        if needs_windows {
            windows = vec![0; taken.windows_len()];
            let frame = &stored[taken.windows.clone()];
            delta_codec::whole::decompress(frame, &mut windows).map_err(|error| Malformed(error.0))?;
        }
        let windows_at = taken.openings.iter().scan(0, |at, opening| {
            *at += opening.window_len();
            Some(*at - opening.window_len())
        });
        let windows_at = windows_at.collect();
        let decoding = Self { stored, segment: taken, windows, windows_at, view: ViewBytes::default() };
        Ok((decoding, Plan { units, needed, start: start.unwrap_or(0) }))
    }

    fn unit(&self, scratch: &mut Scratch, unit: &SegmentUnit, texts: &OpenedTexts) -> Result<Vec<u8>, Malformed> {
        let stored = StoredUnit::read(&self.stored[unit.place.clone()])?;
        if stored.object_len != unit.object_len as usize {
            return Err(Malformed("a unit of another length"));
        }
        let opened = |number: usize| {
            let opening = &self.segment.openings[number];
            let at = self.windows_at[number];
            let window = self.windows.get(at..at + opening.window_len()).unwrap_or_default();
            texts.open(opening, window, self.view.get(opening.bytes())?)
        };
        let base = UnitBase::of(&stored.parts, &self.segment, &self.view, opened)?;
        let mut text = vec![0; stored.text_len];
        scratch.decoder.decode(&base.bytes, stored.delta, &mut text).map_err(|error| Malformed(error.0))?;
        let runs = copied_runs(scratch);
        decode_parse(stored.parse, &text, base.parse(), &runs, stored.object_len).map(|(plain, _)| plain)
    }
}

/// What a range needs.
struct Plan {
    /// The units that cover it.
    units: Vec<usize>,
    /// Base ranges they need, by view address.
    needed: Vec<Range<u64>>,
    /// Where the first of them begins in the segment.
    start: u32,
}

impl Blobs {
    /// Bytes `within` of a segment that is a deflate view, the digests of its units checked, or
    /// that of the segment where all of it is read (I4).
    pub(crate) async fn view_range(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        within: Range<u32>,
        bases: &BaseReader<'_>,
    ) -> Result<Vec<u8>, EngineError> {
        let stored = self.stored_bytes(manifest, segment).await?;
        let (row, range) = (segment.clone(), within.clone());
        let planned = self.pool.run(move |_| Decoding::plan(stored, &row, &range)).await?;
        let (mut decoding, plan) = planned.map_err(|error| damaged(error.0))?;
        decoding.view = self.view_bytes(&manifest.root.view, plan.needed, bases).await?;
        let decoding = Arc::new(decoding);
        let units = plan.units.iter().map(|number| {
            let (decoding, number) = (decoding.clone(), *number);
            let (texts, metrics) = (self.texts.clone(), self.metrics.clone());
            async move {
                self.pool.run(move |scratch| decode_unit(scratch, &decoding, number, &texts, &metrics)).await?
            }
        });
        let units: Vec<Vec<u8>> = future::try_join_all(units).await?;
        let plain = units.concat();
        if plan.units.len() == decoding.segment.units.len() && segment_digest(&plain) != segment.digest {
            self.metrics.checksum_failures_total.with_label_values(&["segment"]).inc();
            return Err(damaged("segment digest"));
        }
        let cut = (within.start - plan.start) as usize..(within.end - plan.start) as usize;
        match plain.get(cut.clone()) {
            Some(_) if cut == (0..plain.len()) => Ok(plain),
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(damaged("segment shorter than its row says")),
        }
    }

    /// Ranges of a base view, which lie in whole blobs.
    pub(crate) async fn view_bytes(
        &self,
        view: &[ViewRange],
        ranges: Vec<Range<u64>>,
        bases: &BaseReader<'_>,
    ) -> Result<ViewBytes, EngineError> {
        let reads = joined(ranges, GAP_READ).into_iter().map(|range| async move {
            let len = u32::try_from(range.end - range.start).map_err(|_| EngineError::TooLarge)?;
            let run = ViewAddress { offset: range.start, len };
            let mut bytes = Vec::with_capacity(len as usize);
            for piece in pieces_of(view, &[run])? {
                let base = bases.manifest(self, &piece).await?;
                for (slice, within) in self.base_bytes(&base, piece.offset..piece.end()).await? {
                    bytes.extend_from_slice(&slice[within]);
                }
            }
            Ok::<_, EngineError>((range.start, bytes))
        });
        Ok(ViewBytes(futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?))
    }
}

/// One unit, its digest checked. Runs on the codec pool.
fn decode_unit(
    scratch: &mut Scratch,
    decoding: &Decoding,
    number: usize,
    texts: &OpenedTexts,
    metrics: &Metrics,
) -> Result<Vec<u8>, EngineError> {
    let started = Instant::now();
    let unit = &decoding.segment.units[number];
    let plain = decoding.unit(scratch, unit, texts).map_err(|error| damaged(error.0))?;
    if segment_digest(&plain) != unit.digest {
        metrics.checksum_failures_total.with_label_values(&["segment"]).inc();
        return Err(damaged("the digest of a unit"));
    }
    metrics.decode_seconds.with_label_values(&["view"]).observe(started.elapsed().as_secs_f64());
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_where_they_touch_or_nearly_so() {
        let ranges = || vec![40..50, 0..10, 10..20, 24..30];
        assert_eq!(joined(ranges(), 0), [0..20, 24..30, 40..50]);
        assert_eq!(joined(ranges(), 4), [0..30, 40..50]);
        let view = ViewBytes(vec![(10, vec![1, 2, 3]), (20, vec![4])]);
        assert_eq!(view.get(11..13), Ok(&[2, 3][..]));
        for outside in [9..10, 12..14, 13..14, 20..22] {
            assert!(view.get(outside).is_err());
        }
    }
}

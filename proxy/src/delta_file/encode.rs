//! Two files to a delta: region by region, the segments of one at once.

use super::{
    OnProgress,
    coder::{Coder, with_own},
    error::{Result, io_error},
    format::{DELTA, FIRST, Head, Header, Range, version_of},
    pool,
    source::Source,
    threads,
    tiles::{self, TILE_LEN, Tiles},
    views::{self, ViewEncoder},
};
use crypto::{Digest as _, Sha256};
use deflate_view::{Index, Scanner, SegmentForm};
use delta_codec::{BaseIndex, Effort, EncodeJob, FootprintLimits, WINDOW_LEN_MAX, WindowUnit, whole};
use object_format::{Coding, SEGMENT_LEN, blob::segment_digest};
use rayon::prelude::*;
use std::{
    io::{Seek, SeekFrom, Write},
    ops,
    path::Path,
    sync::Mutex,
};

/// Target bytes that share a window: the segments that are encoded at once.
const REGION_LEN: usize = 64 << 20;
/// What an encoder, the check of its deltas and zstd take at most, by effort.
const BYTES_EACH: usize = 150 << 20;
const BYTES_EACH_AT_MAX: usize = 360 << 20;
/// Window, index, region and what became of it.
const SHARED_BYTES: usize = WINDOW_LEN_MAX + (32 << 20) + 2 * REGION_LEN;
/// Where streams are opened: the text's window and its index, access points, units before they are
/// encoded.
const SHARED_BYTES_OF_VIEWS: usize = WINDOW_LEN_MAX + (32 << 20) + (64 << 20) + (48 << 20);

/// A segment as it is written.
struct Encoded {
    head: Head,
    bytes: Vec<u8>,
}

/// The part of the base that a region is encoded against.
struct Window {
    ranges: Vec<ops::Range<u64>>,
    bytes: Vec<u8>,
    index: BaseIndex,
    layout: Vec<WindowUnit>,
}

/// Writes the delta of `target` to `out`, from where that stands. Progress counts the bytes of both
/// files.
///
/// Every delta is decoded and compared before it is written. Memory stays below a gigabyte,
/// whatever the files' lengths.
///
/// # Errors
/// [`DeltaFileError`] when a file cannot be read or written, or changes meanwhile.
pub fn encode(
    base: &Path,
    target: &Path,
    effort: Effort,
    out: &mut (impl Write + Seek),
    progress: OnProgress<'_>,
) -> Result<()> {
    let base = Source::open(base, "the base")?;
    let target = Source::open(target, "the target")?;
    let (base_sha256, tiles, streams) = survey(&base, progress)?;
    let mut views = ViewEncoder::new(&base, streams, &target, effort)?;
    let start = out.stream_position().map_err(io_error(DELTA))?;
    let mut header = Header { version: FIRST, base_len: base.len(), target_len: target.len(), base_sha256 };
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(io_error(DELTA));
    write(&header.encode())?;

    let each = if effort == Effort::Max { BYTES_EACH_AT_MAX } else { BYTES_EACH };
    let shared = SHARED_BYTES + if views.is_some() { SHARED_BYTES_OF_VIEWS } else { 0 };
    let threads = threads(shared, each);
    let pool = pool(threads)?;
    let coders: Vec<Mutex<Coder>> = (0..threads).map(|_| Mutex::default()).collect();
    let mut window = Window::empty(effort);
    let mut hash = Sha256::new();
    target.for_each_piece(REGION_LEN, |offset, region| {
        let wanted = if tiles.are_needed() {
            let values: Vec<Vec<u64>> = pool.install(|| region.par_chunks(TILE_LEN).map(tiles::sketch).collect());
            tiles.window(offset, values.into_iter().flatten())
        } else {
            tiles.window(offset, std::iter::empty())
        };
        if wanted != window.ranges {
            window.move_to(wanted, &base, effort)?;
        }
        let encode = || -> Vec<Encoded> {
            let segments = region.par_chunks(SEGMENT_LEN);
            segments.map(|plain| with_own(&coders, |coder| coder.segment(plain, &window, effort))).collect()
        };
        let (mut encoded, ()) = pool.join(encode, || hash.update(region));
        if let Some(views) = &mut views {
            let mut at = offset;
            for (segment, plain) in encoded.iter_mut().zip(region.chunks(SEGMENT_LEN)) {
                if let Some(view) = views.segment(at, plain, segment.bytes.len(), (&pool, &coders))? {
                    let coding = match view.form {
                        SegmentForm::Whole => Coding::View,
                        SegmentForm::Gapped => Coding::GappedView,
                    };
                    *segment = Encoded::of(coding, plain, view.bytes, ranges(&view.footprint));
                    header.version = header.version.max(version_of(coding));
                }
                at += plain.len() as u64;
            }
        }
        for Encoded { head, bytes } in &encoded {
            write(&head.encode())?;
            write(bytes)?;
        }
        progress(region.len() as u64);
        Ok(())
    })?;
    write(&hash.finalize())?;
    if header.version != FIRST {
        let end = out.stream_position().map_err(io_error(DELTA))?;
        out.seek(SeekFrom::Start(start)).map_err(io_error(DELTA))?;
        out.write_all(&header.encode()).map_err(io_error(DELTA))?;
        out.seek(SeekFrom::Start(end)).map_err(io_error(DELTA))?;
    }
    base.check_unchanged()?;
    target.check_unchanged()
}

fn ranges(footprint: &[ops::Range<u64>]) -> Vec<Range> {
    footprint.iter().map(|run| Range { offset: run.start, len: (run.end - run.start) as u32 }).collect()
}

/// Reads the base once: its digest, its tiles when windows have to be chosen, its streams.
fn survey(base: &Source, progress: OnProgress<'_>) -> Result<([u8; 32], Tiles, Index)> {
    let mut hash = Sha256::new();
    let mut scanner: Scanner = views::scanner(true);
    let mut tiles = Tiles::new(base.len());
    base.for_each_piece(TILE_LEN, |offset, tile| {
        let needed = tiles.are_needed();
        let sketch = || needed.then(|| tiles::sketch(tile));
        let ((), ((), values)) = rayon::join(|| hash.update(tile), || rayon::join(|| scanner.feed(tile), sketch));
        tiles.add(offset, &values.unwrap_or_default());
        progress(tile.len() as u64);
        Ok(())
    })?;
    Ok((hash.finalize().into(), tiles, scanner.finish()))
}

impl Window {
    fn empty(effort: Effort) -> Self {
        Self { ranges: Vec::new(), bytes: Vec::new(), index: BaseIndex::build(&[], effort), layout: Vec::new() }
    }

    fn move_to(&mut self, ranges: Vec<ops::Range<u64>>, base: &Source, effort: Effort) -> Result<()> {
        let len: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.bytes.resize(len as usize, 0);
        let mut rest = self.bytes.as_mut_slice();
        self.layout.clear();
        for range in &ranges {
            let (own, others) = rest.split_at_mut((range.end - range.start) as usize);
            base.read_at(own, range.start)?;
            rest = others;
            self.layout.push(WindowUnit { plain_len: own.len() as u32, stored_len: own.len() as u32, divisible: true });
        }
        self.index = BaseIndex::build(&self.bytes, effort);
        self.ranges = ranges;
        Ok(())
    }

    /// A run of the window as runs of the base: more than one where it crosses from one range to
    /// the next.
    fn in_base(&self, offset: u64, len: u32, out: &mut Vec<Range>) {
        let (mut at, end) = (offset, offset + u64::from(len));
        let mut start = 0;
        for range in &self.ranges {
            let stop = start + (range.end - range.start);
            if at < stop && at < end {
                let taken = end.min(stop) - at;
                out.push(Range { offset: range.start + (at - start), len: taken as u32 });
                at += taken;
            }
            start = stop;
        }
    }
}

impl Encoded {
    fn of(coding: Coding, plain: &[u8], bytes: Vec<u8>, footprint: Vec<Range>) -> Self {
        Self { head: Head { stored_len: bytes.len() as u32, coding, digest: segment_digest(plain), footprint }, bytes }
    }
}

impl Coder {
    /// What is shortest of delta, zstd and a segment's own bytes.
    fn segment(&mut self, plain: &[u8], window: &Window, effort: Effort) -> Encoded {
        let (mut stored, mut coding, mut footprint) = (Vec::new(), Coding::Raw, Vec::new());
        if let Some((bytes, ranges)) = self.delta(plain, window, effort) {
            (stored, coding, footprint) = (bytes, Coding::Delta, ranges);
        }
        let len_max = if coding == Coding::Delta { stored.len() } else { plain.len() };
        // What a base has shrunk to a hundredth zstd alone will not beat.
        if len_max > plain.len() / 100 && !whole::looks_incompressible(plain) {
            let mut frame = Vec::new();
            if whole::compress(plain, zstd_level(effort), len_max, &mut frame).is_some() {
                (stored, coding, footprint) = (frame, Coding::Zstd, Vec::new());
            }
        }
        let bytes = if coding == Coding::Raw { plain.to_vec() } else { stored };
        Encoded::of(coding, plain, bytes, footprint)
    }

    /// A delta that gave the original back.
    fn delta(&mut self, plain: &[u8], window: &Window, effort: Effort) -> Option<(Vec<u8>, Vec<Range>)> {
        let limits = FootprintLimits::default();
        // Where two ranges of the window meet, a run of it becomes two: half of what the format
        // allows is left for that.
        let ranges_max = if window.ranges.len() > 1 { limits.ranges_max / 2 } else { limits.ranges_max };
        let job = EncodeJob {
            window: &window.bytes,
            index: &window.index,
            layout: &window.layout,
            target: plain,
            effort,
            limits: FootprintLimits { ranges_max, ..limits },
            delta_len_max: plain.len(),
        };
        let mut bytes = Vec::new();
        let encoded = self.encoder.encode(&job, &mut bytes)?;
        let mut ranges = Vec::new();
        let mut footprint = Vec::new();
        for run in &encoded.footprint {
            window.in_base(run.offset, run.len, &mut ranges);
            let start = run.offset as usize;
            footprint.push(&window.bytes[start..start + run.len as usize]);
        }
        self.decoded.resize(plain.len(), 0);
        let gives_back =
            self.decoder.decode_pieces(&footprint, &bytes, &mut self.decoded).is_ok() && self.decoded == plain;
        (ranges.len() <= limits.ranges_max && gives_back).then_some((bytes, ranges))
    }
}

/// The level of zstd that belongs to an effort of the delta codec.
fn zstd_level(effort: Effort) -> i32 {
    match effort {
        Effort::Fast | Effort::Balanced => 1,
        Effort::High => 3,
        Effort::Max => 19,
    }
}

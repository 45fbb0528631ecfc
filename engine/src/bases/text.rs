//! What the text of an object resembles (docs/format/sketch-v1.md §8): the plain bytes of its
//! deflate streams, or all of its bytes where it has none.

use crate::bases::similar::{REGION_LEN, RegionSketch};
use catalog::{BlobHooks, BlobRow, REGIONS_MAX, Resembling};
use delta_codec::sketch::{Sketch, Sketcher};
use object_format::SEGMENT_LEN;

/// What a text resembles, by regions as those of a blob.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextSketch {
    regions: Vec<RegionSketch>,
    /// All of it.
    all: Sketch,
}

impl TextSketch {
    /// How much of it is in another, as the sketches estimate it.
    pub(crate) fn share_in(&self, base: &Self) -> Option<f64> {
        let (head, base_head) = (self.head(), base.head());
        let in_head = head.zip(base_head).and_then(|(head, base)| head.share_in(base));
        let in_all = head.and_then(|head| head.share_in(&base.all));
        [self.all.share_in(&base.all), in_all, in_head].into_iter().flatten().reduce(f64::max)
    }

    /// What the catalog's index is asked for: more than it keeps of a region.
    pub(crate) fn asked(&self) -> Vec<u32> {
        let mut hooks = self.all.hooks();
        hooks.extend(self.head().map(Sketch::hooks).unwrap_or_default());
        hooks.sort_unstable();
        hooks.dedup();
        hooks
    }

    /// What the index keeps of it: as regions that follow those of the blob's own bytes.
    pub(crate) fn hooks_of(&self, blob: &BlobRow) -> BlobHooks {
        let first = u32::try_from(byte_regions(blob)).unwrap_or(u32::MAX);
        let regions = self.regions.iter().take(REGIONS_MAX).map(RegionSketch::hooks).collect();
        BlobHooks { blob: blob.id, first, regions }
    }

    /// About how much memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let of_region =
            |region: &RegionSketch| region.head.memory_bytes() + region.all.as_ref().map_or(0, Sketch::memory_bytes);
        (self.all.memory_bytes() + self.regions.iter().map(of_region).sum::<usize>()) as u64
    }

    fn head(&self) -> Option<&Sketch> {
        self.regions.first().map(|region| &region.head)
    }
}

/// True when a blob was found by its text, not by its own bytes.
pub(crate) fn is_in_text(found: &Resembling) -> bool {
    u64::from(found.region) >= byte_regions(&found.blob)
}

/// Regions that a blob's own bytes have.
fn byte_regions(blob: &BlobRow) -> u64 {
    blob.plain_len.div_ceil(REGION_LEN)
}

/// Sketches a text that comes in pieces.
pub(crate) struct TextSketcher {
    key: Option<[u8; 16]>,
    region: Sketcher,
    head: Option<Sketch>,
    /// Bytes of the region so far.
    len: u64,
    regions: Vec<RegionSketch>,
}

impl TextSketcher {
    /// One that has seen nothing; `key` is the bucket's similarity secret.
    pub(crate) fn new(key: Option<[u8; 16]>) -> Self {
        Self { key, region: Sketcher::new(key), head: None, len: 0, regions: Vec::new() }
    }

    pub(crate) fn update(&mut self, mut plain: &[u8]) {
        while !plain.is_empty() {
            let until = if self.len < SEGMENT_LEN as u64 { SEGMENT_LEN as u64 } else { REGION_LEN };
            let (first, rest) = plain.split_at(plain.len().min((until - self.len) as usize));
            self.region.update(first);
            self.len += first.len() as u64;
            if self.len == SEGMENT_LEN as u64 {
                self.head = Some(self.region.clone().finish());
            }
            if self.len == REGION_LEN {
                self.end_region();
            }
            plain = rest;
        }
    }

    pub(crate) fn finish(mut self) -> TextSketch {
        self.end_region();
        let wholes = self.regions.iter().map(|region| region.all.as_ref().unwrap_or(&region.head));
        TextSketch { all: Sketch::joined(wholes), regions: self.regions }
    }

    fn end_region(&mut self) {
        if self.len == 0 {
            return;
        }
        let all = std::mem::replace(&mut self.region, Sketcher::new(self.key)).finish();
        self.regions.push(match self.head.take() {
            Some(head) if self.len > SEGMENT_LEN as u64 => RegionSketch { head, all: Some(all) },
            _ => RegionSketch { head: all, all: None },
        });
        self.len = 0;
    }
}

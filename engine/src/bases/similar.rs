//! What a body resembles, found while it arrives: sketches of its regions
//! (docs/format/sketch-v1.md).
//!
//! A region is 64 MiB of a blob. Its *head*, the first segment, is sketched as soon as it is there:
//! bases are chosen by it while the rest still arrives. The whole region is sketched as well while
//! nothing similar was found, so that what is stored whole can be found by any part of it.

use crate::{error::EngineError, resources::pool::CodecPool};
use bytes::Bytes;
use catalog::REGION_HOOKS_MAX;
use delta_codec::{
    sketch::{RANKING_MAX, Sketch, Sketcher},
    whole,
};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use object_format::SEGMENT_LEN;
use std::sync::Arc;

/// Bytes of a blob that are sketched as one. Part of the format (docs/format/sketch-v1.md §6).
pub(crate) const REGION_LEN: u64 = 64 << 20;
/// Content up to this many bytes has no hooks and no stored sketch.
pub(crate) const UNSKETCHED_LEN_MAX: u64 = 64 << 10;
/// A stored sketch has a value for every so many bytes of content, within the bounds below: it must
/// not cost much beside the content.
const BYTES_PER_VALUE: u64 = 16 << 10;
const STORED_VALUES_MIN: u64 = 16;

/// The sketches of one region of a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionSketch {
    /// Its first segment.
    pub(crate) head: Sketch,
    /// All of it; `None` when it is not longer than its head, or was not read as a whole.
    pub(crate) all: Option<Sketch>,
}

/// The beginning of a region, as the choice of a base sees it.
#[derive(Debug)]
pub(crate) struct Head {
    /// Its sketch.
    pub(crate) sketch: Sketch,
    /// True when it looks random: nothing but equal content can help it.
    pub(crate) looks_random: bool,
    sketcher: Sketcher,
}

/// A head that is being sketched; `None` when that failed.
pub(crate) type HeadFuture = Shared<BoxFuture<'static, Option<Arc<Head>>>>;

impl RegionSketch {
    /// What stands in the catalog's index: the smallest values of head and whole region by turns.
    pub(crate) fn hooks(&self) -> Vec<u32> {
        let mut hooks = Vec::with_capacity(REGION_HOOKS_MAX);
        let all = self.all.as_ref().map_or(&[][..], Sketch::ranking);
        for index in 0..RANKING_MAX {
            for value in [self.head.ranking().get(index), all.get(index)].into_iter().flatten() {
                // A hook is the lower half of a value (sketch-v1 §5).
                let hook = (value & u64::from(u32::MAX)) as u32;
                if hooks.len() < REGION_HOOKS_MAX && !hooks.contains(&hook) {
                    hooks.push(hook);
                }
            }
        }
        hooks
    }

    /// How much of a target's head is in this region.
    pub(crate) fn share_of(&self, target: &Sketch) -> Option<f64> {
        let shares = [target.share_in(&self.head), self.all.as_ref().and_then(|all| target.share_in(all))];
        shares.into_iter().flatten().reduce(f64::max)
    }

    /// True when the region's sketches hold a value.
    pub(crate) fn has(&self, value: u64) -> bool {
        let holds = |sketch: &Sketch| sketch.ranking().binary_search(&value).is_ok();
        holds(&self.head) || self.all.as_ref().is_some_and(holds)
    }
}

/// The sketches of a blob of `plain_len` bytes as its manifest keeps them.
pub(crate) fn encode(regions: &[RegionSketch], plain_len: u64) -> Vec<u8> {
    let per_region = plain_len.min(REGION_LEN) / BYTES_PER_VALUE;
    let values = usize::try_from(per_region.clamp(STORED_VALUES_MIN, RANKING_MAX as u64)).unwrap_or(RANKING_MAX);
    let mut bytes = Vec::new();
    for region in regions {
        let head = region.head.shortened(values).to_bytes();
        let all = region.all.as_ref().map(|all| all.shortened(values).to_bytes()).unwrap_or_default();
        // At most 128 values of 8 bytes: their count fits a byte.
        bytes.extend([(head.len() / 8) as u8, (all.len() / 8) as u8]);
        bytes.extend(head);
        bytes.extend(all);
    }
    bytes
}

/// The inverse of [`encode`].
///
/// # Errors
/// [`EngineError::Integrity`] when the bytes are no such sketches.
pub(crate) fn decode(mut bytes: &[u8]) -> Result<Vec<RegionSketch>, EngineError> {
    let damaged = || EngineError::Integrity("a stored sketch is not one".into());
    let mut regions = Vec::new();
    while let [head, all, rest @ ..] = bytes {
        let (head, rest) = rest.split_at_checked(usize::from(*head) * 8).ok_or_else(damaged)?;
        let (all, rest) = rest.split_at_checked(usize::from(*all) * 8).ok_or_else(damaged)?;
        let sketch = |bytes: &[u8]| Sketch::from_bytes(bytes).map_err(|_| damaged());
        let all = if all.is_empty() { None } else { Some(sketch(all)?) };
        regions.push(RegionSketch { head: sketch(head)?, all });
        bytes = rest;
    }
    if bytes.is_empty() { Ok(regions) } else { Err(damaged()) }
}

/// Sketches segments in order, one at a time, beside the hashing.
pub(crate) struct SketchLane {
    pool: Arc<CodecPool>,
    key: Option<[u8; 16]>,
    offset: u64,
    head: Option<HeadFuture>,
    following: Option<BoxFuture<'static, Result<Sketcher, EngineError>>>,
    regions: Vec<RegionSketch>,
}

impl SketchLane {
    /// A lane that has seen nothing; `key` is the bucket's similarity secret.
    pub(crate) fn new(pool: Arc<CodecPool>, key: Option<[u8; 16]>) -> Self {
        Self { pool, key, offset: 0, head: None, following: None, regions: Vec::new() }
    }

    /// Takes the next segment. Gives the head of a region when it begins with this segment; the
    /// other segments are looked at only when `all`.
    pub(crate) async fn push(&mut self, plain: &Bytes, all: bool) -> Result<Option<HeadFuture>, EngineError> {
        let begins = self.offset.is_multiple_of(REGION_LEN);
        self.offset += plain.len() as u64;
        if begins {
            self.end_region().await?;
            let (pool, plain, mut sketcher) = (self.pool.clone(), plain.clone(), Sketcher::new(self.key));
            let job = tokio::spawn(async move {
                pool.run(move |_| {
                    sketcher.update(&plain);
                    let looks_random = whole::looks_incompressible(&plain);
                    Arc::new(Head { sketch: sketcher.clone().finish(), looks_random, sketcher })
                })
                .await
                .ok()
            });
            let head = async move { job.await.ok().flatten() }.boxed().shared();
            self.head = Some(head.clone());
            return Ok(Some(head));
        }
        let before = match (self.following.take(), &self.head) {
            (Some(following), _) => Some(following.await?),
            (None, Some(head)) if all && self.starts_second_segment(plain) => {
                head.clone().await.map(|head| head.sketcher.clone())
            }
            _ => None,
        };
        if let Some(mut sketcher) = before.filter(|_| all) {
            let (pool, plain) = (self.pool.clone(), plain.clone());
            let job = tokio::spawn(async move {
                pool.run(move |_| {
                    sketcher.update(&plain);
                    sketcher
                })
                .await
            });
            let joined = async move { job.await.unwrap_or_else(|error| Err(EngineError::Other(error.to_string()))) };
            self.following = Some(joined.boxed());
        }
        Ok(None)
    }

    /// The sketches of all regions.
    pub(crate) async fn finish(mut self) -> Result<Vec<RegionSketch>, EngineError> {
        self.end_region().await?;
        Ok(self.regions)
    }

    fn starts_second_segment(&self, plain: &[u8]) -> bool {
        (self.offset - plain.len() as u64) % REGION_LEN == SEGMENT_LEN as u64
    }

    async fn end_region(&mut self) -> Result<(), EngineError> {
        let all = match self.following.take() {
            Some(following) => Some(following.await?.finish()),
            None => None,
        };
        if let Some(head) = self.head.take() {
            let head = head.await.map(|head| head.sketch.clone()).unwrap_or_default();
            self.regions.push(RegionSketch { head, all });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sketch(seed: u64, len: usize) -> Sketch {
        let mut state = seed | 1;
        let mut sketcher = Sketcher::new(None);
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .take(len)
        .collect();
        sketcher.update(&bytes);
        sketcher.finish()
    }

    #[test]
    fn stored_sketches_come_back_shortened_to_what_the_content_is_worth() {
        let regions =
            vec![RegionSketch { head: sketch(1, 900_000), all: Some(sketch(2, 900_000)) }, RegionSketch::default()];
        let full = decode(&encode(&regions, 5 << 20)).expect("sketches");
        assert_eq!(full, regions);
        let short = decode(&encode(&regions[..1], 320 << 10)).expect("sketches");
        assert_eq!(short[0].head, regions[0].head.shortened(20));
        assert!(encode(&regions[..1], 100_000).len() <= 2 * (2 + 16 * 8));
    }

    #[test]
    fn half_of_a_regions_hooks_are_its_heads_and_half_the_whole_regions() {
        let region = RegionSketch { head: sketch(1, 900_000), all: Some(sketch(2, 900_000)) };
        let hooks = region.hooks();
        assert_eq!(hooks.len(), REGION_HOOKS_MAX);
        let of = |sketch: &Sketch| sketch.hooks().iter().filter(|hook| hooks.contains(hook)).count();
        assert_eq!((of(&region.head), of(region.all.as_ref().expect("both"))), (12, 12));
        let head_only = RegionSketch { head: region.head.clone(), all: None };
        assert_eq!(head_only.hooks().len(), REGION_HOOKS_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_sketches_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn stored_sketches_that_are_cut_are_an_error(len in 1usize..200) {
            let bytes = encode(&[RegionSketch { head: sketch(3, 400_000), all: None }], 4 << 20);
            prop_assert!(decode(&bytes[..bytes.len() - len]).is_err());
        }
    }
}

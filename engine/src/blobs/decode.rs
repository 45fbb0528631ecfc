//! Segments as plain bytes: decoded on the codec pool, checked, and kept where their bytes serve
//! several readers.

use super::{
    base_reader::{BaseReader, view_pieces},
    open::{Blobs, Manifest, damaged},
};
use crate::{error::EngineError, resources::buffers::lent};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, future};
use object_format::{Coding, SEGMENT_LEN, Segment, blob::segment_digest};
use std::{future::Future, ops::Range, sync::Arc};

impl Blobs {
    /// The plain bytes of a whole segment, digest checked (I4). Not cached.
    pub(crate) async fn plain_segment(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        bases: &BaseReader<'_>,
    ) -> Result<Vec<u8>, EngineError> {
        tracing::trace!(target: "path", "plain_segment()");
        if segment.coding.is_view() {
            return self.view_range(manifest, segment, 0..segment.plain_len, bases).await;
        }
        let (shelf, len) = (self.pool.shelf().clone(), segment.plain_len as usize);
        self.decode_into(manifest, segment, bases, move || shelf.take(len)).await
    }

    /// The same of a segment that is no view, decoded into `room`, which is as long as it is.
    pub(crate) async fn decode_into<R: AsMut<[u8]> + Send + 'static>(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        bases: &BaseReader<'_>,
        room: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, EngineError> {
        tracing::trace!(target: "path", "decode_into()");
        let stored = self.stored_bytes(manifest, segment);
        let footprint = async {
            match segment.coding {
                Coding::Delta => self.footprint(manifest, segment, bases).await,
                Coding::Raw | Coding::Zstd | Coding::Planes | Coding::View | Coding::GappedView => Ok(Vec::new()),
            }
        };
        let (stored, footprint) = future::try_join(stored, footprint).await?;
        let (segment, id) = (segment.clone(), manifest.id);
        let metrics = self.metrics.clone();
        let footprint_len = footprint.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        self.pool
            .run_on(u64::from(segment.plain_len) + footprint_len, move |scratch| {
                let started = tokio::time::Instant::now();
                let codec = segment.coding.name();
                let mut room = room();
                let plain = room.as_mut();
                match segment.coding {
                    Coding::Raw if stored.len() == plain.len() => plain.copy_from_slice(&stored),
                    Coding::Raw | Coding::View | Coding::GappedView => {
                        return Err(damaged("raw segment of another length"));
                    }
                    Coding::Zstd => delta_codec::whole::decompress(&stored, plain)
                        .map_err(|error| EngineError::Integrity(error.to_string()))?,
                    Coding::Planes => delta_codec::planes::decompress(&stored, plain)
                        .map_err(|error| EngineError::Integrity(error.to_string()))?,
                    Coding::Delta => {
                        let base: Vec<&[u8]> = footprint.iter().map(AsRef::as_ref).collect();
                        scratch
                            .decoder
                            .decode_pieces(&base, &stored, plain)
                            .map_err(|error| EngineError::Integrity(error.to_string()))?;
                    }
                }
                if segment_digest(plain) != segment.digest {
                    metrics.checksum_failures_total.with_label_values(&["segment"]).inc();
                    return Err(damaged("segment digest"));
                }
                metrics.decode_seconds.with_label_values(&[codec]).observe(started.elapsed().as_secs_f64());
                Ok(room)
            })
            .await?
            .map_err(|error: EngineError| error.of_blob(id))
    }

    /// The same through the cache of decoded segments: for whole blobs, whose bytes serve many
    /// readers.
    pub(crate) async fn decoded_segment(&self, manifest: &Manifest, index: u64) -> Result<Bytes, EngineError> {
        if let Some(hit) = self.kept_segment("base", manifest, index).await {
            self.metrics.base_fetch_bytes_total.with_label_values(&["cache"]).inc_by(hit.len() as u64);
            return Ok(hit);
        }
        let decode = async {
            let segment = self.segment(manifest, index).await?;
            if segment.coding.has_base() {
                return Err(damaged("a delta where whole content is needed"));
            }
            self.metrics.base_fetch_bytes_total.with_label_values(&["backend"]).inc_by(segment.stored_len.into());
            self.plain_segment(manifest, &segment, &BaseReader::NONE).await
        };
        Box::pin(self.keep_segment(manifest, index, decode)).await
    }

    /// A segment as the last reader had it who left it in the cache of decoded segments.
    pub(super) async fn kept_segment(&self, kind: &str, manifest: &Manifest, index: u64) -> Option<Bytes> {
        let kept = self.caches.decoded.get(&(manifest.id, index)).await;
        self.count(kind, kept.is_some());
        kept
    }

    /// Decodes a segment and leaves it in that cache. Those who ask for it meanwhile wait for the
    /// same work.
    pub(super) async fn keep_segment(
        &self,
        manifest: &Manifest,
        index: u64,
        decode: impl Future<Output = Result<Vec<u8>, EngineError>>,
    ) -> Result<Bytes, EngineError> {
        let decoded = Box::pin(async {
            let mut plain = decode.await?;
            // The cache counts what is kept by its length.
            plain.shrink_to_fit();
            Ok(lent(plain, None, self.pool.shelf()))
        });
        let kept = Box::pin(self.caches.decoded.try_get_with((manifest.id, index), decoded));
        kept.await.map_err(|error: Arc<EngineError>| EngineError::shared(&error))
    }

    /// The pieces of base bytes that a delta segment needs, in order.
    async fn footprint(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        bases: &BaseReader<'_>,
    ) -> Result<Vec<Bytes>, EngineError> {
        let pieces = view_pieces(&manifest.root, segment)?;
        let reads = pieces.into_iter().map(|piece| async move {
            let base = bases.manifest(self, &piece).await?;
            self.base_bytes(&base, piece.offset..piece.offset + piece.len).await
        });
        let parts: Vec<Vec<_>> = futures::stream::iter(reads).buffered(8).try_collect().await?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Plain bytes of a whole blob as slices of decoded segments; from a raw segment that is not
    /// cached only what is needed is read.
    pub(crate) async fn base_bytes(&self, base: &Manifest, range: Range<u64>) -> Result<Vec<Bytes>, EngineError> {
        let mut slices = Vec::new();
        for (index, within) in segments_covering(range) {
            let cached = self.caches.decoded.get(&(base.id, index)).await;
            if cached.is_none() {
                let segment = self.segment(base, index).await?;
                if segment.coding == Coding::Raw && (within.end - within.start) * 2 <= segment.plain_len {
                    self.count("base", false);
                    let bytes = self.raw_range(base, &segment, within).await?;
                    self.metrics.base_fetch_bytes_total.with_label_values(&["backend"]).inc_by(bytes.len() as u64);
                    slices.push(bytes);
                    continue;
                }
            }
            let plain = self.decoded_segment(base, index).await?;
            let within = within.start as usize..within.end as usize;
            if within.end > plain.len() {
                return Err(damaged("view outside its base"));
            }
            slices.push(plain.slice(within));
        }
        Ok(slices)
    }
}

/// The segments of a blob that cover a range of its plain bytes, with the bytes of each that are
/// meant.
pub(crate) fn segments_covering(range: Range<u64>) -> impl Iterator<Item = (u64, Range<u32>)> {
    let len = SEGMENT_LEN as u64;
    (range.start / len..range.end.div_ceil(len)).map(move |index| {
        let start = index * len;
        let within = range.start.max(start) - start..range.end.min(start + len) - start;
        // Both ends are at most SEGMENT_LEN, which fits.
        (index, within.start as u32..within.end as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn covering_segments_are_contiguous_and_exact_up_to_five_tebibytes(start in 0u64..5 << 40, len in 1u64..64 << 20) {
            let mut next = start;
            for (index, within) in segments_covering(start..start + len) {
                prop_assert_eq!(index * SEGMENT_LEN as u64 + u64::from(within.start), next);
                prop_assert!(within.start < within.end && within.end as usize <= SEGMENT_LEN);
                next = index * SEGMENT_LEN as u64 + u64::from(within.end);
            }
            prop_assert_eq!(next, start + len);
        }
    }
}

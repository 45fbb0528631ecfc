//! Verifying one blob: everything a reader would check and what readers take on trust. Its own
//! caches, so that what is verified is what lies in the backend now.

use super::pace::ScrubPace;
use crate::{
    blobs::{
        base_reader::BaseReader,
        open::{Blobs, Manifest},
    },
    bucket::BucketHandle,
    error::EngineError,
    read::object::pieces::VIEW_WORK_BYTES,
    resources::{budget::MemoryBudget, pool::CodecPool},
};
use catalog::{BlobForm, BlobKey, BlobRow, Catalog};
use crypto::{Digest, Sha256};
use object_format::{BlobId, CHUNK_LEN, Coding, SEGMENT_LEN, Segment};
use serde::{Deserialize, Serialize};

/// What is wrong with a blob. Kept in the catalog as JSON (docs/reference/catalog.md,
/// `Quarantine`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The first of it, in words.
    pub what: String,
    /// Plain bytes that cannot be read, first and end, ascending. Empty when only what readers do
    /// not need is damaged.
    pub ranges: Vec<(u64, u64)>,
}

impl Damage {
    fn whole(row: &BlobRow, what: impl Into<String>) -> Self {
        Self { what: what.into(), ranges: vec![(0, row.plain_len)] }
    }

    /// Whether some of the plain bytes from `offset` on are damaged.
    pub(super) fn touches(&self, offset: u64, len: u64) -> bool {
        self.ranges.iter().any(|(first, end)| *first < offset + len && offset < *end)
    }

    /// The same as it is told beside the blob, which need not be named again.
    fn beside(mut self, row: &BlobRow) -> Self {
        self.what = self.what.replace(&format!(" (blob {})", BlobId(row.id.0)), "");
        self
    }

    fn is_empty(&self) -> bool {
        self.what.is_empty()
    }

    fn note(&mut self, what: impl Into<String>) {
        if self.what.is_empty() {
            self.what = what.into();
        }
    }

    fn add(&mut self, what: impl Into<String>, first: u64, end: u64) {
        self.note(what);
        match self.ranges.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => self.ranges.push((first, end)),
        }
    }
}

/// The blobs of one scrub. Which of a blob's stored bytes are verified is what `blobs` reads; the
/// bases of deltas are read as `blobs` reads them too.
pub(crate) struct Verifier<'e> {
    pub(crate) catalog: &'e dyn Catalog,
    pub(crate) budget: &'e std::sync::Arc<MemoryBudget>,
    pub(crate) hash_pool: &'e CodecPool,
    pub(crate) blobs: &'e Blobs,
    pub(crate) pace: &'e ScrubPace,
}

impl Verifier<'_> {
    /// What is wrong with a blob, if anything: its presence and length, header, trailer, tables,
    /// every chunk and segment (deltas decoded against their bases), the digests of its content,
    /// its bases against the catalog's edges, and what the catalog says of it.
    ///
    /// # Errors
    /// What keeps it from being known: catalog or backend cannot be asked now. Never damage (I10).
    pub(crate) async fn verify(&self, bucket: &BucketHandle, row: &BlobRow) -> Result<Option<Damage>, EngineError> {
        Ok(self.damage_of(bucket, row).await?.map(|damage| damage.beside(row)))
    }

    async fn damage_of(&self, bucket: &BucketHandle, row: &BlobRow) -> Result<Option<Damage>, EngineError> {
        let mut damage = Damage::default();
        if row.inline.is_none()
            && let Some(name) = self.blobs.only_name(row)?
        {
            match self.blobs.backend(&row.backend)?.head(&name).await.map_err(EngineError::from) {
                Ok(None) => return Ok(Some(Damage::whole(row, "it is missing"))),
                // Something lies there that is no blob.
                Err(EngineError::Integrity(why)) => return Ok(Some(Damage::whole(row, why))),
                Err(error) => return Err(error),
                Ok(Some(len)) if len == row.stored_len => {}
                Ok(Some(len)) => damage.note(format!("it has {len} bytes instead of {}", row.stored_len)),
            }
        }
        let manifest = match self.blobs.manifest(row, bucket.key_of(row)?.as_deref()).await {
            Ok(manifest) => manifest,
            Err(EngineError::Integrity(why)) => return Ok(Some(Damage::whole(row, why))),
            Err(error) => return Err(error),
        };
        if let Some(why) = integrity(self.blobs.check_trailer(&manifest, row).await)? {
            damage.note(why);
        }
        self.verify_edges(&manifest, row, &mut damage).await?;
        self.verify_content(&manifest, bucket, row, &mut damage).await?;
        Ok((!damage.is_empty()).then_some(damage))
    }

    async fn verify_edges(&self, manifest: &Manifest, row: &BlobRow, damage: &mut Damage) -> Result<(), EngineError> {
        let mut named: Vec<BlobKey> = manifest.root.view.iter().map(|range| BlobKey(range.blob.0)).collect();
        named.sort_unstable();
        named.dedup();
        if manifest.root.is_whole() != (row.form == BlobForm::Whole) {
            damage.note("the catalog takes it for what it is not: whole, or a delta");
        }
        if self.catalog.bases_of(row.id).await? != named {
            damage.note("its bases are not those the catalog keeps for it");
        }
        Ok(())
    }

    async fn verify_content(
        &self,
        manifest: &Manifest,
        bucket: &BucketHandle,
        row: &BlobRow,
        damage: &mut Damage,
    ) -> Result<(), EngineError> {
        let rows = self.base_rows(manifest).await?;
        let key = bucket.key_of(row)?;
        let bases = BaseReader::new(&rows, key.as_deref());
        let (mut sha256, mut digests) = (Sha256::new(), Vec::new());
        for index in 0..manifest.root.segments {
            let start = index * SEGMENT_LEN as u64;
            let segment = match self.blobs.segment(manifest, index).await {
                Ok(segment) => segment,
                Err(EngineError::Integrity(why)) => {
                    damage.add(why, start, row.plain_len.min(start + SEGMENT_LEN as u64));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let footprint: u64 = segment.footprint.iter().map(|run| u64::from(run.len)).sum();
            let work = if segment.coding.is_view() { VIEW_WORK_BYTES } else { 0 };
            let cost = u64::from(segment.plain_len) + u64::from(segment.stored_len) + footprint + work;
            let _permit = self.budget.acquire(cost).await?;
            match self.blobs.plain_segment(manifest, &segment, &bases).await {
                Ok(plain) => {
                    digests.push(segment.digest);
                    sha256 = self.hash_pool.run(move |_| sha256.chain_update(plain)).await?;
                }
                Err(EngineError::Integrity(why)) => {
                    self.find_damage(manifest, &segment, start, why, damage).await?;
                }
                Err(error) => return Err(error),
            }
            self.pace.spend(u64::from(segment.stored_len)).await;
        }
        if !damage.is_empty() {
            return Ok(());
        }
        if !manifest.has_base_tag_of(&digests) {
            damage.note("its base tag is not that of its content");
        }
        let sha256: [u8; 32] = sha256.finalize().into();
        if manifest.root.facts.sha256.is_some_and(|expected| expected != sha256) {
            damage.note("its content has another digest than its manifest says");
        }
        if let Some(expected) = row.digest
            && expected != bucket.digest_of_blob(row, &sha256)?
        {
            damage.note("its content has another digest than the catalog says");
        }
        Ok(())
    }

    /// Which bytes of a segment cannot be read. From a raw one readers take single chunks; of
    /// others they need everything.
    async fn find_damage(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        start: u64,
        why: String,
        damage: &mut Damage,
    ) -> Result<(), EngineError> {
        let end = start + u64::from(segment.plain_len);
        if segment.coding != Coding::Raw {
            damage.add(why, start, end);
            return Ok(());
        }
        let mut found = false;
        let mut from = 0;
        while from < segment.plain_len {
            // Chunks are cut in the payload, where the segment may begin inside one.
            let within_chunk = (segment.stored_offset + u64::from(from)) % CHUNK_LEN as u64;
            let left_in_chunk = u32::try_from(CHUNK_LEN as u64 - within_chunk).unwrap_or(u32::MAX);
            let to = segment.plain_len.min(from.saturating_add(left_in_chunk));
            if let Some(why) = integrity(self.blobs.raw_range(manifest, segment, from..to).await.map(drop))? {
                damage.add(why, start + u64::from(from), start + u64::from(to));
                found = true;
            }
            from = to;
        }
        if !found {
            damage.add(why, start, end);
        }
        Ok(())
    }

    async fn base_rows(&self, manifest: &Manifest) -> Result<Vec<BlobRow>, EngineError> {
        let mut ids: Vec<BlobKey> = manifest.root.view.iter().map(|range| BlobKey(range.blob.0)).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(self.catalog.blobs(&ids).await?)
    }
}

/// What is wrong, when that is what an attempt says; other failures are passed on.
fn integrity(outcome: Result<(), EngineError>) -> Result<Option<String>, EngineError> {
    match outcome {
        Ok(()) => Ok(None),
        Err(EngineError::Integrity(why)) => Ok(Some(why)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_keeps_its_first_reason_and_joins_ranges_that_touch() {
        let mut damage = Damage::default();
        assert!(damage.is_empty());
        damage.add("first", 10, 20);
        damage.add("second", 20, 30);
        damage.add("third", 40, 50);
        assert_eq!((damage.what.as_str(), damage.ranges.as_slice()), ("first", [(10, 30), (40, 50)].as_slice()));
        for (offset, len, touched) in [(0, 10, false), (0, 11, true), (29, 1, true), (30, 10, false), (45, 1, true)] {
            assert_eq!(damage.touches(offset, len), touched, "{offset} + {len}");
        }
    }
}

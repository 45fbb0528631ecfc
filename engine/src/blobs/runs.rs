//! What a delta segment copies, for people: the runs its decoder met.

use super::{
    base_reader::{BaseReader, view_pieces},
    open::{Blobs, Manifest},
};
use crate::error::EngineError;
use delta_codec::{CopiedRun, DeltaSummary};
use object_format::Segment;

impl Blobs {
    /// The runs of a delta segment that come from base bytes, by their place in the segment, and
    /// what its streams take. Decodes the segment; the caller holds a permit for its memory.
    ///
    /// # Errors
    /// [`EngineError`] when a base or the segment cannot be read, or is damaged.
    pub(crate) async fn delta_runs(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        bases: &BaseReader<'_>,
    ) -> Result<(Vec<CopiedRun>, DeltaSummary), EngineError> {
        let mut footprint = Vec::new();
        for piece in view_pieces(&manifest.root, segment)? {
            let base = bases.manifest(self, &piece).await?;
            footprint.extend(self.base_bytes(&base, piece.offset..piece.end()).await?);
        }
        let stored = self.stored_bytes(manifest, segment).await?;
        let plain_len = segment.plain_len as usize;
        self.pool
            .run(move |scratch| {
                let mut plain = vec![0; plain_len];
                let base: Vec<&[u8]> = footprint.iter().map(AsRef::as_ref).collect();
                let decoded = scratch.decoder.decode_pieces(&base, &stored, &mut plain);
                let composed = decoded.and_then(|()| delta_codec::summarize(&stored, plain_len));
                let composed = composed.map_err(|error| EngineError::Integrity(error.to_string()))?;
                Ok((scratch.decoder.copied_runs().collect(), composed))
            })
            .await?
    }
}

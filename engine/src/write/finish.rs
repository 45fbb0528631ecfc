//! A staged body becomes a blob: its manifest is written, and the blob is durable.

use crate::{
    bases::{
        account::CHOICES,
        choose::Choice,
        plan::{self, Reason},
        series::Between,
        similar::{self, RegionSketch, UNSKETCHED_LEN_MAX},
    },
    blobs::{
        open::{Blobs, blob_name},
        pins::Pin,
        upload::held,
    },
    bucket::{BucketHandle, digest_of},
    error::{EngineError, StoreError},
    facts::{Form, StorageFacts, VersionFacts, from_json, to_json},
    read::object::ReadPath,
    resources::{clock::now_ms, ids::version_id},
    write::{
        stage::{BodyDigest, Destination, Stager, content::UnfinishedBlob},
        view,
        views::BaseView,
    },
};
use catalog::{
    BlobForm, BlobHooks, BlobKey, BlobRow, BlobState, Catalog, Content, Extent, NewBlob, Version, VersionLock,
};
use object_format::{BlobId, ObjectFacts};
use std::{collections::BTreeSet, sync::Arc};

/// Regions whose choice is kept: enough to see what happened.
const CHOICES_KEPT: usize = 4;

/// Content whose blobs are in their places, with no row that names it yet.
pub(crate) struct FinishedContent {
    pub(crate) extents: Vec<Extent>,
    pub(crate) new_blobs: Vec<NewBlob>,
    pub(crate) storage: StorageFacts,
    pub(super) reason: Reason,
    /// What new whole content resembles.
    pub(crate) hooks: Option<BlobHooks>,
    /// The bases that it comes after, where it is the next one of their series.
    pub(super) ends: Vec<Between>,
    /// Keeps the bases against collection: to be dropped when the catalog has the edges to them, or
    /// nobody reads the blob any more.
    pub(crate) held: HeldBases,
}

/// Holds what a blob differs from until dropped.
#[derive(Clone, Default)]
pub(crate) struct HeldBases {
    _choices: Vec<Arc<Choice>>,
    _view: Option<Arc<BaseView>>,
    _pins: Vec<Arc<Vec<Pin>>>,
}

impl FinishedContent {
    /// Existing content under another name.
    pub(super) fn copy_of(extents: Vec<Extent>) -> Self {
        let form = if extents.is_empty() { Form::Raw } else { Form::Dedup };
        let reason = if extents.is_empty() { Reason::Empty } else { Reason::Duplicate };
        Self {
            extents,
            new_blobs: Vec::new(),
            storage: StorageFacts { form, stored_bytes: 0, bases: Vec::new(), reason: reason.as_str().into() },
            reason,
            hooks: None,
            ends: Vec::new(),
            held: HeldBases::default(),
        }
    }
}

/// The series that whole content is the next one of.
fn ended_by(after: BlobKey, choices: &[Arc<Choice>]) -> Vec<Between> {
    let drifted_from = choices.iter().flat_map(|choice| choice.drifted_from.iter().copied());
    drifted_from.map(|before| Between { before, after, done: None }).collect()
}

/// Finishes blobs, and removes those that came to nothing.
pub(crate) struct Finisher {
    pub(crate) stager: Arc<Stager>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
}

impl Finisher {
    /// Writes the manifest, waits until the blob is durable, and gives its row. What it differs
    /// from is held by [`FinishedContent::held`] from here on.
    pub(crate) async fn finish_blob(
        &self,
        bucket: &BucketHandle,
        mut content: Box<UnfinishedBlob>,
        object: &ObjectFacts,
        digest: Option<[u8; 32]>,
    ) -> Result<FinishedContent, EngineError> {
        tracing::trace!(target: "path", "finish_blob()");
        let (view, base_view) = match content.view.take() {
            Some((view, base)) => (view, Some(base)),
            None => {
                let built = view::build(&content.footprints);
                let (view, footprints) = built.ok_or_else(|| EngineError::Other("a view of too many ranges".into()))?;
                for (segment, footprint) in content.segments.iter_mut().zip(footprints) {
                    segment.footprint = footprint;
                }
                (view, None)
            }
        };
        let mut tail = std::mem::take(&mut content.tail);
        let sketched = view.is_empty() && content.plain_len > UNSKETCHED_LEN_MAX;
        let sketches = if sketched { std::mem::take(&mut content.sketches) } else { Vec::new() };
        let object = &ObjectFacts {
            facts: with_choices(&object.facts, &content)?,
            sketch: similar::encode(&sketches, content.plain_len),
            ..object.clone()
        };
        let base_keys = if view.is_empty() { Vec::new() } else { content.base_keys() };
        let finished = content.writer.finish(&content.segments, &view, object, &mut tail)?;
        let inline = match content.outlet.take() {
            Some(mut outlet) => {
                outlet.send(held(tail, content.tail_permit.take())).await?;
                outlet.end_at(finished.stored_len).await?;
                None
            }
            None => Some(tail),
        };
        let bases = Vec::from_iter(view.iter().map(|range| BlobKey(range.blob.0)).collect::<BTreeSet<_>>());
        let row = BlobRow {
            id: BlobKey(content.id.0),
            bucket: bucket.row.id,
            key_epoch: bucket.key_epoch(),
            backend: bucket.settings.backend.clone(),
            form: if bases.is_empty() { BlobForm::Whole } else { BlobForm::Delta },
            state: BlobState::Live,
            plain_len: content.plain_len,
            stored_len: finished.stored_len,
            root_offset: finished.root.offset,
            root_len: finished.root.len,
            root_tag: finished.root.tag,
            digest,
            forms: content.forms,
            inline,
            original: None,
            pack: false,
            compartment: bucket.compartment(),
            copy: None,
        };
        let (form, reason) =
            plan::form_of(&content.forms, bucket.settings.compression, content.base_outcome, content.plain_len);
        let regions: Vec<Vec<u32>> = sketches.iter().map(RegionSketch::hooks).collect();
        let hooks =
            regions.iter().any(|hooks| !hooks.is_empty()).then_some(BlobHooks { blob: row.id, first: 0, regions });
        Ok(FinishedContent {
            ends: if bases.is_empty() { ended_by(row.id, &content.choices) } else { Vec::new() },
            extents: vec![Extent { blob: row.id, offset: 0, len: row.plain_len }],
            storage: StorageFacts {
                form,
                stored_bytes: row.stored_len,
                bases: base_keys,
                reason: reason.as_str().into(),
            },
            new_blobs: vec![NewBlob { row, bases, deferred: content.deferred, heat_bytes: 0 }],
            reason,
            hooks,
            held: HeldBases { _choices: content.choices, _view: base_view, _pins: content.pins },
        })
    }

    /// A base vanished between the choice and the commit (E3): the content is read back through its
    /// own delta, whose bases the caller still holds, and stored whole.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] when a base is gone all the same: pins hold nothing against
    /// another process's collector, and an upload can take longer than its grace. The client sends
    /// it again, and nothing that was stored is damaged.
    pub(super) async fn restage_whole(
        &self,
        bucket: &BucketHandle,
        destination: &Destination,
        delta: Vec<NewBlob>,
        object: &ObjectFacts,
        digest: Option<[u8; 32]>,
    ) -> Result<FinishedContent, EngineError> {
        let Some(blob) = delta.into_iter().next() else { return Err(EngineError::Conflict) };
        let extents = vec![Extent { blob: blob.row.id, offset: 0, len: blob.row.plain_len }];
        let version = Version {
            bucket: bucket.row.id,
            key: destination.key().to_owned(),
            id: version_id()?,
            seq: 0,
            modified_ms: now_ms(),
            size: blob.row.plain_len,
            extents_digest: digest_of(&extents),
            facts: Vec::new(),
            named: false,
            marker: false,
            lock: VersionLock::default(),
        };
        let size = version.size;
        let (old, bases) = (blob.row.clone(), blob.bases);
        let content = Content { version, extents, blobs: vec![blob.row] };
        let source = self.read.open_content(bucket, content, VersionFacts::default())?;
        let body = self.read.read(&source, 0..size);
        let staged = match self.stager.stage_whole(bucket, destination, body, NoDigest).await {
            Ok(staged) => staged,
            Err(StoreError::Body(error) | StoreError::Engine(error)) => {
                self.forget_blob(&old).await;
                let known = self.catalog.blobs(&bases).await?.len();
                return Err(if error.is_damage() && known < bases.len() {
                    EngineError::Unavailable("a base was deleted and collected during the upload".into())
                } else {
                    error
                });
            }
        };
        let stored = self.finish_blob(bucket, staged.content, object, digest).await?;
        self.forget_blob(&old).await;
        Ok(stored)
    }

    /// Removes the bytes of a blob that never got a row. What cannot be removed now is garbage by
    /// its epoch.
    pub(crate) async fn forget_blob(&self, row: &BlobRow) {
        if row.inline.is_some() {
            return;
        }
        let deletion = async {
            Ok::<_, EngineError>(self.blobs.backend(&row.backend)?.delete(&blob_name(BlobId(row.id.0))?).await?)
        };
        if let Err(error) = deletion.await {
            tracing::warn!(%error, blob = %BlobId(row.id.0), "an unreferenced blob stays until the next start's collection");
        }
    }
}

/// An object's facts with how its bases were chosen: what the manifest keeps and the catalog need
/// not.
fn with_choices(facts: &[u8], content: &UnfinishedBlob) -> Result<Vec<u8>, EngineError> {
    let choices: Vec<_> =
        content.accounts().filter(|account| !account.candidates.is_empty()).take(CHOICES_KEPT).collect();
    if choices.is_empty() {
        return Ok(facts.to_vec());
    }
    let mut facts: serde_json::Value = from_json(facts)?;
    facts[CHOICES] = serde_json::to_value(choices).map_err(|error| EngineError::Other(error.to_string()))?;
    to_json(&facts)
}

/// A manifest's facts without how its own bases were chosen: what another blob of the same content
/// begins with.
pub(crate) fn without_choices(facts: Vec<u8>) -> Result<Vec<u8>, EngineError> {
    let mut value: serde_json::Value = from_json(&facts)?;
    match value.as_object_mut().map(|members| members.remove(CHOICES)) {
        Some(Some(_)) => to_json(&value),
        _ => Ok(facts),
    }
}

/// For content whose digests are known already.
struct NoDigest;

impl BodyDigest for NoDigest {
    type Output = ();

    fn update(&mut self, _: &[u8]) {}

    fn finish(self) -> ((), Option<[u8; 32]>) {
        ((), None)
    }
}

//! Rewriting: what one blob holds is encoded anew as another blob, and every version that uses it
//! is moved over by compare-and-swap (E20).
//!
//! ```text
//! read, verified -> stage -> blob durable -> read back, verified -> rewrite of each version -> the old blob dies by its tombstone
//! ```
//!
//! The unit is the blob, not the version: an extent keeps its place and length and names another
//! blob, so that parts, copies and copies of ranges need no thought. What a client can see of a
//! version (ETag, checksums, Last-Modified, part sizes) is not touched. Whatever happens between
//! two of the steps, each version has one of the two blobs; one that nobody came to reference is
//! garbage of its epoch.

use crate::{
    bases::{
        base::{Avoided, BaseObject, Bases},
        hook_queue::HookQueue,
        plan::{self, BaseOutcome, DELTA_LEN_MIN},
    },
    blobs::open::Blobs,
    bucket::{BucketHandle, RowPlace, digest_of},
    config::Compression,
    deployment::writer::Writer,
    error::{EngineError, StoreError},
    facts::{Form, StorageFacts, VersionFacts, to_json},
    read::object::ReadPath,
    resources::{clock::now_ms, pace::Pace, pool::CodecPool},
    write::{
        effort::Trying,
        finish::without_choices,
        publish::Publisher,
        stage::{
            ContentDigest, StagedBody, Stager,
            encoding::{Manner, Search, Target},
        },
        views::BaseViews,
    },
};
use catalog::{
    BlobForm, BlobKey, BlobRow, Catalog, CatalogError, Content, Extent, FormBytes, NewBlob, Referrer, RewriteCommit,
    Version,
};
use deflate_view::UnitCheck;
use delta_codec::Effort;
use futures::{StreamExt, TryStreamExt};
use object_format::{BlobId, ObjectFacts};
use std::{collections::HashMap, sync::Arc};

mod occasion;
mod opened;
mod opening;
mod resealed;
mod verify;
mod views;

pub(crate) use occasion::Occasion;
pub(crate) use opened::OpenedLately;
use opened::{OpenedText, given_up};

/// Versions that are moved over between two looks at who references the old blob.
const REFERRERS_AT_ONCE: usize = 256;
/// Looks after which a blob that is copied faster than its copies are moved is left for the next
/// time.
const LOOKS_MAX: usize = 64;

/// What content is to differ from.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// Nothing: whole.
    Whole,
    /// What it differs from now, or what that has become in the bucket's domain; whole content
    /// stays whole.
    Kept,
    /// Whatever is best.
    Best,
    /// These whole blobs, whose key is named for explanations.
    These(String, Vec<BlobRow>),
    /// Each of these whole blobs, side by side, whose key is named for explanations.
    Each(String, Vec<BlobRow>),
}

/// What is to become of some content.
#[derive(Clone)]
pub(crate) struct Reform {
    /// Why.
    pub(crate) occasion: Occasion,
    /// What it is to differ from.
    pub(crate) wish: Wish,
    /// How hard the codec tries.
    pub(crate) effort: Effort,
    /// How fast content may be read for it.
    pub(crate) pace: Arc<Pace>,
    /// Whether it may take more bytes than before; otherwise it has to save a thirty-second.
    pub(crate) regardless: bool,
    /// What must not become its base.
    pub(crate) avoid: Avoided,
}

/// How a rewrite ended.
#[derive(Debug)]
pub(crate) enum Reformed {
    /// Versions use this blob now.
    Moved(Box<BlobRow>),
    /// Left as it was: it would have gained nothing.
    Kept,
    /// Left as it was: there was no memory for its base.
    NoMemory,
    /// No version uses the blob (any more), or every one that did changed meanwhile.
    Unused,
}

/// How moving the versions over ended.
enum Arrival {
    Moved,
    Unused,
    /// A base of the new blob died before its first version could be moved (E3).
    BaseGone,
}

/// A version that uses a blob, and where in it the blob's content begins.
struct User {
    version: Version,
    start: u64,
}

/// How one compare-and-swap ended.
pub(crate) enum Swap {
    /// The version has the new extents.
    Done,
    /// The version is gone, or has another content.
    Changed,
    /// A base of what came along died before (E3).
    BaseGone,
}

/// Encodes blobs anew.
pub(crate) struct Reencoder {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) bases: Arc<Bases>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) stager: Arc<Stager>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) views: Arc<BaseViews>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) hooks: Arc<HookQueue>,
    pub(crate) hash_pool: Arc<CodecPool>,
    pub(crate) opened: OpenedLately,
}

impl Reencoder {
    /// Encodes what a blob holds anew in its bucket's present domain, in the compartment that it
    /// has, and moves every version over to it. Parts of open uploads keep the old blob.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when the content is not what it was stored as, and whatever
    /// catalog and backend can do. Every version can be read as before then; those that were moved
    /// stay moved.
    pub(crate) async fn reencode(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        reform: &Reform,
    ) -> Result<Reformed, EngineError> {
        let (bucket, mut text) = (&bucket.within(old.compartment), OpenedText::default());
        let reformed = self.reencode_opening(bucket, old, reform, &mut text).await?;
        match &reformed {
            Reformed::Moved(new) => self.remember_text(new, text).await,
            Reformed::Kept => self.remember_text(old, text).await,
            Reformed::NoMemory | Reformed::Unused => {}
        }
        Ok(reformed)
    }

    /// The same, and what the text of the streams resembles that were opened for it.
    async fn reencode_opening(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        reform: &Reform,
        text: &mut OpenedText,
    ) -> Result<Reformed, EngineError> {
        if old.inline.is_some() && reform.occasion != Occasion::Reencrypt {
            return Ok(Reformed::Kept);
        }
        if self.serves_as_base(old, reform).await? {
            given_up(self.open_text(bucket, old, reform, text).await)?;
            return Ok(Reformed::Kept);
        }
        let Some(user) = self.user_of(old).await? else { return Ok(Reformed::Unused) };
        if old.pack && !matches!(reform.wish, Wish::Whole) {
            return self.write_pack_again(bucket, old, reform).await;
        }
        if let Some(twin) = self.twin(bucket, old, reform).await? {
            let arrived = self.move_over(bucket, old, twin.clone(), None).await?;
            return Ok(match arrived {
                Arrival::Moved => Reformed::Moved(Box::new(twin)),
                Arrival::Unused | Arrival::BaseGone => Reformed::Unused,
            });
        }
        if let Some(joined) = given_up(self.join_in_view(bucket, old, &user, reform, text).await)? {
            return Ok(joined);
        }
        let mut reform = reform.clone();
        let mut check = UnitCheck::ReadBack;
        let mut in_view = given_up(self.restage_in_view(bucket, old, &user, (&reform, check), text).await)?;
        loop {
            let is_unchecked = in_view.is_some() && check == UnitCheck::ReadBack;
            let staged = match in_view.take() {
                Some(staged) => staged,
                None => {
                    let staged = self.restage(bucket, old, &user, &reform, text).await?;
                    if !reform.regardless && staged.content.base_outcome == BaseOutcome::Busy {
                        return Ok(Reformed::NoMemory);
                    }
                    if !reform.gains(old, &staged.content.forms) {
                        return Ok(Reformed::Kept);
                    }
                    staged
                }
            };
            match self.store(bucket, old, &user, staged, reform.occasion).await {
                Ok((Arrival::Moved, new, hooks)) => {
                    // The old blob's hooks go with it.
                    hooks.into_iter().for_each(|hooks| self.hooks.tell(hooks));
                    return Ok(Reformed::Moved(Box::new(new)));
                }
                Ok((Arrival::Unused, ..)) => return Ok(Reformed::Unused),
                Ok((Arrival::BaseGone, ..)) => reform.wish = Wish::Whole,
                Err(EngineError::Integrity(why)) if is_unchecked => {
                    // I6: it took the place of nothing; a person should look.
                    self.blobs.metrics.checksum_failures_total.with_label_values(&["encoder"]).inc();
                    tracing::error!(why, blob = %BlobId(old.id.0), "a view did not give its content back: each unit is checked");
                    check = UnitCheck::AtOnce { keeps_answers: true };
                    in_view = given_up(self.restage_in_view(bucket, old, &user, (&reform, check), text).await)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// True for content that deltas need and that a better encoding of its own would only double.
    async fn serves_as_base(&self, old: &BlobRow, reform: &Reform) -> Result<bool, EngineError> {
        let may_be = match reform.occasion {
            Occasion::Deferred | Occasion::Cooled => true,
            Occasion::Asked => !reform.regardless,
            Occasion::Hot | Occasion::Rebase | Occasion::Between | Occasion::Merge => false,
            Occasion::Move | Occasion::Reencrypt => false,
        };
        Ok(may_be && old.form == BlobForm::Whole && self.catalog.fan_in(old.id).await? > 0)
    }

    /// What the new blob says of itself: what the old one said, or for content that was no blob of
    /// ours what its version says.
    async fn object_facts(
        &self,
        bucket: &BucketHandle,
        old: &BlobRow,
        user: &User,
        sha256: [u8; 32],
    ) -> Result<ObjectFacts, EngineError> {
        if old.original.is_none() {
            let mut object = self.blobs.manifest(old, bucket.key_of(old)?.as_deref()).await?.root.facts.clone();
            // A pack's are the table of its members.
            if !old.pack {
                object.facts = without_choices(object.facts)?;
            }
            return Ok(object);
        }
        Ok(ObjectFacts {
            bucket: bucket.row.name.clone(),
            key: user.version.key.clone(),
            version_id: Some(user.version.id.0),
            part: None,
            sha256: Some(sha256),
            facts: to_json(&self.read.open_facts(bucket, &user.version)?)?,
            sketch: Vec::new(),
        })
    }

    /// A version that uses the blob, and where in it the blob's content begins.
    async fn user_of(&self, old: &BlobRow) -> Result<Option<User>, EngineError> {
        for Referrer { key, id } in self.catalog.referrers(old.id, 2).await? {
            let Some(content) = self.catalog.version(old.bucket, &key, id).await? else { continue };
            let mut start = 0;
            for extent in &content.extents {
                if extent.blob == old.id {
                    let start = start.max(extent.offset) - extent.offset;
                    return Ok(Some(User { version: content.version, start }));
                }
                start += extent.len;
            }
        }
        Ok(None)
    }

    /// The same content in the bucket's domain under another blob: a copy that was encoded anew
    /// before this one.
    async fn twin(
        &self,
        bucket: &BucketHandle,
        old: &BlobRow,
        reform: &Reform,
    ) -> Result<Option<BlobRow>, EngineError> {
        if !matches!(reform.occasion, Occasion::Deferred | Occasion::Move | Occasion::Reencrypt) {
            return Ok(None);
        }
        Ok(self.twin_by_digest(bucket, old).await?.filter(|twin| twin.id != old.id))
    }

    async fn twin_by_digest(&self, bucket: &BucketHandle, old: &BlobRow) -> Result<Option<BlobRow>, EngineError> {
        let Some(mut digest) = old.digest else { return Ok(None) };
        if old.key_epoch != bucket.key_epoch() {
            // The digest of the same bytes is another one under another key.
            let manifest = self.blobs.manifest(old, bucket.key_of(old)?.as_deref()).await?;
            let Some(sha256) = manifest.root.facts.sha256 else { return Ok(None) };
            digest = bucket.content_digest(&sha256);
        }
        Ok(self.catalog.duplicate(&bucket.domain(), digest, old.plain_len).await?)
    }

    /// Reads a blob's content through the ordinary verified path and encodes it as the reform wants
    /// it.
    async fn restage(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        user: &User,
        reform: &Reform,
        text: &mut OpenedText,
    ) -> Result<StagedBody<()>, EngineError> {
        let key = &user.version.key;
        let search = self.wished_base(bucket, old, key, reform).await?;
        let source = self.read.open_stored(bucket, old)?;
        let scanning = self.scanning_beside(bucket, old, text);
        let body = self.read.read(&source, 0..old.plain_len).and_then(|bytes| {
            let (pace, scanning, beside) = (reform.pace.clone(), scanning.clone(), self.views.clone());
            async move {
                pace.take(bytes.len() as u64).await;
                beside.feed_beside(&scanning, &bytes).await?;
                Ok(bytes)
            }
        });
        // One segment at a time beside the one that is being read: clients come first.
        let len = Some(old.plain_len);
        let target = Target {
            key: key.clone(),
            start: user.start,
            part: None,
            len,
            reach: plan::reach_of(len),
            proven: Arc::default(),
        };
        let trying = Trying::Fixed { effort: reform.effort, later: false };
        let manner = Manner { target, search, trying, jobs: 1, watch_streams: false };
        let staged = self.stager.stage_with(bucket, manner, body.boxed(), ContentDigest::default());
        let staged = staged.await.map_err(|error| match error {
            StoreError::Body(error) | StoreError::Engine(error) => error,
        })?;
        self.check_restaged(bucket, old, &staged)?;
        if let Some(scanning) = scanning.lock().await.take() {
            text.note(&self.views.end(scanning).await?);
        }
        Ok(staged)
    }

    /// That what was read of a blob is what it was stored as.
    fn check_restaged(&self, bucket: &BucketHandle, old: &BlobRow, staged: &StagedBody<()>) -> Result<(), EngineError> {
        let other = match old.digest {
            Some(expected) => bucket.digest_of_blob(old, &staged.hashed()?)? != expected,
            None => false,
        };
        if other || staged.plain_len != old.plain_len {
            return Err(EngineError::Integrity("a blob's content is not what it was stored as".into()));
        }
        Ok(())
    }

    async fn wished_base(
        &self,
        bucket: &BucketHandle,
        old: &BlobRow,
        key: &str,
        reform: &Reform,
    ) -> Result<Search, EngineError> {
        if bucket.settings.compression != Compression::Delta || old.plain_len < DELTA_LEN_MIN {
            return Ok(Search::Ended(BaseOutcome::NotWanted));
        }
        let best = Search::Wanted { avoid: reform.avoided(old) };
        let none = Search::Ended(BaseOutcome::None);
        let given = |base: Option<BaseObject>| base.map(|base| Search::Settled(vec![Arc::new(base)]));
        Ok(match &reform.wish {
            Wish::Whole => none,
            Wish::Kept if old.form == BlobForm::Whole => none,
            Wish::Kept => {
                given(self.bases.base_of(bucket, key, self.present_bases(bucket, old).await?)).unwrap_or(best)
            }
            Wish::These(name, rows) => given(self.bases.base_of(bucket, name, rows.clone())).unwrap_or(none),
            Wish::Each(name, rows) => {
                let each = rows.iter().map(|row| self.bases.base_of(bucket, name, vec![row.clone()]));
                match each.collect::<Option<Vec<_>>>() {
                    Some(bases) => Search::Settled(bases.into_iter().map(Arc::new).collect()),
                    None => none,
                }
            }
            Wish::Best => best,
        })
    }

    /// What a delta's bases are in the bucket's present domain: themselves, or the same content
    /// that was moved before.
    async fn present_bases(&self, bucket: &BucketHandle, delta: &BlobRow) -> Result<Vec<BlobRow>, EngineError> {
        let mut present = Vec::new();
        for row in self.catalog.blobs(&self.catalog.bases_of(delta.id).await?).await? {
            if row.backend == bucket.settings.backend
                && (row.key_epoch, row.compartment) == (bucket.key_epoch(), bucket.compartment())
            {
                present.push(row);
            } else if let Some(twin) = self.twin_by_digest(bucket, &row).await? {
                present.push(twin);
            }
        }
        Ok(present)
    }

    /// Moves every version that uses `old` over to `new`. `brought`: `new` is not in the catalog
    /// yet and comes with the first of them; what versions say of their storage may stay.
    async fn move_over(
        &self,
        bucket: &BucketHandle,
        old: &BlobRow,
        new: BlobRow,
        mut brought: Option<(NewBlob, Option<StorageFacts>)>,
    ) -> Result<Arrival, EngineError> {
        let storage = brought.as_ref().and_then(|(_, storage)| storage.clone());
        let mut moved = 0u64;
        for _ in 0..LOOKS_MAX {
            let referrers = self.catalog.referrers(old.id, REFERRERS_AT_ONCE).await?;
            if referrers.is_empty() {
                break;
            }
            for referrer in referrers {
                let comes_along = brought.as_ref().map(|(blob, _)| blob.clone());
                match self.swap(bucket, &referrer, (old, &new), storage.as_ref(), comes_along).await? {
                    Swap::Done => {
                        brought = None;
                        moved += 1;
                    }
                    Swap::Changed => {}
                    Swap::BaseGone => {
                        if brought.is_some() {
                            self.publisher.finisher.forget_blob(&new).await;
                        }
                        // A blob that had arrived died again with its versions: nothing is left to
                        // be moved to it.
                        return Ok(if moved == 0 { Arrival::BaseGone } else { Arrival::Moved });
                    }
                }
            }
        }
        if brought.is_some() {
            self.publisher.finisher.forget_blob(&new).await;
        }
        Ok(if moved == 0 { Arrival::Unused } else { Arrival::Moved })
    }

    /// One compare-and-swap: in this version `new` takes the place of `old`.
    async fn swap(
        &self,
        bucket: &BucketHandle,
        referrer: &Referrer,
        (old, new): (&BlobRow, &BlobRow),
        storage: Option<&StorageFacts>,
        comes_along: Option<NewBlob>,
    ) -> Result<Swap, EngineError> {
        let (id, key) = (referrer.id, &referrer.key);
        let Some(content) = self.catalog.version(bucket.row.id, key, id).await? else { return Ok(Swap::Changed) };
        if content.extents.iter().all(|extent| extent.blob != old.id) {
            return Ok(Swap::Changed);
        }
        let replaced = |extent: &Extent| match extent.blob == old.id {
            true => Extent { blob: new.id, ..*extent },
            false => *extent,
        };
        let new_extents: Vec<Extent> = content.extents.iter().map(replaced).collect();
        let mut facts = self.read.open_facts(bucket, &content.version)?;
        if let Some(storage) = storage {
            facts.storage = storage_after(&facts.storage, &content, (old, new), storage);
        }
        self.rewrite(bucket, content, new_extents, comes_along.into_iter().collect(), &facts).await
    }

    /// Gives a version other extents of the same content. An unknown outcome is read back before it
    /// is believed (I9).
    pub(crate) async fn rewrite(
        &self,
        bucket: &BucketHandle,
        content: Content,
        new_extents: Vec<Extent>,
        new_blobs: Vec<NewBlob>,
        facts: &VersionFacts,
    ) -> Result<Swap, EngineError> {
        let extents_digest = digest_of(&new_extents);
        let (key, id, old_facts) = (content.version.key, content.version.id, content.version.facts);
        let place = RowPlace { key: &key, id: id.0, part: None, extents_digest };
        let commit = RewriteCommit {
            old_facts: Some(old_facts),
            bucket: bucket.row.id,
            facts: bucket.seal_facts(place, to_json(facts)?)?,
            key: key.clone(),
            id,
            old_extents: content.extents,
            new_extents,
            extents_digest,
            epoch: self.writer.epoch_of(&new_blobs),
            new_blobs,
            notices: Vec::new(),
            now_ms: now_ms(),
        };
        match self.catalog.rewrite(commit).await {
            Ok(()) => Ok(Swap::Done),
            Err(CatalogError::Conflict) => Ok(Swap::Changed),
            Err(CatalogError::BaseGone) => Ok(Swap::BaseGone),
            Err(CatalogError::Unknown(why)) => match self.catalog.version(bucket.row.id, &key, id).await? {
                Some(now) if now.version.extents_digest == extents_digest => Ok(Swap::Done),
                // Not so now does not mean that it never will be: the new blob stays, and the old
                // one is looked at again later.
                _ => Err(CatalogError::Unknown(why).into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

impl Reform {
    /// What must not become the base of content that is now this blob.
    fn avoided(&self, old: &BlobRow) -> Avoided {
        Arc::new(self.avoid.iter().copied().chain([old.id]).collect())
    }

    /// Whether content is worth having in another encoding.
    fn gains(&self, old: &BlobRow, new: &FormBytes) -> bool {
        let (old, new) = (payload_len(&old.forms), payload_len(new));
        self.regardless || new + new / 32 < old
    }
}

/// Stored bytes of content without headers and tables.
pub(crate) fn payload_len(forms: &FormBytes) -> u64 {
    forms.raw_plain + forms.zstd_stored + forms.delta_stored
}

/// How a version is stored once `new` has taken the place of `old`: the new blob's own facts when
/// there is nothing else in it, else sums and the majority by bytes. A version that names content
/// of others goes on doing so.
fn storage_after(
    before: &StorageFacts,
    content: &Content,
    (old, new): (&BlobRow, &BlobRow),
    storage: &StorageFacts,
) -> StorageFacts {
    if before.form == Form::Dedup || content.extents.iter().all(|extent| extent.blob == old.id) {
        return if before.form == Form::Dedup { before.clone() } else { storage.clone() };
    }
    let rows: HashMap<BlobKey, &BlobRow> =
        content.blobs.iter().map(|row| (row.id, if row.id == old.id { new } else { row })).collect();
    let form = plan::majority(&rows.values().map(|row| row.forms).sum());
    let mut bases = storage.bases.clone();
    if rows.values().any(|row| row.id != new.id && row.form == BlobForm::Delta) {
        bases.extend(before.bases.iter().filter(|base| !storage.bases.contains(base)).cloned());
    }
    let reason = if form == storage.form { &storage.reason } else { &before.reason };
    StorageFacts {
        form,
        stored_bytes: (before.stored_bytes + new.stored_len).saturating_sub(old.stored_len),
        bases,
        reason: reason.clone(),
    }
}

#[cfg(test)]
mod tests;

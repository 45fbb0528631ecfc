//! Content with deflate streams, encoded anew over a base whose streams are opened.

use super::{
    Reencoder, Reform, Reformed, Swap, User, Wish,
    opened::{OpenedText, may_be_opened},
    payload_len,
};
use crate::{
    bases::{base::VIEW_LEN_MAX, plan},
    bucket::BucketHandle,
    config::Compression,
    error::EngineError,
    facts::{StorageFacts, VersionFacts, to_json},
    write::{
        finish::FinishedContent,
        scans::{ScanFor, Scanned},
        stage::{StagedBody, views::ViewManner},
        views::BaseView,
    },
};
use catalog::{BlobForm, BlobRow, BlobState, Content, Extent};
use deflate_view::UnitCheck;
use object_format::{ObjectFacts, SEGMENT_LEN};
use std::sync::Arc;

impl Reform {
    /// How content is encoded in a view for it.
    fn in_view(&self, check: UnitCheck) -> ViewManner<'_> {
        ViewManner { effort: self.effort, pace: &self.pace, check }
    }
}

impl Reencoder {
    /// A blob's content as deflate views, where that gains enough; `None` where it is to be encoded
    /// without. The caller reads back what becomes of it.
    pub(super) async fn restage_in_view(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        user: &User,
        (reform, check): (&Reform, UnitCheck),
        text: &mut OpenedText,
    ) -> Result<Option<StagedBody<()>>, EngineError> {
        let keeps_whole = matches!(reform.wish, Wish::Kept) && old.form == BlobForm::Whole;
        if !may_be_opened(bucket, old) || keeps_whole || matches!(reform.wish, Wish::Whole) {
            return Ok(None);
        }
        let source = self.read.open_stored(bucket, old)?;
        let target = self.views.scan(bucket, &source, ScanFor::Target, &reform.pace).await?;
        text.note(&target);
        if target.is_plain() && !self.may_lie_in_text(bucket, old, reform).await? {
            return Ok(None);
        }
        let Some(base) = self.wished_view(bucket, old, user, &target, reform).await? else {
            self.views.keep_scan(&source, target);
            return Ok(None);
        };
        let staged = self
            .stager
            .stage_in_view(&self.views, bucket, &source, (&target, Arc::new(base)), reform.in_view(check))
            .await?;
        let Some(staged) = staged else { return Ok(None) };
        self.check_restaged(bucket, old, &staged)?;
        if target.is_plain() {
            // What a delta over bytes does as well is read with less work.
            let other = self.restage(bucket, old, user, reform, text).await?;
            if !plan::text_is_better(payload_len(&other.content.forms), payload_len(&staged.content.forms)) {
                return Ok(Some(other).filter(|other| reform.gains(old, &other.content.forms)));
            }
        }
        let before = if reform.regardless { u64::MAX } else { payload_len(&old.forms) };
        let gains = plan::view_gains(before, old.plain_len, payload_len(&staged.content.forms));
        Ok(gains.then_some(staged))
    }

    /// An object of several parts as one blob of deflate views, because its streams go on from part
    /// to part; `None` where that is not worth it. Only its first part asks for it.
    pub(super) async fn join_in_view(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        first: &BlobRow,
        user: &User,
        reform: &Reform,
        text: &mut OpenedText,
    ) -> Result<Option<Reformed>, EngineError> {
        let may_be = matches!(reform.wish, Wish::Best) && bucket.settings.compression == Compression::Delta;
        if !may_be || user.version.size > VIEW_LEN_MAX {
            return Ok(None);
        }
        let Some(content) = self.catalog.version(first.bucket, &user.version.key, user.version.id).await? else {
            return Ok(None);
        };
        let is_first = content.extents.len() > 1 && content.extents[0].blob == first.id;
        if !is_first || !self.are_its_own(bucket, &content).await? {
            return Ok(None);
        }
        let source = self.read.open_extents(bucket, content.extents.clone(), content.blobs.clone())?;
        let target = self.views.scan(bucket, &source, ScanFor::Target, &reform.pace).await?;
        text.note(&target);
        if target.is_plain() {
            return Ok(None);
        }
        let avoid = Arc::new(content.blobs.iter().map(|row| row.id).collect());
        let base = self.views.choose_view(bucket, &content.version.key, &target, &avoid, &reform.pace).await?;
        let Some(base) = base else {
            self.views.keep_scan(&source, target);
            return Ok(None);
        };
        let base = (&target, Arc::new(base));
        let manner = reform.in_view(UnitCheck::ReadBack);
        let staged = self.stager.stage_in_view(&self.views, bucket, &source, base, manner).await?;
        let before =
            if reform.regardless { u64::MAX } else { content.blobs.iter().map(|row| payload_len(&row.forms)).sum() };
        let gains = |staged: &StagedBody<()>| {
            staged.plain_len == content.version.size
                && plan::view_gains(before, content.version.size, payload_len(&staged.content.forms))
        };
        let Some(staged) = staged.filter(gains) else { return Ok(None) };
        self.give_one_blob(bucket, content, staged, reform).await
    }

    /// Whether an object's blobs are live, where new ones would lie, and nobody else's: neither
    /// another version's nor a base.
    async fn are_its_own(&self, bucket: &BucketHandle, content: &Content) -> Result<bool, EngineError> {
        for row in &content.blobs {
            let is_here = row.state == BlobState::Live
                && row.original.is_none()
                && row.backend == bucket.settings.backend
                && row.key_epoch == bucket.key_epoch()
                && row.compartment == bucket.compartment();
            if !is_here || self.catalog.fan_in(row.id).await? > 0 || self.catalog.referrers(row.id, 2).await?.len() > 1
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets a version name one new blob in place of all of its extents (E20).
    async fn give_one_blob(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        content: Content,
        staged: StagedBody<()>,
        reform: &Reform,
    ) -> Result<Option<Reformed>, EngineError> {
        let facts = self.read.open_facts(bucket, &content.version)?;
        let object = ObjectFacts {
            bucket: bucket.row.name.clone(),
            key: content.version.key.clone(),
            version_id: Some(content.version.id.0),
            part: None,
            sha256: staged.sha256,
            facts: to_json(&VersionFacts { storage: StorageFacts::default(), ..facts })?,
            sketch: Vec::new(),
        };
        let object = reform.occasion.noted(object, &content.blobs)?;
        let (reencoder, bucket) = (self.clone(), bucket.clone());
        // From here on it goes to its end even when the job is stopped.
        self.writer
            .detached(async move {
                let sha256 = staged.hashed()?;
                let digest = Some(bucket.content_digest(&sha256));
                let stored = reencoder.publisher.finisher.finish_blob(&bucket, staged.content, &object, digest).await?;
                let FinishedContent { mut new_blobs, storage, held: _held, .. } = stored;
                let new = new_blobs.pop().ok_or_else(|| EngineError::Other("a stage without a blob".into()))?;
                reencoder.verify_stored(&bucket, &new.row, sha256).await?;
                let row = new.row.clone();
                // Read anew, because its facts may be others by now.
                let now =
                    reencoder.catalog.version(content.version.bucket, &content.version.key, content.version.id).await?;
                let swapped = match now.filter(|now| now.extents == content.extents) {
                    Some(now) => {
                        let facts = VersionFacts { storage, ..reencoder.read.open_facts(&bucket, &now.version)? };
                        let extent = Extent { blob: row.id, offset: 0, len: row.plain_len };
                        reencoder.rewrite(&bucket, now, vec![extent], vec![new], &facts).await?
                    }
                    None => Swap::Changed,
                };
                if matches!(swapped, Swap::Done) {
                    return Ok(Some(Reformed::Moved(Box::new(row))));
                }
                reencoder.publisher.finisher.forget_blob(&row).await;
                Ok(if matches!(swapped, Swap::Changed) { Some(Reformed::Unused) } else { None })
            })
            .await
    }

    async fn wished_view(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        user: &User,
        target: &Scanned,
        reform: &Reform,
    ) -> Result<Option<BaseView>, EngineError> {
        let key = &user.version.key;
        let avoid = reform.avoided(old);
        let given = match &reform.wish {
            Wish::Whole => return Ok(None),
            Wish::Best => return self.views.choose_view(bucket, key, target, &avoid, &reform.pace).await,
            Wish::Kept => self.bases.base_of(bucket, key, self.present_bases(bucket, old).await?),
            Wish::These(name, rows) => self.bases.base_of(bucket, name, rows.clone()),
            // A view has one base.
            Wish::Each(..) => return Ok(None),
        };
        match given {
            Some(base) => self.views.base_view(bucket, Arc::new(base), &avoid, &reform.pace).await,
            None => Ok(None),
        }
    }

    /// Whether plain content may differ from the text of an archive: what waits for a better
    /// encoding, and what is a view already.
    async fn may_lie_in_text(
        &self,
        bucket: &BucketHandle,
        old: &BlobRow,
        reform: &Reform,
    ) -> Result<bool, EngineError> {
        if matches!(reform.wish, Wish::Best) || old.form == BlobForm::Whole {
            return Ok(matches!(reform.wish, Wish::Best));
        }
        let manifest = self.blobs.manifest(old, bucket.key_of(old)?.as_deref()).await?;
        // Some of its segments may be less than a view of them: zeros, or what has changed.
        for index in 0..old.plain_len.div_ceil(SEGMENT_LEN as u64) {
            if self.blobs.segment(&manifest, index).await?.coding.is_view() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

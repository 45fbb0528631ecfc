//! Packs: the contents of many small objects of one bucket laid end to end in one blob and
//! compressed together.
//!
//! A small object is stored alone when it comes: durable at once, and an overwrite soon after costs
//! nothing more. Later the packer takes what came since, sorts it by name so that what is alike
//! lies together, and lets each version name its range of a pack instead. Every version is
//! rewritten on its own (compare-and-swap), is read alone, and is deleted alone; a pack of which
//! less than half is still in use is packed anew with others, and dies with its last range.

pub(crate) mod contents;

use crate::{
    background::{
        copies::{Copied, Copier},
        jobs::run::JobRun,
        looks::Looks,
        scrub::pace::ScrubPace,
        settling::Settling,
    },
    bases::{key_order::natural, plan::Reason},
    blobs::{open::Blobs, upload::put_whole},
    bucket::{BucketHandle, Buckets, RowPlace, digest_of},
    config::{Compression, OBJECTS_PER_FILE_MAX},
    deployment::{keyring::random, writer::Writer},
    error::EngineError,
    facts::{Form, StorageFacts, VersionFacts, to_json},
    metrics::Metrics,
    read::object::ReadPath,
    resources::{budget::MemoryBudget, clock::now_ms, pool::CodecPool},
    write::publish::Publisher,
};
use catalog::{
    BlobForm, BlobKey, BlobRow, BlobState, BucketId, Catalog, CatalogError, Compartment, Content, Extent, NewBlob,
    PackUse, Referrer, RewriteCommit, Seq, UnixMs,
};
use contents::{Member, build, footprint, is_sparse, member_table, place_of, scaled, worth_packing};
use delta_codec::whole;
use futures::{StreamExt, TryStreamExt};
use object_format::{BlobId, ObjectFacts};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Longer content is not packed.
pub(crate) const MEMBER_LEN_MAX: u64 = 64 << 10;
/// Plain bytes of a full pack: one segment, since reading a member decodes all of it (half a
/// millisecond), and most of what more would save.
const PACK_LEN: u64 = 512 << 10;
/// Members of a full pack.
const MEMBERS_MAX: usize = 1024;
/// A bucket's small objects wait until they are so many bytes together.
const PACK_LEN_MIN: u64 = 128 << 10;
/// Younger versions are left for later: what is soon replaced or deleted is not worth moving.
const AGE_MIN_MS: UnixMs = 60_000;
/// The setting that keeps the cursor.
const CURSOR: &str = "pack-cursor";
/// Versions looked at together: what is packed together is sorted among so many.
const ROUND: usize = 2048;
/// Versions that wait for company; past this the oldest stay as they are.
const WAITING_MAX: usize = 4096;
/// Packs looked at in one run for how much of them is in use.
const PACKS_EXAMINED: usize = 256;
/// Rewrites under way together: the catalog commits them as a group.
const REWRITES_AHEAD: usize = 64;

/// What one run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packing {
    /// Packs written.
    pub packs: u64,
    /// Versions that name a range of one now.
    pub objects: u64,
    /// Their plain bytes.
    pub plain_bytes: u64,
    /// What they took before.
    pub before_bytes: u64,
    /// Stored bytes of the packs.
    pub stored_bytes: u64,
    /// Packs that were hardly in use and whose members were packed anew.
    pub emptied_packs: u64,
    /// Versions that changed meanwhile, or would not have shrunk.
    pub left_alone: u64,
}

/// What may lie in one pack: content of one compartment of a bucket.
type Waiting = BTreeMap<(BucketId, Option<Compartment>), Vec<Member>>;

/// Is told how many objects have been packed; false ends the run.
type GoOn<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// Where the packer is: a setting of the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackCursor {
    /// The last version looked at.
    pub(crate) seq: Seq,
    /// Earlier ones that wait for company, ascending.
    waiting: Vec<Seq>,
    /// The last pack whose use was looked at.
    #[serde(default)]
    pack: Option<BlobKey>,
}

/// Packs small objects together.
pub(crate) struct Packer {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) copier: Arc<Copier>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) pool: Arc<CodecPool>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) settling: Arc<Settling>,
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
}

impl Packer {
    /// Packs the small objects that came since `cursor`, and those of packs that are hardly in use,
    /// and moves the cursor on. Versions younger than `older_than` are left for the next run;
    /// `gather` packs even a few that wait for company. `go_on` is told between packs how many were
    /// packed, and may say no.
    ///
    /// # Errors
    /// [`EngineError`] when catalog or backend fail; what was packed until then stays packed, and
    /// the cursor is where to go on.
    pub(crate) async fn pack_small_objects(
        self: &Arc<Self>,
        cursor: &mut PackCursor,
        older_than: UnixMs,
        gather: bool,
        go_on: GoOn<'_>,
        report: &mut Packing,
    ) -> Result<(), EngineError> {
        let mut buckets = self.buckets_that_pack().await?;
        let mut waiting = Waiting::new();
        let from = self.looks.packing_from(cursor.seq);
        let mut next = from;
        loop {
            let round = self.catalog.small_contents(next, MEMBER_LEN_MAX, ROUND).await?;
            let whole_round = round.len() == ROUND;
            let held: u64 = round.iter().map(footprint).sum();
            let _permit = self.budget.acquire(held).await?;
            let mut young = false;
            for content in round {
                young = content.version.modified_ms > older_than;
                if young {
                    break;
                }
                next = content.version.seq;
                if let Some(handle) = buckets.get(&content.version.bucket)
                    && wants_packing(&content)
                {
                    let facts = self.read.open_facts(handle, &content.version)?;
                    waiting.entry(place_of(&content)).or_default().push(Member { content, facts });
                }
            }
            let last = young || !whole_round;
            if last && (gather || !waiting.is_empty()) {
                self.fetch_waiting(cursor, &buckets, &mut waiting).await?;
            }
            for ((bucket, compartment), members) in &mut waiting {
                let Some(handle) = buckets.get(bucket) else { continue };
                let leave = if last { Leave::Few { gather } } else { Leave::Part };
                self.pack_bucket(&handle.within(*compartment), members, Gain::Needed, leave, go_on, report).await?;
            }
            if !go_on(report.objects) {
                // The cursor stays: what is packed already does not want packing again.
                return Ok(());
            }
            if last {
                break;
            }
            // What is left over of this round goes on with the next, but its rows are not held
            // against the budget: bounded by one pack a bucket.
            waiting.retain(|_, members| !members.is_empty());
        }
        if next > from {
            cursor.seq = next;
        }
        if !waiting.is_empty() {
            cursor.waiting = waiting.into_values().flatten().map(|member| member.content.version.seq).collect();
            cursor.waiting.sort_unstable();
            let excess = cursor.waiting.len().saturating_sub(WAITING_MAX);
            cursor.waiting.drain(..excess);
        }
        self.empty_sparse_packs(cursor, &mut buckets, go_on, report).await
    }

    /// One run of the `pack` job.
    pub(crate) async fn pack_once(self: &Arc<Self>, run: &JobRun) -> Result<Packing, EngineError> {
        let mut cursor = self.pack_cursor().await?;
        let (before, gather, mut report) = (cursor.clone(), self.settling.is_on(), Packing::default());
        let go_on = |objects| {
            run.progress(objects, None);
            run.check().is_ok()
        };
        let outcome = self.pack_small_objects(&mut cursor, self.packable_before(), gather, &go_on, &mut report).await;
        if cursor != before {
            let value = serde_json::to_value(&cursor).map_err(|error| EngineError::Other(error.to_string()))?;
            self.catalog.put_setting(CURSOR, value).await?;
        }
        outcome?;
        run.check()?;
        Ok(report)
    }

    /// 1 when something came since the last run that may want packing, else 0.
    pub(crate) async fn backlog(&self) -> Result<u64, EngineError> {
        let cursor = self.pack_cursor().await?.seq;
        let (from, last) = (self.looks.packing_from(cursor), self.catalog.last_seq().await?);
        if from >= last {
            return Ok(0);
        }
        let next = self.catalog.small_contents(from, MEMBER_LEN_MAX, 1).await?;
        let first = next.first().map(|content| &content.version);
        // What comes from now on has greater numbers; one that is too young is found again at once.
        self.looks.nothing_to_pack(cursor, first.map_or(last, |version| version.seq - 1));
        Ok(u64::from(first.is_some_and(|version| version.modified_ms <= self.packable_before())))
    }

    async fn pack_cursor(&self) -> Result<PackCursor, EngineError> {
        let stored = self.catalog.setting(CURSOR).await?;
        let cursor = stored.map(serde_json::from_value).transpose();
        Ok(cursor.map_err(|error| EngineError::Other(format!("setting {CURSOR}: {error}")))?.unwrap_or_default())
    }

    /// Versions from before this are packed.
    fn packable_before(&self) -> UnixMs {
        if self.settling.is_on() { now_ms() } else { now_ms() - AGE_MIN_MS }
    }

    async fn buckets_that_pack(&self) -> Result<BTreeMap<BucketId, BucketHandle>, EngineError> {
        let mut handles = BTreeMap::new();
        for row in self.catalog.buckets().await? {
            if let Some(handle) = self.buckets.bucket(&row.name).await?
                && handle.settings.compression == Compression::Delta
            {
                handles.insert(handle.row.id, handle);
            }
        }
        Ok(handles)
    }

    /// Adds the versions that waited before this run, as far as they are still there.
    async fn fetch_waiting(
        &self,
        cursor: &PackCursor,
        buckets: &BTreeMap<BucketId, BucketHandle>,
        members: &mut Waiting,
    ) -> Result<(), EngineError> {
        for seq in &cursor.waiting {
            let found = self.catalog.small_contents(seq - 1, MEMBER_LEN_MAX, 1).await?;
            for content in found.into_iter().filter(|content| content.version.seq == *seq && wants_packing(content)) {
                if let Some(handle) = buckets.get(&content.version.bucket) {
                    let facts = self.read.open_facts(handle, &content.version)?;
                    members.entry(place_of(&content)).or_default().push(Member { content, facts });
                }
            }
        }
        Ok(())
    }

    /// Packs members of one compartment, sorted by name; too few for a pack are left over.
    async fn pack_bucket(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        members: &mut Vec<Member>,
        gain: Gain,
        leave: Leave,
        go_on: GoOn<'_>,
        report: &mut Packing,
    ) -> Result<(), EngineError> {
        let mut sorted = std::mem::take(members);
        sorted.sort_by(|a, b| natural(&a.content.version.key, &b.content.version.key));
        let mut pack = Vec::new();
        for member in sorted {
            if !go_on(report.objects) {
                return Ok(());
            }
            let len: u64 = pack.iter().map(Member::len).sum();
            if len + member.len() > PACK_LEN || pack.len() == MEMBERS_MAX {
                self.pack(bucket, std::mem::take(&mut pack), gain, report).await?;
            }
            pack.push(member);
        }
        match leave.leaves(pack.iter().map(Member::len).sum(), pack.len()) {
            true => *members = pack,
            false => self.pack(bucket, pack, gain, report).await?,
        }
        Ok(())
    }

    /// Writes one pack and lets its members name their ranges of it.
    async fn pack(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        members: Vec<Member>,
        gain: Gain,
        report: &mut Packing,
    ) -> Result<(), EngineError> {
        let _permit = self.budget.acquire(3 * PACK_LEN).await?;
        let mut plain = Vec::with_capacity(usize::try_from(PACK_LEN).unwrap_or(0));
        let mut taken = Vec::with_capacity(members.len());
        for member in members {
            match self.append(bucket, &member, &mut plain).await? {
                true => taken.push(member),
                false => report.left_alone += 1,
            }
        }
        if taken.len() < 2 && gain == Gain::Needed || taken.is_empty() {
            report.left_alone += taken.len() as u64;
            return Ok(());
        }
        let before: u64 = taken.iter().map(Member::stored_len).sum();
        let (row, bytes) = self.encode_pack(bucket, &taken, plain).await?;
        if gain == Gain::Needed && !worth_packing(before, row.stored_len) {
            report.left_alone += taken.len() as u64;
            return Ok(());
        }
        put_whole(self.blobs.backend(&row.backend)?.clone(), BlobId(row.id.0), bytes).await?;
        let moved = self.move_into(bucket, &row, taken, report).await?;
        if moved > 0 {
            // What it took the place of still lies there: nothing depends on one file alone in
            // between.
            if moved > OBJECTS_PER_FILE_MAX && self.copier.keeps_second_copies(&row.backend) {
                self.copy_pack(bucket, &row).await;
            }
            report.packs += 1;
            report.before_bytes += before;
            report.stored_bytes += row.stored_len;
            self.metrics.packed_objects_total.inc_by(moved);
            self.metrics.packed_bytes_total.with_label_values(&["before"]).inc_by(before);
            self.metrics.packed_bytes_total.with_label_values(&["after"]).inc_by(row.stored_len);
        }
        Ok(())
    }

    /// Gives a pack its second copy. Where that fails the job `copies` does it.
    async fn copy_pack(&self, bucket: &BucketHandle, row: &BlobRow) {
        let pace = ScrubPace::new(None, self.stopping.clone());
        match self.copier.copy_blob(bucket, row, &pace).await {
            Ok(Copied::Made | Copied::Overtaken) => {}
            Ok(Copied::Damaged(what)) => tracing::error!(blob = %BlobId(row.id.0), what, "a new pack is damaged"),
            Err(error) => {
                tracing::warn!(%error, blob = %BlobId(row.id.0), "a pack could not be copied; it is tried again")
            }
        }
    }

    /// Appends a version's content; false when it is not there any more or looks random.
    async fn append(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        member: &Member,
        plain: &mut Vec<u8>,
    ) -> Result<bool, EngineError> {
        let source = match self.read.open_content(bucket, member.content.clone(), member.facts.clone()) {
            Err(EngineError::Conflict) => return Ok(false),
            opened => opened?,
        };
        let start = plain.len();
        let read = self.read.read(&source, 0..member.len()).try_for_each(|bytes| {
            plain.extend_from_slice(&bytes);
            futures::future::ready(Ok(()))
        });
        if let Err(error) = read.await {
            // Replaced and collected meanwhile, or damaged: the read path has counted the latter,
            // and scrubbing names what is affected.
            tracing::warn!(%error, "a small object could not be read for packing and stays as it is");
            plain.truncate(start);
            return Ok(false);
        }
        if whole::looks_incompressible(&plain[start..]) {
            plain.truncate(start);
            return Ok(false);
        }
        Ok(true)
    }

    async fn encode_pack(
        &self,
        bucket: &BucketHandle,
        members: &[Member],
        plain: Vec<u8>,
    ) -> Result<(BlobRow, Vec<u8>), EngineError> {
        let id = self.writer.blob_id()?;
        let object =
            ObjectFacts { bucket: bucket.row.name.clone(), facts: member_table(members)?, ..ObjectFacts::default() };
        let (sealed, salt) = (bucket.clone(), random()?);
        let built = self.pool.run(move |_| build(id, sealed.domain_key(), salt, &plain, &object)).await??;
        let row = BlobRow {
            id: BlobKey(id.0),
            bucket: bucket.row.id,
            key_epoch: bucket.key_epoch(),
            backend: bucket.settings.backend.clone(),
            form: BlobForm::Whole,
            state: BlobState::Live,
            plain_len: members.iter().map(Member::len).sum(),
            stored_len: built.bytes.len() as u64,
            root_offset: built.root.offset,
            root_len: built.root.len,
            root_tag: built.root.tag,
            digest: None,
            forms: built.forms,
            inline: None,
            original: None,
            pack: true,
            compartment: bucket.compartment(),
            copy: None,
        };
        Ok((row, built.bytes))
    }

    /// Rewrites the members one by one; the first that succeeds brings the pack's row. Gives how
    /// many now name it.
    async fn move_into(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        row: &BlobRow,
        members: Vec<Member>,
        report: &mut Packing,
    ) -> Result<u64, EngineError> {
        let mut offset = 0;
        let mut moves = Vec::with_capacity(members.len());
        for member in members {
            let extent = Extent { blob: row.id, offset, len: member.len() };
            offset += extent.len;
            moves.push(self.rewrite_of(bucket, row, member, extent)?);
        }
        let (mut moved, mut plain_bytes) = (0, 0);
        let mut moves = moves.into_iter();
        for mut first in moves.by_ref() {
            first.new_blobs = vec![NewBlob { row: row.clone(), bases: Vec::new(), deferred: false, heat_bytes: 0 }];
            if let Some(len) = self.rewritten(first).await? {
                (moved, plain_bytes) = (1, len);
                break;
            }
            report.left_alone += 1;
        }
        let rest = futures::stream::iter(moves.map(|commit| self.rewritten(commit)));
        let rest: Vec<Option<u64>> = rest.buffer_unordered(REWRITES_AHEAD).try_collect().await?;
        for len in rest {
            match len {
                Some(len) => (moved, plain_bytes) = (moved + 1, plain_bytes + len),
                None => report.left_alone += 1,
            }
        }
        if moved == 0 {
            self.publisher.finisher.forget_blob(row).await;
        }
        report.objects += moved;
        report.plain_bytes += plain_bytes;
        Ok(moved)
    }

    fn rewrite_of(
        &self,
        bucket: &BucketHandle,
        row: &BlobRow,
        member: Member,
        extent: Extent,
    ) -> Result<RewriteCommit, EngineError> {
        let Member { content: Content { version, extents, .. }, facts } = member;
        let new_extents = vec![extent];
        let extents_digest = digest_of(&new_extents);
        let storage = StorageFacts {
            form: if row.forms.raw_plain > 0 { Form::Raw } else { Form::Zstd },
            stored_bytes: scaled(row.stored_len, extent.len, row.plain_len),
            bases: Vec::new(),
            reason: Reason::Packed.as_str().into(),
        };
        let facts = to_json(&VersionFacts { storage, ..facts })?;
        let place = RowPlace { key: &version.key, id: version.id.0, part: None, extents_digest };
        Ok(RewriteCommit {
            old_facts: Some(version.facts),
            bucket: bucket.row.id,
            facts: bucket.seal_facts(place, facts)?,
            key: version.key,
            id: version.id,
            old_extents: extents,
            new_extents,
            extents_digest,
            new_blobs: Vec::new(),
            notices: Vec::new(),
            now_ms: now_ms(),
            // The pack's own: of a closed epoch it may be collected before its row is there (E4).
            epoch: BlobId(row.id.0).epoch(),
        })
    }

    /// Commits one rewrite: its length, or `None` when the version has changed or the pack has died
    /// meanwhile.
    async fn rewritten(&self, commit: RewriteCommit) -> Result<Option<u64>, EngineError> {
        let len = commit.new_extents.iter().map(|extent| extent.len).sum();
        let (bucket, key, id, extents) = (commit.bucket, commit.key.clone(), commit.id, commit.new_extents.clone());
        match self.catalog.rewrite(commit).await {
            Ok(()) => Ok(Some(len)),
            Err(CatalogError::Conflict | CatalogError::BaseGone) => Ok(None),
            Err(CatalogError::Unknown(why)) => match self.catalog.version(bucket, &key, id).await? {
                Some(content) if content.extents == extents => Ok(Some(len)),
                _ => Err(CatalogError::Unknown(why).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Packs anew what is left in packs of which less than half is in use.
    async fn empty_sparse_packs(
        self: &Arc<Self>,
        cursor: &mut PackCursor,
        buckets: &mut BTreeMap<BucketId, BucketHandle>,
        go_on: GoOn<'_>,
        report: &mut Packing,
    ) -> Result<(), EngineError> {
        let packs = self.catalog.packs(cursor.pack.unwrap_or(BlobKey([0; 16])), PACKS_EXAMINED).await?;
        cursor.pack = packs.last().filter(|_| packs.len() == PACKS_EXAMINED).map(|pack| pack.blob);
        let mut survivors = Waiting::new();
        for pack in packs.into_iter().filter(|pack| is_sparse(pack.live_len, pack.plain_len)) {
            let Some(handle) = buckets.get(&pack.bucket) else { continue };
            let Some(contents) = self.movable_contents(&pack).await? else { continue };
            let place = contents.first().map_or((pack.bucket, None), place_of);
            let members = survivors.entry(place).or_default();
            for content in contents {
                let facts = self.read.open_facts(handle, &content.version)?;
                members.push(Member { content, facts });
            }
            report.emptied_packs += 1;
            if members.iter().map(Member::len).sum::<u64>() >= PACK_LEN {
                self.pack_bucket(&handle.within(place.1), members, Gain::Room, Leave::Part, go_on, report).await?;
            }
        }
        for ((bucket, compartment), mut members) in survivors {
            let Some(handle) = buckets.get(&bucket) else { continue };
            self.pack_bucket(&handle.within(compartment), &mut members, Gain::Room, Leave::Nothing, go_on, report)
                .await?;
        }
        Ok(())
    }

    /// The versions in a pack, unless one of them is more than a range of it.
    async fn movable_contents(&self, pack: &PackUse) -> Result<Option<Vec<Content>>, EngineError> {
        let mut contents = Vec::new();
        for Referrer { key, id } in self.catalog.referrers(pack.blob, MEMBERS_MAX).await? {
            let Some(content) = self.catalog.version(pack.bucket, &key, id).await? else { continue };
            if content.extents.len() != 1 || content.version.size > MEMBER_LEN_MAX {
                return Ok(None);
            }
            contents.push(content);
        }
        Ok(Some(contents))
    }
}

/// What a new pack must bring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gain {
    /// Fewer bytes than its members take by themselves.
    Needed,
    /// Nothing itself: it makes room by letting old packs die.
    Room,
}

/// Which members of a bucket are left over for later.
#[derive(Clone, Copy)]
enum Leave {
    /// Those that do not fill a pack: more will come in this run.
    Part,
    /// Those that are too few for a pack of their own; with `gather` a single one.
    Few { gather: bool },
    /// None.
    Nothing,
}

impl Leave {
    fn leaves(self, len: u64, members: usize) -> bool {
        match self {
            _ if members == 0 => true,
            Self::Part => true,
            Self::Few { gather: true } => members < 2,
            Self::Few { gather: false } => members < 2 || len < PACK_LEN_MIN,
            Self::Nothing => false,
        }
    }
}

/// True for content that lies in blobs of its own: not in a pack, not a range of something larger.
fn wants_packing(content: &Content) -> bool {
    let whole = |extent: &Extent| {
        let row = content.blobs.iter().find(|row| row.id == extent.blob);
        row.is_some_and(|row| !row.pack && row.original.is_none() && extent.offset == 0 && extent.len == row.plain_len)
    };
    !content.extents.is_empty() && content.extents.iter().all(whole)
}

//! The contract over anything that can run statements: [`Catalog`] for every [`Engine`].

use super::{
    accounts,
    blobs::{self, DuplicateQuery},
    buckets,
    change::{Change, Import, JobChange, Outcome, now_ms},
    check, conversion, copies, history, hooks, jobs,
    kept_buckets::KeptBuckets,
    keys, list, multipart, notices, quotas, read,
    session::Session,
    snapshot::{self, Snapshot},
    stats, trash, verification, versions, writers,
};
use crate::{
    Catalog, CatalogError, Gate, Result,
    mutation::Mutation,
    snapshot::{Exported, JournalLink, JournalMarks, TableRows},
    types::*,
};
use async_trait::async_trait;
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
};
use tokio::sync::mpsc;

/// What a question gives: a future that borrows the session.
pub(crate) type Answer<'s, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 's>>;

/// A read. It may be asked again on another connection, so it owns what it needs and gives it out
/// by cloning.
pub(crate) type Question<S, T> = Box<dyn for<'s> Fn(&'s mut S) -> Answer<'s, T> + Send + Sync>;

/// What a read's statements have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// As `Statement`, and an index leads to the few rows that are wanted.
    Point,
    /// The read is one statement, or its statements stand on their own.
    Statement,
    /// All statements see the same snapshot.
    Snapshot,
}

/// A database that can run questions and changes.
pub(crate) trait Engine: Send + Sync + 'static {
    /// Its connections.
    type Session: Session;

    /// What changes pass before they are acknowledged.
    fn gate(&self) -> &OnceLock<Arc<dyn Gate>>;

    /// Rows of buckets that are known to be as they are in the database. Where others write to it,
    /// nothing is known.
    fn kept_buckets(&self) -> Option<&KeptBuckets> {
        None
    }

    /// This process's clock, for records only; nothing is decided by it.
    fn now_ms(&self) -> UnixMs {
        now_ms()
    }

    /// Makes a change durable, or nothing; and in which run of the server.
    fn carry_out(&self, change: Change) -> impl Future<Output = Result<(Outcome, ServerRun)>> + Send;

    /// The same for a change that passes no gate.
    fn change(&self, change: Change) -> impl Future<Output = Result<Outcome>> + Send {
        async { Ok(self.carry_out(change).await?.0) }
    }

    /// How a failover of the database may lose commits. A database that has none says nothing.
    fn failover_warning(&self) -> impl Future<Output = Result<Option<String>>> + Send {
        async { Ok(None) }
    }

    /// [`Catalog::scour`]; a database that others keep is scoured by nobody here.
    fn scour_file(&self, _moves_rows: bool) -> impl Future<Output = Result<bool>> + Send {
        async { Ok(false) }
    }

    /// Asks a question over rows that are committed.
    fn read<T: Send + 'static>(
        &self,
        consistency: Consistency,
        question: Question<Self::Session, T>,
    ) -> impl Future<Output = Result<T>> + Send;
}

/// `ask!(self, Statement, (key) |session| read::current(session, bucket, &key))`: the named values
/// are owned by the question.
macro_rules! ask {
    ($engine:ident, $consistency:ident, ($($owned:ident),*) |$session:ident| $question:expr) => {{
        $(let $owned = $owned.to_owned();)*
        let answer = $engine
            .read(
                Consistency::$consistency,
                Box::new(move |$session| {
                    $(let $owned = $owned.clone();)*
                    Box::pin(async move { $question.await })
                }),
            )
            .await;
        tell_of_damage($engine, answer)
    }};
}

fn unexpected<T>(outcome: &Outcome) -> Result<T> {
    Err(CatalogError::Other(format!("a change gave {outcome:?}")))
}

fn committed(outcome: Outcome) -> Result<Committed> {
    match outcome {
        Outcome::Committed(committed) => Ok(committed),
        other => unexpected(&other),
    }
}

fn done(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        other => unexpected(&other),
    }
}

/// Whether there was anything to be done.
fn changed(outcome: Outcome) -> Result<bool> {
    match outcome {
        Outcome::Done => Ok(true),
        Outcome::Unchanged => Ok(false),
        other => unexpected(&other),
    }
}

fn count(outcome: Outcome) -> Result<u64> {
    match outcome {
        Outcome::Count(count) => Ok(count),
        Outcome::Unchanged => Ok(0),
        other => unexpected(&other),
    }
}

fn job(outcome: Outcome) -> Result<JobRow> {
    match outcome {
        Outcome::Job(row) => Ok(*row),
        other => unexpected(&other),
    }
}

async fn mutate<E: Engine>(engine: &E, mutation: Mutation) -> Result<Outcome> {
    let is_acknowledged = mutation.is_acknowledged();
    if is_acknowledged && let Some(gate) = engine.gate().get() {
        gate.admit().await?;
    }
    let (outcome, run) = tell_of_damage(engine, engine.carry_out(Change::Journaled(mutation)).await)?;
    if is_acknowledged && !matches!(outcome, Outcome::Unchanged) {
        pass_gate(engine, run).await?;
    }
    Ok(outcome)
}

/// Lets the gate know when rows turn out to be damaged.
fn tell_of_damage<E: Engine, T>(engine: &E, answer: Result<T>) -> Result<T> {
    if let (Err(CatalogError::Damaged(why)), Some(gate)) = (&answer, engine.gate().get()) {
        gate.damaged(why);
    }
    answer
}

/// What was found, and the run of the server that has it.
async fn with_run<S: Session, T>(session: &mut S, found: Option<T>) -> Result<Option<(T, ServerRun)>> {
    match found {
        Some(found) => Ok(Some((found, session.run_noting_server(Vec::new()).await?.1))),
        None => Ok(None),
    }
}

async fn pass_gate<E: Engine>(engine: &E, run: ServerRun) -> Result<()> {
    match engine.gate().get() {
        Some(gate) => gate.pass(run).await,
        None => Ok(()),
    }
}

#[async_trait]
impl<E: Engine> Catalog for E {
    async fn open_epoch(&self) -> Result<u32> {
        match mutate(self, Mutation::OpenEpoch { epoch: 0, closes: Vec::new() }).await? {
            Outcome::Epoch(epoch) => Ok(epoch),
            other => unexpected(&other),
        }
    }

    async fn heartbeat(&self, epoch: u32) -> Result<()> {
        done(self.change(Change::Heartbeat(epoch)).await?)
    }

    async fn close_epochs(&self, epochs: &[u32]) -> Result<Vec<u32>> {
        match mutate(self, Mutation::CloseEpochs { epochs: epochs.to_vec() }).await? {
            Outcome::Epochs(epochs) => Ok(epochs),
            Outcome::Unchanged => Ok(Vec::new()),
            other => unexpected(&other),
        }
    }

    async fn close_stale_epochs(&self, lease_ms: UnixMs) -> Result<Vec<u32>> {
        let stale = ask!(self, Statement, () | session | writers::stale(session, lease_ms))?;
        if stale.is_empty() { Ok(stale) } else { self.close_epochs(&stale).await }
    }

    async fn open_writers(&self) -> Result<Vec<OpenWriter>> {
        ask!(self, Statement, () | session | writers::open_ones(session))
    }

    async fn closed_epochs(&self) -> Result<Vec<u32>> {
        ask!(self, Statement, () | session | writers::closed(session))
    }

    async fn take_job(&self, take: JobTake) -> Result<Option<JobRow>> {
        match self.change(Change::Job(JobChange::Take(take))).await? {
            Outcome::Unchanged => Ok(None),
            outcome => job(outcome).map(Some),
        }
    }

    async fn renew_job(&self, lease: &JobLease, lease_ms: UnixMs) -> Result<JobRow> {
        job(self.change(Change::Job(JobChange::Renew { lease: lease.clone(), lease_ms })).await?)
    }

    async fn save_job(&self, lease: &JobLease, state: serde_json::Value) -> Result<()> {
        done(self.change(Change::Job(JobChange::Save { lease: lease.clone(), state })).await?)
    }

    async fn release_job(&self, lease: &JobLease, state: serde_json::Value) -> Result<()> {
        done(self.change(Change::Job(JobChange::Release { lease: lease.clone(), state })).await?)
    }

    async fn wish_job(&self, name: &str, wish: JobWish) -> Result<JobRow> {
        job(self.change(Change::Job(JobChange::Wish { name: name.to_owned(), wish })).await?)
    }

    async fn jobs(&self) -> Result<Vec<JobRow>> {
        ask!(self, Statement, () | session | jobs::all(session))
    }

    async fn setting(&self, name: &str) -> Result<Option<serde_json::Value>> {
        ask!(self, Statement, (name) | session | buckets::setting(session, &name))
    }

    async fn put_setting(&self, name: &str, value: serde_json::Value) -> Result<()> {
        done(mutate(self, Mutation::PutSetting { name: name.to_owned(), value, creates: false }).await?)
    }

    async fn create_setting(&self, name: &str, value: serde_json::Value) -> Result<()> {
        done(mutate(self, Mutation::PutSetting { name: name.to_owned(), value, creates: true }).await?)
    }

    async fn accounts(&self) -> Result<AccountRows> {
        ask!(self, Snapshot, () | session | accounts::all(session))
    }

    async fn accounts_version(&self) -> Result<Seq> {
        ask!(self, Point, () | session | accounts::version(session))
    }

    async fn change_accounts(&self, change: AccountsChange) -> Result<Seq> {
        match mutate(self, Mutation::ChangeAccounts { change }).await? {
            Outcome::Seq(seq) => Ok(seq),
            Outcome::Unchanged => self.accounts_version().await,
            other => unexpected(&other),
        }
    }

    async fn make_bucket(&self, bucket: NewBucket) -> Result<Bucket> {
        let NewBucket { name, owner, settings, object_lock, now_ms: created_ms } = bucket;
        let versioning = if object_lock { Versioning::Enabled } else { Versioning::Off };
        let bucket = Bucket { id: BucketId(0), name, owner, created_ms, settings, versioning, object_lock };
        match mutate(self, Mutation::CreateBucket { bucket }).await? {
            Outcome::Bucket(bucket) => Ok(bucket),
            other => unexpected(&other),
        }
    }

    async fn kept_bucket(&self, name: &str) -> Result<Option<Arc<Bucket>>> {
        let kept = self.kept_buckets();
        if let Some(row) = kept.and_then(|kept| kept.get(name)) {
            return Ok(Some(row));
        }
        let asked = kept.and_then(KeptBuckets::asked);
        let found = ask!(self, Point, (name) | session | buckets::by_name(session, &name))?.map(Arc::new);
        if let (Some(kept), Some(asked), Some(row)) = (kept, asked, &found) {
            kept.keep(asked, row);
        }
        Ok(found)
    }

    async fn buckets(&self) -> Result<Vec<Bucket>> {
        ask!(self, Statement, () | session | buckets::all(session))
    }

    async fn set_bucket_settings(&self, id: BucketId, settings: serde_json::Value) -> Result<()> {
        let (expected, notices) = (None, Vec::new());
        done(mutate(self, Mutation::SetBucketSettings { bucket: id, settings, expected, notices }).await?)
    }

    async fn change_bucket_settings_telling(
        &self,
        id: BucketId,
        expected: serde_json::Value,
        settings: serde_json::Value,
        notices: Vec<NewNotice>,
    ) -> Result<()> {
        let expected = Some(expected);
        done(mutate(self, Mutation::SetBucketSettings { bucket: id, settings, expected, notices }).await?)
    }

    async fn set_versioning(&self, id: BucketId, versioning: Versioning) -> Result<()> {
        changed(mutate(self, Mutation::SetVersioning { bucket: id, versioning }).await?).map(|_| ())
    }

    async fn enable_object_lock(&self, id: BucketId) -> Result<()> {
        changed(mutate(self, Mutation::EnableObjectLock { bucket: id }).await?).map(|_| ())
    }

    async fn set_lock(&self, commit: LockCommit) -> Result<bool> {
        changed(mutate(self, Mutation::SetLock { commit: Box::new(commit) }).await?)
    }

    async fn delete_bucket(&self, id: BucketId) -> Result<bool> {
        changed(mutate(self, Mutation::DeleteBucket { bucket: id, now_ms: Engine::now_ms(self) }).await?)
    }

    async fn put_key(&self, key: WrappedKey) -> Result<()> {
        done(mutate(self, Mutation::PutKey { key }).await?)
    }

    async fn keys(&self, bucket: BucketId) -> Result<Vec<WrappedKey>> {
        ask!(self, Statement, () | session | keys::of_bucket(session, bucket))
    }

    async fn all_keys(&self) -> Result<Vec<WrappedKey>> {
        ask!(self, Statement, () | session | keys::all(session))
    }

    async fn key_uses(&self) -> Result<Vec<KeyUse>> {
        ask!(self, Statement, () | session | keys::uses(session))
    }

    async fn key_dependents(&self, bucket: BucketId, epoch: u32) -> Result<KeyDependents> {
        ask!(self, Snapshot, () | session | keys::dependents(session, bucket, epoch))
    }

    async fn rewrap_keys(&self, keys: Vec<Rewrap>) -> Result<()> {
        changed(mutate(self, Mutation::RewrapKeys { keys }).await?).map(|_| ())
    }

    async fn remove_keys(&self, bucket: BucketId, epochs: &[u32]) -> Result<bool> {
        let epochs = epochs.to_vec();
        changed(mutate(self, Mutation::RemoveKeys { bucket, epochs, now_ms: now_ms() }).await?)
    }

    async fn current(&self, bucket: BucketId, key: &str) -> Result<Option<Version>> {
        ask!(self, Point, (key) | session | read::current(session, bucket, &key))
    }

    async fn content(&self, bucket: BucketId, key: &str) -> Result<Option<Content>> {
        ask!(self, Point, (key) | session | read::content(session, bucket, &key))
    }

    async fn hidden(&self, bucket: BucketId, key: &str) -> Result<bool> {
        ask!(self, Point, (key) | session | versions::hidden(session, bucket, &key))
    }

    async fn version(&self, bucket: BucketId, key: &str, id: VersionId) -> Result<Option<Content>> {
        let version = ask!(
            self,
            Point,
            (key)
                | session
                | async {
                    let found = read::version(session, bucket, &key, id).await?;
                    with_run(session, found).await
                }
        )?;
        let Some((version, run)) = version else { return Ok(None) };
        pass_gate(self, run).await?;
        Ok(Some(version))
    }

    async fn named_version(&self, bucket: BucketId, key: &str, version: VersionRef) -> Result<Option<Content>> {
        ask!(self, Point, (key) | session | read::named_version(session, bucket, &key, version))
    }

    async fn newest_marker(&self, bucket: BucketId, key: &str) -> Result<Option<Version>> {
        ask!(self, Point, (key) | session | read::newest_marker(session, bucket, &key))
    }

    async fn list_versions(&self, query: &VersionsQuery) -> Result<VersionsPage> {
        ask!(self, Snapshot, (query) | session | history::versions(session, &query))
    }

    async fn list(&self, query: &ListQuery) -> Result<ListPage> {
        ask!(self, Snapshot, (query) | session | list::versions(session, &query))
    }

    async fn neighbours(
        &self,
        bucket: BucketId,
        prefix: &str,
        key: &str,
        limit: usize,
    ) -> Result<(Vec<String>, Vec<String>)> {
        ask!(self, Statement, (prefix, key) | session | read::neighbours(session, bucket, &prefix, &key, limit))
    }

    async fn put(&self, commit: PutCommit) -> Result<Committed> {
        committed(mutate(self, Mutation::Put { commit: Box::new(commit), modified_ms: 0, named: false }).await?)
    }

    async fn delete(&self, commit: DeleteCommit) -> Result<Deleted> {
        let (commit, removed) = (Box::new(commit), VersionId([0; 16]));
        match mutate(self, Mutation::Delete { commit, removed, modified_ms: None, named: false }).await? {
            Outcome::Deleted(deleted) => Ok(*deleted),
            Outcome::Unchanged => Ok(Deleted::default()),
            other => unexpected(&other),
        }
    }

    async fn delete_version(&self, commit: DeleteVersionCommit) -> Result<Option<Version>> {
        let mutation = Mutation::DeleteVersion { commit: Box::new(commit), removed: VersionId([0; 16]) };
        match mutate(self, mutation).await? {
            Outcome::Removed(version) => Ok(Some(*version)),
            Outcome::Unchanged => Ok(None),
            other => unexpected(&other),
        }
    }

    async fn rewrite(&self, commit: RewriteCommit) -> Result<()> {
        done(mutate(self, Mutation::Rewrite { commit: Box::new(commit) }).await?)
    }

    async fn small_contents(&self, after: Seq, size_max: u64, limit: usize) -> Result<Vec<Content>> {
        ask!(self, Statement, () | session | read::small_contents(session, after, size_max, limit))
    }

    async fn create_upload(&self, upload: Upload) -> Result<()> {
        done(mutate(self, Mutation::CreateUpload { upload: Box::new(upload) }).await?)
    }

    async fn upload(&self, bucket: BucketId, key: &str, id: UploadId) -> Result<Option<Upload>> {
        ask!(self, Point, (key) | session | multipart::by_id(session, bucket, &key, id))
    }

    async fn put_part(&self, commit: PartCommit) -> Result<()> {
        done(mutate(self, Mutation::PutPart { commit: Box::new(commit) }).await?)
    }

    async fn part(&self, upload: UploadId, number: u32) -> Result<Option<Part>> {
        let after = number.saturating_sub(1);
        let part = ask!(
            self,
            Snapshot,
            () | session
                | async {
                    let found = multipart::parts(session, upload, after, 1, true).await?;
                    with_run(session, found.into_iter().find(|part| part.number == number)).await
                }
        )?;
        let Some((part, run)) = part else { return Ok(None) };
        pass_gate(self, run).await?;
        Ok(Some(part))
    }

    async fn parts(&self, upload: UploadId, after: u32, limit: usize, with_extents: bool) -> Result<Vec<Part>> {
        ask!(self, Snapshot, () | session | multipart::parts(session, upload, after, limit, with_extents))
    }

    async fn uploads(&self, query: &UploadsQuery) -> Result<UploadsPage> {
        ask!(self, Snapshot, (query) | session | list::uploads(session, &query))
    }

    async fn complete(&self, commit: CompleteCommit) -> Result<Committed> {
        committed(mutate(self, Mutation::Complete { commit: Box::new(commit), modified_ms: 0, named: false }).await?)
    }

    async fn abort(&self, bucket: BucketId, key: &str, id: UploadId, epoch: u32) -> Result<bool> {
        let abort = Mutation::Abort { bucket, key: key.to_owned(), upload: id, epoch, now_ms: Engine::now_ms(self) };
        changed(mutate(self, abort).await?)
    }

    async fn stale_uploads(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<Upload>> {
        ask!(self, Statement, () | session | multipart::stale(session, before_ms, limit))
    }

    async fn open_uploads(&self, owner: &str, limit: u64) -> Result<u64> {
        ask!(self, Statement, (owner) | session | multipart::open_of(session, &owner, limit))
    }

    async fn usage(&self) -> Result<Vec<(BucketId, Usage)>> {
        ask!(self, Statement, () | session | quotas::held(session))
    }

    async fn quotas(&self) -> Result<Vec<(QuotaOf, QuotaLimits)>> {
        ask!(self, Statement, () | session | quotas::all(session))
    }

    async fn has_room(&self, bucket: BucketId, growth: Growth) -> Result<()> {
        ask!(self, Statement, () | session | quotas::has_room(session, bucket, growth))
    }

    async fn forget_completed_uploads(&self, before_ms: UnixMs) -> Result<u64> {
        count(mutate(self, Mutation::ForgetCompletedUploads { before_ms }).await?)
    }

    async fn blobs(&self, ids: &[BlobKey]) -> Result<Vec<BlobRow>> {
        ask!(self, Snapshot, (ids) | session | blobs::rows_of(session, &ids))
    }

    async fn notices(&self, lane: &str, after: (Seq, u32), limit: usize) -> Result<Vec<Notice>> {
        ask!(self, Statement, (lane) | session | notices::waiting(session, &lane, after, limit))
    }

    async fn notices_done(&self, done: NoticesDone) -> Result<u64> {
        count(mutate(self, Mutation::NoticesDone { done }).await?)
    }

    async fn notice_lanes(&self) -> Result<Vec<NoticeLane>> {
        ask!(self, Statement, () | session | notices::lanes(session))
    }

    async fn has_blobs_in(&self, backend: &str) -> Result<bool> {
        ask!(self, Statement, (backend) | session | blobs::lie_in(session, &backend))
    }

    async fn duplicate(&self, domain: &Domain, digest: [u8; 32], plain_len: u64) -> Result<Option<BlobRow>> {
        let query = DuplicateQuery { domain: domain.clone(), digest, plain_len };
        ask!(self, Point, (query) | session | blobs::duplicate(session, &query))
    }

    async fn bases_of(&self, blob: BlobKey) -> Result<Vec<BlobKey>> {
        ask!(self, Statement, () | session | blobs::bases_of(session, blob))
    }

    async fn fan_in(&self, blob: BlobKey) -> Result<u64> {
        ask!(self, Statement, () | session | blobs::fan_in(session, blob))
    }

    async fn deltas_sum(&self, blob: BlobKey) -> Result<DeltasSum> {
        ask!(self, Statement, () | session | blobs::deltas_sum(session, blob))
    }

    async fn remember_hooks(&self, blobs: Vec<BlobHooks>) -> Result<u64> {
        count(self.change(Change::RememberHooks(blobs)).await?)
    }

    async fn resembling(&self, query: &HookQuery) -> Result<Vec<Resembling>> {
        ask!(self, Snapshot, (query) | session | hooks::resembling(session, &query))
    }

    async fn packs(&self, after: BlobKey, limit: usize) -> Result<Vec<PackUse>> {
        ask!(self, Statement, () | session | blobs::packs(session, after, limit))
    }

    async fn tombstones(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<Tombstone>> {
        ask!(self, Statement, () | session | blobs::tombstones(session, before_ms, limit))
    }

    async fn purge(&self, blob: BlobKey, now_ms: UnixMs) -> Result<()> {
        done(mutate(self, Mutation::Purge { blob, now_ms }).await?)
    }

    async fn deferred(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<Deferred>> {
        ask!(self, Statement, () | session | conversion::deferred(session, before_ms, limit))
    }

    async fn deferred_sum(&self) -> Result<DeferredSum> {
        ask!(self, Statement, () | session | conversion::deferred_sum(session))
    }

    async fn undefer(&self, blob: BlobKey) -> Result<bool> {
        changed(mutate(self, Mutation::Undefer { blob }).await?)
    }

    async fn heated(&self, after: Option<BlobKey>, limit: usize) -> Result<Vec<Heated>> {
        ask!(self, Statement, () | session | conversion::heated(session, after, limit))
    }

    async fn heat_sum(&self) -> Result<u64> {
        ask!(self, Statement, () | session | conversion::heat_sum(session))
    }

    async fn heat_of(&self, blobs: &[BlobKey]) -> Result<u64> {
        ask!(self, Snapshot, (blobs) | session | conversion::heat_of(session, &blobs))
    }

    async fn cool(&self, blob: BlobKey) -> Result<bool> {
        changed(mutate(self, Mutation::Cool { blob }).await?)
    }

    async fn referrers(&self, blob: BlobKey, limit: usize) -> Result<Vec<Referrer>> {
        ask!(self, Statement, () | session | conversion::referrers(session, blob, limit))
    }

    async fn kept_bases(&self, after: Option<BlobKey>, limit: usize) -> Result<Vec<BlobRow>> {
        ask!(self, Snapshot, () | session | conversion::kept_bases(session, after, limit))
    }

    async fn deltas_of(&self, base: BlobKey, limit: usize) -> Result<Vec<BlobRow>> {
        ask!(self, Statement, () | session | conversion::deltas_of(session, base, limit))
    }

    async fn scattered(&self, after: Seq, limit: usize) -> Result<Vec<Scattered>> {
        ask!(self, Statement, () | session | conversion::scattered(session, after, limit))
    }

    async fn bound_blobs(&self, version: VersionId) -> Result<Vec<BlobKey>> {
        ask!(self, Statement, () | session | conversion::bound_blobs(session, version))
    }

    async fn to_verify(&self, after: Option<VerifyPlace>, limit: usize) -> Result<Vec<ToVerify>> {
        ask!(self, Snapshot, () | session | verification::to_verify(session, after, limit))
    }

    async fn note_verified(&self, blobs: &[BlobKey], at_ms: UnixMs) -> Result<()> {
        done(self.change(Change::NoteVerified { blobs: blobs.to_vec(), at_ms }).await?)
    }

    async fn quarantine(&self, blob: BlobKey, damage: serde_json::Value, now_ms: UnixMs) -> Result<bool> {
        changed(mutate(self, Mutation::Quarantine { blob, damage, now_ms }).await?)
    }

    async fn end_quarantine(&self, blob: BlobKey) -> Result<bool> {
        changed(mutate(self, Mutation::EndQuarantine { blob }).await?)
    }

    async fn quarantined(&self, after: Option<BlobKey>, limit: usize) -> Result<Vec<Quarantined>> {
        ask!(self, Statement, () | session | verification::quarantined(session, after, limit))
    }

    async fn is_quarantined(&self, blob: BlobKey) -> Result<bool> {
        ask!(self, Statement, () | session | verification::is_quarantined(session, blob))
    }

    async fn part_referrers(&self, blob: BlobKey, limit: usize) -> Result<Vec<PartReferrer>> {
        ask!(self, Statement, () | session | verification::part_referrers(session, blob, limit))
    }

    async fn to_copy(&self, fan_in_min: u64, after: Option<BlobKey>, limit: usize) -> Result<Vec<BlobRow>> {
        ask!(self, Statement, () | session | copies::wanted(session, fan_in_min, after, limit))
    }

    async fn to_copy_shared(
        &self,
        backend: &str,
        objects_min: u64,
        after: Option<BlobKey>,
        limit: usize,
    ) -> Result<Vec<BlobRow>> {
        ask!(self, Snapshot, (backend) | session | copies::shared(session, &backend, objects_min, after, limit))
    }

    async fn set_copy(&self, commit: CopyCommit) -> Result<()> {
        done(mutate(self, Mutation::Copy { commit }).await?)
    }

    async fn unswept_epochs(&self) -> Result<Vec<u32>> {
        ask!(self, Statement, () | session | trash::unswept(session))
    }

    async fn note_sweep(&self, epochs: &[u32], found: Vec<TrashFile>) -> Result<()> {
        changed(mutate(self, Mutation::Sweep { epochs: epochs.to_vec(), found }).await?).map(drop)
    }

    async fn trash(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<TrashFile>> {
        ask!(self, Statement, () | session | trash::listed(session, before_ms, limit))
    }

    async fn trash_sum(&self) -> Result<TrashSum> {
        ask!(self, Statement, () | session | trash::sum(session))
    }

    async fn untrash(&self, files: Vec<TrashFile>) -> Result<u64> {
        count(mutate(self, Mutation::Untrash { files }).await?)
    }

    async fn verify_storage(&self) -> Result<Vec<String>> {
        ask!(self, Snapshot, () | session | check::storage(session))
    }

    async fn scour(&self, moves_rows: bool) -> Result<bool> {
        self.scour_file(moves_rows).await
    }

    async fn stats(&self) -> Result<Vec<BucketStats>> {
        ask!(self, Snapshot, () | session | stats::stats(session))
    }

    async fn last_seq(&self) -> Result<Seq> {
        ask!(self, Statement, () | session | read::last_seq(session))
    }

    async fn journal(&self, after: Seq, limit: usize) -> Result<Vec<JournalEntry>> {
        ask!(self, Statement, () | session | read::journal(session, after, limit))
    }

    async fn trim_journal(&self, last: &JournalEntry, link: JournalLink) -> Result<u64> {
        count(self.change(Change::TrimJournal(last.clone(), link)).await?)
    }

    fn acknowledge_behind(&self, gate: Arc<dyn Gate>) {
        // The first one stays: there is one journal.
        let _ = self.gate().set(gate);
    }

    async fn journal_marks(&self) -> Result<JournalMarks> {
        ask!(self, Statement, () | session | snapshot::marks(session))
    }

    async fn cut_journal(&self, after: Seq, to: Seq) -> Result<Seq> {
        match self.change(Change::CutJournal { after, to }).await? {
            Outcome::Seq(seq) => Ok(seq),
            other => unexpected(&other),
        }
    }

    async fn export(&self, to: mpsc::Sender<TableRows>) -> Result<Exported> {
        let snapshot = Arc::new(Snapshot::new(to));
        let question: Question<E::Session, Exported> = Box::new(move |session| {
            let snapshot = Arc::clone(&snapshot);
            Box::pin(async move { snapshot.export(session).await })
        });
        tell_of_damage(self, self.read(Consistency::Snapshot, question).await)
    }

    async fn begin_import(&self) -> Result<()> {
        done(self.change(Change::Import(Import::Begin)).await?)
    }

    async fn import(&self, pieces: Vec<TableRows>) -> Result<()> {
        done(self.change(Change::Import(Import::Rows(pieces))).await?)
    }

    async fn replay(&self, entries: Vec<JournalEntry>) -> Result<()> {
        done(self.change(Change::Import(Import::Replay(entries))).await?)
    }

    async fn replay_behind_hole(&self, entry: JournalEntry) -> Result<()> {
        let seq = entry.seq;
        let outcome = self.change(Change::Import(Import::ReplayBehindHole(entry))).await;
        if matches!(outcome, Err(CatalogError::Invalid(_))) {
            // Rolled back whole: the number it had is not given out again.
            done(self.change(Change::Import(Import::Skip(seq))).await?)?;
        }
        done(outcome?)
    }

    async fn end_import(&self, epoch_min: u32) -> Result<()> {
        done(self.change(Change::Import(Import::End { epoch_min })).await?)
    }

    async fn is_importing(&self) -> Result<bool> {
        ask!(self, Statement, () | session | snapshot::is_importing(session))
    }

    async fn check(&self) -> Result<Vec<String>> {
        ask!(self, Snapshot, () | session | check::check(session))
    }

    async fn failover_warning(&self) -> Result<Option<String>> {
        Engine::failover_warning(self).await
    }

    async fn probe(&self) -> Result<()> {
        ask!(self, Statement, () | session | read::probe(session))
    }
}

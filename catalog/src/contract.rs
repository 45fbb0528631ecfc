//! The contract every catalog keeps.

use crate::{
    snapshot::{Exported, JournalLink, JournalMarks, TableRows},
    types::*,
};
use async_trait::async_trait;
use std::{sync::Arc, time::Duration};
use thiserror::Error;
use tokio::sync::mpsc;

/// The result of a catalog call. Absence is `Ok(None)`, never an error (I10).
pub type Result<T> = std::result::Result<T, CatalogError>;

/// Strongly consistent metadata.
///
/// * Every mutating call is one transaction, durable when it returns `Ok`, and appends one row to
///   the journal with the next sequence number (I9, I11). A call that finds nothing to do (`None`,
///   `false`, 0, an empty list) is no mutation and takes no number.
/// * A call whose future is dropped may still be carried out.
/// * Mutations with a writer epoch are refused with [`CatalogError::Fenced`] when that epoch has
///   been closed (hazard E4).
/// * A mutation that references existing blobs (extents or bases) checks inside its transaction
///   that each is live and belongs to the same bucket, else [`CatalogError::BaseGone`]; new edges
///   are inserted in the same transaction (E3). Extents must lie inside their blobs.
/// * Whenever a mutation takes away the last reference (extent of a version or part, or edge) to a
///   blob, the blob becomes dying and gets a tombstone in the same transaction (E5, E6). References
///   are rows; counts are derived.
/// * Reads see every mutation that was acknowledged before they began.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    // Writers

    /// Opens a new writer epoch (greater than every earlier one) and returns it. For a catalog
    /// owned by one process all earlier epochs are closed by this.
    async fn open_epoch(&self) -> Result<u32>;
    /// Renews the lease of a writer's epoch. Leases only decide when [`Self::close_stale_epochs`]
    /// may close an epoch; what keeps a late writer from committing is the closed epoch itself
    /// (E23). [`CatalogError::Fenced`] when it is closed. Not a mutation: no journal row.
    async fn heartbeat(&self, epoch: u32) -> Result<()>;
    /// Closes the epochs of writers that ended, and returns those that were open.
    async fn close_epochs(&self, epochs: &[u32]) -> Result<Vec<u32>>;
    /// Closes the epochs that were not heard of for `lease_ms`, by the catalog's clock, and returns
    /// them. A catalog owned by one process has none: its writer needs no lease.
    async fn close_stale_epochs(&self, lease_ms: UnixMs) -> Result<Vec<u32>>;
    /// Writers whose epochs are open, in the order of their epochs: one process each, those that
    /// ended without a word included until another closes their epoch.
    async fn open_writers(&self) -> Result<Vec<OpenWriter>>;
    /// Epochs that are closed: blobs made in them and unknown to the catalog are garbage.
    async fn closed_epochs(&self) -> Result<Vec<u32>>;

    // Background jobs

    /// Takes the lease of a job for `take.lease_ms`, by the catalog's clock, and gives its row with
    /// a fence greater than every earlier one. `None` while another holds it, or when the job ended
    /// less than `take.rest_ms` ago. A lease whose time is over, or whose holder's epoch is closed,
    /// can be taken. [`CatalogError::Fenced`] when `take.epoch` is closed. Like everything about
    /// jobs, not a mutation: no journal row.
    async fn take_job(&self, take: JobTake) -> Result<Option<JobRow>>;
    /// Makes a lease last `lease_ms` from now and gives the row, which says what was wished for
    /// meanwhile. [`CatalogError::Fenced`] when another took it, or the holder's epoch is closed.
    async fn renew_job(&self, lease: &JobLease, lease_ms: UnixMs) -> Result<JobRow>;
    /// Stores a job's state. [`CatalogError::Fenced`] as for [`Self::renew_job`]: what a run that
    /// lost its lease remembers is not kept.
    async fn save_job(&self, lease: &JobLease, state: serde_json::Value) -> Result<()>;
    /// Gives a lease up with the state the job ends in, and notes the time.
    /// [`CatalogError::Fenced`] as for [`Self::renew_job`].
    async fn release_job(&self, lease: &JobLease, state: serde_json::Value) -> Result<()>;
    /// Leaves a wish for whoever holds or would take a job, making its row when there is none.
    async fn wish_job(&self, name: &str, wish: JobWish) -> Result<JobRow>;
    /// Every job that was ever taken or wished something, by name.
    async fn jobs(&self) -> Result<Vec<JobRow>>;

    // Settings

    /// A setting by name.
    async fn setting(&self, name: &str) -> Result<Option<serde_json::Value>>;
    /// Stores a setting.
    async fn put_setting(&self, name: &str, value: serde_json::Value) -> Result<()>;
    /// Stores a setting that is not there yet. [`CatalogError::Exists`] when it is: of several that
    /// store one at once, one does.
    async fn create_setting(&self, name: &str, value: serde_json::Value) -> Result<()>;

    // Users, groups, policies and access keys

    /// All of them, as of one moment.
    async fn accounts(&self) -> Result<AccountRows>;
    /// The number of the mutation that changed any of them last; 0 when none did. It reads one row:
    /// whoever serves requests asks several times a second.
    async fn accounts_version(&self) -> Result<Seq>;
    /// Changes rows together and gives their new version. [`CatalogError::Conflict`] when they have
    /// another version than is expected; [`CatalogError::Exists`] when a row to be created is
    /// there: of several that create one at once, one does. A row to be replaced need not be there,
    /// nor one to be removed.
    async fn change_accounts(&self, change: AccountsChange) -> Result<Seq>;

    // Buckets and keys

    /// Creates a bucket. [`CatalogError::Exists`] when the name is taken.
    async fn make_bucket(&self, bucket: NewBucket) -> Result<Bucket>;
    /// As [`Self::make_bucket`], without object lock.
    async fn create_bucket(
        &self,
        name: &str,
        owner: &str,
        settings: serde_json::Value,
        now_ms: UnixMs,
    ) -> Result<Bucket> {
        let (name, owner) = (name.to_owned(), owner.to_owned());
        self.make_bucket(NewBucket { name, owner, settings, object_lock: false, now_ms }).await
    }
    /// A bucket by name.
    async fn bucket(&self, name: &str) -> Result<Option<Bucket>> {
        Ok(self.kept_bucket(name).await?.map(Arc::unwrap_or_clone))
    }
    /// The same as it is kept: while nothing changes, whoever asks is given the same one.
    async fn kept_bucket(&self, name: &str) -> Result<Option<Arc<Bucket>>>;
    /// All buckets in byte order of names.
    async fn buckets(&self) -> Result<Vec<Bucket>>;
    /// Replaces a bucket's settings.
    async fn set_bucket_settings(&self, id: BucketId, settings: serde_json::Value) -> Result<()>;
    /// Replaces a bucket's settings while they are `expected`. [`CatalogError::Conflict`] when they
    /// are others: somebody was faster.
    async fn change_bucket_settings(
        &self,
        id: BucketId,
        expected: serde_json::Value,
        settings: serde_json::Value,
    ) -> Result<()> {
        self.change_bucket_settings_telling(id, expected, settings, Vec::new()).await
    }
    /// The same, leaving notices of it.
    async fn change_bucket_settings_telling(
        &self,
        id: BucketId,
        expected: serde_json::Value,
        settings: serde_json::Value,
        notices: Vec<NewNotice>,
    ) -> Result<()>;
    /// Says whether a bucket keeps versions from now on, for every commit that comes after this
    /// one. `Ok` when it did already. [`CatalogError::NoBucket`]; [`CatalogError::Invalid`] for
    /// [`Versioning::Off`], which nothing goes back to; [`CatalogError::BucketState`] for
    /// [`Versioning::Suspended`] in a bucket with object lock.
    async fn set_versioning(&self, id: BucketId, versioning: Versioning) -> Result<()>;
    /// Lets the versions of a bucket be locked, from now on and for good. `Ok` when they could be
    /// already. [`CatalogError::NoBucket`]; [`CatalogError::BucketState`] unless it keeps versions.
    async fn enable_object_lock(&self, id: BucketId) -> Result<()>;
    /// Deletes an empty bucket with its keys, and ends its uploads. [`CatalogError::NotEmpty`] when
    /// it has a version or a delete marker. `false` when there is none. Dying blobs of the bucket
    /// stay known until they are purged.
    async fn delete_bucket(&self, id: BucketId) -> Result<bool>;
    /// Stores a wrapped domain key. [`CatalogError::Exists`] when its id or (bucket, epoch) is
    /// taken. Blobs of a key epoch, and facts that begin as a sealed row does (version 1, then the
    /// id of its key; docs/format/blob-v1.md §5.3), are committed only while that key is there:
    /// [`CatalogError::KeyGone`] otherwise.
    async fn put_key(&self, key: WrappedKey) -> Result<()>;
    /// Wrapped keys of a bucket, by epoch. Keys of deleted buckets whose blobs are not purged yet
    /// are kept.
    async fn keys(&self, bucket: BucketId) -> Result<Vec<WrappedKey>>;
    /// Every wrapped key, by bucket and epoch, those of deleted buckets included.
    async fn all_keys(&self) -> Result<Vec<WrappedKey>>;
    /// How many blobs are sealed with which key, by bucket and epoch; epoch 0: with none. It reads
    /// every blob's row.
    async fn key_uses(&self) -> Result<Vec<KeyUse>>;
    /// Replaces the wraps of keys together. [`CatalogError::Conflict`] when one of them is not
    /// wrapped as is expected any more, or gone; nothing is changed then.
    async fn rewrap_keys(&self, keys: Vec<Rewrap>) -> Result<()>;
    /// What depends on a bucket's key of this epoch. It reads the bucket's blobs, versions and
    /// uploads.
    async fn key_dependents(&self, bucket: BucketId, epoch: u32) -> Result<KeyDependents>;
    /// Removes keys of a bucket with which nothing is sealed; `false` when none of them is there.
    /// [`CatalogError::NoBucket`]; [`CatalogError::BucketState`] when [`Self::key_dependents`] of
    /// one of them are not none. From then on nothing that is sealed with them can be committed.
    async fn remove_keys(&self, bucket: BucketId, epochs: &[u32]) -> Result<bool>;

    // Versions

    /// A key's current version.
    async fn current(&self, bucket: BucketId, key: &str) -> Result<Option<Version>>;
    /// A key's current version with its extents and blobs, read in one snapshot.
    async fn content(&self, bucket: BucketId, key: &str) -> Result<Option<Content>>;
    /// Whether a key was deleted with [`DeleteCommit::hide`].
    async fn hidden(&self, bucket: BucketId, key: &str) -> Result<bool>;
    /// A version by id, current or not any more; used to learn an unknown commit's outcome.
    async fn version(&self, bucket: BucketId, key: &str, id: VersionId) -> Result<Option<Content>>;
    /// A version by the name that clients know, with its extents and blobs; a delete marker has
    /// none.
    async fn named_version(&self, bucket: BucketId, key: &str, version: VersionRef) -> Result<Option<Content>>;
    /// The delete marker that is a key's newest version; `None` when the key has a current version,
    /// or none at all.
    async fn newest_marker(&self, bucket: BucketId, key: &str) -> Result<Option<Version>>;
    /// One page of all versions. Cost follows the page, as with [`Self::list`].
    async fn list_versions(&self, query: &VersionsQuery) -> Result<VersionsPage>;
    /// One page of a listing. Cost follows the page, not the bucket: common prefixes are seeked
    /// past, not scanned.
    async fn list(&self, query: &ListQuery) -> Result<ListPage>;
    /// Up to `limit` keys directly before and `limit` directly after `key` in byte order that start
    /// with `prefix`, nearest first, without `key` itself.
    async fn neighbours(
        &self,
        bucket: BucketId,
        prefix: &str,
        key: &str,
        limit: usize,
    ) -> Result<(Vec<String>, Vec<String>)>;
    /// Makes a version current. [`CatalogError::PreconditionFailed`], [`CatalogError::BaseGone`],
    /// [`CatalogError::NoBucket`]; [`CatalogError::BucketState`] for a lock in a bucket without
    /// object lock.
    async fn put(&self, commit: PutCommit) -> Result<Committed>;
    /// Removes a key's current version, or adds a delete marker where the bucket keeps versions.
    /// Hides the key where the commit says so.
    async fn delete(&self, commit: DeleteCommit) -> Result<Deleted>;
    /// Removes one version for good and returns it; `None` when there is none of that name.
    /// [`CatalogError::Locked`] while its lock holds.
    async fn delete_version(&self, commit: DeleteVersionCommit) -> Result<Option<Version>>;
    /// Changes a version's lock; `false` when the version is gone. [`CatalogError::BucketState`] in
    /// a bucket without object lock, [`CatalogError::Locked`] when the retention does not allow it.
    async fn set_lock(&self, commit: LockCommit) -> Result<bool>;
    /// Swaps a version's extents. [`CatalogError::Conflict`] when the version is gone or its
    /// extents are others.
    async fn rewrite(&self, commit: RewriteCommit) -> Result<()>;

    /// Versions of 1 to `size_max` bytes, current or not, with `seq > after`, ascending by it, at
    /// most `limit`, each with its extents and blobs: what came since a place that the caller
    /// remembers. A rewrite does not move a version.
    async fn small_contents(&self, after: Seq, size_max: u64, limit: usize) -> Result<Vec<Content>>;

    // Multipart uploads

    /// Creates an upload.
    async fn create_upload(&self, upload: Upload) -> Result<()>;
    /// An upload by id (completed ones included until they are forgotten).
    async fn upload(&self, bucket: BucketId, key: &str, id: UploadId) -> Result<Option<Upload>>;
    /// Stores a part. [`CatalogError::NoUpload`] when the upload is unknown, completed or aborted.
    async fn put_part(&self, commit: PartCommit) -> Result<()>;
    /// A part by its number; used to learn an unknown commit's outcome.
    async fn part(&self, upload: UploadId, number: u32) -> Result<Option<Part>>;
    /// Parts with number greater than `after`, ascending, at most `limit`; extents only when asked
    /// for.
    async fn parts(&self, upload: UploadId, after: u32, limit: usize, with_extents: bool) -> Result<Vec<Part>>;
    /// Open uploads.
    async fn uploads(&self, query: &UploadsQuery) -> Result<UploadsPage>;
    /// Completes an upload. [`CatalogError::NoUpload`] when unknown or already completed,
    /// [`CatalogError::Conflict`] when a part changed.
    async fn complete(&self, commit: CompleteCommit) -> Result<Committed>;
    /// Aborts an upload; `false` when unknown or completed.
    async fn abort(&self, bucket: BucketId, key: &str, id: UploadId, epoch: u32) -> Result<bool>;
    /// Open uploads created before `before_ms`, at most `limit`: for their expiry.
    async fn stale_uploads(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<Upload>>;
    /// How many open uploads an owner has, counted no further than `limit`.
    async fn open_uploads(&self, owner: &str, limit: u64) -> Result<u64>;
    /// What each bucket holds; buckets that hold nothing may be left out.
    async fn usage(&self) -> Result<Vec<(BucketId, Usage)>>;
    /// Every quota that limits something. One is set by [`Catalog::put_setting`] under
    /// [`QuotaOf::setting`]; from the next mutation on it holds for every process.
    async fn quotas(&self) -> Result<Vec<(QuotaOf, QuotaLimits)>>;
    /// Whether a quota lets something of so many bytes in now, before its content is there. What is
    /// held may change until it is; the mutation asks again.
    ///
    /// # Errors
    /// [`CatalogError::QuotaExceeded`].
    async fn has_room(&self, bucket: BucketId, growth: Growth) -> Result<()>;
    /// Forgets uploads completed before `before_ms`; how many.
    async fn forget_completed_uploads(&self, before_ms: UnixMs) -> Result<u64>;

    // Notices of changes

    /// Notices of a lane behind a place (change and ordinal), in the order of the changes, at most
    /// `limit`.
    async fn notices(&self, lane: &str, after: (Seq, u32), limit: usize) -> Result<Vec<Notice>>;
    /// Takes notices away that somebody was told, or that are given up; how many there were.
    async fn notices_done(&self, done: NoticesDone) -> Result<u64>;
    /// Every lane that ever had a notice, by name.
    async fn notice_lanes(&self) -> Result<Vec<NoticeLane>>;

    // Blobs

    /// Rows of blobs, in no particular order; unknown ids are left out.
    async fn blobs(&self, ids: &[BlobKey]) -> Result<Vec<BlobRow>>;
    /// Whether some blob, live or dying, lies in this backend: inline ones and originals do not.
    async fn has_blobs_in(&self, backend: &str) -> Result<bool>;
    /// A live whole or delta blob of the same domain and plain length with this content digest.
    async fn duplicate(&self, domain: &Domain, digest: [u8; 32], plain_len: u64) -> Result<Option<BlobRow>>;
    /// The whole blobs a delta needs.
    async fn bases_of(&self, blob: BlobKey) -> Result<Vec<BlobKey>>;
    /// How many deltas need a blob.
    async fn fan_in(&self, blob: BlobKey) -> Result<u64>;
    /// Sums over the deltas that need a blob.
    async fn deltas_sum(&self, blob: BlobKey) -> Result<DeltasSum>;
    /// Remembers what whole blobs resemble; how many of them. Blobs that are not live, not whole or
    /// known already are left out. Advice: no mutation, no journal row; it goes with the blob's
    /// purge, and losing it costs nothing but bases that are not found.
    async fn remember_hooks(&self, blobs: Vec<BlobHooks>) -> Result<u64>;
    /// Regions of live whole blobs of one domain, none in quarantine, that share hooks with the
    /// query, those that share most first, newer ones before older ones. Hooks that very many
    /// regions have count for the newest of them only.
    async fn resembling(&self, query: &HookQuery) -> Result<Vec<Resembling>>;
    /// Live packs with an id greater than `after`, ascending, at most `limit`, and how much of each
    /// is still referenced.
    async fn packs(&self, after: BlobKey, limit: usize) -> Result<Vec<PackUse>>;
    /// Tombstones older than `before_ms`, oldest first, at most `limit`.
    async fn tombstones(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<Tombstone>>;
    /// Removes a dying blob's row, edges and tombstone after its bytes are gone from the backend;
    /// its bases may become dying by this. [`CatalogError::Conflict`] when it is not dying.
    async fn purge(&self, blob: BlobKey, now_ms: UnixMs) -> Result<()>;

    // Conversion: what is stored is encoded anew in the background

    /// Live blobs of versions that wait to be encoded better (see [`NewBlob::deferred`]; parts of
    /// open uploads wait for their version first), since before `before_ms`, newest first, at most
    /// `limit`.
    async fn deferred(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<Deferred>>;
    /// Sums over all of them.
    async fn deferred_sum(&self) -> Result<DeferredSum>;
    /// Takes a blob out of that queue; `false` when it is not in it. A blob that is purged leaves
    /// it by itself.
    async fn undefer(&self, blob: BlobKey) -> Result<bool>;
    /// Live blobs that stand in the place of deltas which were read often
    /// ([`NewBlob::heat_bytes`]), with an id greater than `after` (`None`: from the first), by id,
    /// at most `limit`.
    async fn heated(&self, after: Option<BlobKey>, limit: usize) -> Result<Vec<Heated>>;
    /// Sum of [`NewBlob::heat_bytes`] over live blobs: what heat costs now.
    async fn heat_sum(&self) -> Result<u64>;
    /// The same sum over those of `blobs` that are live.
    async fn heat_of(&self, blobs: &[BlobKey]) -> Result<u64>;
    /// Forgets that a blob stands in the place of a delta, because it will not become one again;
    /// `false` when it does not. A blob that is purged is forgotten by itself.
    async fn cool(&self, blob: BlobKey) -> Result<bool>;
    /// Versions that reference a blob, by key, at most `limit`. Parts of open uploads are not among
    /// them.
    async fn referrers(&self, blob: BlobKey, limit: usize) -> Result<Vec<Referrer>>;
    /// Live blobs with an id greater than `after` (`None`: from the first) that no version and no
    /// part references, only deltas, by id, at most `limit`.
    async fn kept_bases(&self, after: Option<BlobKey>, limit: usize) -> Result<Vec<BlobRow>>;
    /// The live deltas that need a blob, at most `limit`.
    async fn deltas_of(&self, base: BlobKey, limit: usize) -> Result<Vec<BlobRow>>;
    /// Versions of at least [`SCATTERED_EXTENTS_MIN`] extents with `seq > after`, ascending by it,
    /// at most `limit`. A rewrite does not move a version; versions of fewer extents cost nothing.
    async fn scattered(&self, after: Seq, limit: usize) -> Result<Vec<Scattered>>;
    /// Those of a version's blobs that would outlive it, because another version, a part of an
    /// upload or a delta needs them, and those that are somebody else's business: originals, blobs
    /// in quarantine, blobs in the queue of [`Self::deferred`]. By id; nothing for an unknown
    /// version.
    async fn bound_blobs(&self, version: VersionId) -> Result<Vec<BlobKey>>;

    // Verification: what a scrub reads, and what it found

    /// Live blobs in the order a scrub takes them, behind `after`, at most `limit`: bases first,
    /// those that most deltas need before others, then by id. Blobs whose number of deltas changes
    /// meanwhile may be met twice, or only by the next scrub. Empty at the end.
    async fn to_verify(&self, after: Option<VerifyPlace>, limit: usize) -> Result<Vec<ToVerify>>;
    /// Remembers that blobs were read and found well at `at_ms`. Not a mutation: it is advice.
    async fn note_verified(&self, blobs: &[BlobKey], at_ms: UnixMs) -> Result<()>;
    /// Puts a live blob into quarantine, or changes what is known of its damage: it stays readable
    /// as far as it can be read and stays referenced, but is no duplicate's target and no new
    /// delta's base any more. `false` when it is not live, or this damage is known.
    async fn quarantine(&self, blob: BlobKey, damage: serde_json::Value, now_ms: UnixMs) -> Result<bool>;
    /// Ends a blob's quarantine, because it was found well; `false` when it is not in quarantine.
    async fn end_quarantine(&self, blob: BlobKey) -> Result<bool>;
    /// Live blobs in quarantine with an id greater than `after` (`None`: from the first), by id, at
    /// most `limit`.
    async fn quarantined(&self, after: Option<BlobKey>, limit: usize) -> Result<Vec<Quarantined>>;
    /// Whether a blob is in quarantine.
    async fn is_quarantined(&self, blob: BlobKey) -> Result<bool>;
    /// Parts of open uploads that reference a blob, at most `limit`.
    async fn part_referrers(&self, blob: BlobKey, limit: usize) -> Result<Vec<PartReferrer>>;

    // Second copies of blobs that many deltas need (hazard E8)

    /// Blobs that should have a second copy and have none: live, whole, in a backend, not in
    /// quarantine, needed by at least `fan_in_min` deltas, with an id greater than `after` (`None`:
    /// from the first), by id, at most `limit`. Counts every edge behind `after` once, so pages are
    /// long.
    async fn to_copy(&self, fan_in_min: u64, after: Option<BlobKey>, limit: usize) -> Result<Vec<BlobRow>>;
    /// The same for blobs in `backend`, whole or deltas, that at least `objects_min` versions need,
    /// themselves or through deltas: packs, exact duplicates, bases. Counts every extent behind
    /// `after` once.
    async fn to_copy_shared(
        &self,
        backend: &str,
        objects_min: u64,
        after: Option<BlobKey>,
        limit: usize,
    ) -> Result<Vec<BlobRow>>;
    /// Says where a blob's second copy lies. [`CatalogError::Conflict`] when the blob is not live,
    /// or has another copy than `commit.replaces`: then nothing names `commit.copy`, ever.
    async fn set_copy(&self, commit: CopyCommit) -> Result<()>;

    // Files that no row knows: found by a listing of what closed epochs left behind, removed later

    /// Closed epochs that no [`Self::note_sweep`] named since.
    async fn unswept_epochs(&self) -> Result<Vec<u32>>;
    /// Remembers that `epochs` were looked through, and puts what was found on the list of what is
    /// to be removed. What is on it already keeps its date.
    async fn note_sweep(&self, epochs: &[u32], found: Vec<TrashFile>) -> Result<()>;
    /// Files on the list since before `before_ms`, oldest first, at most `limit`.
    async fn trash(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<TrashFile>>;
    /// Sums over all of them.
    async fn trash_sum(&self) -> Result<TrashSum>;
    /// Takes files off the list, because they are gone or because they stay; how many were on it.
    async fn untrash(&self, files: Vec<TrashFile>) -> Result<u64>;

    // Facts for operators

    /// Sums of every bucket, dying bytes of deleted buckets under an empty name.
    async fn stats(&self) -> Result<Vec<BucketStats>>;
    /// The last mutation's sequence number, 0 before the first: what a store's anchor is compared
    /// with (E21).
    async fn last_seq(&self) -> Result<Seq>;
    /// Journal rows with `seq > after`, ascending, at most `limit`.
    async fn journal(&self, after: Seq, limit: usize) -> Result<Vec<JournalEntry>>;
    /// Drops journal rows up to and including `last`, which have been shipped in the document
    /// `link`; how many: none where they were dropped before. Not a mutation: no journal row.
    ///
    /// # Errors
    /// [`CatalogError::Conflict`] when this catalog never had `last`, or has another row of its
    /// number: the database has gone back since it was read, and its rows are not those that were
    /// shipped.
    async fn trim_journal(&self, last: &JournalEntry, link: JournalLink) -> Result<u64>;
    /// From now on changes that a client waits for are admitted by this gate before they begin and
    /// pass it after their commit, and [`Self::version`] and [`Self::part`], by which unknown
    /// outcomes are read back, pass it too. Set once.
    fn acknowledge_behind(&self, gate: Arc<dyn Gate>);
    /// How far the journal has been shipped: what is trimmed was.
    async fn journal_marks(&self) -> Result<JournalMarks>;
    /// Decides, for every shipper at once, that the journal's rows after `after` (what is shipped)
    /// up to `to` are one blob. Gives where that blob ends: `to`, or what was decided before;
    /// `after` itself when rows behind it have been shipped meanwhile, so that the caller looks
    /// again. So two shippers that do not know of each other write the same rows under the same
    /// name (E23).
    /// Not a mutation: no journal row.
    async fn cut_journal(&self, after: Seq, to: Seq) -> Result<Seq>;

    // The catalog as a whole

    /// Streams every row but the journal's as of one moment. Memory does not grow with the catalog;
    /// the stream's reader sets the pace. Rows that arrived before an error are of no use.
    async fn export(&self, to: mpsc::Sender<TableRows>) -> Result<Exported>;
    /// Empties the catalog so that it can be filled, and says so until [`Self::end_import`].
    /// [`CatalogError::NotEmpty`] when it has a bucket and no import was under way. What follows is
    /// not journaled.
    async fn begin_import(&self) -> Result<()>;
    /// Takes rows of [`Self::export`], in its order, all or none; the more at a time, the faster.
    /// Columns that are missing get their default; [`CatalogError::Invalid`] for unknown ones.
    async fn import(&self, pieces: Vec<TableRows>) -> Result<()>;
    /// Makes mutations again exactly as they were recorded, all or none. [`CatalogError::Invalid`]
    /// when the first does not follow the last mutation, or one does not give now what it gave
    /// then.
    async fn replay(&self, entries: Vec<JournalEntry>) -> Result<()>;
    /// Makes one mutation again behind a hole in the journal: its number may leave some out, what
    /// the missing ones would have changed is not asked for (conditions that held then, a version
    /// that was removed), and it may give something else than it gave then.
    /// [`CatalogError::Invalid`] when it cannot be made without what is missing: then only its
    /// number is taken.
    async fn replay_behind_hole(&self, entry: JournalEntry) -> Result<()>;
    /// Ends an import: all writers of before are closed, and new epochs are greater than
    /// `epoch_min`.
    async fn end_import(&self, epoch_min: u32) -> Result<()>;
    /// Whether an import was begun and not ended: the catalog must not be served.
    async fn is_importing(&self) -> Result<bool>;

    // Its soundness

    /// Every broken rule found by recounting references (hazard E5), as sentences; empty when all
    /// is well.
    async fn check(&self) -> Result<Vec<String>>;
    /// In a sentence for the operator: how a failover of the database may lose what was committed,
    /// and the setting that prevents it. `None` when it may not.
    async fn failover_warning(&self) -> Result<Option<String>>;
    /// Compares every row that has a checksum with it, and lets an embedded database verify its own
    /// pages, indexes and references; what is wrong, as sentences. Reads everything once, beside
    /// whatever else is asked.
    async fn verify_storage(&self) -> Result<Vec<String>>;
    /// Overwrites what rows that are gone have left in an embedded database's files, in small steps
    /// between other changes; `false` where the database is a server's: nothing is done. Without
    /// `moves_rows` copies of rows stay in pages that are in use, and little is written.
    async fn scour(&self, moves_rows: bool) -> Result<bool>;
    /// Answers whether the catalog can serve.
    async fn probe(&self) -> Result<()>;
}

/// What a change passes before its commit, and between its commit and its acknowledgement (I11).
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Lets a change begin, or refuses it before anything is written.
    ///
    /// # Errors
    /// [`CatalogError::Refused`]: nothing was changed.
    async fn admit(&self) -> Result<()> {
        Ok(())
    }
    /// Waits until everything that is committed now, in this run of the database's server, may be
    /// acknowledged.
    ///
    /// # Errors
    /// [`CatalogError::Unknown`]: the change is committed and may not be acknowledged.
    async fn pass(&self, run: ServerRun) -> Result<()>;
    /// Is told that a row is not what was written. Must not block.
    fn damaged(&self, _why: &str) {}
}

/// Is told of every transaction that was committed; for metrics. Called on the committing thread:
/// it must not block.
pub trait CommitObserver: Send + Sync + 'static {
    /// `operations` changes became durable together, `elapsed` after their transaction began.
    fn committed(&self, operations: usize, elapsed: Duration);
}

/// Space on the catalog's disk that was kept for when it is full. Called on the committing thread,
/// which it may block.
pub trait SpareSpace: Send + Sync + 'static {
    /// Gives some of it to the file system; true when there was some.
    fn give_back(&self) -> bool;
    /// Whether it is not all there: what is free is for changes that make space.
    fn is_spent(&self) -> bool;
}

/// Why a catalog call did not go through. Nothing was changed, except where
/// [`CatalogError::Unknown`] says that it is not known.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// The name or id is taken.
    #[error("exists already")]
    Exists,
    /// The bucket has content.
    #[error("bucket is not empty")]
    NotEmpty,
    /// The bucket is not there (any more).
    #[error("no such bucket")]
    NoBucket,
    /// The upload is not there, or not open any more.
    #[error("no such upload")]
    NoUpload,
    /// The version's lock holds.
    #[error("the version is locked")]
    Locked,
    /// The bucket keeps no versions, or its versions cannot be locked.
    #[error("not allowed in the bucket's current state")]
    BucketState,
    /// It would make the bucket, or all buckets of its owner, hold more than they may. Whose quota.
    #[error("the quota of the {0} is exceeded")]
    QuotaExceeded(&'static str),
    /// The commit's [`Precondition`] does not hold.
    #[error("precondition failed")]
    PreconditionFailed,
    /// A referenced blob is not live any more: choose another base, or encode whole.
    #[error("a referenced blob is not live")]
    BaseGone,
    /// What the commit was based on has changed meanwhile.
    #[error("changed meanwhile")]
    Conflict,
    /// The writer's epoch is closed: this process must not write any more.
    #[error("writer epoch is closed")]
    Fenced,
    /// What the commit brings is sealed with a key that is not there (any more): nobody could open
    /// it.
    #[error("a key that this is sealed with is gone")]
    KeyGone,
    /// The commit contradicts itself (lengths, empty extent, blob of another bucket …): a bug of
    /// the caller.
    #[error("invalid commit: {0}")]
    Invalid(String),
    /// Another process holds the embedded catalog.
    #[error("the catalog is in use by another process")]
    InUse,
    /// The catalog was written by a newer version of the program.
    #[error("catalog schema {found} is newer than this program's {known}")]
    NewerSchema {
        /// Version found.
        found: i64,
        /// Newest version known.
        known: i64,
    },
    /// Disk full: reads still work.
    #[error("catalog storage is full")]
    Full,
    /// The gate does not let changes in; nothing was changed. Why, for the operator.
    #[error("refused: {0}")]
    Refused(String),
    /// A row is not what was written, or the database's file is damaged: never an absence. What,
    /// for the operator.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
    /// Passing trouble; nothing was changed; worth repeating.
    #[error("catalog unavailable: {0}")]
    Unavailable(String),
    /// The connection broke during the commit: it may or may not have gone through. Read the
    /// version back by id (I9).
    #[error("commit outcome unknown: {0}")]
    Unknown(String),
    /// Anything else.
    #[error("catalog failure: {0}")]
    Other(String),
}

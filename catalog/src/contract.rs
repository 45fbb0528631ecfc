//! The contract every catalog keeps.

use crate::types::*;
use async_trait::async_trait;
use std::time::Duration;
use thiserror::Error;

/// The result of a catalog call. Absence is `Ok(None)`, never an error (I10).
pub type Result<T> = std::result::Result<T, CatalogError>;

/// Strongly consistent metadata.
///
/// * Every mutating call is one transaction, durable when it returns `Ok`, and appends one row to the journal with the next sequence number (I9, I11).
///   A call that finds nothing to do (`None`, `false`, 0, an empty list) is no mutation and takes no number.
/// * A call whose future is dropped may still be carried out.
/// * Mutations with a writer epoch are refused with [`CatalogError::Fenced`] when that epoch has been closed (hazard E4).
/// * A mutation that references existing blobs (extents or bases) checks inside its transaction that each is live and belongs to the same bucket, else
///   [`CatalogError::BaseGone`]; new edges are inserted in the same transaction (E3). Extents must lie inside their blobs.
/// * Whenever a mutation takes away the last reference (extent of a version or part, or edge) to a blob, the blob becomes dying and gets a tombstone in the same transaction (E5, E6).
///   References are rows; counts are derived.
/// * Reads see every mutation that was acknowledged before they began.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    // Writers

    /// Opens a new writer epoch (greater than every earlier one) and returns it. For a catalog owned by one process all earlier epochs are closed by this.
    async fn open_epoch(&self) -> Result<u32>;
    /// Renews the lease of a writer's epoch. Leases only decide when [`Self::close_stale_epochs`] may close an epoch; what keeps a late
    /// writer from committing is the closed epoch itself (E23). [`CatalogError::Fenced`] when it is closed. Not a mutation: no journal row.
    async fn heartbeat(&self, epoch: u32) -> Result<()>;
    /// Closes the epochs of writers that ended, and returns those that were open.
    async fn close_epochs(&self, epochs: &[u32]) -> Result<Vec<u32>>;
    /// Closes the epochs that were not heard of for `lease_ms`, by the catalog's clock, and returns them. A catalog owned by one process
    /// has none: its writer needs no lease.
    async fn close_stale_epochs(&self, lease_ms: UnixMs) -> Result<Vec<u32>>;
    /// Epochs that are closed: blobs made in them and unknown to the catalog are garbage.
    async fn closed_epochs(&self) -> Result<Vec<u32>>;

    // Settings

    /// A setting by name.
    async fn setting(&self, name: &str) -> Result<Option<serde_json::Value>>;
    /// Stores a setting.
    async fn put_setting(&self, name: &str, value: serde_json::Value) -> Result<()>;

    // Buckets and keys

    /// Creates a bucket. [`CatalogError::Exists`] when the name is taken.
    async fn create_bucket(
        &self,
        name: &str,
        owner: &str,
        settings: serde_json::Value,
        now_ms: UnixMs,
    ) -> Result<Bucket>;
    /// A bucket by name.
    async fn bucket(&self, name: &str) -> Result<Option<Bucket>>;
    /// All buckets in byte order of names.
    async fn buckets(&self) -> Result<Vec<Bucket>>;
    /// Replaces a bucket's settings.
    async fn set_bucket_settings(&self, id: BucketId, settings: serde_json::Value) -> Result<()>;
    /// Deletes an empty bucket with its keys and aborted uploads. [`CatalogError::NotEmpty`] when it has a version or an open upload. `false` when there is none.
    /// Dying blobs of the bucket stay known until they are purged.
    async fn delete_bucket(&self, id: BucketId) -> Result<bool>;
    /// Stores a wrapped domain key. [`CatalogError::Exists`] when its id or (bucket, epoch) is taken.
    async fn put_key(&self, key: WrappedKey) -> Result<()>;
    /// Wrapped keys of a bucket, by epoch. Keys of deleted buckets whose blobs are not purged yet are kept.
    async fn keys(&self, bucket: BucketId) -> Result<Vec<WrappedKey>>;

    // Versions

    /// A key's current version.
    async fn current(&self, bucket: BucketId, key: &str) -> Result<Option<Version>>;
    /// A key's current version with its extents and blobs, read in one snapshot.
    async fn content(&self, bucket: BucketId, key: &str) -> Result<Option<Content>>;
    /// A version by id, current or not any more; used to learn an unknown commit's outcome.
    async fn version(&self, bucket: BucketId, key: &str, id: VersionId) -> Result<Option<Content>>;
    /// One page of a listing. Cost follows the page, not the bucket: common prefixes are seeked past, not scanned.
    async fn list(&self, query: &ListQuery) -> Result<ListPage>;
    /// Up to `limit` keys directly before and `limit` directly after `key` in byte order that start with `prefix`, nearest first, without `key` itself.
    async fn neighbours(
        &self,
        bucket: BucketId,
        prefix: &str,
        key: &str,
        limit: usize,
    ) -> Result<(Vec<String>, Vec<String>)>;
    /// Makes a version current. [`CatalogError::PreconditionFailed`], [`CatalogError::BaseGone`], [`CatalogError::NoBucket`].
    async fn put(&self, commit: PutCommit) -> Result<Committed>;
    /// Removes a key's current version and returns it; `None` when there was none.
    async fn delete(&self, commit: DeleteCommit) -> Result<Option<Version>>;
    /// Swaps a version's extents. [`CatalogError::Conflict`] when the version is gone or its extents are others.
    async fn rewrite(&self, commit: RewriteCommit) -> Result<()>;

    // Multipart uploads

    /// Creates an upload.
    async fn create_upload(&self, upload: Upload) -> Result<()>;
    /// An upload by id (completed ones included until they are forgotten).
    async fn upload(&self, bucket: BucketId, key: &str, id: UploadId) -> Result<Option<Upload>>;
    /// Stores a part. [`CatalogError::NoUpload`] when the upload is unknown, completed or aborted.
    async fn put_part(&self, commit: PartCommit) -> Result<()>;
    /// Parts with number greater than `after`, ascending, at most `limit`; extents only when asked for.
    async fn parts(&self, upload: UploadId, after: u32, limit: usize, with_extents: bool) -> Result<Vec<Part>>;
    /// Open uploads.
    async fn uploads(&self, query: &UploadsQuery) -> Result<UploadsPage>;
    /// Completes an upload. [`CatalogError::NoUpload`] when unknown or already completed, [`CatalogError::Conflict`] when a part changed.
    async fn complete(&self, commit: CompleteCommit) -> Result<Committed>;
    /// Aborts an upload; `false` when unknown or completed.
    async fn abort(&self, bucket: BucketId, key: &str, id: UploadId, epoch: u32) -> Result<bool>;
    /// Open uploads created before `before_ms`, at most `limit`: for their expiry.
    async fn stale_uploads(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<Upload>>;
    /// Forgets uploads completed before `before_ms`; how many.
    async fn forget_completed_uploads(&self, before_ms: UnixMs) -> Result<u64>;

    // Blobs

    /// Rows of blobs, in no particular order; unknown ids are left out.
    async fn blobs(&self, ids: &[BlobKey]) -> Result<Vec<BlobRow>>;
    /// A live whole or delta blob of the same bucket, key epoch, backend and plain length with this content digest.
    async fn duplicate(
        &self,
        bucket: BucketId,
        key_epoch: u32,
        backend: &str,
        digest: [u8; 32],
        plain_len: u64,
    ) -> Result<Option<BlobRow>>;
    /// The whole blobs a delta needs.
    async fn bases_of(&self, blob: BlobKey) -> Result<Vec<BlobKey>>;
    /// How many deltas need a blob.
    async fn fan_in(&self, blob: BlobKey) -> Result<u64>;
    /// Tombstones older than `before_ms`, oldest first, at most `limit`.
    async fn tombstones(&self, before_ms: UnixMs, limit: usize) -> Result<Vec<Tombstone>>;
    /// Removes a dying blob's row, edges and tombstone after its bytes are gone from the backend; its bases may become dying by this.
    /// [`CatalogError::Conflict`] when it is not dying.
    async fn purge(&self, blob: BlobKey, now_ms: UnixMs) -> Result<()>;

    // Facts for operators

    /// Sums of every bucket, dying bytes of deleted buckets under an empty name.
    async fn stats(&self) -> Result<Vec<BucketStats>>;
    /// The last mutation's sequence number, 0 before the first: what a store's anchor is compared with (E21).
    async fn last_seq(&self) -> Result<Seq>;
    /// Journal rows with `seq > after`, ascending, at most `limit`.
    async fn journal(&self, after: Seq, limit: usize) -> Result<Vec<JournalEntry>>;
    /// Drops journal rows up to and including `seq` (they have been shipped); how many. Not a mutation: no journal row.
    async fn trim_journal(&self, seq: Seq) -> Result<u64>;
    /// Every broken rule found by recounting references (hazard E5), as sentences; empty when all is well.
    async fn check(&self) -> Result<Vec<String>>;
    /// Answers whether the catalog can serve.
    async fn probe(&self) -> Result<()>;
}

/// Is told of every transaction that was committed; for metrics. Called on the committing thread: it must not block.
pub trait CommitObserver: Send + Sync + 'static {
    /// `operations` changes became durable together, `elapsed` after their transaction began.
    fn committed(&self, operations: usize, elapsed: Duration);
}

/// Why a catalog call did not go through. Nothing was changed, except where [`CatalogError::Unknown`] says that it is not known.
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
    /// The commit contradicts itself (lengths, empty extent, blob of another bucket …): a bug of the caller.
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
    /// Passing trouble; nothing was changed; worth repeating.
    #[error("catalog unavailable: {0}")]
    Unavailable(String),
    /// The connection broke during the commit: it may or may not have gone through. Read the version back by id (I9).
    #[error("commit outcome unknown: {0}")]
    Unknown(String),
    /// Anything else.
    #[error("catalog failure: {0}")]
    Other(String),
}

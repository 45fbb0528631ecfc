//! The nouns of the catalog. All of them serialise, because the journal keeps every mutation.

mod accounts;
mod amounts;
mod blobs;
mod buckets;
mod history;
mod ids;
mod jobs;
mod listing;
mod lock;
mod multipart;
mod notices;
mod quotas;
mod versions;
mod writers;

pub use accounts::{AccountKind, AccountName, AccountRow, AccountRows, AccountsChange};
pub use amounts::{BucketStats, StoredBytes, Tombstone, TrashFile, TrashSum};
pub use blobs::{
    BlobForm, BlobHooks, BlobRow, BlobState, CopyCommit, Deferred, DeferredSum, DeltasSum, Domain, Extent, FormBytes,
    Heated, HookQuery, NewBlob, Original, PackUse, PartReferrer, Quarantined, REGION_HOOKS_MAX, REGIONS_MAX, Referrer,
    Resembling, SCATTERED_EXTENTS_MIN, Scattered, ToVerify, VerifyPlace,
};
pub use buckets::{Bucket, KeyDependents, KeyUse, NewBucket, Rewrap, WrappedKey};
pub use history::{DeleteVersionCommit, Deleted, VersionEntry, Versioning, VersionsPage, VersionsQuery};
pub use ids::{BlobKey, BucketId, Compartment, NO_SERVER, Seq, ServerRun, UnixMs, UploadId, VersionId, VersionRef};
pub use jobs::{JobLease, JobRow, JobTake, JobWish, JournalEntry, MutationText};
pub use listing::{ListEntry, ListPage, ListQuery};
pub use lock::{LockChange, LockCommit, Retention, RetentionMode, VersionLock};
pub use multipart::{CompleteCommit, CompletedUpload, Part, PartCommit, Upload, UploadsPage, UploadsQuery};
pub use notices::{NewNotice, Notice, NoticeLane, NoticeOf, NoticesDone};
pub use quotas::{Growth, QuotaLimits, QuotaOf, Usage};
pub use versions::{Committed, Content, DeleteCommit, Precondition, PutCommit, RewriteCommit, Version};
pub use writers::OpenWriter;

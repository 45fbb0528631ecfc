//! What the journal keeps: every mutation with everything needed to make it again (I11).
//!
//! Variant and field names are part of the journal's format (docs/reference/catalog.md). Values
//! that the catalog chose (ids, epochs, clamped times) are in the row, so replaying asks neither
//! clock nor counter.

use crate::types::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

fn is_unset(at: &UnixMs) -> bool {
    *at == 0
}

/// One mutation, as the journal's JSON names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mutation {
    /// A writer began.
    OpenEpoch {
        /// The new epoch.
        epoch: u32,
        /// Earlier epochs that this closed.
        closes: Vec<u32>,
    },
    /// Writers that ended, or whose lease ran out.
    CloseEpochs {
        /// Their epochs.
        epochs: Vec<u32>,
    },
    /// A setting.
    PutSetting {
        /// Its name.
        name: String,
        /// Its value.
        value: serde_json::Value,
        /// Refused when the setting is there. What was not refused is a setting like any other: the
        /// journal does not tell them apart.
        #[serde(skip)]
        creates: bool,
    },
    /// Other users, groups, policies or access keys.
    ChangeAccounts {
        /// The rows.
        change: AccountsChange,
    },
    /// A new bucket.
    CreateBucket {
        /// The bucket with the id it got.
        bucket: Bucket,
    },
    /// New settings of a bucket.
    SetBucketSettings {
        /// The bucket.
        bucket: BucketId,
        /// Its settings.
        settings: serde_json::Value,
        /// Refused when it has others than these; not in the journal, which has what was not
        /// refused.
        #[serde(skip)]
        expected: Option<serde_json::Value>,
        /// Who is told of it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notices: Vec<NewNotice>,
    },
    /// Whether a bucket keeps versions.
    SetVersioning {
        /// The bucket.
        bucket: BucketId,
        /// From now on.
        versioning: Versioning,
    },
    /// From now on the bucket's versions can be locked.
    EnableObjectLock {
        /// The bucket.
        bucket: BucketId,
    },
    /// Another lock of a version.
    SetLock {
        /// As the writer asked for it.
        commit: Box<LockCommit>,
    },
    /// The end of a bucket.
    DeleteBucket {
        /// The bucket.
        bucket: BucketId,
        /// When; absent in rows of the first version, whose buckets had no open upload left.
        #[serde(default, skip_serializing_if = "is_unset")]
        now_ms: UnixMs,
    },
    /// A wrapped domain key.
    PutKey {
        /// The key.
        key: WrappedKey,
    },
    /// Other wraps of keys that stay what they are.
    RewrapKeys {
        /// The keys.
        keys: Vec<Rewrap>,
    },
    /// The end of keys: what is sealed with them cannot be opened any more.
    RemoveKeys {
        /// The bucket that they serve.
        bucket: BucketId,
        /// Their epochs.
        epochs: Vec<u32>,
        /// When.
        now_ms: UnixMs,
    },
    /// A new current version.
    Put {
        /// As the writer asked for it.
        commit: Box<PutCommit>,
        /// Last-Modified after clamping.
        modified_ms: UnixMs,
        /// Whether it got a name of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        named: bool,
    },
    /// A key without its current version, or with a delete marker.
    Delete {
        /// As the writer asked for it.
        commit: Box<DeleteCommit>,
        /// The version that was removed.
        removed: VersionId,
        /// The delete marker's Last-Modified after clamping, when there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        modified_ms: Option<UnixMs>,
        /// Whether the marker got a name of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        named: bool,
    },
    /// One version less.
    DeleteVersion {
        /// As the writer asked for it.
        commit: Box<DeleteVersionCommit>,
        /// The version that was removed.
        removed: VersionId,
    },
    /// Other extents for a version.
    Rewrite {
        /// As the writer asked for it.
        commit: Box<RewriteCommit>,
    },
    /// A new upload.
    CreateUpload {
        /// The upload.
        upload: Box<Upload>,
    },
    /// A new or replaced part.
    PutPart {
        /// As the writer asked for it.
        commit: Box<PartCommit>,
    },
    /// An upload that became a version.
    Complete {
        /// As the writer asked for it.
        commit: Box<CompleteCommit>,
        /// Last-Modified after clamping.
        modified_ms: UnixMs,
        /// Whether it got a name of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        named: bool,
    },
    /// An upload that was given up.
    Abort {
        /// Bucket.
        bucket: BucketId,
        /// Key.
        key: String,
        /// The upload.
        upload: UploadId,
        /// The writer's epoch.
        epoch: u32,
        /// When.
        now_ms: UnixMs,
    },
    /// Completed uploads that are not remembered any more.
    ForgetCompletedUploads {
        /// Those completed before this.
        before_ms: UnixMs,
    },
    /// A blob that is encoded as well as it will be: out of the queue.
    Undefer {
        /// The blob.
        blob: BlobKey,
    },
    /// Whole content that stood in the place of a delta and will not become one again.
    Cool {
        /// The blob.
        blob: BlobKey,
    },
    /// A blob that was found damaged.
    Quarantine {
        /// The blob.
        blob: BlobKey,
        /// What is wrong with it.
        damage: serde_json::Value,
        /// When.
        now_ms: UnixMs,
    },
    /// A blob in quarantine that was found well.
    EndQuarantine {
        /// The blob.
        blob: BlobKey,
    },
    /// A second copy of a blob.
    Copy {
        /// As the writer asked for it.
        commit: CopyCommit,
    },
    /// Closed epochs that were looked through, and the files of theirs that no row knows.
    Sweep {
        /// The epochs; empty when more of what they left follows.
        epochs: Vec<u32>,
        /// The files.
        found: Vec<TrashFile>,
    },
    /// Files that are not on the list of what is to be removed any more: they are gone, or they
    /// stay.
    Untrash {
        /// The files.
        files: Vec<TrashFile>,
    },
    /// Notices that somebody was told, or that were given up.
    NoticesDone {
        /// Which.
        done: NoticesDone,
    },
    /// A dying blob whose bytes are gone.
    Purge {
        /// The blob.
        blob: BlobKey,
        /// When.
        now_ms: UnixMs,
    },
}

/// The keys of a bucket that something is sealed with.
pub struct Seals {
    /// Whose they are.
    pub bucket: BucketId,
    /// As sealed rows name them.
    pub ids: BTreeSet<[u8; 16]>,
    /// As blobs name them.
    pub epochs: BTreeSet<u32>,
}

/// How a sealed row begins: with a version, then the id of its key (docs/format/blob-v1.md §5.3).
pub(crate) const SEALED_ROW_VERSION: u8 = 1;
/// The least length of one: version, id of the key, nonce and tag.
const SEALED_ROW_LEN_MIN: usize = 1 + 16 + 24 + 16;

fn key_of_row(facts: &[u8]) -> Option<[u8; 16]> {
    match facts {
        [SEALED_ROW_VERSION, rest @ ..] if facts.len() >= SEALED_ROW_LEN_MIN => rest.first_chunk().copied(),
        _ => None,
    }
}

impl Mutation {
    /// The epoch that must be open for this mutation to go through; `None` for those not bound to a
    /// writer.
    pub(crate) fn epoch(&self) -> Option<u32> {
        match self {
            Mutation::Put { commit, .. } => Some(commit.epoch),
            Mutation::Delete { commit, .. } => Some(commit.epoch),
            Mutation::DeleteVersion { commit, .. } => Some(commit.epoch),
            Mutation::SetLock { commit } => Some(commit.epoch),
            Mutation::Rewrite { commit } => Some(commit.epoch),
            Mutation::PutPart { commit } => Some(commit.epoch),
            Mutation::Complete { commit, .. } => Some(commit.epoch),
            Mutation::Abort { epoch, .. } => Some(*epoch),
            Mutation::Copy { commit } => Some(commit.epoch),
            _ => None,
        }
    }

    /// What it brings: the facts of its rows, and blobs.
    fn brings(&self) -> (Option<BucketId>, Vec<&[u8]>, &[NewBlob]) {
        match self {
            Mutation::Put { commit, .. } => (Some(commit.bucket), vec![&commit.facts], &commit.new_blobs),
            Mutation::Rewrite { commit } => (Some(commit.bucket), vec![&commit.facts], &commit.new_blobs),
            Mutation::PutPart { commit } => (Some(commit.bucket), vec![&commit.part.facts], &commit.new_blobs),
            Mutation::Complete { commit, .. } => (Some(commit.bucket), vec![&commit.facts], &[]),
            Mutation::CreateUpload { upload } => (Some(upload.bucket), vec![&upload.facts], &[]),
            _ => (None, Vec::new(), &[]),
        }
    }

    /// The keys that what it brings is sealed with; `None` when it is sealed with none.
    pub fn seals(&self) -> Option<Seals> {
        let (bucket, facts, blobs) = self.brings();
        let ids: BTreeSet<[u8; 16]> = facts.into_iter().filter_map(key_of_row).collect();
        let of_key = |blob: &&NewBlob| blob.row.key_epoch != 0 && blob.row.original.is_none();
        let epochs: BTreeSet<u32> = blobs.iter().filter(of_key).map(|blob| blob.row.key_epoch).collect();
        bucket.filter(|_| !(ids.is_empty() && epochs.is_empty())).map(|bucket| Seals { bucket, ids, epochs })
    }

    /// Who is told of it.
    pub(crate) fn notices(&self) -> &[NewNotice] {
        match self {
            Mutation::Put { commit, .. } => &commit.notices,
            Mutation::Delete { commit, .. } => &commit.notices,
            Mutation::DeleteVersion { commit, .. } => &commit.notices,
            Mutation::Rewrite { commit } => &commit.notices,
            Mutation::Complete { commit, .. } => &commit.notices,
            Mutation::SetBucketSettings { notices, .. } => notices,
            _ => &[],
        }
    }

    /// Whether a client waits for it. Settings are written by the program itself, also on the way
    /// to opening the gate.
    pub(crate) fn is_acknowledged(&self) -> bool {
        !matches!(
            self,
            Mutation::OpenEpoch { .. }
                | Mutation::CloseEpochs { .. }
                | Mutation::PutSetting { .. }
                | Mutation::ForgetCompletedUploads { .. }
                | Mutation::Undefer { .. }
                | Mutation::Cool { .. }
                | Mutation::Quarantine { .. }
                | Mutation::EndQuarantine { .. }
                | Mutation::Copy { .. }
                | Mutation::Sweep { .. }
                | Mutation::Untrash { .. }
                | Mutation::NoticesDone { .. }
                | Mutation::Purge { .. }
        )
    }

    /// The writer's clock where the mutation carries it.
    pub(crate) fn at_ms(&self) -> Option<UnixMs> {
        match self {
            Mutation::Put { commit, .. } => Some(commit.now_ms),
            Mutation::Delete { commit, .. } => Some(commit.now_ms),
            Mutation::DeleteVersion { commit, .. } => Some(commit.now_ms),
            Mutation::SetLock { commit } => Some(commit.now_ms),
            Mutation::Rewrite { commit } => Some(commit.now_ms),
            Mutation::Complete { commit, .. } => Some(commit.now_ms),
            Mutation::PutPart { commit } => Some(commit.part.modified_ms),
            Mutation::CreateBucket { bucket } => Some(bucket.created_ms),
            Mutation::CreateUpload { upload } => Some(upload.created_ms),
            Mutation::Abort { now_ms, .. } | Mutation::Purge { now_ms, .. } | Mutation::Quarantine { now_ms, .. } => {
                Some(*now_ms)
            }
            _ => None,
        }
    }
}

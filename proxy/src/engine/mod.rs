//! The engine: stores content and gives it back. Knows buckets, keys, versions, blobs; no HTTP.
//!
//! A write is `stage` (the body is encoded and streamed to the backend while it arrives) followed by `publish` (the
//! blob is finished, made durable, and one catalog transaction makes it visible, I9). Dropping what `stage` gave
//! abandons it without a trace.

pub mod config;
pub mod error;
pub mod facts;

pub use config::{BucketSettings, Compression, EffortSetting, Encryption, EngineConfig};
pub use error::{EngineError, StoreError};
pub use facts::{Checksum, Facts, Form, PartFacts, StorageFacts};

use bytes::Bytes;
use catalog::{Bucket, Catalog, Committed, Precondition, UploadId, Version};
use futures::{Stream, stream::BoxStream};
use std::{ops::Range, sync::Arc};

/// Storage of one deployment: catalog, backends, keys, caches, codec pool and memory budget.
pub struct Engine {}

/// A bucket as the engine sees it: row, parsed settings, its domain key when sealed. Cheap to clone.
#[derive(Clone)]
pub struct BucketHandle(pub Arc<BucketState>);

/// See [`BucketHandle`].
pub struct BucketState {
    /// The catalog's row.
    pub row: Bucket,
    /// Its settings, parsed.
    pub settings: BucketSettings,
}

/// A current version with its facts opened.
#[derive(Clone, Debug)]
pub struct ObjectInfo {
    /// The row (size, Last-Modified, version id).
    pub version: Version,
    /// Its facts.
    pub facts: Facts,
}

/// A version ready to be read: holds its blobs against collection until dropped.
pub struct OpenObject {
    /// What it is.
    pub info: ObjectInfo,
    /// Logical lengths of its extents, in order (the parts of a multipart object are in [`Facts::parts`]).
    pub extent_lens: Vec<u64>,
}

/// What hashes a body while it arrives; runs on the codec pool, piece by piece, in order.
pub trait BodyDigest: Send + 'static {
    /// What it gives in the end.
    type Output: Send + 'static;
    /// Takes the next bytes.
    fn update(&mut self, bytes: &[u8]);
    /// Ends: its output, and the SHA-256 of everything (needed for exact duplicates).
    fn finish(self) -> (Self::Output, [u8; 32]);
}

/// Where a body is going.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A new version of a key.
    Object {
        /// The key.
        key: String,
    },
    /// A part of a multipart upload.
    Part {
        /// The upload's key.
        key: String,
        /// The upload.
        upload: UploadId,
        /// The part's number.
        number: u32,
    },
}

/// A body that has been read to its end and encoded, but is not yet visible or durable. Dropping it abandons it.
pub struct Staged<T> {
    /// What the digest gave.
    pub digests: T,
    /// SHA-256 of the body.
    pub sha256: [u8; 32],
    /// Body bytes.
    pub plain_len: u64,
}

/// A version that was published.
#[derive(Clone, Debug)]
pub struct Published {
    /// The new version's id, sequence and Last-Modified.
    pub version_id: catalog::VersionId,
    /// Place in the total order and Last-Modified.
    pub committed: Committed,
    /// How it is stored.
    pub storage: StorageFacts,
}

impl Engine {
    /// Opens catalog, backends and keys; makes what is missing on the first start.
    ///
    /// # Errors
    /// [`EngineError`] in words for the operator: catalog in use, newer schema, unusable backend, wrong KEK …
    pub async fn open(config: EngineConfig, metrics: Arc<crate::metrics::Metrics>) -> Result<Arc<Self>, EngineError> {
        let _ = (config, metrics);
        todo!()
    }

    /// The catalog, for operations that only touch metadata (lists, uploads).
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        todo!()
    }

    /// A bucket by name; cached for at most a moment and re-read when its row changed.
    pub async fn bucket(&self, name: &str) -> Result<Option<BucketHandle>, EngineError> {
        let _ = name;
        todo!()
    }

    /// Creates a bucket with the configured settings for its name; its domain key first, when it is to be sealed. `None` when the name is taken.
    pub async fn create_bucket(&self, name: &str, owner: &str) -> Result<Option<BucketHandle>, EngineError> {
        let _ = (name, owner);
        todo!()
    }

    /// Deletes an empty bucket. [`EngineError::NotEmpty`]; `false` when there is none.
    pub async fn delete_bucket(&self, bucket: &BucketHandle) -> Result<bool, EngineError> {
        let _ = bucket;
        todo!()
    }

    /// A key's current version and facts.
    pub async fn head(&self, bucket: &BucketHandle, key: &str) -> Result<Option<ObjectInfo>, EngineError> {
        let _ = (bucket, key);
        todo!()
    }

    /// Opens a version's facts (a listing's rows).
    pub fn open_facts(&self, bucket: &BucketHandle, version: &Version) -> Result<Facts, EngineError> {
        let _ = (bucket, version);
        todo!()
    }

    /// A key's current version, pinned for reading.
    pub async fn open_object(&self, bucket: &BucketHandle, key: &str) -> Result<Option<OpenObject>, EngineError> {
        let _ = (bucket, key);
        todo!()
    }

    /// Streams a range of its content (`range.end <= size`), verified before it leaves (I4). The stream holds the pins. The first item is ready before any
    /// later failure, so a caller that awaits it can still answer with an error status.
    pub fn read(self: &Arc<Self>, object: &OpenObject, range: Range<u64>) -> BoxStream<'static, Result<Bytes, EngineError>> {
        let _ = (object, range);
        todo!()
    }

    /// Reads, hashes, encodes and streams a body towards the backend. `len` is its exact length when known.
    ///
    /// # Errors
    /// [`StoreError::Body`] when the body fails (with its own error), [`StoreError::Engine`] otherwise. Nothing is left behind.
    pub async fn stage<S, E, D>(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        destination: Destination,
        len: Option<u64>,
        body: S,
        digest: D,
    ) -> Result<Staged<D::Output>, StoreError<E>>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
        E: Send,
        D: BodyDigest,
    {
        let _ = (bucket, destination, len, body, digest);
        todo!()
    }

    /// Finishes a staged body and makes it the key's current version. `facts.storage` is filled in here. Runs to its end even when the caller's future is dropped (E25).
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`] and everything a backend or catalog can do; nothing visible then.
    pub async fn publish<T: Send>(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        staged: Staged<T>,
        facts: Facts,
        precondition: Precondition,
    ) -> Result<Published, EngineError> {
        let _ = (bucket, key, staged, facts, precondition);
        todo!()
    }

    /// Finishes a staged part. `facts` are the part's (ETag, checksums).
    pub async fn publish_part<T: Send>(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        upload: UploadId,
        number: u32,
        staged: Staged<T>,
        facts: PartFacts,
    ) -> Result<catalog::UnixMs, EngineError> {
        let _ = (bucket, key, upload, number, staged, facts);
        todo!()
    }

    /// Makes a range of an existing version (of the same bucket) a part of an upload, without moving bytes (UploadPartCopy in one domain).
    pub async fn publish_part_copy(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        upload: UploadId,
        number: u32,
        source: &OpenObject,
        range: Range<u64>,
        facts: PartFacts,
    ) -> Result<catalog::UnixMs, EngineError> {
        let _ = (bucket, key, upload, number, source, range, facts);
        todo!()
    }

    /// True when a copy from one bucket to the other is a row, not bytes: same bucket and nothing to be re-encoded.
    pub fn shares_extents(&self, from: &BucketHandle, to: &BucketHandle) -> bool {
        from.0.row.id == to.0.row.id
    }

    /// Makes the source's content the current version of a key in the same bucket with other facts; moves no bytes.
    pub async fn publish_copy(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        source: &OpenObject,
        facts: Facts,
        precondition: Precondition,
    ) -> Result<Published, EngineError> {
        let _ = (bucket, key, source, facts, precondition);
        todo!()
    }

    /// Removes a key's current version.
    pub async fn delete(&self, bucket: &BucketHandle, key: &str, precondition: Precondition) -> Result<Option<Version>, EngineError> {
        let _ = (bucket, key, precondition);
        todo!()
    }

    /// Creates an upload with the facts its object will have (ETag and checksums still empty).
    pub async fn create_upload(&self, bucket: &BucketHandle, key: &str, owner: &str, facts: Facts) -> Result<UploadId, EngineError> {
        let _ = (bucket, key, owner, facts);
        todo!()
    }

    /// An upload's row and facts; completed ones included while they are remembered.
    pub async fn upload(&self, bucket: &BucketHandle, key: &str, id: UploadId) -> Result<Option<(catalog::Upload, Facts)>, EngineError> {
        let _ = (bucket, key, id);
        todo!()
    }

    /// Parts with number greater than `after`, with their facts opened; at most `limit`.
    pub async fn parts(&self, bucket: &BucketHandle, key: &str, upload: UploadId, after: u32, limit: usize) -> Result<Vec<(catalog::Part, PartFacts)>, EngineError> {
        let _ = (bucket, key, upload, after, limit);
        todo!()
    }

    /// Completes an upload from parts as [`Engine::parts`] gave them (the chosen ones, ascending). `facts` are complete but for `storage`.
    pub async fn complete(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        upload: UploadId,
        parts: Vec<(catalog::Part, PartFacts)>,
        parts_digest: [u8; 32],
        facts: Facts,
        precondition: Precondition,
    ) -> Result<Published, EngineError> {
        let _ = (bucket, key, upload, parts, parts_digest, facts, precondition);
        todo!()
    }

    /// Aborts an upload; `false` when it is unknown or completed.
    pub async fn abort(&self, bucket: &BucketHandle, key: &str, upload: UploadId) -> Result<bool, EngineError> {
        let _ = (bucket, key, upload);
        todo!()
    }

    // Operators' side

    /// The body of `GET /api/v1/stats`.
    pub async fn stats(&self) -> Result<serde_json::Value, EngineError> {
        todo!()
    }

    /// The body of `GET /api/v1/explain`: how a key is stored and why; `None` when there is no such key.
    pub async fn explain(&self, bucket: &str, key: &str) -> Result<Option<serde_json::Value>, EngineError> {
        let _ = (bucket, key);
        todo!()
    }

    /// What a blob holds, by its id in hex: header, root, segments, extents that refer to it.
    pub async fn inspect(&self, blob: &str) -> Result<Option<serde_json::Value>, EngineError> {
        let _ = blob;
        todo!()
    }

    /// Collects now: tombstones (whatever their age when `now`), blobs of closed epochs without a row. Gives a report.
    pub async fn collect(&self, now: bool) -> Result<serde_json::Value, EngineError> {
        let _ = now;
        todo!()
    }

    /// Waits until no background work is due, at most `timeout`; true when it got there.
    pub async fn settle(&self, timeout: std::time::Duration) -> bool {
        let _ = timeout;
        todo!()
    }

    /// Drops every cache (manifests, base windows, base indexes).
    pub fn drop_caches(&self) {
        todo!()
    }

    /// Background jobs: name, state, last run, counters.
    pub fn jobs(&self) -> serde_json::Value {
        todo!()
    }

    /// Probes catalog and every backend in use; the first trouble in words.
    pub async fn probe(&self) -> Result<(), EngineError> {
        todo!()
    }

    /// Ends background work and waits for commits under way.
    pub async fn shutdown(&self) {
        todo!()
    }
}

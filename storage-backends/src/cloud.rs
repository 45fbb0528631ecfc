//! What the stores of the clouds have in common: the [`Backend`] over the `object_store` crate.
//!
//! ```text
//! body ─ parts of an exact size ─▶ fits one part: a single put, exclusive where the store can
//!                               └▶ more: parts uploaded side by side ─▶ completion ─▶ HEAD confirms the length ─▶ Ok
//! ```
//!
//! What is sent from memory, a part or a short blob, is sent again when the store fails in a way
//! that passes ([`Repeats`]); all other repetitions are [`Retrying`](crate::Retrying)'s work, and
//! `object_store`'s own are off. Every answer of the store other than success arrives as a typed
//! [`refusal::Refusal`], so that "there is no such blob" is believed only when the store says
//! exactly that (I10): a 404 that speaks of a missing bucket, or of nothing at all, is an error.

pub(crate) mod connector;
pub(crate) mod endpoint;
pub(crate) mod refusal;
pub(crate) mod upload;

use crate::{
    Backend, BackendError, BlobName, ByteStream, ErrorKind, IsNobodys, Listed, PutReceipt, Repeats, Result,
    UnfinishedUploads,
};
use async_trait::async_trait;
use connector::ExclusiveCreate;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use object_store::{
    Attributes, Certificate, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt,
    list::{PaginatedListOptions, PaginatedListStore},
    multipart::MultipartStore,
    path::Path,
};
use refusal::failure;
use std::{
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
    time::Duration,
};
use upload::Manner;

/// How a blob is cut into parts. One upload holds at most `part_bytes × (parts_in_flight + 1)`
/// bytes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadOptions {
    /// A part's size in bytes: a blob up to this size is a single request. At least 5 MiB, which
    /// the stores ask for; with the 10,000 parts they allow, 8 MiB are enough for blobs of 78 GiB.
    pub part_bytes: usize,
    /// Parts of one blob uploaded at the same time, at least 1.
    pub parts_in_flight: usize,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self { part_bytes: 8 << 20, parts_in_flight: 2 }
    }
}

impl UploadOptions {
    /// The most memory one upload takes, in bytes: what a caller with a memory budget takes a
    /// permit for.
    pub fn buffered_bytes_max(&self) -> u64 {
        self.part_bytes as u64 * (self.parts_in_flight as u64 + 1)
    }
}

/// How long a silent store is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection stands.
    pub connect: Duration,
    /// Between two signs of life on a connection; for an upload, from its first byte to the answer.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), silence: Duration::from_secs(120) }
    }
}

/// Certificate authorities that are trusted beside those of the machine: for a store with a
/// certificate of its owner's making.
#[derive(Clone, Default)]
pub struct TrustedCertificates(Vec<Certificate>);

impl TrustedCertificates {
    /// Reads certificates in PEM, one or several.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when there is none in it, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self> {
        let read = Certificate::from_pem_bundle(pem);
        let read = read.map_err(|error| {
            BackendError::with_source(ErrorKind::Invalid, "the certificates cannot be read as PEM", error)
        })?;
        if read.is_empty() {
            return Err(BackendError::new(ErrorKind::Invalid, "there is no certificate in PEM"));
        }
        Ok(Self(read))
    }
}

impl fmt::Debug for TrustedCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} certificates", self.0.len())
    }
}

/// A bucket (container) of a store in a cloud, or of anything that speaks the same protocol. Made
/// by `S3Config::open`, `GcsConfig::open` and `AzureConfig::open`. Clones share connections.
#[derive(Clone)]
pub struct CloudBackend {
    pub(crate) bucket: Arc<Bucket>,
}

/// What all calls share.
pub(crate) struct Bucket {
    pub(crate) store: Arc<dyn Store>,
    /// Where the store can say which uploads in parts were never completed.
    pub(crate) unfinished: Option<Box<dyn UnfinishedUploads>>,
    /// Starts every name in the bucket; empty or with a `/` at its end.
    pub(crate) prefix: String,
    pub(crate) upload: UploadOptions,
    pub(crate) exclusive: ExclusiveCreate,
    /// Whether a single put is followed by a HEAD, because the store does not check a checksum of
    /// ours.
    pub(crate) confirms_single_puts: bool,
    /// Whether a listing lacks the object that is called exactly like the prefix, as `object_store`
    /// makes it for Azure.
    pub(crate) listing_lacks_the_prefix: bool,
    /// What repeats the requests of uploads; without it none is.
    pub(crate) repeats: OnceLock<Repeats>,
}

/// The faces of a store that are used here.
pub(crate) trait Store: ObjectStore + PaginatedListStore + MultipartStore {}

impl<S: ObjectStore + PaginatedListStore + MultipartStore> Store for S {}

impl CloudBackend {
    /// Removes the parts of uploads below the prefix that a crash interrupted: begun at least
    /// `age_min` ago, of blobs that are nobody's. Gives the number of those uploads. Meant to be
    /// called at the start and once a day. An upload that is aborted although it lives fails, and
    /// harms nothing else. Does nothing for GCS (a lifecycle rule of the bucket removes them) and
    /// Azure (which drops them after a week).
    ///
    /// # Errors
    /// Those of a listing.
    pub async fn abort_unfinished_uploads(&self, age_min: Duration, is_nobodys: IsNobodys<'_>) -> Result<u64> {
        match &self.bucket.unfinished {
            Some(unfinished) => unfinished.abort(age_min, is_nobodys).await,
            None => Ok(0),
        }
    }

    /// From now on the requests of uploads whose bytes are in memory are repeated as `repeats`
    /// grants it. Set once, for all clones.
    pub fn repeat_with(&self, repeats: Repeats) {
        // The first one stays: there is one budget.
        let _ = self.bucket.repeats.set(repeats);
    }

    pub(crate) fn new(bucket: Bucket) -> Result<Self> {
        let invalid = |message: &str| Err(BackendError::new(ErrorKind::Invalid, message));
        if bucket.upload.part_bytes < PART_BYTES_MIN || bucket.upload.parts_in_flight == 0 {
            return invalid("parts have at least 5 MiB, and at least one is in flight");
        }
        // Checked once here, so that every name below it is a path.
        bucket.path_of("blobs/a")?;
        Ok(Self { bucket: Arc::new(bucket) })
    }
}

#[async_trait]
impl UnfinishedUploads for CloudBackend {
    async fn abort(&self, age_min: Duration, is_nobodys: IsNobodys<'_>) -> Result<u64> {
        self.abort_unfinished_uploads(age_min, is_nobodys).await
    }
}

impl fmt::Debug for CloudBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket.store, self.bucket.prefix)
    }
}

/// `prefix` with one slash at its end, or empty.
pub(crate) fn directory(prefix: &str) -> String {
    match prefix.trim_matches('/') {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    }
}

/// A configuration that `object_store` does not take.
pub(crate) fn not_set_up(error: object_store::Error) -> BackendError {
    BackendError::with_source(ErrorKind::Invalid, format!("the backend cannot be set up: {error}"), error)
}

impl Bucket {
    fn path(&self, name: &BlobName) -> Result<Path> {
        self.path_of(name.as_str())
    }

    fn path_of(&self, name: &str) -> Result<Path> {
        Path::parse(format!("{}{name}", self.prefix)).map_err(|error| {
            let message = format!("the prefix {:?} is no path", self.prefix);
            BackendError::with_source(ErrorKind::Invalid, message, error)
        })
    }

    /// The length of the object at `path`, if there is one.
    pub(crate) async fn head(&self, path: &Path) -> Result<Option<u64>> {
        match self.store.head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) => {
                let (refused, error) = failure("ask for", path, error);
                match refused {
                    Some(refused) if refused.means_absent() => Ok(None),
                    // An answer to HEAD has no body, hence no code: a missing bucket looks the
                    // same. GET tells.
                    Some(refused) if refused.status == 404 => self.head_by_get(path).await,
                    _ => Err(error),
                }
            }
        }
    }

    async fn head_by_get(&self, path: &Path) -> Result<Option<u64>> {
        match self.store.get_opts(path, GetOptions::default()).await {
            Ok(found) => Ok(Some(found.meta.size)),
            Err(error) => match failure("ask for", path, error) {
                (Some(refused), _) if refused.means_absent() => Ok(None),
                (_, error) => Err(error),
            },
        }
    }

    /// Removes the object at `path`, if there is one.
    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        let Err(error) = self.store.delete(path).await else { return Ok(()) };
        // Azure removes in batches, whose inner answers object_store has judged itself: it knows a
        // missing blob from a missing container.
        let judged_absent = matches!(error, object_store::Error::NotFound { .. });
        match failure("remove", path, error) {
            (Some(refused), _) if refused.means_absent() => Ok(()),
            (None, _) if judged_absent => Ok(()),
            (_, error) => Err(error),
        }
    }

    /// What a listing says of one object; `None` for objects that are not blobs.
    fn listed(&self, object: ObjectMeta) -> Option<Listed> {
        let name = object.location.as_ref().strip_prefix(&self.prefix)?;
        let name = BlobName::new(name).ok()?;
        Some(Listed { name, stored_len: object.size, modified: Some(object.last_modified.into()) })
    }

    /// What a listing would say of one object.
    async fn listed_alone(&self, name: BlobName) -> Result<Option<Listed>> {
        let stored_len = self.head(&self.path(&name)?).await?;
        Ok(stored_len.map(|stored_len| Listed { name, stored_len, modified: None }))
    }
}

#[async_trait]
impl Backend for CloudBackend {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let part_bytes = self.bucket.upload.part_bytes;
        let manner = Manner { part_bytes, len, replaces: false, attributes: Attributes::new() };
        upload::put(&self.bucket, self.bucket.path(name)?, body, manner).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        let outside = || {
            let message = format!("bytes {}..{} do not lie inside {name}", range.start, range.end);
            Err(BackendError::new(ErrorKind::Invalid, message))
        };
        // Past 2^63 stores differ in how they misread a range.
        if range.start > range.end || i64::try_from(range.end).is_err() {
            return outside();
        }
        let path = self.bucket.path(name)?;
        if range.is_empty() {
            // HTTP has no empty ranges.
            return match self.bucket.head(&path).await? {
                None => Ok(None),
                Some(len) if range.end <= len => Ok(Some(stream::empty().boxed())),
                Some(_) => outside(),
            };
        }
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        match self.bucket.store.get_opts(&path, options).await {
            Ok(found) if found.range != range => outside(),
            Ok(found) => {
                let left = range.end - range.start;
                let pieces = found.into_stream().map_err(move |error| failure("read", &path, error).1).boxed();
                Ok(Some(exactly(pieces, left)))
            }
            Err(error) => match failure("read", &path, error) {
                (Some(refused), _) if refused.means_absent() => Ok(None),
                (Some(refused), _) if refused.status == 416 => outside(),
                (Some(_), error) => Err(error),
                // An answer that object_store did not take for one: some stores give such when the
                // range starts past the end.
                (None, error) if error.kind() == ErrorKind::Other => match self.bucket.head(&path).await? {
                    Some(len) if range.end > len => outside(),
                    _ => Err(error),
                },
                (None, error) => Err(error),
            },
        }
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        self.bucket.head(&self.bucket.path(name)?).await
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.bucket.delete(&self.bucket.path(name)?).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        let exact = BlobName::new(prefix).ok().filter(|_| self.bucket.listing_lacks_the_prefix);
        let full_prefix = format!("{}{prefix}", self.bucket.prefix);
        let pages = stream::try_unfold(Some((self.bucket.clone(), full_prefix, None)), |page| async move {
            let Some((bucket, prefix, page_token)) = page else { return Ok(None) };
            let options = PaginatedListOptions { page_token, ..PaginatedListOptions::default() };
            let page = bucket.store.list_paginated(Some(&prefix), options).await;
            let page = page.map_err(|error| failure("list", &prefix, error).1)?;
            let listed: Vec<_> =
                page.result.objects.into_iter().filter_map(|object| bucket.listed(object)).map(Ok).collect();
            Ok(Some((stream::iter(listed), page.page_token.map(|token| (bucket, prefix, Some(token))))))
        })
        .try_flatten();
        let bucket = self.bucket.clone();
        let exact = stream::iter(exact).filter_map(move |name| {
            let bucket = bucket.clone();
            async move { bucket.listed_alone(name).await.transpose() }
        });
        pages.chain(exact).boxed()
    }

    /// Lists one name: this needs the store, the bucket and our credentials to be there.
    async fn probe(&self) -> Result<()> {
        let options = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
        match self.bucket.store.list_paginated(Some(&self.bucket.prefix), options).await {
            Ok(_) => Ok(()),
            Err(error) => Err(failure("list", &self.bucket.prefix, error).1),
        }
    }
}

/// The same pieces, ended by an error unless they are exactly `left` bytes.
pub(crate) fn exactly(pieces: ByteStream, left: u64) -> ByteStream {
    stream::unfold(Some((pieces, left)), |state| async move {
        let (mut pieces, left) = state?;
        match pieces.next().await {
            Some(Ok(piece)) if piece.len() as u64 > left => {
                Some((Err(BackendError::new(ErrorKind::Corrupt, "the store gave more bytes than asked for")), None))
            }
            Some(Ok(piece)) => {
                let left = left - piece.len() as u64;
                Some((Ok(piece), Some((pieces, left))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None if left > 0 => {
                let message = format!("the store ended its answer {left} bytes early");
                Some((Err(BackendError::new(ErrorKind::Transient, message)), None))
            }
            None => None,
        }
    })
    .boxed()
}

/// S3, and GCS's way of speaking it, refuse smaller parts but for the last.
const PART_BYTES_MIN: usize = 5 << 20;

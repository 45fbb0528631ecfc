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

pub(crate) mod bucket;
pub(crate) mod connector;
pub(crate) mod endpoint;
pub(crate) mod queue;
pub(crate) mod refusal;
mod removals;
pub(crate) mod settings;
pub(crate) mod upload;

use crate::{
    Backend, BackendError, BlobName, ByteStream, ErrorKind, IsNobodys, Listed, PutReceipt, Repeats, Result,
    UnfinishedUploads,
};
use async_trait::async_trait;
use bucket::{Bucket, next_page};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use object_store::{Attributes, GetOptions, GetRange, ObjectStore, list::PaginatedListOptions};
use refusal::failure;
pub use settings::{Timeouts, TrustedCertificates, UploadOptions};
use std::{fmt, ops::Range, sync::Arc, time::Duration};
use upload::Manner;

/// A bucket (container) of a store in a cloud, or of anything that speaks the same protocol. Made
/// by `S3Config::open`, `GcsConfig::open` and `AzureConfig::open`. Clones share connections.
#[derive(Clone)]
pub struct CloudBackend {
    pub(crate) bucket: Arc<Bucket>,
}

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

#[async_trait]
impl Backend for CloudBackend {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let part_bytes = self.bucket.upload.part_bytes;
        let manner = Manner { part_bytes, len, replaces: false, attributes: Attributes::new() };
        upload::put(&self.bucket, self.bucket.path(name)?, body, manner).await
    }

    fn request_len(&self) -> u32 {
        REQUEST_LEN
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
        self.bucket.remove(self.bucket.path(name)?).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        let exact = BlobName::new(prefix).ok().filter(|_| self.bucket.listing_lacks_the_prefix);
        let full_prefix = format!("{}{prefix}", self.bucket.prefix);
        let pages = stream::try_unfold(Some((self.bucket.clone(), full_prefix, None)), |page| async move {
            let Some((bucket, prefix, page_token)) = page else { return Ok(None) };
            let options = PaginatedListOptions { page_token: page_token.clone(), ..PaginatedListOptions::default() };
            let page = bucket.store.list_paginated(Some(&prefix), options).await;
            let page = page.map_err(|error| failure("list", &prefix, error).1)?;
            let next = next_page(page_token.as_deref(), page.page_token)?;
            let listed: Vec<_> =
                page.result.objects.into_iter().filter_map(|object| bucket.listed(object)).map(Ok).collect();
            Ok(Some((stream::iter(listed), next.map(|token| (bucket, prefix, Some(token))))))
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
/// A whole segment: a request is paid for whether it asks for much or little.
const REQUEST_LEN: u32 = 4 << 20;
const PART_BYTES_MIN: usize = 5 << 20;

//! Stores of plain objects: content under its owner's keys, as it was before deltaweir and as it is
//! without.
//!
//! A [`Backend`](crate::Backend) holds blobs under names of ours; a [`PlainStore`] holds objects
//! under names of others, which may change at any time. It is read for adoption, and nothing in it
//! is written but by a [`PlainWriter`], for those who leave.

#[cfg(feature = "cloud")]
mod cloud;
mod directory;
#[cfg(feature = "s3")]
mod listing;
mod put;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod upload;
mod wrapped;

#[cfg(feature = "cloud")]
pub use cloud::PlainCloud;
pub use directory::PlainDirectory;
pub use put::{KeyBound, PlainPut, PlainWriter};
#[cfg(feature = "s3")]
pub use s3::PlainBucket;

use crate::{BackendError, ByteStream, ErrorKind, Result};
use async_trait::async_trait;
use futures::stream::BoxStream;
use std::{collections::BTreeMap, ops::Range, sync::Arc, time::SystemTime};

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainEntry {
    /// Its key below the store's prefix.
    pub key: String,
    /// Its length in bytes.
    pub len: u64,
    /// Its ETag without quotes, where the listing says so.
    pub etag: Option<String>,
}

/// What a store says of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainObject {
    /// Its length in bytes.
    pub len: u64,
    /// Its ETag without quotes, never empty: what tells this content from any other under the same
    /// key.
    pub etag: String,
    /// Whether that is the MD5 of its content, as far as the store's rules tell.
    pub etag_is_md5: bool,
    /// When it was last written.
    pub modified: Option<SystemTime>,
    /// Content headers by lower-case name: `content-type`, `cache-control` and the like.
    pub headers: BTreeMap<String, String>,
    /// User metadata by lower-case name without its prefix.
    pub user_metadata: BTreeMap<String, String>,
    /// Checksums the store keeps: algorithm as S3 spells it, value in base64.
    pub checksums: BTreeMap<String, String>,
    /// Whether those are of the whole object (`FULL_OBJECT`) or of its parts (`COMPOSITE`).
    pub checksum_type: Option<String>,
    /// Storage class, when it is not the standard one.
    pub storage_class: Option<String>,
    /// How many tags it has, as far as the store says.
    pub tags: u64,
}

/// What a read of a registered object came to.
pub enum PlainRead {
    /// It is what it was: exactly the bytes asked for.
    Bytes(ByteStream),
    /// Another content stands under the key.
    Changed,
    /// There is no such object.
    Absent,
}

/// What became of an object that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainRemoval {
    /// It is gone, or was gone before.
    Gone,
    /// Another content stands under the key; it was left alone.
    Changed,
}

/// A store of plain objects.
///
/// * **An error is never absence (I10)**: `None` and [`PlainRead::Absent`] are given only when the
///   store has said so of this object.
/// * **Other content is never given for the registered one**: a read names the ETag it expects.
/// * Keys are whatever their owner chose. One that cannot be asked for (a dot component in a URL, a
///   name that is no UTF-8) is [`ErrorKind::Invalid`], and nothing is done.
/// * Calls are not repeated here.
#[async_trait]
pub trait PlainStore: Send + Sync + 'static {
    /// Objects whose keys start with `prefix` and come after `after`, in byte order of keys. An
    /// item that is an error of kind [`ErrorKind::Invalid`] is one object that cannot be named, and
    /// the listing goes on; any other error ends it.
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>>;

    /// What the store says of an object; `None` when there is none.
    async fn head(&self, key: &str) -> Result<Option<PlainObject>>;

    /// Reads a range of the object that has this ETag. Its stream gives exactly the range's bytes
    /// or ends with an error.
    async fn read(&self, key: &str, etag: &str, range: Range<u64>) -> Result<PlainRead>;

    /// Removes the object while it has this ETag. The comparison and the removal are two requests
    /// where the store has no conditional removal: whoever hands objects over for removal does not
    /// write them any more.
    async fn remove(&self, key: &str, etag: &str) -> Result<PlainRemoval>;
}

/// A shared store is a store.
#[async_trait]
impl<S: PlainStore + ?Sized> PlainStore for Arc<S> {
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>> {
        (**self).list(prefix, after)
    }

    async fn head(&self, key: &str) -> Result<Option<PlainObject>> {
        (**self).head(key).await
    }

    async fn read(&self, key: &str, etag: &str, range: Range<u64>) -> Result<PlainRead> {
        (**self).read(key, etag, range).await
    }

    async fn remove(&self, key: &str, etag: &str) -> Result<PlainRemoval> {
        (**self).remove(key, etag).await
    }
}

/// A key that this store cannot be asked for.
fn unnamable(key: &str, why: &str) -> BackendError {
    BackendError::new(ErrorKind::Invalid, format!("{key:?} cannot be asked for: {why}"))
}

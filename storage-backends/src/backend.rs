//! The contract every backend keeps, in prose and in types.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use std::{
    fmt,
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// A stream of blob bytes. An `Err` item ends the stream; a reader that sees one has not seen the
/// whole blob.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

/// The result of a backend call. Absence is `Ok(None)`, never an error (I10).
pub type Result<T> = std::result::Result<T, BackendError>;

/// An object store reduced to what immutable, randomly named blobs need.
///
/// * **Names are used once.** `put` creates exclusively where the store can; elsewhere the 96
///   random bits of a name make a collision impossible. No method changes a blob in place (I1).
/// * **`put` is atomic and durable.** When it returns `Ok` the whole blob is readable by every
///   reader and survives a power cut (file *and* directory synced, or the store's own
///   acknowledgement with length and checksum verified). When the body yields an error, or the
///   future is dropped, nothing stays visible under the name; what is left behind, if anything, is
///   removed by the backend itself, at the latest at its next start (in a cloud by
///   `CloudBackend::abort_unfinished_uploads`, which its owner calls).
/// * **A `put` that failed may still have stored its blob**, when only the store's answer was lost:
///   nothing refers to it, and a caller that goes on takes a new name.
/// * **An error is never absence (I10).** `None` is returned only when the store has said that the
///   blob is not there.
/// * **Nothing relies on listing consistency** or on conditional writes.
/// * Implementations do not retry; the `Retrying` wrapper does, and only calls that are repeatable.
///   A `put` is not: its body is consumed. Those of its requests whose bytes are in memory (a part,
///   a short blob) are sent again under the same name by the backend itself, out of the same
///   budget.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Stores the bytes of `body` under `name`. `len` is their exact count when the caller knows
    /// it; a body of another length is then an error and nothing is stored.
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt>;

    /// Reads exactly `range` (bytes, end exclusive) of a blob; `None` when there is no such blob. A
    /// range that does not lie inside the blob is [`ErrorKind::Invalid`]. A stream that ends
    /// without error has given exactly `range.end - range.start` bytes.
    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>>;

    /// The stored length of a blob in bytes; `None` when there is no such blob.
    async fn head(&self, name: &BlobName) -> Result<Option<u64>>;

    /// How many bytes a reader who wants many asks for at a time. More where a request is paid for,
    /// or has far to go.
    fn request_len(&self) -> u32 {
        1 << 20
    }

    /// What [`Backend::head`] says, asked on this very thread. `None` where that could keep the
    /// thread waiting, as for a network or for a file system behind one.
    fn head_at_once(&self, name: &BlobName) -> Option<Result<Option<u64>>> {
        let _ = name;
        None
    }

    /// Removes a blob, durably. Removing one that is not there is `Ok`.
    async fn delete(&self, name: &BlobName) -> Result<()>;

    /// Every blob whose name starts with `prefix`, in no particular order. May miss blobs stored or
    /// removed meanwhile.
    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>>;

    /// Asks the store whether it can serve, as cheaply as it allows.
    async fn probe(&self) -> Result<()>;
}

/// A shared backend is a backend.
#[async_trait]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        (**self).put(name, body, len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        (**self).get(name, range).await
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        (**self).head(name).await
    }

    fn request_len(&self) -> u32 {
        (**self).request_len()
    }

    fn head_at_once(&self, name: &BlobName) -> Option<Result<Option<u64>>> {
        (**self).head_at_once(name)
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        (**self).delete(name).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        (**self).list(prefix)
    }

    async fn probe(&self) -> Result<()> {
        (**self).probe().await
    }
}

/// The name of one blob in a backend: lower-case ASCII letters, digits, `-`, `_` and `/`, at most
/// 200 bytes, no empty or dot component.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName(String);

impl BlobName {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when it is not of the documented form.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let well_formed = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
        };
        if name.len() <= 200 && name.split('/').all(well_formed) {
            Ok(Self(name))
        } else {
            Err(BackendError::new(ErrorKind::Invalid, format!("not a blob name: {name:?}")))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What `put` stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutReceipt {
    /// Bytes stored.
    pub stored_len: u64,
}

/// One listed blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: BlobName,
    /// Its stored length in bytes.
    pub stored_len: u64,
    /// When the store says it was last written.
    pub modified: Option<SystemTime>,
}

/// Why a backend call failed, from the caller's side: whose fault, and may it be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The call itself is wrong (name, range, length); repeating it cannot help.
    Invalid,
    /// The store is full or a quota is reached. Reads and deletes still work.
    Full,
    /// The store refused our credentials or permissions.
    Denied,
    /// The store asks for fewer requests (429, 503 SlowDown).
    Throttled,
    /// Something passing: a timeout, a reset, a 5xx. Worth repeating where the call is repeatable.
    Transient,
    /// The store answered something that contradicts its contract: short bytes, wrong checksum, an
    /// exclusive create that found a blob.
    Corrupt,
    /// The body given to `put` failed or was abandoned; the fault is the caller's side, nothing was
    /// stored.
    Body,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Invalid,
        Self::Full,
        Self::Denied,
        Self::Throttled,
        Self::Transient,
        Self::Corrupt,
        Self::Body,
        Self::Other,
    ];

    /// The kind in lower case, for metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Full => "full",
            Self::Denied => "denied",
            Self::Throttled => "throttled",
            Self::Transient => "transient",
            Self::Corrupt => "corrupt",
            Self::Body => "body",
            Self::Other => "other",
        }
    }
}

/// A failed backend call.
#[derive(Debug, thiserror::Error)]
#[error("{kind:?}: {message}")]
pub struct BackendError {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl BackendError {
    /// An error of `kind` with a message for the operator's log (never shown to S3 clients).
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, source: None }
    }

    /// The same, keeping what caused it.
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), retry_after: None, source: Some(source.into()) }
    }

    /// The kind, for decisions.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same, with the time the store asked its callers to wait.
    pub fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    /// How long the store asked its callers to wait, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// True when the same call may succeed later and repeating it is harmless for a repeatable
    /// call.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Throttled | ErrorKind::Transient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_could_escape_or_collide_are_refused() {
        for bad in
            ["", "/", "a/", "/a", "a//b", "..", "a/../b", "A", "a b", "a.b", "a+b", "é", "a\0b", &"a".repeat(201)]
        {
            assert_eq!(BlobName::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_accepted_name_is_of_the_documented_form(text in "[-_a-z0-9/.A+ ]{0,12}") {
            let accepted = BlobName::new(text.clone()).is_ok();
            let documented = !text.is_empty()
                && text.chars().all(|c| "abcdefghijklmnopqrstuvwxyz0123456789-_/".contains(c))
                && !format!("/{text}/").contains("//");
            prop_assert_eq!(accepted, documented);
        }
    }
}

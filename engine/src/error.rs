//! Engine errors answer the caller's question: whose fault, may it be repeated, what may the client
//! be told.

use catalog::CatalogError;
use object_format::{BlobId, FormatError};
use storage_backends::{BackendError, ErrorKind};
use thiserror::Error;

/// Why the engine could not do it. Messages are for the operator's log; clients are told by kind
/// only.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A conditional write lost.
    #[error("precondition failed")]
    PreconditionFailed,
    /// The version's lock holds.
    #[error("the version is locked")]
    Locked,
    /// The bucket keeps no versions, or its versions cannot be locked.
    #[error("not allowed in the bucket's current state")]
    BucketState,
    /// It would make the bucket, or all buckets of its owner, hold more than they may. Whose quota.
    #[error("the quota of the {0} is exceeded")]
    QuotaExceeded(&'static str),
    /// The bucket has content.
    #[error("bucket is not empty")]
    NotEmpty,
    /// The bucket vanished meanwhile.
    #[error("no such bucket")]
    NoBucket,
    /// The upload is not open (any more).
    #[error("no such upload")]
    NoUpload,
    /// What this was based on changed meanwhile (a part was replaced during Complete).
    #[error("changed meanwhile")]
    Conflict,
    /// More than one object or part may hold.
    #[error("too large")]
    TooLarge,
    /// The memory budget or a queue is exhausted: the client gets 503 SlowDown (I8).
    #[error("busy: {0}")]
    Busy(&'static str),
    /// Catalog or backend storage is full; reads and deletes still work.
    #[error("storage is full")]
    Full,
    /// Passing trouble below; nothing is known to be lost. 503.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The catalog is not the newest state of its store, or the store is not this deployment's:
    /// nothing is written or removed. 503, and a person should look.
    #[error("{0}")]
    NotCurrent(String),
    /// Stored bytes are not what they should be (I4, I5). 500, and a person should look.
    #[error("integrity: {0}")]
    Integrity(String),
    /// A row of the catalog is not what was written, or its file is damaged. 500; writes and
    /// deletions are refused from then on.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
    /// This process lost its writer epoch while it wrote: nothing was committed, and the client may
    /// try again (E4). 503.
    #[error("the writer epoch was closed meanwhile")]
    Fenced,
    /// What was to be stored is sealed with a key of its bucket that was shredded meanwhile:
    /// nothing was committed, and the client may try again. 503.
    #[error("the bucket's key was shredded meanwhile")]
    KeyGone,
    /// No key of a blob's epoch is known here: another process may have opened it a moment ago, or
    /// its KEK is missing. Says nothing of the blob. 503.
    #[error("no key of epoch {0} is known here")]
    NoKey(u32),
    /// The provider of the KEK has not been heard of for as long as the KEK may seal without it.
    /// Reads go on. 503, and the client may try again.
    #[error("nothing is sealed: the key provider has not answered for longer than the lifetime of its key")]
    ProviderSilent,
    /// There is no background job of that name.
    #[error("there is no job {0:?}")]
    NoJob(String),
    /// The job runs already; its end can be waited for.
    #[error("{0} is already running")]
    JobRuns(String),
    /// The job cannot do that now, or not with these parameters.
    #[error("{0}")]
    JobRefused(String),
    /// A background job was told to end before it had.
    #[error("stopped: {0}")]
    Stopped(&'static str),
    /// The original of adopted content was changed or removed in its store: there is nothing to be
    /// answered with. 500, and a person should look.
    #[error("original: {0}")]
    Original(String),
    /// Start-up refused, or anything else. 500.
    #[error("{0}")]
    Other(String),
}

/// Why a body could not be staged.
#[derive(Debug, Error)]
pub enum StoreError<E> {
    /// The body itself failed: its own error.
    #[error("request body failed")]
    Body(E),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl EngineError {
    /// Whether it says that stored bytes cannot be had as they were: they are not what they should
    /// be, or their backend answers for them with an error that does not pass. Another copy of them
    /// may be good.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Integrity(_) | Self::Other(_))
    }

    /// The same, with the blob in which the damage is, unless it names one.
    pub(crate) fn of_blob(self, id: BlobId) -> Self {
        match self {
            Self::Integrity(why) if !why.contains("(blob ") && !why.contains(&id.to_string()) => {
                Self::Integrity(format!("{why} (blob {id})"))
            }
            other => other,
        }
    }

    /// A copy for each of several callers who waited for the same work.
    pub(crate) fn shared(error: &Self) -> Self {
        match error {
            Self::Busy(what) => Self::Busy(what),
            Self::Full => Self::Full,
            Self::Fenced => Self::Fenced,
            Self::KeyGone => Self::KeyGone,
            Self::NoKey(epoch) => Self::NoKey(*epoch),
            Self::ProviderSilent => Self::ProviderSilent,
            Self::Unavailable(why) => Self::Unavailable(why.clone()),
            Self::NotCurrent(why) => Self::NotCurrent(why.clone()),
            Self::Integrity(why) => Self::Integrity(why.clone()),
            Self::Damaged(why) => Self::Damaged(why.clone()),
            Self::JobRefused(why) => Self::JobRefused(why.clone()),
            Self::Stopped(why) => Self::Stopped(why),
            Self::Original(why) => Self::Original(why.clone()),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<BackendError> for EngineError {
    fn from(error: BackendError) -> Self {
        match error.kind() {
            ErrorKind::Full => Self::Full,
            ErrorKind::Throttled | ErrorKind::Transient => Self::Unavailable(error.to_string()),
            ErrorKind::Corrupt => Self::Integrity(error.to_string()),
            _ => Self::Other(format!("backend: {error}")),
        }
    }
}

impl From<CatalogError> for EngineError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::PreconditionFailed => Self::PreconditionFailed,
            CatalogError::Locked => Self::Locked,
            CatalogError::BucketState => Self::BucketState,
            CatalogError::QuotaExceeded(whose) => Self::QuotaExceeded(whose),
            CatalogError::NotEmpty => Self::NotEmpty,
            CatalogError::NoBucket => Self::NoBucket,
            CatalogError::NoUpload => Self::NoUpload,
            CatalogError::Conflict => Self::Conflict,
            CatalogError::Full => Self::Full,
            CatalogError::Fenced => Self::Fenced,
            CatalogError::KeyGone => Self::KeyGone,
            CatalogError::Damaged(why) => Self::Damaged(why),
            CatalogError::Refused(why) => Self::NotCurrent(why),
            CatalogError::Unavailable(why) => Self::Unavailable(why),
            CatalogError::Unknown(why) => Self::Unavailable(format!("commit outcome unknown: {why}")),
            other => Self::Other(format!("catalog: {other}")),
        }
    }
}

impl From<FormatError> for EngineError {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::TooLarge(_) => Self::TooLarge,
            other => Self::Integrity(other.to_string()),
        }
    }
}

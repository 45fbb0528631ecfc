//! What a client is told when the engine fails.

use super::request::S3Request;
use crate::engine::{EngineError, StoreError};
use s3_wire::{ErrorCode, S3Error};

impl S3Request {
    /// What the client is told about an engine error. Logged here, once.
    pub(super) fn refusal(&self, error: EngineError) -> S3Error {
        match error {
            EngineError::PreconditionFailed => ErrorCode::PreconditionFailed.into(),
            EngineError::Locked => {
                S3Error::with_message(ErrorCode::AccessDenied, "Access Denied because object protected by object lock.")
            }
            EngineError::BucketState => ErrorCode::InvalidBucketState.into(),
            EngineError::QuotaExceeded(whose) => {
                self.service.metrics.rejected_total.with_label_values(&["quota"]).inc();
                tracing::debug!(whose, "quota exceeded");
                ErrorCode::QuotaExceeded.into()
            }
            EngineError::NotEmpty => ErrorCode::BucketNotEmpty.into(),
            EngineError::NoBucket => ErrorCode::NoSuchBucket.into(),
            EngineError::NoUpload => ErrorCode::NoSuchUpload.into(),
            EngineError::Conflict => ErrorCode::OperationAborted.into(),
            EngineError::TooLarge => ErrorCode::EntityTooLarge.into(),
            EngineError::Busy(what) => {
                self.service.metrics.rejected_total.with_label_values(&[what]).inc();
                tracing::debug!(what, "busy");
                ErrorCode::SlowDown.into()
            }
            EngineError::Full => {
                tracing::error!("storage is full");
                S3Error::with_message(
                    ErrorCode::ServiceUnavailable,
                    "The server's storage is full: uploads are refused until there is space, reads and deletes are served. Delete what is not \
                     needed, or ask the server's operator for more space.",
                )
            }
            EngineError::Unavailable(why) => {
                tracing::warn!(why, "unavailable");
                ErrorCode::ServiceUnavailable.into()
            }
            EngineError::NotCurrent(why) => {
                // Said once, when it was found out; clients repeat their requests.
                tracing::debug!(why, "a write was refused");
                S3Error::with_message(
                    ErrorCode::ServiceUnavailable,
                    "Writes are refused: the server's catalog is not the newest state of its store, or the store is not its own. \
                     Its log says why; its operator must act.",
                )
            }
            EngineError::ProviderSilent => provider_silent(),
            EngineError::Fenced | EngineError::KeyGone | EngineError::NoKey(_) => {
                tracing::warn!(%error, "a request was refused");
                ErrorCode::ServiceUnavailable.into()
            }
            EngineError::Integrity(why) => {
                self.service.metrics.integrity_errors_total.inc();
                self.damage.get_or_init(|| why.clone());
                ErrorCode::InternalError.into()
            }
            EngineError::Damaged(why) => {
                self.service.metrics.integrity_errors_total.inc();
                tracing::error!(why, "the catalog is damaged");
                self.damage.get_or_init(|| why.clone());
                ErrorCode::InternalError.into()
            }
            EngineError::Original(why) => {
                tracing::error!(why, "the original of adopted content has changed");
                S3Error::with_message(
                    ErrorCode::InternalError,
                    "The original of this object was changed or removed in its store after it was adopted.",
                )
            }
            EngineError::Other(why) => {
                tracing::error!(why, "internal error");
                ErrorCode::InternalError.into()
            }
            EngineError::NoJob(_) | EngineError::JobRuns(_) | EngineError::JobRefused(_) | EngineError::Stopped(_) => {
                tracing::error!(%error, "a request failed with an error of a background job");
                ErrorCode::InternalError.into()
            }
        }
    }

    /// The same of what came while a body was taken in: its own error, or the engine's.
    pub(super) fn store_refusal(&self, error: StoreError<S3Error>) -> S3Error {
        match error {
            StoreError::Body(error) => error,
            StoreError::Engine(error) => self.refusal(error),
        }
    }
}

/// Logged once, by who found out; clients repeat their requests.
fn provider_silent() -> S3Error {
    tracing::debug!("a write was refused: the key provider is silent");
    S3Error::with_message(
        ErrorCode::ServiceUnavailable,
        "Writes that encrypt are refused: the provider of the server's key does not answer. Reads are served. Writes go on by \
         themselves when it answers.",
    )
}

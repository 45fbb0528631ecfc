//! What a store said when it did not do what it was asked, and what that means to a caller.

use crate::{BackendError, ErrorKind};
use http::{HeaderMap, StatusCode};
use object_store::client::HttpError;
use std::{error::Error, fmt, time::Duration};

/// An answer other than success, with what its body and headers tell.
#[derive(Debug, Clone, thiserror::Error)]
#[error("status {status}, code {}: {message}", code.as_deref().unwrap_or("none"))]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// The store's own word for it (`NoSuchKey`, `SlowDown`, …).
    pub(crate) code: Option<String>,
    /// The start of the body, for the log.
    message: String,
    retry_after: Option<Duration>,
}

impl Refusal {
    /// Reads an answer: the code from Azure's header or from the XML body that S3, GCS and Azure
    /// share.
    pub(crate) fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let code = header("x-ms-error-code").or_else(|| element(&text, "Code")).map(str::to_owned);
        let message = element(&text, "Message").unwrap_or(&text).chars().take(MESSAGE_CHARS_MAX).collect();
        // The form with a date is not worth a clock.
        let retry_after = header("retry-after").and_then(|s| s.trim().parse().ok()).map(Duration::from_secs);
        Self { status, code, message, retry_after }
    }

    /// True only when the store speaks of this very blob; a bucket that is missing is not a blob
    /// that is missing.
    pub(crate) fn means_absent(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && matches!(self.code.as_deref(), Some("NoSuchKey" | "BlobNotFound"))
    }

    /// True when something stands where nothing may.
    pub(crate) fn means_exists(&self) -> bool {
        self.status == StatusCode::PRECONDITION_FAILED || self.code.as_deref() == Some("BlobAlreadyExists")
    }

    fn kind(&self) -> ErrorKind {
        let by_code = match self.code.as_deref().unwrap_or_default() {
            "SlowDown"
            | "Throttling"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "TooManyRequests"
            | "ServerBusy" => Some(ErrorKind::Throttled),
            "InternalError"
            | "RequestTimeout"
            | "OperationTimedOut"
            | "OperationAborted"
            | "ConditionalRequestConflict" => Some(ErrorKind::Transient),
            "QuotaExceeded" | "XMinioStorageFull" | "XMinioAdminBucketQuotaExceeded" | "AccountQuotaExceeded" => {
                Some(ErrorKind::Full)
            }
            "BadDigest" | "XAmzContentSHA256Mismatch" | "Md5Mismatch" | "BlobAlreadyExists" => Some(ErrorKind::Corrupt),
            // A name of metadata that this store does not take.
            "InvalidMetadata" | "EmptyMetadataKey" | "MetadataTooLarge" => Some(ErrorKind::Invalid),
            _ => None,
        };
        by_code.unwrap_or(match self.status.as_u16() {
            401 | 403 => ErrorKind::Denied,
            408 | 409 | 500 | 502 | 504 => ErrorKind::Transient,
            // Only creation is conditional: something stands where nothing may.
            412 => ErrorKind::Corrupt,
            429 | 503 => ErrorKind::Throttled,
            507 => ErrorKind::Full,
            _ => ErrorKind::Other,
        })
    }
}

/// The error for the log and, when it was the store's answer, that answer for decisions.
pub(crate) fn failure(
    attempt: &str,
    what: &dyn fmt::Display,
    error: object_store::Error,
) -> (Option<Refusal>, BackendError) {
    let refused = causes(&error).find_map(|cause| cause.downcast_ref::<Refusal>()).cloned();
    let kind = match &refused {
        Some(refused) => refused.kind(),
        // A connection that failed, timed out or broke.
        None if causes(&error).any(|cause| cause.is::<HttpError>()) => ErrorKind::Transient,
        None => ErrorKind::Other,
    };
    let retry_after = refused.as_ref().and_then(|refused| refused.retry_after);
    let failed = BackendError::with_source(kind, format!("cannot {attempt} {what}: {error}"), error);
    (refused, failed.with_retry_after(retry_after))
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (**error).source())
}

/// The text of the first `<name>` element. The few stores there are write their errors this
/// plainly, and what is read here is only ever compared with known words or logged.
pub(crate) fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

/// Text without XML's entities.
pub(crate) fn plain_text(text: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&#39;", "'")];
    let text = entities.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain));
    text.replace("&amp;", "&")
}

const MESSAGE_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(status: u16, body: &str) -> Refusal {
        Refusal::read(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn only_the_stores_own_word_means_that_a_blob_is_absent() {
        let says =
            |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
        assert!(refusal(404, &says("NoSuchKey")).means_absent());
        assert!(refusal(404, &says("BlobNotFound")).means_absent());
        for (status, body) in [
            (404, says("NoSuchBucket")),
            (404, says("ContainerNotFound")),
            (404, String::new()),
            (404, "<html>404 Not Found</html>".to_owned()),
            (403, says("NoSuchKey")),
            (500, says("NoSuchKey")),
            (410, says("NoSuchKey")),
        ] {
            assert!(!refusal(status, &body).means_absent(), "{status} {body}");
        }
    }

    #[test]
    fn answers_have_the_kind_their_caller_must_act_on() {
        for (status, code, kind) in [
            (401, "", ErrorKind::Denied),
            (403, "AccessDenied", ErrorKind::Denied),
            (403, "QuotaExceeded", ErrorKind::Full),
            (400, "RequestTimeout", ErrorKind::Transient),
            (400, "BadDigest", ErrorKind::Corrupt),
            (400, "InvalidArgument", ErrorKind::Other),
            (404, "NoSuchBucket", ErrorKind::Other),
            (408, "", ErrorKind::Transient),
            (409, "BlobAlreadyExists", ErrorKind::Corrupt),
            (412, "PreconditionFailed", ErrorKind::Corrupt),
            (429, "", ErrorKind::Throttled),
            (500, "InternalError", ErrorKind::Transient),
            (500, "OperationTimedOut", ErrorKind::Transient),
            (501, "NotImplemented", ErrorKind::Other),
            (502, "", ErrorKind::Transient),
            (503, "SlowDown", ErrorKind::Throttled),
            (507, "", ErrorKind::Full),
            (301, "PermanentRedirect", ErrorKind::Other),
        ] {
            assert_eq!(refusal(status, &format!("<Error><Code>{code}</Code></Error>")).kind(), kind, "{status} {code}");
        }
    }

    #[test]
    fn azure_says_its_code_in_a_header_and_anyone_how_long_to_wait() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ms-error-code", "BlobNotFound".parse().unwrap());
        headers.insert("retry-after", "7".parse().unwrap());
        let refusal = Refusal::read(StatusCode::NOT_FOUND, &headers, b"");
        assert!(refusal.means_absent());
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(7)));
    }

    proptest! {
        #[test]
        fn any_body_can_be_read(status in 100u16..1000, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let refusal = Refusal::read(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), &body);
            prop_assert!(!refusal.means_absent());
        }

        #[test]
        fn the_code_is_found_wherever_it_stands(before in "[^<]{0,20}", code in "[A-Za-z]{1,20}", after in ".{0,20}") {
            let body = format!("{before}<Error><Code>\n {code} </Code>{after}");
            prop_assert_eq!(refusal(400, &body).code, Some(code));
        }
    }
}

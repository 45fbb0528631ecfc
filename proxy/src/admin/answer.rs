//! Answers of the admin API, and why a call has none.

use crate::engine::EngineError;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

/// An answer over HTTP.
pub type Answer = Response<Full<Bytes>>;

/// Why an API call has no answer.
#[derive(Debug)]
pub struct AdminError {
    /// What it is over HTTP.
    pub status: StatusCode,
    /// What the operator is told. Operators are trusted with the engine's own words.
    pub message: String,
}

impl AdminError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no such {what}"))
    }

    /// The same of something that has a name: whoever asked with a list of names learns which one.
    pub(super) fn unknown(what: &str, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no {what} {name}"))
    }

    /// Why the engine did nothing about a bucket, by the bucket's name.
    pub(super) fn about(bucket: &str) -> impl Fn(EngineError) -> Self {
        move |error| match error {
            EngineError::NoBucket => Self::unknown("bucket", bucket),
            error => error.into(),
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<EngineError> for AdminError {
    fn from(error: EngineError) -> Self {
        let status = match error {
            EngineError::Busy(_)
            | EngineError::Unavailable(_)
            | EngineError::NotCurrent(_)
            | EngineError::ProviderSilent
            | EngineError::NoKey(_)
            | EngineError::KeyGone
            | EngineError::Fenced => StatusCode::SERVICE_UNAVAILABLE,
            EngineError::NoJob(_) | EngineError::NoBucket => StatusCode::NOT_FOUND,
            EngineError::Conflict | EngineError::JobRuns(_) | EngineError::JobRefused(_) => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

pub(super) fn json_answer(status: StatusCode, value: &Value) -> Answer {
    let mut answer = text(status, value.to_string() + "\n");
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

pub(super) fn failed(error: &AdminError) -> Answer {
    let mut answer = json_answer(error.status, &json!({ "error": error.message }));
    if error.status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

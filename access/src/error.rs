//! Why a policy is refused.

use std::fmt;

/// Why a document is refused, in S3's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    message: String,
    detail: Option<String>,
}

impl PolicyError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), detail: None }
    }

    pub(crate) fn with_detail(message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { message: message.into(), detail: Some(detail.into()) }
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self::new(format!("Missing required field {field}"))
    }

    /// The message, as S3 sends it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The part of the document that it is about.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            None => f.write_str(&self.message),
            Some(detail) => write!(f, "{}: {detail}", self.message),
        }
    }
}

impl std::error::Error for PolicyError {}

//! Why accounts are not changed.

use thiserror::Error;

/// Why something cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is no such user, group, policy or key.
    #[error("there is no {0}")]
    NotFound(String),
    /// It contradicts what is there.
    #[error("{0}")]
    Conflict(String),
    /// It is not well-formed.
    #[error("{0}")]
    Invalid(String),
    /// Replicas without a KEK of their operator cannot keep accounts.
    #[error(
        "replicas keep accounts in the catalog only with a KEK that all of them are given: set storage.kek or DELTAWEIR_KEK"
    )]
    NoKek,
}

//! How the shared catalog is used.

use crate::CommitObserver;
use std::{sync::Arc, time::Duration};

/// How the shared catalog is used.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The password, when it is not in the URL.
    pub password: Option<String>,
    /// Most reads at a time, each with a connection; more wait. One more connection writes.
    pub readers_max: usize,
    /// Most changes of one transaction.
    pub group_max: usize,
    /// How long a call may wait for a database that cannot be reached, or restarts, before it
    /// fails. Reads, and changes of which nothing was committed, are carried out as soon as it is
    /// back.
    pub patience: Duration,
    /// How long one connection may take to be made.
    pub connect_timeout: Duration,
    /// How long the database may let a change's transaction wait for us before it gives up and
    /// frees its locks: what a stalled process can cost the others.
    pub stall_timeout: Duration,
    /// Is told of commits.
    pub observer: Option<Arc<dyn CommitObserver>>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            password: None,
            readers_max: 16,
            group_max: 128,
            patience: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(3),
            observer: None,
        }
    }
}

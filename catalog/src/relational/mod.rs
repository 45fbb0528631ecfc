//! What both databases share: one schema, one set of statements, one place where references live
//! and die.
//!
//! A mutation is two waves of statements: reads that lock what they find, then a pure decision,
//! then writes. [`apply::apply`] is where every mutation enters; it takes the sequence number
//! before anything else and appends the journal's row after everything else. The databases add only
//! what differs: connections, transactions, group commit, errors.

pub(crate) mod accounts;
pub(crate) mod apply;
pub(crate) mod blobs;
pub(crate) mod buckets;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod checksum_walk;
pub(crate) mod checksums;
pub(crate) mod columns;
pub(crate) mod conversion;
pub(crate) mod copies;
pub(crate) mod decide;
pub(crate) mod engine;
pub(crate) mod history;
pub(crate) mod hooks;
pub(crate) mod jobs;
pub(crate) mod kept_buckets;
pub(crate) mod keys;
pub(crate) mod list;
pub(crate) mod locks;
pub(crate) mod multipart;
mod notices;
pub(crate) mod quotas;
pub(crate) mod read;
pub(crate) mod replay;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod stripes;
pub(crate) mod trash;
pub(crate) mod verification;
pub(crate) mod versions;
pub(crate) mod writers;

//! The deltaweir proxy: S3 operations on one side, catalog, backends and codec on the other.
//!
//! `ops` speaks S3 and decides nothing about storage; `engine` stores and reads content and knows no HTTP.

pub mod engine;
pub mod metrics;

//! The deltaweir proxy: S3 operations on one side, catalog, backends and codec on the other.
//!
//! `server` accepts and answers, `ops` speaks S3 and decides nothing about storage, `engine` stores and reads content and
//! knows no HTTP. `config` alone reads files and environment; `metrics` holds every metric in one table.

pub mod admin;
pub mod auth;
pub mod cli;
pub mod config;
pub mod delta_file;
pub mod engine;
pub mod estimate;
pub mod metrics;
pub mod ops;
pub mod server;

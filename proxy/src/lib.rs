//! The deltaweir proxy: S3 operations on one side, the crate `engine` on the other.
//!
//! `server` accepts and answers, `ops` speaks S3 and decides nothing about storage; the engine
//! stores and reads content and knows no HTTP. `peers` bounds how much of the server one peer
//! takes. `audit` writes down who changed what. `stores` opens what the engine works over. `config`
//! alone reads files and environment; `metrics` shows every metric; `webhooks` brings events to
//! those who are told of changes, and `key_providers` has KEKs wrapped and unwrapped by those who
//! keep them. `sealing` encrypts single objects. `lines` brings the lines of logs to files and
//! pipes, and waits for none; `log_tail` keeps the newest ones for whoever asks.

pub mod admin;
pub mod audit;
pub mod auth;
pub mod cli;
pub mod config;
pub mod delta_file;
pub mod estimate;
#[doc(hidden)]
pub mod fuzzing;
pub mod key_providers;
pub mod lines;
pub mod log_tail;
mod memory;
pub mod metrics;
pub mod oidc;
pub mod ops;
pub mod peers;
pub mod preview;
mod sealing;
pub mod server;
pub mod stores;
pub mod webhooks;

pub use engine;

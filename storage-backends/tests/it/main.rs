//! The crate from outside: every backend and every wrapper through the conformance suite.

mod gateway;
mod plain;
mod refusals;
mod removals;
mod s3;
mod scripted;
mod wrappers;

//! The crate from outside: every backend and every wrapper through the conformance suite.

mod gateway;
mod s3;
mod wrappers;

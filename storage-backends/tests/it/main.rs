//! The crate from outside: every backend and every wrapper through the conformance suite.

mod wrappers;

//! The conformance suite over every implementation.

mod sqlite;

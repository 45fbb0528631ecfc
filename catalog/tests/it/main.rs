//! The conformance suite over every implementation, and the formats that others rely on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod connections;
mod groups;
mod journal_rows;
mod postgres;
mod simulated;
mod sqlite;
mod turns;
mod wire;

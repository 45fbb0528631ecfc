//! The server in this process, over real sockets: what a connection does when requests go wrong,
//! when they are too many, and when the server ends.

#![allow(clippy::unwrap_used, reason = "what cannot be done is a failed test")]

mod accounts;
mod admin;
mod campaign;
#[allow(dead_code, reason = "the fixture of the catalog's tests, which crash it too")]
#[path = "../../../catalog/tests/it/cluster.rs"]
mod cluster;
mod connections;
mod content;
mod copies;
mod fuzzed;
mod limits;
mod openapi;
mod path;
mod replicas;
mod running;
mod scrub;
mod seen;
mod shown;
mod stopping;
mod wire;

//! The server in this process, over real sockets: what a connection does when requests go wrong, when they are too many, and when the
//! server ends.

#![allow(clippy::unwrap_used, reason = "what cannot be done is a failed test")]

mod admin;
mod connections;
mod limits;
mod running;
mod stopping;
mod wire;

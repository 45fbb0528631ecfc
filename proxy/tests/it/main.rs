//! The server in this process, over real sockets: what a connection does when requests go wrong, when they are too many, and when the
//! server ends.

mod admin;
mod connections;
mod limits;
mod running;
mod stopping;
mod wire;

//! The crate from outside: vectors, round trips, and what nobody should send.

mod containers;
mod hostile;
mod kit;
mod nested;
mod parses;
mod segments;
mod text;
mod units;
mod work;

//! Who changed what, and who was refused: one line of JSON per call, each bound to the one before
//! it by a keyed hash, so that a log that was edited, cut, reordered or lacks a line is found
//! (docs/reference/audit.md).

mod chain;
mod entry;
mod files;
mod log;
mod search;
mod unsigned;
mod verify;
mod wanted;

pub use chain::AuditKey;
pub use entry::{Entry, Kind, NamedObject, OfBody};
pub use log::{AuditLog, Settings};
pub use search::{Newest, newest, search};
pub use verify::{Broken, Sound, tail, verify};
pub use wanted::Wanted;

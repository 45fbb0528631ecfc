//! Writing: a body is staged (read, cut, encoded, uploaded) and published (finished, made durable,
//! committed).

pub(crate) mod change;
pub(crate) mod effort;
pub(crate) mod encode;
pub(crate) mod finish;
pub(crate) mod open_uploads;
pub(crate) mod parts;
pub(crate) mod past;
pub(crate) mod publish;
mod room;
pub(crate) mod scans;
pub(crate) mod spool;
pub(crate) mod stage;
pub(crate) mod view;
pub(crate) mod views;

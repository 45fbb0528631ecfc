//! The catalog as rows: what leaves it for a backup, and what comes back.

use crate::types::{Seq, ServerRun};
pub use crate::value::Value;

/// Some rows of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRows {
    /// The table.
    pub table: String,
    /// Its columns, in the order of the values.
    pub columns: Vec<String>,
    /// One list of values per row, as many as columns.
    pub rows: Vec<Vec<Value>>,
}

/// What a snapshot was of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Schema version of its tables.
    pub schema: i64,
    /// Last mutation that is in it.
    pub seq: Seq,
    /// How many rows it has.
    pub rows: u64,
}

/// What tells one document of the journal from every other: a digest of its name and content. The
/// document behind it carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLink(pub [u8; 32]);

/// How far the journal has been shipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalMarks {
    /// Everything up to here has been shipped and trimmed.
    pub shipped: Seq,
    /// Where the blob ends that is being shipped; at most `shipped` when none is.
    pub cut: Seq,
    /// The last mutation.
    pub last: Seq,
    /// The document that ends at `shipped`; `None` where this catalog does not know it: after a
    /// restore, and when an earlier program has shipped it.
    pub head: Option<JournalLink>,
    /// Where this was read.
    pub run: ServerRun,
}

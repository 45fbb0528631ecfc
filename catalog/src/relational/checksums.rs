//! Checksums of the rows that decide which bytes are read or removed.
//!
//! A row that names a blob carries the XXH3 of everything in it that never changes, or changes only
//! where the checksum is written anew. Who reads such a row compares: a mismatch is
//! [`CatalogError::Damaged`], never an absence. The database's own checks do not see a bit that
//! flipped inside a value, in memory or on its way to the disk; this does.
//!
//! The number of a mutation is in the checksum of a row by XOR: a database that gives a change its
//! number at its end works both out there ([`Statement::numbered`](super::session::Statement)).
//! Rows from before that have it among the values that are summed; both are what was written.
//!
//! Null means that the row is older than the column and was brought in by an import that is still
//! under way ([`super::checksum_walk::fill`]).

use super::{columns, session::Row};
use crate::{CatalogError, Result, types::*};
use xxhash_rust::xxh3::Xxh3;

/// What is wrong with a row, for the operator.
pub(crate) fn damaged(what: &str, name: &str) -> CatalogError {
    CatalogError::Damaged(format!("the row of {what} {name} is not what was written"))
}

/// A checksum in the making. Every value is told apart from its neighbours by its length. It is
/// half a kilobyte, so it stays where it is.
struct Sum(Xxh3);

impl Sum {
    /// Begins the checksum of a row of `table`.
    fn of(table: &str) -> Self {
        let mut sum = Self(Xxh3::new());
        sum.bytes(table.as_bytes());
        sum
    }

    fn int(&mut self, value: i64) -> &mut Self {
        self.0.update(&value.to_le_bytes());
        self
    }

    fn unsigned(&mut self, value: u64) -> &mut Self {
        self.int(value.cast_signed())
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.0.update(&(value.len() as u64).to_le_bytes());
        self.0.update(value);
        self
    }

    fn optional(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            Some(value) => self.int(1).bytes(value),
            None => self.int(0),
        }
    }

    fn end(&self) -> i64 {
        self.0.digest().cast_signed()
    }
}

/// Of a blob's row. Its state is left out: it changes by statements that read no row, and is
/// checked against its references.
pub(crate) fn of_blob(row: &BlobRow) -> Result<i64> {
    let original = columns::original_text(row)?;
    let forms = &row.forms;
    let mut sum = Sum::of("blobs");
    sum.bytes(&row.id.0)
        .int(row.bucket.0)
        .int(row.key_epoch.into())
        .bytes(row.backend.as_bytes())
        .int(columns::form_column(row.form))
        .unsigned(row.plain_len)
        .unsigned(row.stored_len)
        .unsigned(row.root_offset)
        .int(row.root_len.into())
        .bytes(&row.root_tag)
        .optional(row.digest.as_ref().map(<[u8; 32]>::as_slice))
        .unsigned(forms.raw_plain)
        .unsigned(forms.zstd_plain)
        .unsigned(forms.zstd_stored)
        .unsigned(forms.delta_plain)
        .unsigned(forms.delta_stored)
        .optional(row.inline.as_deref())
        .optional(original.as_deref().map(str::as_bytes))
        .int(row.pack.into())
        .optional(row.copy.as_ref().map(|copy| copy.0.as_slice()));
    // Rows of before there were compartments have the checksum that they had.
    if let Some(compartment) = row.compartment {
        sum.bytes(&compartment.0);
    }
    Ok(sum.end())
}

/// Of a version's row, the number apart. Its extents are bound to it by `extents_digest`; whether
/// it is current changes with its neighbours.
pub(crate) fn of_version(version: &Version) -> i64 {
    add_version(&mut Sum::of("versions"), version) ^ version.seq
}

/// The same as rows had it before the number could come last.
fn of_version_before(version: &Version) -> i64 {
    add_version(Sum::of("versions").int(version.seq), version)
}

fn add_version(sum: &mut Sum, version: &Version) -> i64 {
    let (lock, retain_until_ms) = columns::lock_columns(&version.lock);
    sum.int(version.bucket.0)
        .bytes(version.key.as_bytes())
        .bytes(&version.id.0)
        .int(version.modified_ms)
        .unsigned(version.size)
        .bytes(&version.facts)
        .bytes(&version.extents_digest)
        .int(version.named.into())
        .int(version.marker.into())
        .int(lock)
        .int(retain_until_ms.unwrap_or(-1))
        .end()
}

/// Compares a version's row with the checksum in its column `column`.
pub(crate) fn compare_version(row: &Row, column: usize, version: &Version) -> Result<()> {
    let (sum, before) = (of_version(version), || of_version_before(version));
    compare_either(row, column, (sum, before), "version", || hex::encode(version.id.0))
}

/// Of the row that says which whole blob a delta needs.
pub(crate) fn of_edge(delta: &[u8], base: &[u8]) -> i64 {
    Sum::of("edges").bytes(delta).bytes(base).end()
}

/// Of a part's row and its extents.
pub(crate) fn of_part(upload: UploadId, part: &Part) -> i64 {
    let mut sum = Sum::of("parts");
    sum.bytes(&upload.0)
        .int(part.number.into())
        .bytes(&part.id)
        .unsigned(part.size)
        .int(part.modified_ms)
        .bytes(&part.facts);
    for extent in &part.extents {
        sum.bytes(&extent.blob.0).unsigned(extent.offset).unsigned(extent.len);
    }
    sum.end()
}

/// Of a journal row.
pub(crate) fn of_entry(seq: Seq, at_ms: UnixMs, mutation: &str) -> i64 {
    Sum::of("journal").int(at_ms).bytes(mutation.as_bytes()).end() ^ seq
}

/// The same as rows had it before the number could come last.
fn of_entry_before(seq: Seq, at_ms: UnixMs, mutation: &str) -> i64 {
    Sum::of("journal").int(seq).int(at_ms).bytes(mutation.as_bytes()).end()
}

/// Compares a journal row with the checksum in its column `column`, and gives the one that such a
/// row has now.
pub(crate) fn compare_entry(row: &Row, column: usize, (seq, at_ms, text): (Seq, UnixMs, &str)) -> Result<i64> {
    let (sum, before) = (of_entry(seq, at_ms, text), || of_entry_before(seq, at_ms, text));
    compare_either(row, column, (sum, before), "mutation", || seq.to_string())?;
    Ok(sum)
}

/// Compares a row with what it may have in its column `column`.
fn compare_either(
    row: &Row,
    column: usize,
    (sum, before): (i64, impl FnOnce() -> i64),
    what: &str,
    name: impl FnOnce() -> String,
) -> Result<()> {
    match row.optional_int(column)? {
        Some(stored) if stored != sum && stored != before() => Err(damaged(what, &name())),
        _ => Ok(()),
    }
}

/// Compares a row with the checksum in its column `column`.
pub(crate) fn compare(row: &Row, column: usize, sum: i64, what: &str, name: impl FnOnce() -> String) -> Result<()> {
    match row.optional_int(column)? {
        Some(stored) if stored != sum => Err(damaged(what, &name())),
        _ => Ok(()),
    }
}

//! Checksums of the rows that decide which bytes are read or removed.
//!
//! A row that names a blob carries the XXH3 of everything in it that never changes, or changes only
//! where the checksum is written anew. Who reads such a row compares: a mismatch is
//! [`CatalogError::Damaged`], never an absence. The database's own checks do not see a bit that
//! flipped inside a value, in memory or on its way to the disk; this does.
//!
//! Null means that the row is older than the column and was brought in by an import that is still
//! under way ([`fill`]).

use super::{
    rows,
    session::{Row, Session, Value, statement},
};
use crate::{CatalogError, Result, types::*};
use xxhash_rust::xxh3::Xxh3;

/// Rows that get their checksum together.
const PAGE: i64 = 512;

/// What is wrong with a row, for the operator.
pub(crate) fn damaged(what: &str, name: &str) -> CatalogError {
    CatalogError::Damaged(format!("the row of {what} {name} is not what was written"))
}

/// A checksum in the making. Every value is told apart from its neighbours by its length.
struct Sum(Xxh3);

impl Sum {
    /// Begins the checksum of a row of `table`.
    fn of(table: &str) -> Self {
        Self(Xxh3::new()).bytes(table.as_bytes())
    }

    fn int(mut self, value: i64) -> Self {
        self.0.update(&value.to_le_bytes());
        self
    }

    fn unsigned(self, value: u64) -> Self {
        self.int(value.cast_signed())
    }

    fn bytes(mut self, value: &[u8]) -> Self {
        self.0.update(&(value.len() as u64).to_le_bytes());
        self.0.update(value);
        self
    }

    fn optional(self, value: Option<&[u8]>) -> Self {
        match value {
            Some(value) => self.int(1).bytes(value),
            None => self.int(0),
        }
    }

    fn end(self) -> i64 {
        self.0.digest().cast_signed()
    }
}

/// Of a blob's row. Its state is left out: it changes by statements that read no row, and is
/// checked against its references.
pub(crate) fn of_blob(row: &BlobRow) -> Result<i64> {
    let original = rows::original_text(row)?;
    let forms = &row.forms;
    Ok(Sum::of("blobs")
        .bytes(&row.id.0)
        .int(row.bucket.0)
        .int(row.key_epoch.into())
        .bytes(row.backend.as_bytes())
        .int(rows::form_column(row.form))
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
        .optional(row.copy.as_ref().map(|copy| copy.0.as_slice()))
        .end())
}

/// Of a version's row. Its extents are bound to it by `extents_digest`; whether it is current
/// changes with its neighbours.
pub(crate) fn of_version(version: &Version) -> i64 {
    let (lock, retain_until_ms) = rows::lock_columns(&version.lock);
    Sum::of("versions")
        .int(version.seq)
        .int(version.bucket.0)
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

/// Of the row that says which whole blob a delta needs.
pub(crate) fn of_edge(delta: &[u8], base: &[u8]) -> i64 {
    Sum::of("edges").bytes(delta).bytes(base).end()
}

/// Of a part's row and its extents.
pub(crate) fn of_part(upload: UploadId, part: &Part) -> i64 {
    let sum = Sum::of("parts")
        .bytes(&upload.0)
        .int(part.number.into())
        .bytes(&part.id)
        .unsigned(part.size)
        .int(part.modified_ms)
        .bytes(&part.facts);
    let extent = |sum: Sum, extent: &Extent| sum.bytes(&extent.blob.0).unsigned(extent.offset).unsigned(extent.len);
    part.extents.iter().fold(sum, extent).end()
}

/// Of a journal row.
pub(crate) fn of_entry(seq: Seq, at_ms: UnixMs, mutation: &str) -> i64 {
    Sum::of("journal").int(seq).int(at_ms).bytes(mutation.as_bytes()).end()
}

/// Compares a row with the checksum in its column `column`.
pub(crate) fn compare(row: &Row, column: usize, sum: i64, what: &str, name: impl FnOnce() -> String) -> Result<()> {
    match row.optional_int(column)? {
        Some(stored) if stored != sum => Err(damaged(what, &name())),
        _ => Ok(()),
    }
}

/// A table whose rows carry a checksum.
struct Summed {
    name: &'static str,
    /// Its primary key; the first columns of `select`.
    key: &'static [&'static str],
    /// Reads rows of it, named `t`, as [`Summed::sum`] wants them.
    select: &'static str,
}

const SUMMED: &[Summed] = &[
    Summed {
        name: "blobs",
        key: &["id"],
        select: concat!("SELECT b.id AS k, ", rows::blob_columns!(), " FROM blobs b"),
    },
    Summed {
        name: "versions",
        key: &["seq"],
        select: concat!("SELECT v.seq AS k, ", rows::version_columns!(), " FROM versions v"),
    },
    Summed { name: "edges", key: &["delta", "base"], select: "SELECT delta, base, checksum FROM edges" },
    Summed {
        name: "parts",
        key: &["upload", "number"],
        select: "SELECT upload, number, number, id, size, modified_ms, facts, checksum FROM parts",
    },
    Summed { name: "journal", key: &["seq"], select: "SELECT seq, at_ms, mutation, checksum FROM journal" },
];

impl Summed {
    /// A page of rows behind `after`, by key.
    fn page(&self, after: &[Value], only_missing: bool) -> super::session::Statement {
        let alias = match self.name {
            "blobs" => "b.",
            "versions" => "v.",
            _ => "",
        };
        let names = |list: &[&str]| list.iter().map(|name| format!("{alias}{name}")).collect::<Vec<_>>().join(", ");
        let key = names(self.key);
        let mut params = after.to_vec();
        let places = (1..=params.len()).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
        let mut conditions = Vec::new();
        if !params.is_empty() {
            conditions.push(format!("({key}) > ({places})"));
        }
        if only_missing {
            conditions.push(format!("{alias}checksum IS NULL"));
        }
        let condition = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        params.push(PAGE.into());
        let last = params.len();
        super::session::Statement::made(format!("{}{condition} ORDER BY {key} LIMIT ${last}", self.select), params)
    }

    /// The checksum a row should have. Reading compares it with the one it has.
    async fn sum<S: Session>(&self, session: &mut S, row: &Row) -> Result<i64> {
        match self.name {
            "blobs" => of_blob(&rows::blob(row, 1)?),
            "versions" => Ok(of_version(&rows::version_at(row, 1)?)),
            "edges" => {
                let (delta, base) = rows::edge(row, 0)?;
                Ok(of_edge(&delta.0, &base.0))
            }
            "parts" => {
                let upload = UploadId(row.array(0)?);
                let mut part = rows::part(row, 2)?;
                let found = session
                    .query(statement!(
                        "SELECT blob, plain_offset, plain_len FROM part_extents WHERE upload = $1 AND number = $2 ORDER BY ordinal",
                        upload.0,
                        part.number,
                    ))
                    .await?;
                part.extents = found.iter().map(|row| rows::extent(row, 0)).collect::<Result<_>>()?;
                let sum = of_part(upload, &part);
                compare(row, 7, sum, "part", || format!("{} of upload {}", part.number, hex::encode(upload.0)))?;
                Ok(sum)
            }
            _ => {
                let entry = rows::entry(row)?;
                Ok(of_entry(entry.seq, entry.at_ms, row.text(2)?))
            }
        }
    }

    fn set(&self, key: &[Value], sum: i64) -> super::session::Statement {
        let condition = self.key.iter().enumerate().map(|(at, name)| format!("{name} = ${}", at + 2));
        let condition = condition.collect::<Vec<_>>().join(" AND ");
        let params = std::iter::once(sum.into()).chain(key.iter().cloned()).collect();
        super::session::Statement::made(format!("UPDATE {} SET checksum = $1 WHERE {condition}", self.name), params)
    }
}

/// Gives every row without a checksum one: what was there before the column, and what an older
/// backup brought.
pub(crate) async fn fill<S: Session>(session: &mut S) -> Result<()> {
    for table in SUMMED {
        let mut after: Vec<Value> = Vec::new();
        loop {
            let page = session.query(table.page(&after, true)).await?;
            let Some(last) = page.last() else { break };
            after = last.0[..table.key.len()].to_vec();
            let mut writes = Vec::with_capacity(page.len());
            for row in &page {
                let sum = table.sum(session, row).await?;
                writes.push(table.set(&row.0[..table.key.len()], sum));
            }
            session.run(writes).await?;
        }
    }
    Ok(())
}

/// Names up to `most` rows that are not what was written. Reads every row that has a checksum, page
/// by page.
pub(crate) async fn verify<S: Session>(session: &mut S, most: usize) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for table in SUMMED {
        let mut after: Vec<Value> = Vec::new();
        loop {
            let page = session.query(table.page(&after, false)).await?;
            let Some(last) = page.last() else { break };
            after = last.0[..table.key.len()].to_vec();
            for row in &page {
                match table.sum(session, row).await {
                    Ok(_) => {}
                    Err(CatalogError::Damaged(why)) if broken.len() < most => broken.push(why),
                    Err(CatalogError::Damaged(_)) => return Ok(broken),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(broken)
}

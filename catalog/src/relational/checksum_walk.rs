//! Every row with a checksum, page by page: to give it one, or to compare.

use super::{
    checksums::{compare, of_blob, of_edge, of_entry, of_part, of_version},
    rows,
    session::{Row, Session, Value, statement},
};
use crate::{CatalogError, Result, types::*};

/// Rows that get their checksum together.
const PAGE: i64 = 512;

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

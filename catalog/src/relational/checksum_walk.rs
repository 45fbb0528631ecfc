//! Every row with a checksum, page by page: to give it one, or to compare.

use super::{
    checksums::{compare, of_blob, of_edge, of_part, of_version},
    rows,
    session::{Row, Session, Statement, Value, statement},
};
use crate::{CatalogError, Result, types::*};

/// Rows that get their checksum together.
const PAGE: i64 = 512;

/// A table whose rows carry a checksum.
struct Summed {
    name: &'static str,
    /// Its primary key.
    key: &'static [&'static str],
    /// Columns of it, and the table, as [`Summed::sum`] wants them.
    select: &'static str,
}

const SUMMED: &[Summed] = &[
    Summed { name: "blobs", key: &["b.id"], select: concat!(rows::blob_columns!(), " FROM blobs b") },
    Summed { name: "versions", key: &["v.seq"], select: concat!(rows::version_columns!(), " FROM versions v") },
    Summed { name: "edges", key: &["delta", "base"], select: "delta, base, checksum FROM edges" },
    Summed {
        name: "parts",
        key: &["upload", "number"],
        select: "upload, number, id, size, modified_ms, facts, checksum FROM parts",
    },
    Summed { name: "journal", key: &["seq"], select: "seq, at_ms, mutation, checksum FROM journal" },
];

impl Summed {
    /// In which order its rows are read: by their key, or as they lie where that can be asked for.
    /// Keys are random, so rows in their order are each on another page.
    fn order<S: Session>(&self) -> &'static [&'static str] {
        if S::EXCLUSIVE { &["rowid"] } else { self.key }
    }

    /// A page of rows behind `after`; each begins with its place in the order.
    fn page<S: Session>(&self, after: &[Value], only_missing: bool) -> Statement {
        let order = self.order::<S>().join(", ");
        let mut params = after.to_vec();
        let places = (1..=params.len()).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
        let mut conditions = Vec::new();
        if !params.is_empty() {
            conditions.push(format!("({order}) > ({places})"));
        }
        if only_missing {
            conditions.push("checksum IS NULL".to_owned());
        }
        let condition = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        params.push(PAGE.into());
        let last = params.len();
        Statement::made(format!("SELECT {order}, {}{condition} ORDER BY {order} LIMIT ${last}", self.select), params)
    }

    /// The checksum of a row whose columns begin at `first`. Reading compares it with the one it
    /// has.
    async fn sum<S: Session>(&self, session: &mut S, row: &Row, first: usize) -> Result<i64> {
        match self.name {
            "blobs" => of_blob(&rows::blob(row, first)?),
            "versions" => Ok(of_version(&rows::version_at(row, first)?)),
            "edges" => {
                let (delta, base) = rows::edge(row, first)?;
                Ok(of_edge(&delta.0, &base.0))
            }
            "parts" => {
                let upload = UploadId(row.array(first)?);
                let mut part = rows::part(row, first + 1)?;
                let found = session
                    .query(statement!(
                        "SELECT blob, plain_offset, plain_len FROM part_extents WHERE upload = $1 AND number = $2 ORDER BY ordinal",
                        upload.0,
                        part.number,
                    ))
                    .await?;
                part.extents = found.iter().map(|row| rows::extent(row, 0)).collect::<Result<_>>()?;
                let sum = of_part(upload, &part);
                compare(row, first + 6, sum, "part", || {
                    format!("{} of upload {}", part.number, hex::encode(upload.0))
                })?;
                Ok(sum)
            }
            _ => rows::entry_sum(row, first),
        }
    }

    fn set<S: Session>(&self, place: &[Value], sum: i64) -> Statement {
        let condition = self.order::<S>().iter().enumerate().map(|(at, name)| {
            // A table that is changed has no other name.
            let name = name.rsplit('.').next().unwrap_or(name);
            format!("{name} = ${}", at + 2)
        });
        let condition = condition.collect::<Vec<_>>().join(" AND ");
        let params = std::iter::once(sum.into()).chain(place.iter().cloned()).collect();
        Statement::made(format!("UPDATE {} SET checksum = $1 WHERE {condition}", self.name), params)
    }
}

/// Gives every row without a checksum one: what was there before the column, and what an older
/// backup brought.
pub(crate) async fn fill<S: Session>(session: &mut S) -> Result<()> {
    for table in SUMMED {
        let mut after: Vec<Value> = Vec::new();
        let width = table.order::<S>().len();
        loop {
            let page = session.query(table.page::<S>(&after, true)).await?;
            let Some(last) = page.last() else { break };
            after = last.0[..width].to_vec();
            let mut writes = Vec::with_capacity(page.len());
            for row in &page {
                let sum = table.sum(session, row, width).await?;
                writes.push(table.set::<S>(&row.0[..width], sum));
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
        let width = table.order::<S>().len();
        loop {
            let page = session.query(table.page::<S>(&after, false)).await?;
            let Some(last) = page.last() else { break };
            let place = last.0[..width].to_vec();
            // A damaged row number would lead back, and round and round.
            if let ([Value::Int(place)], [Value::Int(after)]) = (&place[..], &after[..])
                && place <= after
            {
                broken.push(format!("rows of {} are out of order", table.name));
                break;
            }
            after = place;
            for row in &page {
                match table.sum(session, row, width).await {
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

//! The whole catalog as rows: out, as of one moment, and into an empty one.
//!
//! What is not listed here is not in a backup: the journal (it is shipped by itself) and what only
//! says who is at work now.

use super::{
    change::{Outcome, only},
    checksum_walk, quotas, rows, schema,
    session::{Lock, Row, Session, Statement, Value, statement},
    stripes,
};
use crate::{
    CatalogError, Result,
    snapshot::{Exported, JournalLink, JournalMarks, TableRows},
    types::{JournalEntry, Seq},
};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// A table of a snapshot. Rows are read in pages by its primary key, whose columns come first.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    key_len: usize,
    pub(crate) columns: &'static [&'static str],
}

/// In an order in which every row comes after the rows it refers to.
pub(crate) const TABLES: &[Table] = &[
    Table { name: "writers", key_len: 1, columns: &["epoch", "seen_ms", "closed", "swept"] },
    Table { name: "settings", key_len: 1, columns: &["name", "value"] },
    Table { name: "accounts", key_len: 2, columns: &["kind", "name", "sealed"] },
    Table {
        name: "buckets",
        key_len: 1,
        columns: &["id", "name", "owner", "created_ms", "settings", "versioning", "object_lock"],
    },
    Table { name: "keys", key_len: 1, columns: &["id", "bucket", "epoch", "kek", "wrapped"] },
    Table {
        name: "blobs",
        key_len: 1,
        columns: &[
            "id",
            "bucket",
            "key_epoch",
            "backend",
            "form",
            "state",
            "plain_len",
            "stored_len",
            "root_offset",
            "root_len",
            "root_tag",
            "digest",
            "raw_plain",
            "zstd_plain",
            "zstd_stored",
            "delta_plain",
            "delta_stored",
            "inline_bytes",
            "original",
            "first_region",
            "verified_ms",
            "quarantined_ms",
            "damage",
            "pack",
            "copy_id",
            "compartment",
            "checksum",
        ],
    },
    Table { name: "edges", key_len: 2, columns: &["delta", "base", "checksum"] },
    Table {
        name: "versions",
        key_len: 1,
        columns: &[
            "seq",
            "bucket",
            "key",
            "id",
            "current",
            "modified_ms",
            "size",
            "facts",
            "extents_digest",
            "named",
            "marker",
            "lock",
            "retain_until_ms",
            "checksum",
        ],
    },
    Table { name: "extents", key_len: 2, columns: &["version", "ordinal", "blob", "plain_offset", "plain_len"] },
    Table {
        name: "uploads",
        key_len: 1,
        columns: &["id", "bucket", "key", "created_ms", "owner", "facts", "version", "parts_digest", "completed_ms"],
    },
    Table {
        name: "parts",
        key_len: 2,
        columns: &["upload", "number", "id", "size", "modified_ms", "facts", "checksum"],
    },
    Table {
        name: "part_extents",
        key_len: 3,
        columns: &["upload", "number", "ordinal", "blob", "plain_offset", "plain_len"],
    },
    Table { name: "tombstones", key_len: 1, columns: &["blob", "since_ms"] },
    Table { name: "trash", key_len: 2, columns: &["backend", "name", "stored_len", "since_ms"] },
    Table { name: "hidden_keys", key_len: 2, columns: &["bucket", "key"] },
    Table { name: "deferrals", key_len: 1, columns: &["blob", "since_ms"] },
    Table { name: "heat", key_len: 1, columns: &["blob", "grown_bytes"] },
    Table { name: "sketched_regions", key_len: 1, columns: &["number", "blob", "region", "hooks"] },
    Table { name: "hooks", key_len: 2, columns: &["hook", "number"] },
    Table { name: "notices", key_len: 3, columns: &["lane", "seq", "ordinal", "key", "version", "at_ms", "body"] },
    Table { name: "notice_lanes", key_len: 1, columns: &["lane", "waiting", "lost"] },
];

/// Tables that a snapshot leaves out, on purpose.
#[cfg(test)]
pub(crate) const LEFT_OUT: &[&str] =
    &["schema_version", "counters", "journal", "journal_head", "jobs", "commit_groups", "usage", "stripes"];

/// The counters that belong to the catalog's state; the others say how far shipping and importing
/// are. In a snapshot the number of the last mutation is called as it always was.
const COUNTERS: &str = "SELECT CASE name WHEN 'mutations' THEN 'seq' ELSE name END, value FROM counters \
     WHERE name IN ('mutations', 'bucket', 'epoch', 'region', 'accounts') ORDER BY name";

/// A page of rows may take this many bytes before the next one is made shorter.
const PAGE_BYTES: usize = 512 << 10;
const PAGE_ROWS_MAX: i64 = 512;

impl Table {
    fn page(&self, after: Option<&[Value]>, limit: i64) -> Statement {
        let columns = self.columns.join(", ");
        let key = self.columns[..self.key_len].join(", ");
        let name = self.name;
        let mut params = after.map(<[Value]>::to_vec).unwrap_or_default();
        let places = (1..=params.len()).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
        let condition = if params.is_empty() { String::new() } else { format!(" WHERE ({key}) > ({places})") };
        params.push(limit.into());
        let last = params.len();
        Statement::made(format!("SELECT {columns} FROM {name}{condition} ORDER BY {key} LIMIT ${last}"), params)
    }
}

fn bytes_of(row: &Row) -> usize {
    let len = |value: &Value| match value {
        Value::Null | Value::Int(_) => 8,
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
    };
    row.0.iter().map(len).sum()
}

/// A snapshot that is exported. A question may be asked again after trouble that passes, but rows
/// that have left cannot be taken back.
pub(crate) struct Snapshot {
    to: mpsc::Sender<TableRows>,
    /// Whether some have.
    left: AtomicBool,
    /// Whether damage ended it.
    damaged: AtomicBool,
}

impl Snapshot {
    pub(crate) fn new(to: mpsc::Sender<TableRows>) -> Self {
        Self { to, left: AtomicBool::new(false), damaged: AtomicBool::new(false) }
    }

    /// Streams every row of the snapshot that the session is in. Where rows have left before, it
    /// only looks for the damage that ended that.
    pub(crate) async fn export<S: Session>(&self, session: &mut S) -> Result<Exported> {
        let interrupted = || Err(CatalogError::Other("the snapshot was interrupted".into()));
        let looks_only = self.left.load(Ordering::Relaxed);
        if looks_only && !self.damaged.load(Ordering::Relaxed) {
            return interrupted();
        }
        match export(session, (!looks_only).then_some(self)).await {
            Ok(_) if looks_only => interrupted(),
            Err(error) => {
                self.damaged.store(matches!(error, CatalogError::Damaged(_)), Ordering::Relaxed);
                Err(error)
            }
            exported => exported,
        }
    }

    async fn hand_over<S: Session>(&self, session: &mut S, piece: TableRows) -> Result<()> {
        self.left.store(true, Ordering::Relaxed);
        match session.hand_over(&self.to, piece).await {
            true => Ok(()),
            false => Err(CatalogError::Other("nobody takes the snapshot's rows any more".into())),
        }
    }
}

/// Reads every row of the snapshot that the session is in, for whoever takes them.
async fn export<S: Session>(session: &mut S, to: Option<&Snapshot>) -> Result<Exported> {
    let mut rows = 0;
    for table in TABLES {
        let mut after: Option<Vec<Value>> = None;
        let mut limit = 32;
        loop {
            let page = session.query(table.page(after.as_deref(), limit)).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.0[..table.key_len].to_vec());
            rows += page.len() as u64;
            let ended = (page.len() as i64) < limit;
            limit = match page.iter().map(bytes_of).sum::<usize>() {
                bytes if bytes > PAGE_BYTES => (limit / 2).max(1),
                _ => (limit * 2).min(PAGE_ROWS_MAX),
            };
            if let Some(to) = to {
                to.hand_over(session, rows_of(table, page)).await?;
            }
            if ended {
                break;
            }
        }
    }
    let counters = session.query(statement!(COUNTERS)).await?;
    let seq = counters.iter().find(|row| row.0.first() == Some(&"seq".into())).map_or(Ok(0), |row| row.int(1))?;
    rows += counters.len() as u64;
    let piece = TableRows {
        table: "counters".into(),
        columns: vec!["name".into(), "value".into()],
        rows: counters.into_iter().map(|row| row.0).collect(),
    };
    if let Some(to) = to {
        to.hand_over(session, piece).await?;
    }
    Ok(Exported { schema: schema::VERSION, seq, rows })
}

fn rows_of(table: &Table, page: Vec<Row>) -> TableRows {
    TableRows {
        table: table.name.to_owned(),
        columns: table.columns.iter().map(|&column| column.to_owned()).collect(),
        rows: page.into_iter().map(|row| row.0).collect(),
    }
}

/// Empties a catalog that holds no bucket, and marks it as being filled.
pub(crate) async fn begin<S: Session>(session: &mut S) -> Result<Outcome> {
    if !is_importing(session).await?
        && session.first(statement!("SELECT id FROM buckets ORDER BY id LIMIT 1")).await?.is_some()
    {
        return Err(CatalogError::NotEmpty);
    }
    let mut writes =
        vec![statement!("DELETE FROM journal"), statement!("DELETE FROM journal_head"), statement!("DELETE FROM jobs")];
    writes.extend(TABLES.iter().rev().map(|table| Statement::made(format!("DELETE FROM {}", table.name), vec![])));
    writes.push(statement!("UPDATE counters SET value = 0"));
    writes.push(set_counter("importing", 1));
    writes.extend(S::ROUND_TRIPS.then(stripes::count_all));
    session.run(writes).await?;
    Ok(Outcome::Done)
}

/// Takes rows as [`export`] gave them.
pub(crate) async fn import<S: Session>(session: &mut S, pieces: &[TableRows]) -> Result<Outcome> {
    must_be_importing(session).await?;
    for piece in pieces {
        match piece.table.as_str() {
            "counters" => import_counters(session, piece).await?,
            _ => import_rows(session, piece).await?,
        }
    }
    Ok(Outcome::Done)
}

async fn import_counters<S: Session>(session: &mut S, piece: &TableRows) -> Result<()> {
    let mut writes = Vec::with_capacity(piece.rows.len());
    for row in &piece.rows {
        let row = Row(row.clone());
        writes.push(match row.text(0)? {
            "seq" => set_counter("mutations", row.int(1)?),
            "bucket" => set_counter("bucket", row.int(1)?),
            "epoch" => set_counter("epoch", row.int(1)?),
            "region" => set_counter("region", row.int(1)?),
            "accounts" => set_counter("accounts", row.int(1)?),
            other => return Err(CatalogError::Invalid(format!("counter {other:?} is not known"))),
        });
    }
    session.run(writes).await.map(drop)
}

async fn import_rows<S: Session>(session: &mut S, piece: &TableRows) -> Result<()> {
    let table = TABLES.iter().find(|table| table.name == piece.table);
    let table = table.ok_or_else(|| CatalogError::Invalid(format!("table {:?} is not in a snapshot", piece.table)))?;
    if let Some(unknown) = piece.columns.iter().find(|column| !table.columns.contains(&column.as_str())) {
        return Err(CatalogError::Invalid(format!("column {}.{unknown} is not known", table.name)));
    }
    if let Some(row) = piece.rows.iter().find(|row| row.len() != piece.columns.len()) {
        return Err(CatalogError::Invalid(format!("a row of {} has {} values", table.name, row.len())));
    }
    let places = (1..=piece.columns.len()).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
    let sql = format!("INSERT INTO {} ({}) VALUES ({places})", table.name, piece.columns.join(", "));
    session.run_each(&sql, &piece.rows).await
}

/// Ends the import: every writer of before is closed, and new epochs begin above `epoch_min`.
pub(crate) async fn end<S: Session>(session: &mut S, epoch_min: u32) -> Result<Outcome> {
    must_be_importing(session).await?;
    checksum_walk::fill(session).await?;
    // It follows from the rows that came.
    session.run(quotas::recount().into()).await?;
    let mut writes = vec![
        statement!("UPDATE writers SET closed = 1"),
        statement!("UPDATE counters SET value = $1 WHERE name = 'epoch' AND value < $2", epoch_min, epoch_min),
        set_counter("cut", 0),
        set_counter("importing", 0),
    ];
    writes.extend(S::ROUND_TRIPS.then(stripes::count_all));
    session.run(writes).await?;
    Ok(Outcome::Done)
}

/// Whether an import was begun and not ended.
pub(crate) async fn is_importing<S: Session>(session: &mut S) -> Result<bool> {
    let row = session.first(statement!("SELECT value FROM counters WHERE name = 'importing'")).await?;
    row.map_or(Ok(false), |row| Ok(row.int(0)? != 0))
}

pub(crate) async fn must_be_importing<S: Session>(session: &mut S) -> Result<()> {
    match is_importing(session).await? {
        true => Ok(()),
        false => Err(CatalogError::Invalid("no import is under way".into())),
    }
}

/// See [`Catalog::cut_journal`](crate::Catalog::cut_journal).
pub(crate) async fn cut<S: Session>(session: &mut S, after: Seq, to: Seq) -> Result<Outcome> {
    let row = session
        .first(Statement::locking("SELECT value FROM counters WHERE name = 'cut'", vec![], Lock::Update))
        .await?;
    let decided = row.map_or(Ok(0), |row| row.int(0))?;
    // Asked behind the lock: whoever decided the next cut has trimmed what lies before it.
    if marks(session).await?.shipped > after {
        return Ok(Outcome::Seq(after));
    }
    if decided > after {
        return Ok(Outcome::Seq(decided));
    }
    session.run(vec![set_counter("cut", to)]).await?;
    Ok(Outcome::Seq(to))
}

/// See [`Catalog::trim_journal`](crate::Catalog::trim_journal).
pub(crate) async fn trim<S: Session>(session: &mut S, last: &JournalEntry, link: JournalLink) -> Result<Outcome> {
    let row = session
        .first(Statement::locking(
            "SELECT seq, at_ms, mutation, checksum FROM journal WHERE seq = $1",
            vec![last.seq.into()],
            Lock::Update,
        ))
        .await?;
    let is_same = match row {
        Some(row) => rows::entry(&row)? == *last,
        None => marks(session).await?.shipped >= last.seq,
    };
    if !is_same {
        return Err(CatalogError::Conflict);
    }
    // 1 is only an anchor: the rows themselves are not wanted.
    let gone = session.query(statement!("DELETE FROM journal WHERE seq <= $1 RETURNING 1", last.seq)).await?;
    if !gone.is_empty() {
        session
            .run(vec![statement!(
                "INSERT INTO journal_head (one, seq, link) VALUES (1, $1, $2) \
                 ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, link = excluded.link",
                last.seq,
                link.0.to_vec()
            )])
            .await?;
    }
    Ok(Outcome::Count(gone.len() as u64))
}

pub(crate) async fn marks<S: Session>(session: &mut S) -> Result<JournalMarks> {
    let (answers, run) = session
        .run_noting_server(vec![statement!(
            "SELECT c.value, COALESCE((SELECT min(seq) FROM journal) - 1, c.value), \
             COALESCE((SELECT d.value FROM counters d WHERE d.name = 'cut'), 0), h.seq, h.link \
             FROM counters c LEFT JOIN journal_head h ON h.one = 1 WHERE c.name = 'mutations'"
        )])
        .await?;
    let row = only(&answers, 0)?;
    let (last, shipped, cut) = (row.int(0)?, row.int(1)?, row.int(2)?);
    let head = if row.is_null(3) || row.int(3)? != shipped { None } else { Some(link_of(row.bytes(4)?)?) };
    Ok(JournalMarks { last, shipped, cut, head, run })
}

fn link_of(bytes: &[u8]) -> Result<JournalLink> {
    bytes.try_into().map(JournalLink).map_err(|_| CatalogError::Damaged("the journal's head is not a digest".into()))
}

fn set_counter(name: &str, value: i64) -> Statement {
    statement!(
        "INSERT INTO counters (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name,
        value
    )
}

//! Connections: how they are opened, and how statements run on them.

use super::{
    agreement,
    errors::{catalog_error, is_lock},
    options::{Place, ReadWork},
};
use crate::{
    CatalogError, Result,
    relational::{
        change::now_ms,
        checksum_walk,
        schema::{self, Dialect},
        session::{Row, Session, Statement, Value},
    },
    snapshot::TableRows,
    types::{NO_SERVER, ServerRun, UnixMs},
};
use rusqlite::{
    Connection, OpenFlags, StatementStatus,
    config::DbConfig,
    types::{ToSql, ToSqlOutput, ValueRef},
};
use std::{
    fs::{File, OpenOptions},
    future::Future,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::sync::mpsc;

const DIALECT: Dialect =
    Dialect { int: "INTEGER", bytes: "BLOB", table: " STRICT", index_table: " STRICT, WITHOUT ROWID" };

/// Statements kept prepared per connection; there are about 120 in all.
const PREPARED_MAX: usize = 256;

/// The log is cut back to this after a checkpoint.
const LOG_BYTES_KEPT: i64 = 64 << 20;

/// Pages that the writing connection keeps. Every put changes a page of five indexes in random
/// order, and what is not kept is read again.
const WRITER_CACHE_KIB: u32 = 16 << 10;

/// Bytes of a page: SQLite's default, named because the size bound is counted in pages.
const PAGE_BYTES: u64 = 4096;

/// How long a statement waits for another process that has the database locked.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// SQLite's own, to go back to: pages of the log.
const CHECKPOINT_DEFAULT: u32 = 1000;

/// What a connection has for pages while an empty catalog is filled, in KiB. Nothing else runs
/// then.
const FILLING_CACHE_KIB: u32 = 128 << 10;

/// Groups whose pages are folded into the database together meanwhile: most pages are written by
/// several commits, and so only once. The writer does it, not SQLite within a commit: there nobody
/// would learn that a flush failed.
const FILLING_GROUPS_FOLDED: u32 = 32;

/// One connection and what it has done.
pub(crate) struct SqliteSession {
    pub(super) connection: Connection,
    pub(super) work: ReadWork,
    /// Whether it is set up for filling an empty catalog.
    filling: bool,
    /// Groups with which it was filled.
    filled: u32,
    /// A statement that gives more rows fails, and [`SqliteSession::gave_up`] says so.
    pub(super) rows_max: usize,
    pub(super) gave_up: bool,
    /// Whether a statement that can write was run since this was last unset.
    pub(super) wrote: bool,
}

/// Why a transaction could not begin.
pub(super) enum NotBegun {
    /// Another process has the database locked, and kept it for as long as is waited.
    Locked(CatalogError),
    /// All else.
    Failed(CatalogError),
}

impl SqliteSession {
    pub(super) fn execute(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(catalog_error)
    }

    /// One statement of transactions, compiled once.
    pub(super) fn command(&self, sql: &'static str) -> Result<()> {
        let mut prepared = self.connection.prepare_cached(sql).map_err(catalog_error)?;
        prepared.raw_execute().map(drop).map_err(catalog_error)
    }

    /// Begins a transaction that writes.
    pub(super) fn begin_writing(&self) -> std::result::Result<(), NotBegun> {
        let begun = self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.raw_execute());
        match begun {
            Ok(_) => Ok(()),
            Err(error) if is_lock(&error) => Err(NotBegun::Locked(catalog_error(error))),
            Err(error) => Err(NotBegun::Failed(catalog_error(error))),
        }
    }

    /// Sets the connection up for filling an empty catalog, or for all else. While it is filled, no
    /// commit is flushed: the one that ends it flushes them all, since they are in one log.
    pub(super) fn fill(&mut self, filling: bool, sync: bool) -> Result<()> {
        if filling == self.filling {
            return Ok(());
        }
        let sync = if sync && !filling { "FULL" } else { "NORMAL" };
        let (cache, checkpoint) = match filling {
            true => (FILLING_CACHE_KIB, 0),
            false => (WRITER_CACHE_KIB, CHECKPOINT_DEFAULT),
        };
        // Whatever fails in between, the next group that is none of these sets all of it back.
        self.filling = true;
        self.execute(&format!(
            "PRAGMA synchronous = {sync}; PRAGMA cache_size = -{cache}; PRAGMA wal_autocheckpoint = {checkpoint};"
        ))?;
        self.filling = filling;
        Ok(())
    }

    /// Folds the log into the database, as far as nobody reads it.
    pub(super) fn fold_log(&self) -> Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(catalog_error)
    }

    /// Folds the log into the database after every so many groups of filling. A full disk keeps it
    /// as it is; the next commit will say so.
    ///
    /// # Errors
    /// [`CatalogError::Unavailable`]: what was flushed is not known, and nothing of it counts.
    pub(super) fn fold_what_was_filled(&mut self) -> Result<()> {
        self.filled += 1;
        if !self.filled.is_multiple_of(FILLING_GROUPS_FOLDED) {
            return Ok(());
        }
        match self.fold_log() {
            Ok(()) | Err(CatalogError::Full) => Ok(()),
            Err(error) => Err(CatalogError::Unavailable(format!("the import must be begun again: {error}"))),
        }
    }

    /// Whether what is deleted from now on is overwritten with zeros, on free pages too.
    pub(super) fn overwrite_deleted(&self, overwrites: bool) -> Result<()> {
        self.connection.pragma_update_and_check(None, "secure_delete", overwrites, |_| Ok(())).map_err(catalog_error)
    }

    pub(super) fn busy_timeout(&self, timeout: Duration) -> Result<()> {
        self.connection.busy_timeout(timeout).map_err(catalog_error)
    }

    /// The rows of a question, up to the first that cannot be read.
    pub(super) fn rows_until_damage(&self, sql: &str) -> Vec<Row> {
        let mut found = Vec::new();
        let Ok(mut prepared) = self.connection.prepare(sql) else { return found };
        let columns = prepared.column_count();
        let mut rows = prepared.raw_query();
        while let Ok(Some(row)) = rows.next() {
            found.extend(taken(row, columns));
        }
        found
    }

    fn step_through(&mut self, statement: &Statement) -> rusqlite::Result<Vec<Row>> {
        let mut prepared = self.connection.prepare_cached(&statement.sql)?;
        for (index, value) in statement.params.iter().enumerate() {
            // Parameters are bound by position; `$n` gets position n only when it is the n-th to
            // appear.
            debug_assert_eq!(
                prepared.parameter_name(index + 1),
                Some(format!("${}", index + 1).as_str()),
                "{}",
                statement.sql
            );
            prepared.raw_bind_parameter(index + 1, value)?;
        }
        debug_assert_eq!(prepared.parameter_count(), statement.params.len(), "{}", statement.sql);
        self.wrote |= !prepared.readonly();
        let columns = prepared.column_count();
        let mut found = Vec::new();
        let mut rows = prepared.raw_query();
        while let Some(row) = rows.next()? {
            if found.len() == self.rows_max {
                self.gave_up = true;
                return Err(rusqlite::Error::QueryReturnedMoreThanOneRow);
            }
            found.push(taken(row, columns)?);
        }
        drop(rows);
        self.work.statements += 1;
        self.work.rows += found.len() as u64;
        self.work.vm_steps += prepared.reset_status(StatementStatus::VmStep).max(0) as u64;
        self.work.reprepares += prepared.reset_status(StatementStatus::RePrepare).max(0) as u64;
        Ok(found)
    }

    /// A statement that gives no rows, for each row of its parameters.
    fn step_each(&mut self, sql: &str, rows: &[Vec<Value>]) -> rusqlite::Result<()> {
        let mut prepared = self.connection.prepare_cached(sql)?;
        self.wrote |= !prepared.readonly();
        for row in rows {
            for (index, value) in row.iter().enumerate() {
                prepared.raw_bind_parameter(index + 1, value)?;
            }
            prepared.raw_execute()?;
        }
        Ok(())
    }
}

impl Session for SqliteSession {
    const EXCLUSIVE: bool = true;
    const ROUND_TRIPS: bool = false;
    // Written with the mutation: a refused one has written nothing.
    const NEXT_NUMBER: &str = "SELECT value + 1 FROM counters WHERE name = 'mutations'";

    async fn run(&mut self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        // Locks are not asked for: one thread writes, and a reader's snapshot cannot be changed
        // under it.
        statements.iter().map(|statement| self.step_through(statement).map_err(catalog_error)).collect()
    }

    async fn clock_ms(&mut self) -> Result<UnixMs> {
        Ok(now_ms())
    }

    async fn run_noting_server(&mut self, statements: Vec<Statement>) -> Result<(Vec<Vec<Row>>, ServerRun)> {
        Ok((self.run(statements).await?, NO_SERVER))
    }

    fn now_ms(&self) -> UnixMs {
        now_ms()
    }

    async fn run_each(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<()> {
        self.step_each(sql, rows).map_err(catalog_error)
    }

    async fn disagreements(&mut self, most: usize) -> Result<Vec<String>> {
        agreement::disagreements(&self.connection, most)
    }

    async fn hand_over(&mut self, to: &mpsc::Sender<TableRows>, rows: TableRows) -> bool {
        // Reads run on blocking threads; nothing here may be pending.
        to.blocking_send(rows).is_ok()
    }
}

/// A row with so many columns. Room for all is made at once: collecting results would not know how
/// many there are.
fn taken(row: &rusqlite::Row<'_>, columns: usize) -> rusqlite::Result<Row> {
    let mut values = Vec::with_capacity(columns);
    for column in 0..columns {
        values.push(value(row.get_ref(column)?)?);
    }
    Ok(Row(values))
}

fn value(value: ValueRef<'_>) -> rusqlite::Result<Value> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Text(text) => Value::Text(std::str::from_utf8(text)?.to_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        ValueRef::Real(number) => return Err(rusqlite::Error::IntegralValueOutOfRange(0, number as i64)),
    })
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The result of a future that never waits, as every future over a [`SqliteSession`] is.
pub(super) fn finish<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("statements on SQLite run where they are called"),
    }
}

/// Opens the writing connection of a database that this process owns, creating the file and its
/// schema as needed.
pub(super) fn open_and_migrate(place: &Place) -> Result<SqliteSession> {
    let is_new = create_file(&place.path)?;
    let mut session = open_writing(place)?;
    migrate(&mut session)?;
    if is_new {
        // The file's name must be as durable as what it will hold.
        sync_directory(&place.path)?;
    }
    Ok(session)
}

/// Opens the writing connection of a database that is there.
pub(super) fn open_writing(place: &Place) -> Result<SqliteSession> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&place.path, flags).map_err(catalog_error)?;
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(catalog_error)?;
    if mode != "wal" {
        return Err(CatalogError::Other(format!("write-ahead mode is not to be had here, only {mode}")));
    }
    let sync = if place.options.sync { "FULL" } else { "NORMAL" };
    let session = configure(connection)?;
    session.execute(&format!(
        "PRAGMA synchronous = {sync}; PRAGMA foreign_keys = ON; PRAGMA cache_size = -{WRITER_CACHE_KIB};"
    ))?;
    session.overwrite_deleted(true)?;
    session
        .connection
        .pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT, |_| Ok(()))
        .map_err(catalog_error)?;
    if let Some(bytes_max) = place.options.bytes_max {
        let pages_max = i64::try_from(bytes_max / PAGE_BYTES).unwrap_or(i64::MAX).max(1);
        session
            .connection
            .pragma_update_and_check(None, "max_page_count", pages_max, |_| Ok(()))
            .map_err(catalog_error)?;
    }
    Ok(session)
}

/// Opens a connection that cannot write.
pub(super) fn open_reading(path: &Path) -> Result<SqliteSession> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    configure(Connection::open_with_flags(path, flags).map_err(catalog_error)?)
}

fn configure(connection: Connection) -> Result<SqliteSession> {
    connection.set_prepared_statement_cache_capacity(PREPARED_MAX);
    // Plans rest on no bound value: one that did would be made again at every run with another
    // value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(catalog_error)?;
    let work = ReadWork::default();
    let session = SqliteSession {
        connection,
        work,
        filling: false,
        filled: 0,
        rows_max: usize::MAX,
        gave_up: false,
        wrote: false,
    };
    session.execute("PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;")?;
    session.busy_timeout(BUSY_TIMEOUT)?;
    Ok(session)
}

/// Creates the file, readable by its owner only; whether it was new. SQLite gives its companions
/// the same mode.
fn create_file(path: &Path) -> Result<bool> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(CatalogError::Unavailable(format!("{}: {error}", path.display()))),
    }
}

pub(super) fn sync_directory(path: &Path) -> Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| CatalogError::Unavailable(format!("{}: {error}", directory.display())))
}

fn migrate(session: &mut SqliteSession) -> Result<()> {
    session
        .execute("BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY) STRICT;")?;
    let migrated = migrate_in_transaction(session);
    session.execute(if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    migrated
}

fn migrate_in_transaction(session: &mut SqliteSession) -> Result<()> {
    let found = session
        .connection
        .query_row("SELECT COALESCE(max(version), 0) FROM schema_version", [], |row| row.get(0))
        .map_err(catalog_error)?;
    for (version, sql) in schema::missing(found, DIALECT)? {
        session.execute(&sql)?;
        session
            .connection
            .execute("INSERT INTO schema_version (version) VALUES (?1)", [version])
            .map_err(catalog_error)?;
    }
    if found < schema::CHECKSUMS_VERSION {
        finish(checksum_walk::fill(session))?;
    }
    Ok(())
}

//! Overwriting what rows that are gone have left in the file
//! (docs/decisions/0083-remnants-of-rows.md).
//!
//! ```text
//! free pages ─► rows of zeros fill them, and go again
//! blobs      ─► each row moves behind the last one: the page it leaves is freed, and overwritten
//! log        ─► folded into the database, and cut to nothing
//! ```
//!
//! Whatever is deleted is overwritten (`secure_delete`). Two things stay: what builds before that
//! left in pages, and copies of rows in pages from which SQLite has moved them. Only rows of blobs
//! hold content for longer than the journal waits for its shipment.

use super::{connection::SqliteSession, errors::catalog_error};
use crate::{CatalogError, Result};
use std::time::Duration;

/// Rows moved in one transaction: other changes wait that long.
const ROWS_AT_ONCE: i64 = 256;
/// So many of the rows that moved first move once more: they came to the page that was the last.
/// No page has as many.
const ROWS_BEYOND: i64 = 128;
/// Pages that one row of zeros overwrites at most, twice: its key is stored in the table and in
/// its index.
const ZERO_PAGES_MAX: u64 = 128;
/// What a page of a long value holds of it.
const OVERFLOW_BYTES: u64 = 4092;
/// What a row of zeros has beside whole pages. So its last page is full: SQLite keeps between 489
/// and 1,002 bytes of such a value on the page of its row.
const ZERO_BYTES_BESIDE: u64 = 700;
/// Rows of zeros that go in one transaction.
const ZERO_ROWS_AT_ONCE: i64 = 16;
/// How often the log is tried to be cut while somebody reads it.
const LOG_TRIES: u32 = 300;
const LOG_PAUSE: Duration = Duration::from_millis(200);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scouring {
    Begin,
    /// Pages are free; so many more may be overwritten.
    FreePages {
        most: u64,
        row: u64,
    },
    /// The rows of zeros go.
    Zeros,
    /// Rows of blobs behind `after` move, up to `last`.
    Rows {
        after: i64,
        last: i64,
    },
    /// The log is cut.
    Log {
        tries: u32,
    },
    Done,
}

impl Scouring {
    /// How long to wait before the next step, when the last one took so long: changes have half
    /// of the time.
    pub(super) fn pause(self, took: Duration) -> Duration {
        match self {
            Self::Log { tries } if tries > 0 => LOG_PAUSE,
            _ => took,
        }
    }

    /// What comes next, without the rows unless they are to move.
    pub(super) fn or_the_log_unless(self, moves_rows: bool) -> Self {
        match self {
            Self::Rows { .. } if !moves_rows => Self::Log { tries: 0 },
            next => next,
        }
    }

    /// Whether its next step is a transaction.
    pub(super) fn is_in_transaction(self) -> bool {
        !matches!(self, Self::Log { .. } | Self::Done)
    }

    /// One step within a transaction.
    pub(super) fn step(self, session: &mut SqliteSession) -> Result<Self> {
        match self {
            Self::Begin => {
                delete_zeros(session, i64::MAX)?;
                let free = free_pages(session)?;
                Ok(Self::FreePages { most: free.saturating_mul(2).saturating_add(8 * ZERO_PAGES_MAX), row: 0 })
            }
            Self::FreePages { most, row } => match free_pages(session)? {
                0 => Ok(Self::Zeros),
                _ if most == 0 => Err(CatalogError::Unavailable("pages become free all the time".into())),
                free => {
                    let pages = (free / 2).clamp(1, ZERO_PAGES_MAX);
                    insert_zeros(session, row, pages)?;
                    Ok(Self::FreePages { most: most.saturating_sub(2 * pages), row: row + 1 })
                }
            },
            Self::Zeros => match delete_zeros(session, ZERO_ROWS_AT_ONCE)? {
                0 => Ok(Self::Rows { after: i64::MIN, last: last_row(session)?.saturating_add(ROWS_BEYOND) }),
                _ => Ok(Self::Zeros),
            },
            Self::Rows { after, last } => match move_rows(session, after, last)? {
                Some(after) => Ok(Self::Rows { after, last }),
                None => Ok(Self::Log { tries: 0 }),
            },
            Self::Log { .. } | Self::Done => Ok(Self::Done),
        }
    }

    /// Cuts the log, unless somebody reads it.
    pub(super) fn cut_log(self, session: &SqliteSession) -> Result<Self> {
        let Self::Log { tries } = self else { return Ok(Self::Done) };
        // The writer must not wait for a reader: others wait for the writer.
        session.busy_timeout(Duration::ZERO)?;
        let busy = session.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        session.busy_timeout(super::connection::BUSY_TIMEOUT)?;
        match busy.map_err(catalog_error)? {
            0 => Ok(Self::Done),
            _ if tries >= LOG_TRIES => Err(CatalogError::Unavailable("somebody reads the log all the time".into())),
            _ => Ok(Self::Log { tries: tries + 1 }),
        }
    }
}

fn free_pages(session: &SqliteSession) -> Result<u64> {
    let free: i64 =
        session.connection.query_row("PRAGMA freelist_count", [], |row| row.get(0)).map_err(catalog_error)?;
    Ok(u64::try_from(free).unwrap_or(0))
}

fn last_row(session: &SqliteSession) -> Result<i64> {
    session
        .connection
        .query_row("SELECT COALESCE(max(rowid), 0) FROM blobs", [], |row| row.get(0))
        .map_err(catalog_error)
}

/// A table that no embedded catalog uses otherwise takes the zeros: what a crash leaves in it goes
/// the next time, and nobody reads it.
fn insert_zeros(session: &SqliteSession, row: u64, pages: u64) -> Result<()> {
    let mut zeros = row.to_be_bytes().to_vec();
    zeros.resize(usize::try_from(pages * OVERFLOW_BYTES + ZERO_BYTES_BESIDE).unwrap_or(usize::MAX), 0);
    let sql = "INSERT INTO commit_groups (writer, number, at_ms) VALUES (?1, 0, 0)";
    session.connection.prepare_cached(sql).and_then(|mut insert| insert.execute([zeros])).map_err(catalog_error)?;
    Ok(())
}

/// Removes rows of zeros, at most so many, and says how many. Their pages are zeros already.
fn delete_zeros(session: &SqliteSession, most: i64) -> Result<usize> {
    let sql = "DELETE FROM commit_groups WHERE rowid IN (SELECT rowid FROM commit_groups LIMIT ?1)";
    session.overwrite_deleted(false)?;
    let deleted = session.connection.prepare_cached(sql).and_then(|mut delete| delete.execute([most]));
    session.overwrite_deleted(true)?;
    deleted.map_err(catalog_error)
}

/// Moves the first rows behind `after`, up to `last`, behind all others; gives the last of them.
fn move_rows(session: &SqliteSession, after: i64, last: i64) -> Result<Option<i64>> {
    let moved = || {
        let sql = "SELECT rowid FROM blobs WHERE rowid > ?1 AND rowid <= ?2 ORDER BY rowid LIMIT ?3";
        let mut find = session.connection.prepare_cached(sql)?;
        let rows: Vec<i64> =
            find.query_map([after, last, ROWS_AT_ONCE], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let sql = "UPDATE blobs SET rowid = (SELECT max(rowid) + 1 FROM blobs) WHERE rowid = ?1";
        let mut behind = session.connection.prepare_cached(sql)?;
        for row in &rows {
            behind.execute([row])?;
        }
        Ok(rows.last().copied())
    };
    moved().map_err(catalog_error)
}

//! A damaged database: it is set aside, and what of its journal can still be read is taken from it.

use super::{connection, ownership::Ownership};
use crate::{
    CatalogError, Result,
    relational::{
        rows,
        session::{Row, Session, Statement},
    },
    types::{JournalEntry, Seq},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// What a damaged database still tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remains {
    /// Journal rows that are what was written, ascending. Rows that were shipped are not in a
    /// catalog's journal any more.
    pub entries: Vec<JournalEntry>,
    /// The last mutation that it knew; `None` when that cannot be read.
    pub last_seq: Option<Seq>,
    /// Its settings that can be read, by name.
    pub settings: BTreeMap<String, serde_json::Value>,
}

impl Remains {
    /// Whether the journal's rows are known to be whole up to its last mutation.
    pub fn is_whole(&self) -> bool {
        let Some(last) = self.last_seq else { return false };
        let Some(first) = self.entries.first().map(|entry| entry.seq) else { return true };
        self.entries.iter().map(|entry| entry.seq).eq(first..=last)
    }
}

/// Moves a database that no process has open away, with its log. Repeating it after a crash does
/// the rest.
///
/// # Errors
/// [`CatalogError::InUse`] when it is open, [`CatalogError::Unavailable`] as the file system says.
pub fn set_aside(path: &Path, to: &Path) -> Result<()> {
    let _ownership = Ownership::take(path)?;
    let unavailable = |error: io::Error| CatalogError::Unavailable(format!("{}: {error}", path.display()));
    // The log first: a database without its log must not be opened as if it were whole.
    for suffix in ["-wal", ""] {
        match fs::rename(with_suffix(path, suffix), with_suffix(to, suffix)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved.map_err(unavailable)?,
        }
    }
    match fs::remove_file(with_suffix(path, "-shm")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.map_err(unavailable)?,
    }
    connection::sync_directory(path)
}

/// Reads what is left in a database that was set aside. What cannot be read is left out; a file
/// that is no database any more has nothing.
pub fn read_remains(path: &Path) -> Remains {
    let mut remains = Remains::default();
    let Ok(mut session) = connection::open_reading(path) else { return remains };
    let mut ask = |sql: &'static str| connection::finish(session.run(vec![Statement::new(sql, Vec::new())]));
    if let Ok(answers) = ask("SELECT value FROM counters WHERE name IN ('mutations', 'seq')") {
        remains.last_seq = answers.iter().flatten().next().and_then(|row| row.int(0).ok());
    }
    if let Ok(answers) = ask("SELECT name, value FROM settings") {
        let setting = |row: &Row| Some((row.text(0).ok()?.to_owned(), row.json(1).ok()?));
        remains.settings = answers.iter().flatten().filter_map(setting).collect();
    }
    // From both ends: a damaged page in the middle costs what is on it.
    let mut entries = BTreeMap::new();
    for order in ["", " DESC"] {
        let sql = format!("SELECT seq, at_ms, mutation, checksum FROM journal ORDER BY seq{order}");
        for row in session.rows_until_damage(&sql) {
            if let Ok(entry) = rows::entry(&row) {
                entries.insert(entry.seq, entry);
            }
        }
    }
    remains.entries = entries.into_values().collect();
    remains
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

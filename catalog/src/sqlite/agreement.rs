//! Whether a database agrees with itself, in time that grows with its rows and no faster.
//!
//! SQLite's `integrity_check` looks every row up in every index, in the order of the table. Ids are
//! random, so once a catalog is larger than the cache, each look-up reads a page. Here tables and
//! indexes are read once each, in the order in which they lie. An index is what its table says when
//! its entries ascend and have the fingerprint of the table's rows. Where something differs,
//! `integrity_check` names it.

use super::errors::catalog_error;
use crate::{CatalogError, Result};
use rusqlite::{Connection, Row, types::ValueRef};
use xxhash_rust::xxh3::xxh3_64;

/// What is wrong, in up to about `most` sentences.
pub(super) fn disagreements(connection: &Connection, most: usize) -> Result<Vec<String>> {
    let mut broken = sentences(connection, &format!("PRAGMA quick_check({most})"))?;
    for table in IndexedTable::all(connection)? {
        match table.disagreements(connection) {
            Err(CatalogError::Damaged(why)) => broken.push(why),
            found => broken.extend(found?),
        }
    }
    if !broken.is_empty() {
        let named = sentences(connection, &format!("PRAGMA integrity_check({most})"))?;
        if !named.is_empty() {
            broken = named;
        }
    }
    broken.extend(dangling(connection, most)?);
    Ok(broken)
}

/// What a check of SQLite says, without its "ok".
fn sentences(connection: &Connection, check: &str) -> Result<Vec<String>> {
    let said: Vec<String> = all(connection, check, [], |row| row.get(0))?;
    Ok(said.into_iter().filter(|sentence| sentence != "ok").collect())
}

fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let mut prepared = connection.prepare(sql).map_err(catalog_error)?;
    let rows = prepared.query_map(params, read).map_err(catalog_error)?;
    rows.collect::<rusqlite::Result<_>>().map_err(catalog_error)
}

/// A table and the indexes beside it.
pub(super) struct IndexedTable {
    pub(super) name: String,
    pub(super) indexes: Vec<TableIndex>,
}

/// An index that is stored beside its table.
pub(super) struct TableIndex {
    pub(super) name: String,
    unique: bool,
    /// What its rows are, when they are not all of the table's.
    pub(super) condition: Option<String>,
    columns: Vec<Column>,
    /// How many of them are what it orders by; the others lead to the table's row.
    key_len: usize,
}

struct Column {
    name: String,
    descends: bool,
}

impl IndexedTable {
    pub(super) fn all(connection: &Connection) -> Result<Vec<IndexedTable>> {
        let names: Vec<String> = all(
            connection,
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'",
            [],
            |row| row.get(0),
        )?;
        let with_indexes = |name: String| Ok(IndexedTable { indexes: TableIndex::of(connection, &name)?, name });
        names.into_iter().map(with_indexes).collect()
    }

    /// Reads the table once, and each of its indexes.
    fn disagreements(&self, connection: &Connection) -> Result<Vec<String>> {
        if self.indexes.is_empty() {
            return Ok(Vec::new());
        }
        let expected = self.fingerprints(connection)?;
        let mut broken = Vec::new();
        for (index, expected) in self.indexes.iter().zip(expected) {
            match index.fingerprint(connection, &self.name)? {
                Some(found) if found == expected => {}
                Some(_) => broken.push(format!("index {} is not what its table says", index.name)),
                None => broken.push(format!("index {} is out of order", index.name)),
            }
        }
        Ok(broken)
    }

    /// What the indexes should hold, by the table.
    fn fingerprints(&self, connection: &Connection) -> Result<Vec<Fingerprint>> {
        let wanted = |index: &TableIndex| {
            let condition = index.condition.as_deref().unwrap_or("1");
            format!("({condition}), {}", index.column_names())
        };
        let wanted = self.indexes.iter().map(wanted).collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT {wanted} FROM \"{}\" NOT INDEXED", self.name);
        let mut prepared = connection.prepare(&sql).map_err(catalog_error)?;
        let mut rows = prepared.raw_query();
        let mut found = vec![Fingerprint::default(); self.indexes.len()];
        let mut entry = Vec::new();
        while let Some(row) = rows.next().map_err(catalog_error)? {
            let mut first = 0;
            for (index, found) in self.indexes.iter().zip(&mut found) {
                if matches!(row.get_ref(first), Ok(ValueRef::Integer(1))) {
                    index.encode(row, first + 1, &mut entry).map_err(catalog_error)?;
                    found.add(&entry);
                }
                first += 1 + index.columns.len();
            }
        }
        Ok(found)
    }
}

impl TableIndex {
    fn of(connection: &Connection, table: &str) -> Result<Vec<TableIndex>> {
        let listed = all(
            connection,
            "SELECT l.name, l.\"unique\", s.sql FROM pragma_index_list(?1) l JOIN sqlite_schema s ON s.name = l.name",
            [table],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?, row.get::<_, Option<String>>(2)?)),
        )?;
        let index = |(name, unique, sql): (String, bool, Option<String>)| {
            let columns = all(
                connection,
                "SELECT COALESCE(name, 'rowid'), \"desc\", key FROM pragma_index_xinfo(?1) ORDER BY seqno",
                [&name],
                |row| Ok((Column { name: row.get(0)?, descends: row.get(1)? }, row.get::<_, bool>(2)?)),
            )?;
            let key_len = columns.iter().filter(|(_, is_key)| *is_key).count();
            let columns = columns.into_iter().map(|(column, _)| column).collect();
            let condition = sql.and_then(|sql| Some(sql.split_once(" WHERE ")?.1.to_owned()));
            Ok(TableIndex { name, unique, condition, columns, key_len })
        };
        listed.into_iter().map(index).collect()
    }

    fn column_names(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Reads all of it.
    pub(super) fn sql(&self, table: &str) -> String {
        let condition = self.condition.as_deref().map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
        format!("SELECT {} FROM \"{table}\" INDEXED BY \"{}\"{condition}", self.column_names(), self.name)
    }

    /// What the index itself holds; `None` when its entries do not ascend, or two have one key that
    /// must be unique.
    fn fingerprint(&self, connection: &Connection, table: &str) -> Result<Option<Fingerprint>> {
        let mut prepared = connection.prepare(&self.sql(table)).map_err(catalog_error)?;
        let mut rows = prepared.raw_query();
        let mut found = Fingerprint::default();
        let (mut entry, mut before) = (Vec::new(), Vec::new());
        let mut key_before: Option<usize> = None;
        while let Some(row) = rows.next().map_err(catalog_error)? {
            let key = self.encode(row, 0, &mut entry).map_err(catalog_error)?;
            let is_first = found.rows == 0;
            if !is_first && entry <= before {
                return Ok(None);
            }
            if self.unique && key.is_some() && key.map(|len| &entry[..len]) == key_before.map(|len| &before[..len]) {
                return Ok(None);
            }
            found.add(&entry);
            std::mem::swap(&mut entry, &mut before);
            key_before = key;
        }
        Ok(Some(found))
    }

    /// Writes an entry so that entries are ordered as their bytes. The length of its key; `None`
    /// when the key has a null, which equals no other.
    fn encode(&self, row: &Row<'_>, first: usize, out: &mut Vec<u8>) -> rusqlite::Result<Option<usize>> {
        out.clear();
        let (mut key, mut has_null) = (0, false);
        for (number, column) in self.columns.iter().enumerate() {
            let begin = out.len();
            let value = row.get_ref(first + number)?;
            has_null |= number < self.key_len && value == ValueRef::Null;
            push_ordered(value, out);
            if column.descends {
                out[begin..].iter_mut().for_each(|byte| *byte = !*byte);
            }
            if number + 1 == self.key_len {
                key = out.len();
            }
        }
        Ok(if has_null { None } else { Some(key) })
    }
}

/// A value as bytes in its order: null, numbers, text, bytes. No value is the beginning of another.
pub(super) fn push_ordered(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => out.push(0),
        ValueRef::Integer(number) => {
            out.push(1);
            out.extend_from_slice(&(number.cast_unsigned() ^ 1 << 63).to_be_bytes());
        }
        // No column has one.
        ValueRef::Real(number) => {
            out.push(2);
            out.extend_from_slice(&number.to_bits().to_be_bytes());
        }
        ValueRef::Text(bytes) => push_bytes(3, bytes, out),
        ValueRef::Blob(bytes) => push_bytes(4, bytes, out),
    }
}

fn push_bytes(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// What a set of entries adds up to, in whatever order they are read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fingerprint {
    rows: u64,
    sum: u64,
}

impl Fingerprint {
    fn add(&mut self, entry: &[u8]) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(xxh3_64(entry));
    }
}

/// A reference from one table to another.
struct Reference {
    child: String,
    parent: String,
    /// Columns of the child, and those of the parent that they name.
    columns: Vec<(String, String)>,
}

impl Reference {
    fn all(connection: &Connection) -> Result<Vec<Reference>> {
        let listed = all(
            connection,
            "SELECT t.name, f.id, f.\"table\", f.\"from\", f.\"to\" \
             FROM pragma_table_list t, pragma_foreign_key_list(t.name) f WHERE t.schema = 'main' ORDER BY t.name, f.id, f.seq",
            [],
            |row| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), (row.get(3)?, row.get(4)?))),
        )?;
        let mut found: Vec<((String, i64), Reference)> = Vec::new();
        for ((child, number, parent), columns) in listed {
            match found.last_mut() {
                Some((last, reference)) if (&last.0, last.1) == (&child, number) => reference.columns.push(columns),
                _ => found.push(((child.clone(), number), Reference { child, parent, columns: vec![columns] })),
            }
        }
        Ok(found.into_iter().map(|(_, reference)| reference).collect())
    }

    /// Names rows whose other end is not there. They are read in the order of what they name, which
    /// an index has, so that the other table is read in its order as well.
    fn sql(&self, most: usize) -> String {
        let list = |each: &dyn Fn(&(String, String)) -> String, between: &str| {
            self.columns.iter().map(each).collect::<Vec<_>>().join(between)
        };
        let present = list(&|(from, _)| format!("c.{from} IS NOT NULL"), " AND ");
        let matches = list(&|(from, to)| format!("p.{to} = c.{from}"), " AND ");
        let order = list(&|(from, _)| format!("c.{from}"), ", ");
        let Reference { child, parent, .. } = self;
        format!(
            "SELECT 1 FROM \"{child}\" c WHERE {present} \
             AND NOT EXISTS (SELECT 1 FROM \"{parent}\" p WHERE {matches}) ORDER BY {order} LIMIT {most}"
        )
    }
}

/// Rows that name one that is not there.
fn dangling(connection: &Connection, most: usize) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for reference in Reference::all(connection)? {
        let found = all(connection, &reference.sql(most), [], |_| Ok(()))?;
        let Reference { child, parent, .. } = reference;
        broken.extend(found.iter().map(|()| format!("a row of {child} names one of {parent} that is not there")));
    }
    Ok(broken)
}

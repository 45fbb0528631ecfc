//! What disagrees is found, and indexes are read by themselves.

use super::{
    super::{
        agreement::{IndexedTable, disagreements, push_ordered},
        connection::open_reading,
    },
    *,
};
use proptest::prelude::*;
use rusqlite::{Connection, types::Value as Raw};
use std::path::Path;

/// Carries `sql` out where the database does not see that there is such an index.
fn behind(path: &Path, index: &str, sql: &str) {
    let raw = Connection::open(path).unwrap();
    raw.execute_batch("PRAGMA writable_schema = ON; CREATE TEMP TABLE hidden AS SELECT * FROM sqlite_schema").unwrap();
    let steps = [
        format!("DELETE FROM sqlite_schema WHERE name = '{index}'"),
        "PRAGMA writable_schema = RESET; PRAGMA foreign_keys = OFF".to_owned(),
        sql.to_owned(),
        "PRAGMA writable_schema = ON".to_owned(),
        format!("INSERT INTO sqlite_schema SELECT * FROM hidden WHERE name = '{index}'"),
    ];
    for step in steps {
        raw.execute_batch(&step).unwrap_or_else(|error| panic!("{index}: {step}: {error}"));
    }
}

fn found(path: &Path) -> Vec<String> {
    disagreements(&open_reading(path).unwrap().connection, 100).unwrap()
}

fn copy(whole: &TempDir) -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    std::fs::copy(whole.path().join("catalog.db"), &path).unwrap();
    (directory, path)
}

/// Every index in which something of everything has an entry.
#[tokio::test]
async fn an_index_that_is_not_what_its_table_says_is_found() {
    let whole = tempfile::tempdir().unwrap();
    something_of_everything(&whole).await;
    let path = whole.path().join("catalog.db");
    assert_eq!(found(&path), Vec::<String>::new());
    let raw = Connection::open(&path).unwrap();
    let mut tried = 0;
    for table in IndexedTable::all(&raw).unwrap() {
        for index in table.indexes.iter().filter(|index| !index.name.starts_with("sqlite_")) {
            let condition = index.condition.as_deref().unwrap_or("1");
            let entries = format!("SELECT count(*) FROM {} WHERE {condition}", table.name);
            if raw.query_row(&entries, [], |row| row.get::<_, i64>(0)).unwrap() == 0 {
                continue;
            }
            let (_directory, path) = copy(&whole);
            let gone =
                format!("DELETE FROM {0} WHERE rowid = (SELECT rowid FROM {0} WHERE {condition} LIMIT 1)", table.name);
            behind(&path, &index.name, &gone);
            let sentences = found(&path);
            assert!(sentences.iter().any(|sentence| sentence.contains(&index.name)), "{}: {sentences:?}", index.name);
            tried += 1;
        }
    }
    assert!(tried >= 11, "{tried} indexes");
}

/// As many entries, and one of them names another row's value.
#[tokio::test]
async fn an_index_with_another_value_is_found() {
    let whole = tempfile::tempdir().unwrap();
    something_of_everything(&whole).await;
    let other = "CAST(substr(blob, 1, 4) || x'ff' || substr(blob, 6) AS BLOB)";
    for (index, sql) in [
        ("extents_by_blob", format!("UPDATE extents SET blob = {other} WHERE rowid = 1")),
        (
            "versions_current",
            "UPDATE versions SET key = x'00' WHERE seq = (SELECT min(seq) FROM versions WHERE current = 1)".into(),
        ),
        (
            "versions_current",
            "UPDATE versions SET current = 0 WHERE seq = (SELECT min(seq) FROM versions WHERE current = 1)".into(),
        ),
        ("blobs_by_bucket", "UPDATE blobs SET bucket = 2 WHERE rowid = 1".into()),
        ("edges_by_base", "UPDATE edges SET base = delta".into()),
    ] {
        let (_directory, path) = copy(&whole);
        behind(&path, index, &sql);
        let sentences = found(&path);
        assert!(sentences.iter().any(|sentence| sentence.contains(index)), "{index}: {sentences:?}");
    }
}

#[tokio::test]
async fn a_row_that_names_one_that_is_not_there_is_found() {
    let whole = tempfile::tempdir().unwrap();
    something_of_everything(&whole).await;
    for (sql, sentence) in [
        ("DELETE FROM blobs WHERE id IN (SELECT blob FROM extents)", "a row of extents names one of blobs"),
        ("DELETE FROM versions WHERE current = 1", "a row of extents names one of versions"),
        ("DELETE FROM parts", "a row of part_extents names one of parts"),
        ("UPDATE part_extents SET number = 2", "a row of part_extents names one of parts"),
        ("DELETE FROM uploads", "a row of parts names one of uploads"),
    ] {
        let (_directory, path) = copy(&whole);
        let raw = Connection::open(&path).unwrap();
        raw.execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}")).unwrap();
        let sentences = found(&path);
        assert!(sentences.iter().any(|found| found.contains(sentence)), "{sql}: {sentences:?}");
    }
}

/// An index that is read with its table is compared with what the table says, and found right.
#[tokio::test]
async fn the_large_indexes_are_read_without_their_tables() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(&directory).await);
    let raw = Connection::open(directory.path().join("catalog.db")).unwrap();
    let mut with_table = Vec::new();
    for table in IndexedTable::all(&raw).unwrap() {
        for index in &table.indexes {
            let sql = format!("EXPLAIN QUERY PLAN {}", index.sql(&table.name));
            let plan: String = raw.query_row(&sql, [], |row| row.get(3)).unwrap();
            assert!(plan.contains(&format!("INDEX {}", index.name)), "{plan}");
            if !plan.contains("COVERING") {
                with_table.push(index.name.clone());
            }
        }
    }
    with_table.sort();
    assert_eq!(with_table, ["blobs_quarantined", "uploads_open", "uploads_open_by_age"]);
}

fn values() -> impl Strategy<Value = Raw> {
    prop_oneof![
        Just(Raw::Null),
        (-3i64..3).prop_map(Raw::Integer),
        any::<i64>().prop_map(Raw::Integer),
        "[\\x00-\\x02a-c]{0,4}".prop_map(Raw::Text),
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..5).prop_map(Raw::Blob),
    ]
}

proptest! {
    #[test]
    fn bytes_of_entries_have_the_order_that_the_database_gives_them(
        one in prop::collection::vec(values(), 2), other in prop::collection::vec(values(), 2),
    ) {
        let memory = Connection::open_in_memory().unwrap();
        memory.execute_batch("CREATE TABLE t (a ANY, b ANY, which INTEGER) STRICT").unwrap();
        for (which, row) in [&one, &other].into_iter().enumerate() {
            memory.execute("INSERT INTO t VALUES (?1, ?2, ?3)", rusqlite::params![row[0], row[1], which as i64]).unwrap();
        }
        let mut ordered = memory.prepare("SELECT which FROM t ORDER BY a, b, which").unwrap();
        let first: i64 = ordered.query_row([], |row| row.get(0)).unwrap();
        let entry = |row: &[Raw]| {
            let mut bytes = Vec::new();
            row.iter().for_each(|value| push_ordered(value.into(), &mut bytes));
            bytes
        };
        let (one_bytes, other_bytes) = (entry(&one), entry(&other));
        prop_assert_eq!(one_bytes == other_bytes, one == other);
        prop_assert_eq!(first == 0, one_bytes <= other_bytes);
    }
}

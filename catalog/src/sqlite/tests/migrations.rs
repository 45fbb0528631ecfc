//! Databases of earlier programs are brought up to date.

use super::*;

/// A database from before the checksums, and the rows of an older backup.
#[tokio::test]
async fn rows_from_before_the_checksums_get_theirs() {
    let directory = tempfile::tempdir().unwrap();
    something_of_everything(&directory).await;
    let path = directory.path().join("catalog.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    let tables = ["blobs", "versions", "edges", "parts", "journal"];
    for table in tables {
        raw.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN checksum")).unwrap();
    }
    // What came later comes again.
    raw.execute_batch("DROP TABLE notices; DROP TABLE notice_lanes").unwrap();
    raw.execute_batch("ALTER TABLE blobs DROP COLUMN compartment; DROP TABLE usage").unwrap();
    raw.execute_batch("DROP TABLE journal_head; DROP TABLE stripes; ALTER TABLE commit_groups DROP COLUMN seq")
        .unwrap();
    raw.execute_batch("UPDATE counters SET name = 'seq' WHERE name = 'mutations'").unwrap();
    raw.execute_batch("DROP TABLE accounts; DELETE FROM counters WHERE name = 'accounts'").unwrap();
    raw.execute_batch("DELETE FROM schema_version WHERE version >= 15").unwrap();
    drop(raw);
    assert_eq!(open(&directory).await.verify_storage().await.unwrap(), Vec::<String>::new());
    let raw = rusqlite::Connection::open(&path).unwrap();
    for table in tables {
        let missing = format!("SELECT count(*) FROM {table} WHERE checksum IS NULL");
        assert_eq!(raw.query_row(&missing, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "{table}");
    }
}

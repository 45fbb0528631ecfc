//! How an empty catalog is filled.

use super::{
    super::connection::{SqliteSession, open_and_migrate},
    *,
};

#[test]
fn while_a_catalog_is_filled_no_commit_is_flushed_and_afterwards_each_is() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place { path: directory.path().join("catalog.db"), options: SqliteOptions::default() };
    let mut session = open_and_migrate(&place).unwrap();
    let settings = |session: &SqliteSession| {
        ["synchronous", "cache_size", "wal_autocheckpoint"].map(|name| {
            let asked = format!("PRAGMA {name}");
            session.connection.query_row(&asked, [], |row| row.get::<_, i64>(0)).unwrap()
        })
    };
    let (full, normal) = (2, 1);
    let before = settings(&session);
    assert_eq!(before[0], full);
    session.fill(true, true).unwrap();
    let [flushes, cache_kib, _] = settings(&session);
    assert_eq!(flushes, normal);
    assert!(cache_kib < before[1], "more pages, counted below zero");
    session.fill(false, true).unwrap();
    assert_eq!(settings(&session), before);
    session.fill(true, false).unwrap();
    session.fill(false, false).unwrap();
    assert_eq!(settings(&session)[0], normal, "whoever leaves flushing to the system goes on so");
}

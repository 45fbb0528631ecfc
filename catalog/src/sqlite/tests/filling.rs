//! How an empty catalog is filled.

use super::{
    super::connection::{SqliteSession, open_and_migrate},
    *,
};
use crate::snapshot::{TableRows, Value};

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

#[tokio::test]
async fn a_commit_that_failed_while_a_catalog_is_filled_is_never_taken_for_done() {
    let rows = |name: &str| TableRows {
        table: "settings".to_owned(),
        columns: ["name", "value"].map(str::to_owned).to_vec(),
        rows: vec![vec![Value::Text(name.to_owned()), Value::Text("1".to_owned())]],
    };
    for fault in [CommitFault::Lost, CommitFault::Kept] {
        let directory = tempfile::tempdir().unwrap();
        let catalog = open(&directory).await;
        catalog.begin_import().await.unwrap();
        catalog.import(vec![rows("one")]).await.unwrap();
        *catalog.writer.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        let failed = catalog.import(vec![rows("two")]).await;
        assert!(matches!(failed, Err(CatalogError::Unavailable(_))), "{fault:?}: {failed:?}");
        // Begun again, it is whole.
        catalog.begin_import().await.unwrap();
        catalog.import(vec![rows("one"), rows("two")]).await.unwrap();
        catalog.end_import(0).await.unwrap();
        for name in ["one", "two"] {
            assert!(catalog.setting(name).await.unwrap().is_some(), "{name}");
        }
    }
}

//! What a snapshot, and what fills a catalog from one, makes of damage.

use super::{super::connection::open_reading, *};
use std::{io::Write as _, os::unix::fs::FileExt as _};
use tokio::sync::mpsc;

/// What an export gives, and how many pieces left.
async fn exported(catalog: &SqliteCatalog) -> (Result<crate::Exported>, usize) {
    let (sender, mut receiver) = mpsc::channel(1);
    let taking = tokio::spawn(async move {
        let mut pieces = 0;
        while receiver.recv().await.is_some() {
            pieces += 1;
        }
        pieces
    });
    let exported = catalog.export(sender).await;
    (exported, taking.await.unwrap())
}

/// Writes over the first page of a table's rows.
fn damage(directory: &TempDir, table: &str) {
    let path = directory.path().join("catalog.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    let page: i64 =
        raw.query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [table], |row| row.get(0)).unwrap();
    let page_len: i64 = raw.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    drop(raw);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&vec![0xff; page_len as usize], ((page - 1) * page_len) as u64).unwrap();
}

#[tokio::test]
async fn an_export_that_damage_ends_on_its_way_says_so() {
    let directory = tempfile::tempdir().unwrap();
    something_of_everything(&directory).await;
    damage(&directory, "versions");
    let catalog = open(&directory).await;
    let (exported, pieces) = exported(&catalog).await;
    assert!(matches!(exported, Err(CatalogError::Damaged(_))), "{exported:?}");
    assert!(pieces > 3, "{pieces} pieces left before, each once");
}

#[tokio::test]
async fn an_export_of_which_nothing_has_left_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    something_of_everything(&directory).await;
    let garbage = directory.path().join("garbage.db");
    std::fs::File::create(&garbage).unwrap().write_all(&[7; 4096]).unwrap();
    let catalog = open(&directory).await;
    let whole = exported(&catalog).await;
    catalog.readers.pool(open_reading(&garbage).unwrap());
    let (again, pieces) = exported(&catalog).await;
    assert_eq!((again.unwrap().rows, pieces), (whole.0.unwrap().rows, whole.1));
}

#[tokio::test]
async fn a_row_that_a_replay_finds_damaged_is_no_mutation_that_does_not_fit() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let desk = Desk::new(Arc::new(open(&directories[0]).await)).await;
    desk.put("k").await;
    desk.delete("k").await;
    let journal = desk.catalog.journal(0, 100).await.unwrap();
    let (last, before) = journal.split_last().unwrap();
    let catalog = open(&directories[1]).await;
    catalog.begin_import().await.unwrap();
    catalog.replay(before.to_vec()).await.unwrap();
    let raw = rusqlite::Connection::open(directories[1].path().join("catalog.db")).unwrap();
    raw.execute_batch("UPDATE versions SET facts = x'00'").unwrap();
    for outcome in [catalog.replay(vec![last.clone()]).await, catalog.replay_behind_hole(last.clone()).await] {
        assert!(matches!(outcome, Err(CatalogError::Damaged(_))), "{outcome:?}");
    }
}

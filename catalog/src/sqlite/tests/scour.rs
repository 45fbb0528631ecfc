//! What rows that are gone leave in the file.

use super::*;

const CANARY: &[u8] = b"canary-41fd-plain";
const ROWS: usize = 400;
const CHANGES: usize = 20;

/// Content in which every piece shows the canary.
fn canaried(len: usize) -> Vec<u8> {
    CANARY.iter().copied().cycle().take(len).collect()
}

/// How many pages of the database or its log have the canary.
fn pages_with_canary(directory: &TempDir) -> usize {
    let files = ["catalog.db", "catalog.db-wal"].map(|name| std::fs::read(directory.path().join(name)));
    let pages = |bytes: Vec<u8>| {
        bytes
            .chunks(4096)
            .filter(|page| (0..page.len()).any(|at| page[at] == CANARY[0] && page[at..].starts_with(CANARY)))
            .count()
    };
    files.into_iter().flatten().map(pages).sum()
}

/// A catalog from which every second small row, and the journal, have gone; by a build that does
/// not overwrite what it deletes, or by this one.
async fn thinned(directory: &TempDir, overwrites: bool) -> SqliteCatalog {
    let unflushed = SqliteOptions { sync: false, ..SqliteOptions::default() };
    let desk = Desk::new(Arc::new(open_with(directory, unflushed.clone()).await)).await;
    let sizes = [40, 100, 300, 900, 2000, 3500, 4096];
    for row in 0..ROWS {
        let size = sizes[row * 7 % 5 + row % 3];
        let bytes = if row % 2 == 0 { canaried(size) } else { vec![b'y'; size] };
        desk.catalog.put(desk.commit(&format!("k{row}"), vec![desk.inline(&bytes)])).await.unwrap();
    }
    assert!(pages_with_canary(directory) > ROWS / 10, "the search would prove nothing");
    for row in (0..ROWS).step_by(2) {
        desk.delete(&format!("k{row}")).await;
    }
    let last = desk.catalog.journal(0, usize::MAX).await.unwrap().pop().unwrap();
    drop(desk);
    let raw = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
    raw.execute_batch("PRAGMA synchronous = OFF").unwrap();
    raw.pragma_update_and_check(None, "secure_delete", overwrites, |_| Ok(())).unwrap();
    let mut rows: Vec<i64> = {
        let mut find = raw.prepare("SELECT rowid FROM blobs WHERE state = 1").unwrap();
        find.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    };
    rows.sort_by_key(|row| row * 7919 % 1009);
    raw.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    for row in rows {
        raw.execute("DELETE FROM tombstones WHERE blob = (SELECT id FROM blobs WHERE rowid = ?1)", [row]).unwrap();
        raw.execute("DELETE FROM blobs WHERE rowid = ?1", [row]).unwrap();
    }
    drop(raw);
    let catalog = open_with(directory, unflushed).await;
    catalog.trim_journal(&last, crate::JournalLink([7; 32])).await.unwrap();
    catalog
}

#[tokio::test]
async fn no_byte_of_a_row_that_is_gone_stays_in_the_file_or_its_log() {
    for overwrites in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let catalog = thinned(&directory, overwrites).await;
        let before = pages_with_canary(&directory);
        assert!(overwrites || before > 0, "nothing is left to overwrite");
        let rows = catalog.stats().await.unwrap();
        assert!(catalog.scour(false).await.unwrap());
        let among_rows = pages_with_canary(&directory);
        assert!(among_rows < before || before == 0, "free pages and the log are done: {among_rows} of {before}");
        assert!(catalog.scour(true).await.unwrap());
        assert_eq!(pages_with_canary(&directory), 0, "overwriting {overwrites}: {before} pages had it");
        assert_eq!(catalog.stats().await.unwrap(), rows);
        assert_eq!(catalog.check().await.unwrap(), [""; 0]);
        assert_eq!(catalog.verify_storage().await.unwrap(), [""; 0]);
        assert_eq!(std::fs::metadata(directory.path().join("catalog.db-wal")).unwrap().len(), 0);
    }
}

#[tokio::test]
async fn what_is_deleted_is_overwritten_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let desk = Desk::new(Arc::new(open(&directory).await)).await;
    let content = canaried(900);
    for row in 0..50 {
        desk.catalog.put(desk.commit(&format!("k{row}"), vec![desk.inline(&content)])).await.unwrap();
    }
    for row in 0..50 {
        desk.delete(&format!("k{row}")).await;
    }
    for blob in desk.dying().await {
        desk.catalog.purge(blob, 1).await.unwrap();
    }
    drop(desk);
    assert_eq!(pages_with_canary(&directory), 0, "the log is folded into the database at the end");
}

#[tokio::test]
async fn changes_go_on_while_free_space_is_overwritten_and_it_waits_for_readers_of_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Arc::new(thinned(&directory, false).await);
    let reader = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM blobs;").unwrap();
    let scouring = tokio::spawn({
        let catalog = Arc::clone(&catalog);
        async move { catalog.scour(true).await }
    });
    for change in 1..=CHANGES {
        catalog.put_setting("s", serde_json::json!(change)).await.unwrap();
    }
    assert!(!scouring.is_finished(), "the reader keeps the log");
    reader.execute_batch("COMMIT").unwrap();
    assert!(scouring.await.unwrap().unwrap());
    assert_eq!(pages_with_canary(&directory), 0);
    assert_eq!(catalog.setting("s").await.unwrap(), Some(serde_json::json!(CHANGES)));
}

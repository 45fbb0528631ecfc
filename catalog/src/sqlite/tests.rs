//! What only the embedded catalog promises. The rest is in the conformance suite.

mod agreement;
mod at_once;
mod filling;
mod kept_buckets;
mod migrations;
mod plans;
mod scour;
mod snapshots;

use super::{writer::CommitFault, *};
use crate::{Catalog, CommitObserver, conformance::desk::Desk, types::*};
use std::{
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tempfile::TempDir;

async fn open(directory: &TempDir) -> SqliteCatalog {
    open_with(directory, SqliteOptions::default()).await
}

async fn open_with(directory: &TempDir, options: SqliteOptions) -> SqliteCatalog {
    SqliteCatalog::open(directory.path().join("catalog.db"), options).await.unwrap()
}

async fn bucket(catalog: &SqliteCatalog) -> BucketId {
    catalog.create_bucket("b", "o", serde_json::json!({}), 1).await.unwrap().id
}

#[tokio::test]
async fn a_second_owner_is_refused_until_the_first_has_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let first = open(&directory).await;
    first.put_setting("s", serde_json::json!(1)).await.unwrap();
    let second = SqliteCatalog::open(&path, SqliteOptions::default()).await;
    assert!(matches!(second, Err(CatalogError::InUse)));
    first.probe().await.unwrap();
    drop(first);
    assert!(!directory.path().join("catalog.db-wal").exists(), "the log is folded into the database at the end");
    assert_eq!(open(&directory).await.setting("s").await.unwrap(), Some(serde_json::json!(1)));
}

#[tokio::test]
async fn a_new_epoch_closes_all_earlier_ones_since_their_processes_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    let epochs = [catalog.open_epoch().await.unwrap(), catalog.open_epoch().await.unwrap()];
    drop(catalog);
    let catalog = open(&directory).await;
    let third = catalog.open_epoch().await.unwrap();
    assert!(third > epochs[1]);
    assert_eq!(catalog.closed_epochs().await.unwrap(), epochs);
    assert_eq!(catalog.close_stale_epochs(-1_000_000).await.unwrap(), [0u32; 0], "its writer needs no lease");
}

#[tokio::test]
async fn a_schema_of_a_newer_program_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(&directory).await);
    let path = directory.path().join("catalog.db");
    let newer = crate::relational::schema::VERSION + 1;
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("INSERT INTO schema_version (version) VALUES (?1)", [newer]).unwrap();
    drop(raw);
    match SqliteCatalog::open(&path, SqliteOptions::default()).await {
        Err(CatalogError::NewerSchema { found, known }) => assert_eq!((found, known), (newer, newer - 1)),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

#[tokio::test]
async fn a_version_of_ten_thousand_extents_is_read_with_its_facts_once() {
    let directory = tempfile::tempdir().unwrap();
    let desk = Desk::new(Arc::new(open(&directory).await)).await;
    let facts = vec![b'f'; 300_000];
    let blobs = (0..10_000).map(|_| desk.whole(1000)).collect();
    desk.catalog.put(PutCommit { facts: facts.clone(), ..desk.commit("k", blobs) }).await.unwrap();
    let content = desk.content("k").await;
    assert_eq!((content.extents.len(), content.blobs.len(), content.version.facts == facts), (10_000, 10_000, true));
    let raw = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
    let mut statement = raw.prepare(crate::relational::read::CURRENT_CONTENT).unwrap();
    let facts_len = |row: &rusqlite::Row<'_>| Ok(row.get::<_, Option<Vec<u8>>>(6)?.map_or(0, |facts| facts.len()));
    let lens = statement.query_map((desk.bucket.id.0, b"k"), facts_len).unwrap();
    assert_eq!(lens.map(std::result::Result::unwrap).sum::<usize>(), facts.len());
}

#[tokio::test]
async fn the_files_are_readable_by_their_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    bucket(&catalog).await;
    let mut files = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        files += 1;
    }
    assert_eq!(files, 4, "database, log, log index, lock");
}

/// After a failed flush the file is asked, not the memory.
#[tokio::test]
async fn a_commit_whose_flush_failed_is_found_out() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    let id = bucket(&catalog).await;
    let fail_next = |fault| {
        *catalog.writer.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    };
    let settings = async || catalog.bucket("b").await.unwrap().unwrap().settings;

    fail_next(CommitFault::Lost);
    let outcome = catalog.set_bucket_settings(id, serde_json::json!("lost")).await;
    assert!(matches!(outcome, Err(CatalogError::Unavailable(_))), "{outcome:?}");
    assert_eq!(settings().await, serde_json::json!({}));

    fail_next(CommitFault::Kept);
    catalog.set_bucket_settings(id, serde_json::json!("kept")).await.unwrap();
    assert_eq!(settings().await, serde_json::json!("kept"));

    catalog.set_bucket_settings(id, serde_json::json!("next")).await.unwrap();
    assert_eq!(settings().await, serde_json::json!("next"));
    assert_eq!(catalog.check().await.unwrap(), Vec::<String>::new());
    assert_eq!(catalog.last_seq().await.unwrap(), 3);
}

#[tokio::test]
async fn a_catalog_that_cannot_be_opened_again_says_unknown_and_serves_when_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    let id = bucket(&catalog).await;
    let (path, aside) = (directory.path().join("catalog.db"), directory.path().join("aside.db"));
    *catalog.writer.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(CommitFault::Lost);
    std::fs::rename(&path, &aside).unwrap();
    let outcome = catalog.set_bucket_settings(id, serde_json::json!(1)).await;
    assert!(matches!(outcome, Err(CatalogError::Unknown(_))), "{outcome:?}");
    let outcome = catalog.set_bucket_settings(id, serde_json::json!(2)).await;
    assert!(matches!(outcome, Err(CatalogError::Unavailable(_))), "{outcome:?}");
    std::fs::rename(&aside, &path).unwrap();
    catalog.set_bucket_settings(id, serde_json::json!(3)).await.unwrap();
    assert_eq!(catalog.bucket("b").await.unwrap().unwrap().settings, serde_json::json!(3));
}

#[tokio::test]
async fn past_its_bound_changes_are_refused_as_full_and_reads_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open_with(&directory, SqliteOptions { bytes_max: Some(1 << 20), ..SqliteOptions::default() }).await;
    let id = bucket(&catalog).await;
    let large = serde_json::json!("x".repeat(300 << 10));
    let mut stored = 0;
    let refused = loop {
        match catalog.put_setting(&format!("s{stored}"), large.clone()).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, CatalogError::Full), "{refused}");
    assert_eq!(stored, 1, "a setting is in its table and in the journal");
    assert_eq!(catalog.setting("s0").await.unwrap(), Some(large.clone()));
    assert_eq!(catalog.check().await.unwrap(), Vec::<String>::new());
    // In a group, the change that does not fit harms no other.
    let (too_large, fits) =
        tokio::join!(catalog.put_setting("s1", large), catalog.set_bucket_settings(id, serde_json::json!("small")));
    assert!(matches!(too_large, Err(CatalogError::Full)));
    fits.unwrap();
    assert_eq!(catalog.bucket("b").await.unwrap().unwrap().settings, serde_json::json!("small"));
}

#[derive(Default)]
struct Seen(Mutex<Vec<usize>>);

impl CommitObserver for Seen {
    fn committed(&self, operations: usize, elapsed: Duration) {
        assert!(elapsed > Duration::ZERO);
        self.0.lock().unwrap().push(operations);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_wait_together_share_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let options = SqliteOptions {
        observer: Some(Arc::clone(&seen) as Arc<dyn CommitObserver>),
        group_max: 50,
        ..SqliteOptions::default()
    };
    let catalog = Arc::new(open_with(&directory, options).await);
    let id = bucket(&catalog).await;
    let mut changes = tokio::task::JoinSet::new();
    for number in 0..400 {
        let catalog = Arc::clone(&catalog);
        changes.spawn(async move { catalog.set_bucket_settings(id, serde_json::json!(number)).await.unwrap() });
    }
    changes.join_all().await;
    let groups = seen.0.lock().unwrap().clone();
    assert_eq!(groups.iter().sum::<usize>(), 401);
    assert!(groups.len() < 200, "{} commits for 401 changes", groups.len());
    assert!(groups.iter().all(|changes| (1..=50).contains(changes)), "{groups:?}");
}

/// Puts versions in without the catalog, which would take its time: those for which `current` holds
/// are current, others have names of their own.
fn fill(directory: &TempDir, bucket: BucketId, sql_of_key: &str, count: u32, current: &str) {
    let raw = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count})
         INSERT INTO versions (seq, bucket, key, id, current, modified_ms, size, facts, extents_digest, named)
         SELECT 1000 + i, {}, CAST({sql_of_key} AS BLOB), CAST(printf('%016d', i) AS BLOB), {current}, 0, 0, x'', zeroblob(32), 1 FROM n",
        bucket.0
    );
    assert_eq!(raw.execute(&sql, []).unwrap(), count as usize);
}

/// Cost follows the page: the virtual machine's own counter says so, not only the rows that came
/// out.
#[tokio::test]
async fn a_listing_of_100_000_keys_under_three_prefixes_touches_a_page_of_rows() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    let id = bucket(&catalog).await;
    drop(catalog);
    fill(&directory, id, "printf('%s/%06d', char(97 + i % 3), i)", 100_000, "1");
    let catalog = open(&directory).await;
    let cost = async |query: &ListQuery| {
        let before = catalog.read_work();
        let page = catalog.list(query).await.unwrap();
        let after = catalog.read_work();
        (page, after.rows - before.rows, after.vm_steps - before.vm_steps)
    };
    let query = |prefix: &str, delimiter: Option<&str>, limit| ListQuery {
        bucket: id,
        prefix: prefix.into(),
        delimiter: delimiter.map(Into::into),
        after: None,
        limit,
    };

    let (page, rows, steps) = cost(&query("", Some("/"), 1000)).await;
    let prefixes = ["a/", "b/", "c/"].map(|prefix| ListEntry::CommonPrefix(prefix.into()));
    assert_eq!((page.entries.as_slice(), page.next), (prefixes.as_slice(), None));
    assert!(0 < rows && rows <= 16, "{rows} rows");
    assert!(0 < steps && steps < 2_000, "{steps} steps");

    let (page, rows, steps) = cost(&query("b/", Some("/"), 100)).await;
    assert_eq!(page.entries.len(), 100);
    assert!(rows <= 202, "{rows} rows");
    assert!(steps < 10_000, "{steps} steps");

    let (page, rows, steps) = cost(&query("", None, 1000)).await;
    assert_eq!(page.entries.len(), 1000);
    assert_eq!(rows, 1001);
    assert!(steps < 40_000, "{steps} steps");

    // Far into the bucket it costs the same.
    let late = ListQuery { after: Some("c/099000".into()), ..query("", None, 100) };
    let (page, rows, steps) = cost(&late).await;
    assert_eq!((page.entries.len(), rows), (100, 101));
    assert!(steps < 5_000, "{steps} steps");
}

/// A thousand prefixes of a hundred keys each: a page of prefixes costs a few rows per prefix, not
/// a hundred.
#[tokio::test]
async fn a_page_of_prefixes_costs_a_few_rows_per_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    let id = bucket(&catalog).await;
    drop(catalog);
    fill(&directory, id, "printf('%04d/%02d', i / 100, i % 100)", 100_000, "1");
    let catalog = open(&directory).await;
    let query = ListQuery { bucket: id, prefix: String::new(), delimiter: Some("/".into()), after: None, limit: 1000 };
    let before = catalog.read_work();
    assert_eq!(catalog.list(&query).await.unwrap().entries.len(), 1000);
    let work = catalog.read_work();
    assert!(work.rows - before.rows <= 5_000, "{} rows", work.rows - before.rows);
}

/// As many versions of few keys as a busy bucket has in a year: a page costs the same at the front,
/// in the middle of a key and at the end.
#[tokio::test]
async fn a_page_of_100_000_versions_of_three_keys_touches_a_page_of_rows() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    let id = bucket(&catalog).await;
    catalog.set_versioning(id, Versioning::Enabled).await.unwrap();
    drop(catalog);
    fill(&directory, id, "printf('%s/k', char(97 + i % 3))", 100_000, "i >= 99997");
    let catalog = open(&directory).await;
    let cost = async |query: &VersionsQuery| {
        let before = catalog.read_work();
        let page = catalog.list_versions(query).await.unwrap();
        let after = catalog.read_work();
        (page, after.rows - before.rows, after.vm_steps - before.vm_steps)
    };
    let query = |delimiter: Option<&str>, after: Option<(&str, VersionRef)>, limit| VersionsQuery {
        bucket: id,
        prefix: String::new(),
        delimiter: delimiter.map(Into::into),
        key_after: after.map(|(key, _)| key.into()),
        version_after: after.map(|(_, version)| version),
        limit,
    };
    let version = |number: u32| {
        let id: [u8; 16] = format!("{number:016}").into_bytes().try_into().unwrap();
        VersionRef::Id(VersionId(id))
    };

    // The front is merged from two indexes.
    let (page, rows, steps) = cost(&query(None, None, 100)).await;
    assert_eq!((page.entries.len(), rows), (100, 101));
    assert!(0 < steps && steps < 12_000, "{steps} steps");
    let next = page.next.unwrap();
    assert_eq!(next, ("a/k".into(), Some(version(99_999 - 3 * 99))));

    for (key, number) in [("a/k", 50_001), ("b/k", 50_002), ("c/k", 902)] {
        let (page, rows, steps) = cost(&query(None, Some((key, version(number))), 100)).await;
        assert_eq!(page.entries.len(), 100);
        assert!(rows <= 102, "{rows} rows");
        assert!(steps < 12_000, "{steps} steps");
    }

    let (page, rows, steps) = cost(&query(Some("/"), None, 1000)).await;
    let prefixes = ["a/", "b/", "c/"].map(|prefix| VersionEntry::CommonPrefix(prefix.into()));
    assert_eq!((page.entries.as_slice(), page.next), (prefixes.as_slice(), None));
    assert!(0 < rows && rows <= 16, "{rows} rows");
    assert!(steps < 4_000, "{steps} steps");

    // What is current costs what it did.
    let before = catalog.read_work();
    let keys = ListQuery { bucket: id, prefix: String::new(), delimiter: None, after: None, limit: 1000 };
    assert_eq!(catalog.list(&keys).await.unwrap().entries.len(), 3);
    assert_eq!(catalog.read_work().rows - before.rows, 3);
}

/// A store with something of everything in it.
async fn something_of_everything(directory: &TempDir) {
    let desk = Desk::new(Arc::new(open(directory).await)).await;
    let base = desk.put("base").await;
    desk.catalog.put(desk.commit("delta", vec![desk.delta(100, &[base])])).await.unwrap();
    desk.catalog.put(desk.commit("inline", vec![desk.inline(b"inline")])).await.unwrap();
    desk.put("gone").await;
    desk.delete("gone").await;
    desk.catalog.put(desk.commit("adopted", vec![desk.foreign("original", 10)])).await.unwrap();
    desk.catalog.delete(DeleteCommit { hide: true, ..desk.deletion("hidden") }).await.unwrap();
    let history = desk.with_bucket("history").await;
    history.put("k").await;
    history.catalog.set_versioning(history.bucket.id, Versioning::Enabled).await.unwrap();
    history.put("k").await;
    history.put("k").await;
    history.put("marked").await;
    history.delete("marked").await;
    let upload = desk.start_upload("upload", 1).await;
    desk.put_part(upload.id, 1, 10).await;
    let hooks = BlobHooks { blob: base, first: 0, regions: vec![vec![1, 2, 3]] };
    assert_eq!(desk.catalog.remember_hooks(vec![hooks]).await.unwrap(), 1);
    desk.assert_sound().await;
}

/// A plan that may rest on bound values is made again for others: half the time of a small request
/// went there.
#[tokio::test]
async fn statements_are_compiled_once_whatever_values_they_run_with() {
    let directory = tempfile::tempdir().unwrap();
    let desk = Desk::new(Arc::new(open(&directory).await)).await;
    for number in 0..20 {
        let (key, base) = (format!("k{number}"), desk.put(&format!("base{number}")).await);
        desk.catalog.put(desk.commit(&key, vec![desk.delta(100, &[base])])).await.unwrap();
        desk.content(&key).await;
        desk.catalog.current(desk.bucket.id, &key).await.unwrap();
        let query = ListQuery {
            bucket: desk.bucket.id,
            prefix: format!("k{number}"),
            delimiter: None,
            after: None,
            limit: number + 1,
        };
        desk.catalog.list(&query).await.unwrap();
        let upload = desk.start_upload(&key, 1).await;
        desk.put_part(upload.id, 1, 10).await;
        desk.delete(&key).await;
    }
    // The writer counts after it has answered, and it answers the next change after that.
    desk.catalog.put_setting("s", serde_json::json!(1)).await.unwrap();
    let work = desk.catalog.read_work();
    assert!(work.statements >= 60, "{work:?}");
    assert_eq!(work.reprepares, 0, "{work:?}");
}

/// Measured as pages of the database file, with region numbers as large as a store of many millions
/// gets.
#[tokio::test]
async fn the_hooks_of_a_region_take_at_most_600_bytes() {
    const REGIONS: i64 = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let id = bucket(&open(&directory).await).await;
    let path = directory.path().join("catalog.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch(&format!(
        "UPDATE counters SET value = 20000000 WHERE name = 'region';
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {REGIONS})
         INSERT INTO blobs (id, bucket, key_epoch, backend, form, state, plain_len, stored_len, root_offset, root_len, root_tag,
           raw_plain, zstd_plain, zstd_stored, delta_plain, delta_stored)
         SELECT unhex(printf('%032x', i)), {}, 0, 'local', 0, 0, 1000000, 400000, 390000, 1000, zeroblob(16), 0, 0, 0, 0, 0 FROM n;",
        id.0
    ))
    .unwrap();
    let bytes = |raw: &rusqlite::Connection| -> i64 {
        raw.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        raw.query_row("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()", [], |row| {
            row.get(0)
        })
        .unwrap()
    };
    let without = bytes(&raw);
    drop(raw);
    let catalog = open(&directory).await;
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.rotate_left(16)
    };
    for batch in (1..=REGIONS as u128).collect::<Vec<_>>().chunks(1000) {
        let blobs = batch.iter().map(|blob| BlobHooks {
            blob: BlobKey(blob.to_be_bytes()),
            first: 0,
            regions: vec![(0..32).map(|_| random()).collect()],
        });
        assert_eq!(catalog.remember_hooks(blobs.collect()).await.unwrap(), batch.len() as u64);
    }
    drop(catalog);
    let each = (bytes(&rusqlite::Connection::open(&path).unwrap()) - without) / REGIONS;
    assert!((24 * 8..=600).contains(&each), "{each} bytes per region");
}

/// Every rule of the recount is seen to fail, on rows that were changed behind the catalog's back.
#[tokio::test]
async fn the_recount_finds_every_broken_rule() {
    let broken = [
        "UPDATE versions SET bucket = 99",
        "UPDATE versions SET size = size + 1",
        "UPDATE extents SET ordinal = ordinal + 1",
        "DELETE FROM versions",
        "DELETE FROM blobs WHERE id IN (SELECT blob FROM extents)",
        "DELETE FROM blobs WHERE id IN (SELECT blob FROM part_extents)",
        "UPDATE blobs SET state = 1",
        "UPDATE blobs SET bucket = 99",
        "UPDATE blobs SET plain_len = 0",
        "DROP INDEX versions_current; DROP INDEX versions_null; INSERT INTO versions SELECT seq + 1000, bucket, key, randomblob(16), current, \
         modified_ms, size, facts, extents_digest, named, marker, lock, retain_until_ms, NULL FROM versions",
        "DROP INDEX versions_null; UPDATE versions SET named = 0",
        "UPDATE versions SET seq = seq + 100000 WHERE current = 0 AND marker = 0",
        "DELETE FROM versions WHERE marker = 1",
        "UPDATE versions SET size = 1 WHERE marker = 1",
        "UPDATE buckets SET versioning = 0",
        "UPDATE buckets SET object_lock = 1, versioning = 2",
        "UPDATE versions SET lock = 4",
        "UPDATE parts SET size = size + 1",
        "UPDATE part_extents SET ordinal = ordinal + 1",
        "UPDATE uploads SET completed_ms = 1",
        "DELETE FROM parts",
        "DELETE FROM extents",
        "DELETE FROM tombstones",
        "UPDATE blobs SET state = 0",
        "INSERT INTO tombstones SELECT blob, 0 FROM extents",
        "DELETE FROM edges",
        "UPDATE blobs SET form = 0",
        "UPDATE blobs SET form = 1",
        "UPDATE blobs SET key_epoch = 1 WHERE form = 1",
        "DELETE FROM blobs WHERE form = 1",
        "UPDATE buckets SET name = NULL",
        "INSERT INTO buckets VALUES (50, NULL, '', 0, '{}', 0, 0)",
        "UPDATE blobs SET inline_bytes = x'00' WHERE inline_bytes IS NOT NULL",
        "UPDATE blobs SET original = '{}' WHERE id IN (SELECT base FROM edges)",
        "UPDATE blobs SET stored_len = 1 WHERE original IS NOT NULL",
        "UPDATE blobs SET copy_id = id WHERE inline_bytes IS NOT NULL",
        "UPDATE hidden_keys SET bucket = 99",
        "INSERT INTO deferrals VALUES (x'00', 0)",
        "UPDATE blobs SET first_region = NULL",
        "DELETE FROM sketched_regions",
        "INSERT INTO notice_lanes VALUES ('lane', 1, 0)",
        "INSERT INTO notices VALUES ('nowhere', 1, 0, x'00', NULL, 0, '{}')",
        "UPDATE usage SET bytes = bytes + 1",
        "DELETE FROM journal WHERE seq = 2",
        "UPDATE counters SET value = 1 WHERE name = 'mutations'",
    ];
    let whole = tempfile::tempdir().unwrap();
    something_of_everything(&whole).await;
    let mut found = Vec::new();
    for sql in broken {
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(whole.path().join("catalog.db"), directory.path().join("catalog.db")).unwrap();
        let raw = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
        raw.execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}")).unwrap();
        drop(raw);
        let sentences = open(&directory).await.check().await.unwrap();
        assert!(!sentences.is_empty(), "nothing found after {sql}");
        found.extend(sentences);
    }
    let rules = crate::relational::check::RULES.iter().map(|rule| rule.broken);
    for rule in rules.chain(["the journal holds", "is newer than the last mutation"]) {
        assert!(found.iter().any(|sentence| sentence.contains(rule)), "never found: {rule}");
    }
}

/// What rot does to values that no index and no rule of the database covers.
#[tokio::test]
async fn a_row_that_is_not_what_was_written_is_found() {
    let rotten = [
        ("blobs", "UPDATE blobs SET stored_len = stored_len + 1 WHERE form = 0 AND inline_bytes IS NULL"),
        ("blobs", "UPDATE blobs SET backend = 'locam'"),
        ("blobs", "UPDATE blobs SET root_tag = zeroblob(16)"),
        ("blobs", "UPDATE blobs SET copy_id = zeroblob(16) WHERE form = 0"),
        ("versions", "UPDATE versions SET facts = x'00'"),
        ("versions", "UPDATE versions SET key = CAST(key || 'x' AS BLOB)"),
        ("versions", "UPDATE versions SET extents_digest = zeroblob(32)"),
        ("edges", "UPDATE edges SET base = delta"),
        ("parts", "UPDATE parts SET id = zeroblob(16)"),
        ("parts", "UPDATE part_extents SET plain_len = plain_len + 1"),
        ("journal", "UPDATE journal SET mutation = replace(mutation, 'key', 'kex')"),
    ];
    let whole = tempfile::tempdir().unwrap();
    something_of_everything(&whole).await;
    assert_eq!(open(&whole).await.verify_storage().await.unwrap(), Vec::<String>::new());
    for (table, sql) in rotten {
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(whole.path().join("catalog.db"), directory.path().join("catalog.db")).unwrap();
        let raw = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
        raw.execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}")).unwrap();
        drop(raw);
        let catalog = open(&directory).await;
        assert!(!catalog.verify_storage().await.unwrap().is_empty(), "nothing found after {sql}");
        let (sender, mut receiver) = tokio::sync::mpsc::channel(64);
        tokio::spawn(async move { while receiver.recv().await.is_some() {} });
        catalog.export(sender).await.unwrap();
        let read = match table {
            "blobs" => catalog.to_verify(None, 1000).await.map(drop),
            "versions" => catalog.small_contents(0, u64::MAX >> 1, 1000).await.map(drop),
            "journal" => catalog.journal(0, 1000).await.map(drop),
            _ => continue,
        };
        assert!(matches!(read, Err(CatalogError::Damaged(_))), "{sql}: {read:?}");
    }
}

#[tokio::test]
async fn every_table_and_column_is_in_a_snapshot_or_left_out_by_name() {
    use crate::relational::snapshot::{LEFT_OUT, TABLES};
    let directory = tempfile::tempdir().unwrap();
    drop(open(&directory).await);
    let raw = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
    let names = |sql: &str| -> Vec<String> {
        let mut statement = raw.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(|name| name.unwrap()).collect()
    };
    for table in names("SELECT name FROM sqlite_master WHERE type = 'table'") {
        let columns = names(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY name"));
        match TABLES.iter().find(|known| known.name == table) {
            Some(known) => {
                let mut listed = known.columns.to_vec();
                listed.sort_unstable();
                assert_eq!(listed, columns, "{table}");
            }
            None => assert!(LEFT_OUT.contains(&table.as_str()), "{table} would be lost by a backup"),
        }
    }
}

#[tokio::test]
async fn a_job_that_ended_in_the_future_of_a_clock_that_was_set_back_waits_for_nothing() {
    let directory = TempDir::new().unwrap();
    let catalog = open(&directory).await;
    let epoch = catalog.open_epoch().await.unwrap();
    let take = |rest_ms| JobTake { name: "gc".into(), epoch, lease_ms: 60_000, rest_ms };
    let ends = async |ahead_ms: i64| {
        let row = catalog.take_job(take(0)).await.unwrap().unwrap();
        let lease = JobLease { name: row.name, fence: row.fence };
        catalog.release_job(&lease, serde_json::json!(null)).await.unwrap();
        let raw = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
        raw.execute("UPDATE jobs SET ended_ms = ended_ms + ?1", [ahead_ms]).unwrap();
        catalog.jobs().await.unwrap()[0].idle_ms
    };
    // A clock is corrected by a little again and again.
    assert_eq!(ends(30_000).await, Some(0));
    assert!(catalog.take_job(take(2_000)).await.unwrap().is_none());
    assert_eq!(ends(86_400_000).await, None, "for a day nothing would be collected, backed up or packed");
    assert!(catalog.take_job(take(2_000)).await.unwrap().is_some());
}

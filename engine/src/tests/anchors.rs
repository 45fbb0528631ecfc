//! An anchor outside of the store, while processes ship and start.

use super::{collecting::recovery, *};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::{fs, io::Write as _, path::PathBuf};

/// A deployment with an anchor, which says how far its first object is.
async fn anchored(elsewhere: &TempDir, journal_interval: Duration) -> (super::Deployment, PathBuf) {
    let anchor = elsewhere.path().join("anchor");
    let named = anchor.clone();
    let dir = TempDir::new().expect("a temporary directory");
    let change = |config: &mut EngineConfig| {
        config.schedule_jobs = false;
        config.safety.anchor = Some(AnchorPlace::File(named));
        config.safety.journal_interval = journal_interval;
    };
    let deployment = super::Deployment::reopened(dir, |_, _| Vec::new(), change).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "first", b"first").await;
    deployment.engine.ship_journal().await.expect("shipped");
    deployment.engine.foundation.safety.settle_anchor().await;
    (deployment, anchor)
}

fn seq_in(anchor: &Path) -> catalog::Seq {
    let text = fs::read(anchor).expect("readable");
    let document: serde_json::Value = serde_json::from_slice(&text).expect("whole");
    document["seq"].as_i64().expect("a number")
}

/// Puts what does not answer in the anchor's place; what was there.
fn hang(anchor: &Path) -> String {
    let text = fs::read_to_string(anchor).expect("readable");
    fs::remove_file(anchor).expect("removed");
    mkfifoat(CWD, anchor, Mode::RUSR | Mode::WUSR).expect("made");
    text
}

/// Waits until somebody reads the anchor, who has an answer once this is written and closed.
async fn answer(anchor: PathBuf) -> fs::File {
    let open = move || fs::File::options().write(true).open(anchor);
    tokio::task::spawn_blocking(open).await.expect("no panic").expect("opened")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_start_while_a_replica_ships_is_not_refused() {
    let elsewhere = TempDir::new().expect("a temporary directory");
    let (deployment, anchor) = anchored(&elsewhere, Duration::from_secs(3600)).await;
    let seq = seq_in(&anchor);
    let text = hang(&anchor);
    let engine = deployment.engine.clone();
    let start = tokio::spawn(async move { engine.foundation.safety.check_anchor(&BTreeMap::new()).await });
    let mut answer = answer(anchor.clone()).await;
    // It has begun to read; what is committed and noted now is newer than what it knew.
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "second", b"second").await;
    let newer = text.replace(&format!("\"seq\":{seq}"), &format!("\"seq\":{}", seq + 1));
    assert_ne!(newer, text);
    answer.write_all(newer.as_bytes()).expect("written");
    drop(answer);
    start.await.expect("no panic").expect("the catalog has what the anchor knows");
    fs::remove_file(&anchor).expect("removed");
    deployment.stop().await;
    assert!(seq_in(&anchor) > seq);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writes_are_shipped_and_acknowledged_while_the_anchor_does_not_answer() {
    let elsewhere = TempDir::new().expect("a temporary directory");
    let (deployment, anchor) = anchored(&elsewhere, Duration::ZERO).await;
    let seq = seq_in(&anchor);
    let text = hang(&anchor);
    let engine = deployment.engine.clone();
    let bucket = deployment.bucket("off").await;
    let writes = async {
        for key in ["second", "third"] {
            deployment.put(&bucket, key, b"acknowledged when it is shipped").await;
        }
        engine.ship_journal().await
    };
    // A shipment that waits for the anchor would never end.
    let shipped = tokio::time::timeout(Duration::from_secs(20), writes).await;
    let mut answer = answer(anchor.clone()).await;
    answer.write_all(text.as_bytes()).expect("written");
    drop(answer);
    let shipped = shipped.expect("it goes on").expect("shipped");
    assert!(shipped.seq > seq);
    deployment.stop().await;
    assert!(seq_in(&anchor) >= shipped.seq);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_ends_although_the_anchor_does_not_answer() {
    let elsewhere = TempDir::new().expect("a temporary directory");
    let (deployment, anchor) = anchored(&elsewhere, Duration::from_secs(3600)).await;
    hang(&anchor);
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "second", b"second").await;
    let engine = deployment.engine.clone();
    // As a task: a thread that waits for the anchor would not be held up by a timeout.
    let stopped = tokio::spawn(async move { engine.shutdown().await });
    let stopped = tokio::time::timeout(Duration::from_secs(20), stopped).await;
    // Whoever still reads it gets to its end.
    drop(answer(anchor).await);
    stopped.expect("it ends").expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_catalog_is_made_again_although_the_anchor_cannot_be_written_and_says_what_to_do() {
    let elsewhere = TempDir::new().expect("a temporary directory");
    let (deployment, anchor) = anchored(&elsewhere, Duration::from_secs(3600)).await;
    let dir = deployment.stop().await;
    fs::remove_dir_all(elsewhere.path()).expect("removed");
    for name in ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"] {
        // Not all of them are there.
        let _ = fs::remove_file(dir.path().join(name));
    }
    let metrics = Metrics::new();
    let config = || {
        let mut config = config(dir.path(), 512 << 20);
        config.safety.anchor = Some(AnchorPlace::File(anchor.clone()));
        config
    };
    let stores = super::stores(dir.path(), &metrics);
    let report = recover(config(), stores, &recovery(false, false), metrics.clone(), &|_, _| {}).await;
    let report = report.expect("the catalog is whole");
    assert_eq!(report.objects, 1, "{report:?}");
    let warning = report.anchor_warning.expect("it says so");
    assert!(warning.contains("(backup.anchor)") && warning.contains("remove the file"), "{warning}");

    // Served when the place is there again, it writes the anchor.
    fs::create_dir(elsewhere.path()).expect("mended");
    let engine = super::open(config(), &metrics).await.expect("opens");
    engine.shutdown().await;
    assert!(fs::read_to_string(&anchor).expect("written").contains(&report.new_lineage));
}

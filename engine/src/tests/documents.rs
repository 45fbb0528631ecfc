//! What a recovery needs is looked at by the scrub, and written again while the catalog lives.

use super::{
    collecting::{recovered, recovery},
    scrubbing::Broken,
    *,
};
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

/// A document of the store, by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Document {
    Lineage,
    Owner,
    Keyset,
    StoreKeyset,
    Index,
    Part,
    FirstJournal,
    LastJournal,
}

const EVERY: [Document; 8] = [
    Document::Lineage,
    Document::Owner,
    Document::Keyset,
    Document::StoreKeyset,
    Document::Index,
    Document::Part,
    Document::FirstJournal,
    Document::LastJournal,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    FlippedBit,
    Cut,
    Removed,
}

/// Files below a folder of the store, in order of their names.
fn files(dir: &Path, folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.join("blobs").join(folder)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            let path = entry.expect("readable").path();
            if path.is_dir() { dirs.push(path) } else { found.push(path) }
        }
    }
    found.sort_by_key(|file| file.file_name().map(ToOwned::to_owned));
    found
}

fn is_of_store(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().contains("store-"))
}

impl Document {
    /// Where it lies; `None` when there is none.
    fn file(self, dir: &Path) -> Option<PathBuf> {
        let newest_backup = files(dir, "backup").pop().expect("a backup");
        let cut = newest_backup.file_name().expect("a name").to_string_lossy()[..16].to_owned();
        let is_behind = |file: &PathBuf| file.file_name().is_some_and(|name| *name.to_string_lossy() > *cut);
        match self {
            Self::Lineage => files(dir, "lineage").pop(),
            Self::Owner => files(dir, "owner").pop(),
            Self::Keyset => files(dir, "keyset").into_iter().find(|file| !is_of_store(file)),
            Self::StoreKeyset => files(dir, "keyset").into_iter().find(|file| is_of_store(file)),
            Self::Index => Some(newest_backup),
            Self::Part => {
                let name = newest_backup.file_name().expect("a name").to_string_lossy().into_owned();
                files(dir, "backup-part").into_iter().find(|file| file.to_string_lossy().contains(&name[17..33]))
            }
            Self::FirstJournal => files(dir, "journal").into_iter().find(is_behind),
            Self::LastJournal => files(dir, "journal").into_iter().rfind(is_behind),
        }
    }

    /// As metrics name its kind.
    fn kind(self) -> &'static str {
        match self {
            Self::Lineage => "lineage",
            Self::Owner => "owner",
            Self::Keyset | Self::StoreKeyset => "keyset",
            Self::Index | Self::Part => "backup",
            Self::FirstJournal | Self::LastJournal => "journal",
        }
    }
}

impl Harm {
    fn do_to(self, file: &Path) {
        let mut bytes = std::fs::read(file).expect("readable");
        std::fs::remove_file(file).expect("removed");
        let middle = bytes.len() / 2;
        match self {
            Self::FlippedBit => bytes[middle] ^= 1,
            Self::Cut => bytes.truncate(middle),
            Self::Removed => return,
        }
        std::fs::write(file, bytes).expect("written");
    }
}

async fn quiet(dir: TempDir) -> super::Deployment {
    let specs = registry::all;
    super::Deployment::reopened(dir, specs, |config| config.schedule_jobs = false).await
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_tree(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).expect("copied")),
        }
    }
}

impl super::Deployment {
    async fn scrub(&self) -> Value {
        let report = self.engine.jobs.run_job("scrub", json!({})).await.expect("it comes to its end");
        report["recovery"].clone()
    }

    /// A store with a backup, and a journal of two blobs behind it.
    async fn with_history(&self, bucket: &BucketHandle, objects: &mut Vec<String>) {
        for last in ["backup", "first", "second"] {
            let key = format!("{}-{last}", objects.len());
            self.put(bucket, &key, &content(9000, 3 + objects.len() as u64)).await;
            objects.push(key);
            match last {
                "backup" => drop(self.engine.foundation.safety.backup().await.expect("a backup")),
                _ => drop(self.engine.ship_journal().await.expect("shipped")),
            }
        }
    }

    /// Makes the catalog again from a copy of the store alone: every object is there.
    async fn assert_recovers(&self, name: &str, objects: &[String], reads: bool, what: &str) {
        let copy = TempDir::new().expect("a directory");
        copy_tree(self.dir.path(), copy.path());
        for entry in std::fs::read_dir(copy.path()).expect("readable") {
            let path = entry.expect("readable").path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("catalog.")) {
                std::fs::remove_file(path).expect("removed");
            }
        }
        let report = recovered(copy.path(), &recovery(false, false)).await.expect(what);
        assert_eq!((report.objects, report.holes.len()), (objects.len() as u64, 0), "{what}: {report:?}");
        if !reads {
            return;
        }
        let again = quiet(copy).await;
        let bucket = again.bucket(name).await;
        for (number, key) in objects.iter().enumerate() {
            assert!(again.get(&bucket, key, 0..9000).await == content(9000, 3 + number as u64), "{what}: {key}");
        }
        again.stop().await;
    }

    fn counted(&self, kind: &str, outcome: &str) -> u64 {
        self.metrics.scrub_recovery_documents_total.with_label_values(&[kind, outcome]).get()
    }
}

async fn every_document_is_mended(name: &str, harms: &[Harm]) {
    let deployment = quiet(TempDir::new().expect("a directory")).await;
    let bucket = deployment.bucket(name).await;
    let mut objects = Vec::new();
    for (document, harm) in EVERY.into_iter().flat_map(|document| harms.iter().map(move |harm| (document, *harm))) {
        deployment.with_history(&bucket, &mut objects).await;
        let what = format!("{name} {document:?} {harm:?}");
        let Some(file) = document.file(deployment.dir.path()) else {
            assert_eq!((name, document.kind()), ("off", "keyset"), "{what}");
            continue;
        };
        let before = deployment.counted(document.kind(), "restored");
        harm.do_to(&file);
        deployment.engine.drop_caches();
        let counts = deployment.scrub().await;
        if document == Document::Index && harm == Harm::Removed {
            // Then it is no backup, and the one before it with its journal is enough.
            assert_eq!((&counts["restored"], &counts["damaged"]), (&json!(0), &json!(0)), "{what}: {counts}");
        } else {
            let outcomes = (&counts["restored"], &counts["damaged"], &counts["unreachable"]);
            assert_eq!(outcomes, (&json!(1), &json!(0), &json!(0)), "{what}: {counts}");
            assert_eq!(deployment.counted(document.kind(), "restored"), before + 1, "{what}");
        }
        let again = deployment.scrub().await;
        let outcomes = (&again["restored"], &again["damaged"], &again["unreachable"]);
        assert_eq!(outcomes, (&json!(0), &json!(0), &json!(0)), "{what}: {again}");
        assert!(again["ok"].as_u64() > Some(3), "{what}: {again}");
        deployment.assert_recovers(name, &objects, harm == Harm::Removed, &what).await;
    }
    deployment.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recovery_document_that_was_damaged_is_mended_and_a_rebuild_loses_nothing() {
    every_document_is_mended("off", &[Harm::Cut, Harm::Removed]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sealed_recovery_document_that_was_damaged_is_mended_and_a_rebuild_loses_nothing() {
    every_document_is_mended("sealed", &[Harm::FlippedBit, Harm::Removed]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_ownership_record_is_written_to_a_place_that_lacks_the_catalogs_blobs() {
    let deployment = quiet(TempDir::new().expect("a directory")).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "k", &content(9000, 3)).await;
    let blobs = deployment.dir.path().join("blobs");
    // Emptied in place: it is the directory that was opened, and nothing in it is.
    for folder in ["owner", "blobs", "lineage", "journal"] {
        std::fs::remove_dir_all(blobs.join(folder)).ok();
        std::fs::create_dir_all(blobs.join(folder)).expect("made");
    }
    deployment.engine.jobs.run_job("scrub", json!({})).await.expect_err("nothing is believed of this place");
    assert_eq!((deployment.counted("owner", "unreachable"), deployment.counted("owner", "restored")), (1, 0));
    assert_eq!(deployment.counted("lineage", "restored") + deployment.counted("backup", "restored"), 0);
    assert!(files(deployment.dir.path(), "owner").is_empty() && files(deployment.dir.path(), "lineage").is_empty());
    assert!(deployment.engine.refused_because().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_gives_eio_is_unreachable_and_is_left_as_it_is() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let switch = is_broken.clone();
    let dir = TempDir::new().expect("a directory");
    let specs = registry::all;
    let deployment = super::Deployment::wrapped(
        dir,
        specs,
        |config| config.schedule_jobs = false,
        move |disk| Arc::new(Broken::of("keyset/", disk, switch.clone())),
    )
    .await;
    let bucket = deployment.bucket("sealed").await;
    deployment.with_history(&bucket, &mut Vec::new()).await;
    let before = files(deployment.dir.path(), "keyset");
    let written = |file: &PathBuf| std::fs::metadata(file).and_then(|file| file.modified()).expect("is there");
    let times: Vec<_> = before.iter().map(written).collect();
    is_broken.store(true, Ordering::Relaxed);
    let counts = deployment.scrub().await;
    assert!(counts["unreachable"].as_u64() >= Some(2), "{counts}");
    assert_eq!((&counts["restored"], &counts["damaged"]), (&json!(0), &json!(0)), "{counts}");
    let after = files(deployment.dir.path(), "keyset");
    assert_eq!((after.iter().map(written).collect::<Vec<_>>(), after), (times, before));
}

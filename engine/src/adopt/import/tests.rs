//! Adopting from a directory, through the engine's own functions.

use super::*;
use crate::{
    Engine, Stores,
    blobs::{
        originals::{Originals, PlainPlace},
        piece::BLOB_PLAIN_LEN_MAX,
    },
    config::{BucketSettings, Compression, EffortSetting, Encryption, EngineConfig},
    error::EngineError,
    metrics::Metrics,
    tests::stores,
};
use catalog::Precondition;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt, path::Path};
use storage_backends::PlainDirectory;
use tempfile::TempDir;

struct Adopting {
    engine: Arc<Engine>,
    dir: TempDir,
}

impl Adopting {
    async fn start() -> Self {
        let dir = TempDir::new().expect("a directory");
        std::fs::create_dir(dir.path().join("old")).expect("a directory");
        let settings = BucketSettings {
            compression: Compression::Delta,
            encryption: Encryption::Aes256,
            effort: EffortSetting::Balanced,
            backend: "local".into(),
            read_through: None,
            keysets: Vec::new(),
            configurations: Default::default(),
            isolation: None,
            storage_headers: Default::default(),
        };
        let config = EngineConfig::temporary(&dir.path().join("data"), settings);
        let metrics = Metrics::new();
        // What is adopted lies beside the data directory, not in it.
        let place = |directory: &str, ours: Vec<String>| {
            let plain = Arc::new(PlainDirectory::new(dir.path().join(directory)));
            PlainPlace { plain, writer: None, ours }
        };
        let originals = Originals::new(BTreeMap::from([
            ("old".to_owned(), place("old", Vec::new())),
            ("local".to_owned(), place("data/blobs", vec![String::new()])),
        ]));
        let stores = stores(&config.data, &metrics).await.expect("stores open");
        let engine = Engine::open(config, Stores { originals, ..stores }, metrics).await.expect("opens");
        engine.buckets.create_bucket("b", "owner").await.expect("created").expect("was free");
        Self { engine, dir }
    }

    fn old(&self) -> std::path::PathBuf {
        self.dir.path().join("old")
    }

    async fn import(&self, more: Value) -> Value {
        let mut parameters = json!({ "source": "old", "bucket": "b" });
        parameters.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        self.engine.jobs.run_job("import", parameters).await.expect("imported")
    }

    async fn read(&self, key: &str, range: std::ops::Range<u64>) -> Result<Vec<u8>, EngineError> {
        let bucket = self.engine.buckets.bucket("b").await?.expect("exists");
        let object = self.engine.read.open_object(&bucket, key).await?.expect("exists");
        let pieces: Vec<_> = self.engine.read.read(&object, range).try_collect().await?;
        Ok(pieces.concat())
    }
}

fn sparse(path: &Path, len: u64, at: u64, bytes: &[u8]) {
    let file = File::create(path).expect("made");
    file.set_len(len).expect("sparse");
    file.write_all_at(bytes, at).expect("written");
}

/// It has several rows, and so is never taken over: none of them knows when the last has gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_original_longer_than_a_blob_is_read_across_its_rows_and_left_to_its_owner() {
    let adopting = Adopting::start().await;
    let boundary = BLOB_PLAIN_LEN_MAX;
    sparse(&adopting.old().join("long"), boundary + 100, boundary - 5, b"0123456789");
    let report = adopting.import(json!({ "take_over": true })).await;
    assert_eq!((&report["adopted"], &report["left_to_owner"]), (&json!(1), &json!(1)));
    assert_eq!(adopting.read("long", boundary - 5..boundary + 5).await.expect("read"), b"0123456789");
    let bucket = adopting.engine.buckets.bucket("b").await.expect("answers").expect("exists");
    adopting.engine.changes.delete(&bucket, "long", Precondition::None, None).await.expect("deleted");
    adopting.engine.jobs.run_job("gc", json!({ "now": true })).await.expect("collected");
    assert!(adopting.old().join("long").exists());
    adopting.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_are_never_given_for_those_that_were_adopted() {
    let adopting = Adopting::start().await;
    std::fs::write(adopting.old().join("k"), vec![7; 3 << 20]).expect("written");
    assert_eq!(adopting.import(json!({ "verify": true })).await["verified"]["same"], 1);
    assert_eq!(adopting.read("k", 1_000_000..1_000_003).await.expect("read"), [7; 3]);
    std::fs::write(adopting.old().join("k"), vec![8; 3 << 20]).expect("written");
    let error = adopting.read("k", 0..10).await.expect_err("changed");
    assert!(matches!(error, EngineError::Original(_)), "{error}");
    std::fs::remove_file(adopting.old().join("k")).expect("removed");
    let error = adopting.read("k", 0..10).await.expect_err("gone");
    assert!(matches!(error, EngineError::Original(_)), "{error}");
    // Not mounted: trouble, and no word of what the original is.
    std::fs::rename(adopting.old(), adopting.dir.path().join("elsewhere")).expect("moved");
    let error = adopting.read("k", 0..10).await.expect_err("not there");
    assert!(!matches!(error, EngineError::Original(_)), "{error}");
    adopting.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_of_ours_that_lie_below_a_source_are_no_originals() {
    let adopting = Adopting::start().await;
    let blobs = adopting.dir.path().join("data");
    for name in [
        "blobs/+aa/+a/00000001aaaaaaaaaaaaaaaaaaaaaaaa",
        "copies/+bb/+b/00000001aaaaaaaaaaaaaaaaaaaaaaaa-00000001bbbbbbbbbbbbbbbbbbbbbbbb",
        "+tmp/0123456789abcdef",
    ] {
        let path = blobs.join("blobs").join(name);
        std::fs::create_dir_all(path.parent().expect("has one")).expect("made");
        std::fs::write(path, "x").expect("written");
    }
    std::fs::write(blobs.join("blobs/theirs"), "y").expect("written");
    let report = adopting.import(json!({ "source": "local" })).await;
    assert_eq!(report["adopted"], 1, "{report}");
    assert!(report["own"].as_u64().expect("a number") >= 3);
    adopting.engine.shutdown().await;
}

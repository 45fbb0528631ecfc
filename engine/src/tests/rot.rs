//! A catalog whose file has rotted: one bit at a time, half of them in ids of blobs.

use super::{collecting::copy_of_catalog, *};
use std::collections::BTreeMap;

/// Which places and bits are flipped.
const SEED: u64 = 20_261_123;
/// No flip may keep a process from answering.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store that was closed in good order, and what is in it.
struct Store {
    dir: TempDir,
    objects: BTreeMap<(&'static str, String), Vec<u8>>,
    /// Files that some row names.
    live: Vec<std::path::PathBuf>,
    ids: Vec<[u8; 16]>,
}

impl Store {
    /// How many live blobs a copy of the store has lost.
    fn missing_below(&self, dir: &Path) -> u64 {
        self.live.iter().filter(|file| !dir.join(file).exists()).count() as u64
    }
}

fn quiet(dir: &Path) -> EngineConfig {
    EngineConfig { schedule_jobs: false, gc_grace: Duration::ZERO, ..config(dir, 256 << 20) }
}

async fn store() -> Store {
    let deployment = Deployment::start(512 << 20).await;
    let mut objects = BTreeMap::new();
    for name in ["off", "delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        let mut bytes = content(70_000, 5 + name.len() as u64);
        for number in 0..4 {
            let key = format!("app/release-{number}");
            deployment.put(&bucket, &key, &bytes).await;
            objects.insert((name, key), bytes.clone());
            bytes = edited(&bytes, number);
        }
        for number in 0..3 {
            let (key, bytes) = (format!("other/{number}"), content(9_000, 90 + number));
            deployment.put(&bucket, &key, &bytes).await;
            objects.insert((name, key), bytes);
        }
        deployment.delete(&bucket, "other/1").await;
        objects.remove(&(name, "other/1".to_owned()));
    }
    let shared = deployment.bucket("off").await;
    // One blob that two versions name.
    deployment.put(&shared, "again", &objects[&("off", "app/release-0".to_owned())]).await;
    objects.insert(("off", "again".to_owned()), objects[&("off", "app/release-0".to_owned())].clone());
    deployment.delete(&shared, "app/release-0").await;
    objects.remove(&("off", "app/release-0".to_owned()));
    let dir = deployment.stop().await;
    let copy = copy_of_catalog(dir.path());
    let rows = rusqlite::Connection::open(&copy).expect("opens");
    let ids: Vec<(Vec<u8>, i64)> = rows
        .prepare("SELECT id, state FROM blobs WHERE inline_bytes IS NULL")
        .and_then(|mut rows| rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .expect("rows");
    drop(rows);
    std::fs::remove_file(copy).expect("removed");
    let root = dir.path().to_owned();
    let live = files_below(&root.join("blobs"))
        .into_iter()
        .filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ids.iter().any(|(id, state)| *state == 0 && hex::encode(id) == name)
        })
        .map(|file| file.strip_prefix(&root).expect("below").to_owned())
        .collect();
    let ids = ids.into_iter().map(|(id, _)| id.try_into().expect("16 bytes")).collect();
    Store { dir, objects, live, ids }
}

pub(super) fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files
}

fn copied(from: &Path) -> TempDir {
    let to = TempDir::new().expect("a temporary directory");
    for file in files_below(from) {
        let target = to.path().join(file.strip_prefix(from).expect("below"));
        std::fs::create_dir_all(target.parent().expect("a parent")).expect("made");
        std::fs::copy(file, target).expect("copied");
    }
    to
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("below a length")
    }
}

#[derive(Debug, Default)]
struct Tally {
    flips: u64,
    flips_in_ids: u64,
    refused_to_open: u64,
    refused_to_collect: u64,
    deleted_live: u64,
    wrong: u64,
    failed_reads: u64,
    absent: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_the_catalog_deletes_no_live_blob_and_gives_no_wrong_byte() {
    // The whole campaign is tests/campaigns/test_rot.py.
    let flips = option_env!("ROT_FLIPS").map_or(100, |text| text.parse().expect("a number"));
    let seed = SEED;
    let store = store().await;
    assert!(store.live.len() >= 10, "{:?}", store.live);
    let file = std::fs::read(store.dir.path().join("catalog.sqlite")).expect("readable");
    let places: Vec<usize> = store
        .ids
        .iter()
        .flat_map(|id| file.windows(16).enumerate().filter(move |(_, window)| window == id).map(|(at, _)| at))
        .collect();
    assert!(places.len() > store.ids.len() * 2, "in tables and indexes");
    let mut random = Random(seed);
    let mut tally = Tally::default();
    let mut mutant_detected = false;
    for flip in 0..flips {
        let at = match flip % 2 {
            0 => places[random.below(places.len())] + random.below(16),
            _ => random.below(file.len()),
        };
        tally.flips_in_ids += u64::from(flip % 2 == 0);
        let bit = 1u8 << random.below(8);
        let dir = copied(store.dir.path());
        let mut rotten = file.clone();
        rotten[at] ^= bit;
        if !mutant_detected {
            let dir = copied(store.dir.path());
            std::fs::write(dir.path().join("catalog.sqlite"), &rotten).expect("written");
            collect_on_one_witness(dir.path());
            mutant_detected = store.missing_below(dir.path()) > 0;
        }
        std::fs::write(dir.path().join("catalog.sqlite"), rotten).expect("written");
        let before = (tally.wrong, tally.deleted_live);
        tokio::time::timeout(PATIENCE, live_with(&store, dir.path(), &mut tally)).await.expect("it answers");
        assert_eq!((tally.wrong, tally.deleted_live), before, "seed {seed}, flip {flip}: byte {at}, bit {bit}");
    }
    let line = serde_json::json!({
        "campaign": "catalog rot", "seed": seed, "ops": flips, "in_ids": tally.flips_in_ids, "lost": tally.deleted_live,
        "wrong": tally.wrong, "refused_to_open": tally.refused_to_open, "refused_to_collect": tally.refused_to_collect,
        "failed_reads": tally.failed_reads, "absent": tally.absent, "mutant_detected": mutant_detected,
    });
    println!("{line}");
    assert!(mutant_detected, "a collector that asks the catalog alone deletes live blobs here");
    assert_eq!((tally.deleted_live, tally.wrong), (0, 0), "{tally:?}");
    assert!(tally.refused_to_collect > 0, "some rot is seen: {tally:?}");
}

/// A start over the rotten catalog, a collection of everything, every object read.
async fn live_with(store: &Store, dir: &Path, tally: &mut Tally) {
    tally.flips += 1;
    let Ok(engine) = open(quiet(dir), &Metrics::new()).await else {
        tally.refused_to_open += 1;
        return;
    };
    let all = CollectParameters { now: true, empty_trash: true, sweep: true, undo: false };
    if engine.collect_as(all).await.is_err() {
        tally.refused_to_collect += 1;
    }
    for ((bucket, key), bytes) in &store.objects {
        let read = async {
            let bucket = engine.buckets.bucket(bucket).await?.ok_or(EngineError::NoBucket)?;
            let Some(object) = engine.read.open_object(&bucket, key).await? else { return Ok(None) };
            let end = object.info.version.size;
            let pieces: Vec<Bytes> = engine.read.read(&object, 0..end).try_collect().await?;
            Ok::<_, EngineError>(Some(pieces.concat()))
        };
        match read.await {
            Ok(Some(read)) => tally.wrong += u64::from(read != *bytes),
            Ok(None) => tally.absent += 1,
            Err(_) => tally.failed_reads += 1,
        }
    }
    engine.shutdown().await;
    tally.deleted_live += store.missing_below(dir);
}

/// The mutant: removes every blob that the catalog has no row of, and asks nobody else.
fn collect_on_one_witness(dir: &Path) {
    let rows = rusqlite::Connection::open(dir.join("catalog.sqlite")).expect("opens");
    let named: Result<Vec<Vec<u8>>, _> =
        rows.prepare("SELECT id FROM blobs").and_then(|mut ids| ids.query_map([], |row| row.get(0))?.collect());
    let Ok(named) = named else { return };
    for file in files_below(&dir.join("blobs/blobs")) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !named.iter().any(|id| hex::encode(id) == name) {
            std::fs::remove_file(file).expect("removed");
        }
    }
}

/// Rot that the database's own verification passes: tables and indexes agree, and every reference
/// leads somewhere.
const CONSISTENT_ROT: [&str; 3] = [
    // Two objects change their names.
    "UPDATE versions SET key = CAST('aside' AS BLOB) WHERE bucket = 1 AND key = CAST('app/release-1' AS BLOB);
     UPDATE versions SET key = CAST('app/release-1' AS BLOB) WHERE bucket = 1 AND key = CAST('app/release-2' AS BLOB);
     UPDATE versions SET key = CAST('app/release-2' AS BLOB) WHERE key = CAST('aside' AS BLOB)",
    // Deltas name another base than theirs, which nothing seems to need once its own object is
    // deleted.
    "UPDATE edges SET base = (SELECT e.blob FROM extents e JOIN versions v ON v.seq = e.version \
                              WHERE v.bucket = 2 AND v.key = CAST('other/2' AS BLOB))
     WHERE delta IN (SELECT id FROM blobs WHERE bucket = 2)",
    // A blob is somewhere else.
    "UPDATE blobs SET root_offset = root_offset + 1",
];

#[tokio::test(flavor = "multi_thread")]
async fn rot_that_the_database_does_not_see_deletes_no_live_blob_and_gives_no_wrong_byte() {
    let mut store = store().await;
    // What is deleted below.
    store.objects.remove(&("delta", "app/release-0".to_owned()));
    for sql in CONSISTENT_ROT {
        let dir = copied(store.dir.path());
        let rows = rusqlite::Connection::open(dir.path().join("catalog.sqlite")).expect("opens");
        rows.execute_batch(sql).expect("applied");
        drop(rows);
        if let Ok(engine) = open(quiet(dir.path()), &Metrics::new()).await {
            if let Ok(Some(bucket)) = engine.buckets.bucket("delta").await {
                let _refused_or_done = engine.changes.delete(&bucket, "app/release-0", Precondition::None, None).await;
            }
            engine.shutdown().await;
        }
        let mut tally = Tally::default();
        tokio::time::timeout(PATIENCE, live_with(&store, dir.path(), &mut tally)).await.expect("it answers");
        assert_eq!((tally.deleted_live, tally.wrong, tally.absent), (0, 0, 0), "{sql}: {tally:?}");
        assert!(tally.refused_to_collect + tally.refused_to_open > 0, "{sql}: {tally:?}");
    }
}

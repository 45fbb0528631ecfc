//! Campaigns B11 and B12: stored bytes rot, get cut, grow, vanish and change places. The scrub
//! finds every one of them, names exactly what cannot be read because of it, and no reader ever
//! gets a wrong byte.
//!
//! `cargo test` runs a slice; `SCRUB_TRIALS` and `SCRUB_UNITS` make it longer
//! (`tests/campaigns/test_rot.py`).

use crate::{
    campaign::{client::Dice, model::Content},
    running::Running,
    wire::{Reply, Wire},
};
use catalog::{SqliteCatalog, SqliteOptions};
use deltaweir::engine::{Engine, Quarantine, Stores};
use futures::TryStreamExt as _;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::Arc,
};
use storage_backends::{Backend, BlobName, Fault, FaultSchedule, Faulty, MemoryBackend, body_of, get_all};

const BUCKETS: [&str; 3] = ["delta", "sealed", "plain"];
pub(crate) const CONFIG: &str = "
[defaults]
compression = \"off\"
[buckets.delta]
compression = \"delta\"
[buckets.sealed]
compression = \"delta\"
encryption = \"aes256\"
";

/// A server over blobs in memory that tests can damage.
pub(crate) struct Rotting {
    pub(crate) running: Running,
    pub(crate) blobs: MemoryBackend,
    pub(crate) faults: Arc<Faulty<MemoryBackend>>,
    wire: Wire,
    /// What was stored: target and content.
    pub(crate) objects: BTreeMap<String, Vec<u8>>,
}

impl Rotting {
    async fn start() -> Self {
        Self::start_with(CONFIG).await
    }

    /// With this configuration: it must say what the three buckets are.
    pub(crate) async fn start_with(config: &str) -> Self {
        let blobs = MemoryBackend::new();
        let faults = Arc::new(Faulty::new(blobs.clone(), FaultSchedule::Never));
        let backend: Arc<dyn Backend> = faults.clone();
        let running = Running::start_in(tempfile::tempdir().unwrap(), config, |mut config, _, metrics| async move {
            // Blobs stay where they are while they are damaged and mended.
            config.schedule_jobs = false;
            std::fs::create_dir_all(&config.data).unwrap();
            let options = SqliteOptions { sync: false, ..SqliteOptions::default() };
            let catalog = SqliteCatalog::open(config.data.join("catalog.sqlite"), options).await?;
            let backends = BTreeMap::from([(config.defaults.backend.clone(), backend)]);
            Engine::open(config, Stores::new(Arc::new(catalog), backends), metrics).await
        })
        .await;
        let mut wire = Wire::to(running.s3).await;
        for bucket in BUCKETS {
            assert_eq!(wire.call("PUT", &format!("/{bucket}"), b"").await.status, 200);
        }
        Self { running, blobs, faults, wire, objects: BTreeMap::new() }
    }

    pub(crate) async fn put(&mut self, target: String, content: Vec<u8>) {
        assert_eq!(self.wire.call("PUT", &target, &content).await.status, 200);
        self.objects.insert(target, content);
    }

    /// A request over a connection of its own: answers about damage close theirs. `None` when the
    /// answer was cut.
    pub(crate) async fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Reply> {
        Wire::to(self.running.s3).await.attempt(method, target, headers, body).await
    }

    /// What every object gives: the targets of those that cannot be read. A wrong byte fails the
    /// test.
    pub(crate) async fn unreadable(&self) -> BTreeSet<String> {
        self.running.engine.drop_caches();
        let mut unreadable = BTreeSet::new();
        for (target, content) in &self.objects {
            match self.ask("GET", target, &[], &[]).await {
                Some(reply) if reply.status == 200 => assert!(reply.body == *content, "wrong bytes of {target}"),
                Some(reply) => {
                    assert_eq!(reply.status, 500, "{target}");
                    unreadable.insert(target.clone());
                }
                None => {
                    unreadable.insert(target.clone());
                }
            }
        }
        unreadable
    }

    pub(crate) async fn scrub(&self, parameters: Value) -> Value {
        self.running.engine.jobs.run_job("scrub", parameters).await.unwrap()
    }

    pub(crate) async fn quarantine(&self) -> Quarantine {
        self.running.engine.quarantines.quarantine().await.unwrap()
    }

    /// The ids of those of these blobs that are not in quarantine.
    async fn missed<'a>(&self, stored: &'a [(BlobName, Vec<u8>)]) -> Vec<&'a str> {
        let quarantined: BTreeSet<String> = self.quarantine().await.blobs.into_iter().map(|blob| blob.blob).collect();
        stored.iter().map(|(name, _)| id_of(name)).filter(|id| !quarantined.contains(*id)).collect()
    }

    /// Versions that the scrub says are affected, as targets.
    pub(crate) async fn affected(&self) -> BTreeSet<String> {
        let affected = self.quarantine().await.affected;
        let versions = affected.iter().filter(|object| object.version.is_some());
        versions.map(|object| format!("/{}/{}", object.bucket, object.key)).collect()
    }

    async fn stored(&self) -> Vec<(BlobName, Vec<u8>)> {
        let listed: Vec<_> = self.blobs.list("blobs/").try_collect().await.unwrap();
        let mut stored = Vec::new();
        for blob in listed {
            let bytes = get_all(&self.blobs, &blob.name, blob.stored_len).await.unwrap().unwrap();
            stored.push((blob.name, bytes.to_vec()));
        }
        stored
    }

    pub(crate) async fn replace(&self, name: &BlobName, bytes: Vec<u8>) {
        self.blobs.delete(name).await.unwrap();
        self.blobs.put(name, body_of(bytes.into()), None).await.unwrap();
    }

    /// Objects of every form in every bucket: whole, deltas, copies, parts, small ones. Gives the
    /// open uploads with a copied part: key and upload of each, and the range of the object that
    /// the part took.
    async fn fill(&mut self) -> Vec<OpenPart> {
        let mut open = Vec::new();
        for (number, bucket) in (1..).zip(BUCKETS) {
            let member = |member, len| Content { family: number, member, len }.bytes();
            for version in 1..=3 {
                self.put(format!("/{bucket}/a-{version}.bin"), member(version, 280_000)).await;
            }
            self.put(format!("/{bucket}/small"), member(9, 700)).await;
            let other = Content { family: 100 + number, member: 1, len: 150_000 }.bytes();
            self.put(format!("/{bucket}/other"), other).await;
            let source = format!("/{bucket}/a-1.bin");
            let copy = format!("/{bucket}/copy");
            let copied = self.ask("PUT", &copy, &[("x-amz-copy-source", &source)], &[]).await.unwrap();
            assert_eq!(copied.status, 200);
            self.objects.insert(copy, self.objects[&source].clone());
            // An upload that stays open, and one that becomes an object of the first bytes of
            // another.
            for key in ["open", "head"] {
                let target = format!("/{bucket}/{key}");
                let created = self.ask("POST", &format!("{target}?uploads"), &[], &[]).await.unwrap();
                let upload = text_of(&created, "UploadId");
                let part = format!("{target}?partNumber=1&uploadId={upload}");
                let headers = [("x-amz-copy-source", source.as_str()), ("x-amz-copy-source-range", "bytes=0-69999")];
                let copied = self.ask("PUT", &part, &headers, &[]).await.unwrap();
                assert_eq!(copied.status, 200);
                if key == "open" {
                    open.push(OpenPart { bucket, key, source: source.clone(), range: "bytes=0-69999" });
                    continue;
                }
                let document = format!(
                    "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
                    text_of(&copied, "ETag")
                );
                let completed =
                    self.ask("POST", &format!("{target}?uploadId={upload}"), &[], document.as_bytes()).await;
                assert_eq!(completed.unwrap().status, 200);
                self.objects.insert(target, self.objects[&source][..70_000].to_vec());
            }
        }
        open
    }
}

struct OpenPart {
    bucket: &'static str,
    key: &'static str,
    source: String,
    range: &'static str,
}

fn text_of(reply: &Reply, name: &str) -> String {
    let text = String::from_utf8(reply.body.clone()).unwrap();
    let (_, rest) = text.split_once(&format!("<{name}>")).unwrap();
    rest.split_once(&format!("</{name}>")).unwrap().0.to_owned()
}

/// Ways in which stored bytes change behind everybody's back.
#[derive(Clone, Copy, Debug)]
enum Rot {
    Flip,
    Truncate,
    Extend,
    Zero,
    Swap,
    Vanish,
}

impl Rot {
    const ALL: [Self; 6] = [Self::Flip, Self::Truncate, Self::Extend, Self::Zero, Self::Swap, Self::Vanish];

    /// Does it to the blob at `index` of `stored`; the places that were changed.
    async fn strike(
        self,
        store: &Rotting,
        stored: &[(BlobName, Vec<u8>)],
        index: usize,
        dice: &mut Dice,
    ) -> Vec<usize> {
        let (name, bytes) = &stored[index];
        let mut changed = bytes.clone();
        let at = dice.below(bytes.len() as u64) as usize;
        match self {
            Self::Flip => changed[at] ^= 1 << dice.below(8),
            Self::Truncate => changed.truncate(at),
            Self::Extend => changed.extend(std::iter::repeat_n(dice.below(256) as u8, 1 + at % 100)),
            Self::Zero => {
                let end = (at + 1 + dice.below(5000) as usize).min(changed.len());
                changed[at..end].fill(0);
                if changed == *bytes {
                    changed[at] ^= 1;
                }
            }
            Self::Swap => {
                let other = (index + 1 + dice.below(stored.len() as u64 - 1) as usize) % stored.len();
                store.replace(name, stored[other].1.clone()).await;
                store.replace(&stored[other].0, bytes.clone()).await;
                return vec![index, other];
            }
            Self::Vanish => {
                store.blobs.delete(name).await.unwrap();
                return vec![index];
            }
        }
        store.replace(name, changed).await;
        vec![index]
    }
}

fn number(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

fn id_of(name: &BlobName) -> &str {
    name.as_str().strip_prefix("blobs/").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_damaged_blob_is_found_and_exactly_what_needs_it_is_named() {
    let mut store = Rotting::start().await;
    let open = store.fill().await;
    let stored = store.stored().await;
    assert_eq!(store.scrub(json!({})).await["counts"]["damaged"], 0);
    let mut dice = Dice::new(11, 0);
    let mut met_dependents = false;
    for trial in 0..number("SCRUB_TRIALS", 24) {
        let rot = Rot::ALL[trial % Rot::ALL.len()];
        let index = dice.below(stored.len() as u64) as usize;
        let struck = rot.strike(&store, &stored, index, &mut dice).await;
        let what = format!("trial {trial}: {rot:?} of {}", stored[index].0);
        let report = store.scrub(json!({})).await;
        let quarantined: BTreeSet<String> = store.quarantine().await.blobs.into_iter().map(|blob| blob.blob).collect();
        for index in struck.iter().filter(|index| store_differs(&stored, **index, &struck)) {
            assert!(quarantined.contains(id_of(&stored[*index].0)), "{what} went by unseen: {report:#}");
        }
        let unreadable = store.unreadable().await;
        assert_eq!(store.affected().await, unreadable, "{what}: {report:#}");
        met_dependents |= unreadable.len() > 1;
        let parts: BTreeSet<String> = store
            .quarantine()
            .await
            .affected
            .iter()
            .filter(|object| object.part.is_some())
            .map(|object| format!("/{}/{}", object.bucket, object.key))
            .collect();
        for part in &open {
            let read = store.ask("GET", &part.source, &[("range", part.range)], &[]).await;
            let is_readable = read.is_some_and(|reply| reply.status == 206);
            assert_eq!(
                !parts.contains(&format!("/{}/{}", part.bucket, part.key)),
                is_readable,
                "{what}: the open upload"
            );
        }
        for index in struck {
            store.replace(&stored[index].0, stored[index].1.clone()).await;
        }
        let report = store.scrub(json!({})).await;
        assert_eq!(report["counts"]["damaged"], 0, "{what} was mended: {report:#}");
        assert!(store.quarantine().await.blobs.is_empty() && store.affected().await.is_empty(), "{what}");
        assert_eq!(store.unreadable().await, BTreeSet::new(), "{what} was mended");
    }
    assert!(met_dependents, "no trial struck something that others need");
}

/// Swapped blobs with the same bytes would not differ; random content has none.
fn store_differs(stored: &[(BlobName, Vec<u8>)], index: usize, struck: &[usize]) -> bool {
    struck.iter().all(|other| *other == index || stored[*other].1 != stored[index].1)
}

/// The mutant: a scrub that leaves out three quarters of what there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_that_leaves_blobs_out_is_noticed() {
    let mut store = Rotting::start().await;
    let mut dice = Dice::new(13, 0);
    for unit in 0..48 {
        let content = Content { family: unit / 4, member: unit, len: 9000 };
        store.put(format!("/{}/{unit}.bin", BUCKETS[(unit % 3) as usize]), content.bytes()).await;
    }
    let stored = store.stored().await;
    for index in 0..stored.len() {
        drop(Rot::Flip.strike(&store, &stored, index, &mut dice).await);
    }
    store.scrub(json!({"percent": 25.0})).await;
    let missed = store.missed(&stored).await.len();
    println!("{}", json!({"campaign": "a part of a scrub", "missed": missed, "mutant_detected": missed > 0}));
    assert!(missed > 0 && missed < stored.len(), "{missed} of {}", stored.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_one_of_many_damaged_blobs_is_found_and_no_wrong_byte_leaves() {
    let units = number("SCRUB_UNITS", 240);
    for rots in [&[Rot::Flip][..], &[Rot::Truncate, Rot::Extend, Rot::Zero, Rot::Swap]] {
        let mut store = Rotting::start().await;
        let mut dice = Dice::new(12, units as u64);
        for unit in 0..units as u64 {
            let content = Content { family: unit / 4, member: unit, len: 8200 + dice.below(3000) as usize };
            store.put(format!("/{}/{}/{}.bin", BUCKETS[(unit % 3) as usize], unit / 12, unit), content.bytes()).await;
        }
        let stored = store.stored().await;
        assert!(stored.len() >= units, "every object has a blob of its own");
        let mut left: BTreeSet<usize> = (0..stored.len()).collect();
        let mut struck = 0;
        while let Some(index) = left.pop_first() {
            let rot = rots[struck % rots.len()];
            // A swap takes another one that is whole: the next.
            let partner = if matches!(rot, Rot::Swap) { left.pop_first() } else { None };
            match (rot, partner) {
                (Rot::Swap, Some(other)) => {
                    store.replace(&stored[index].0, stored[other].1.clone()).await;
                    store.replace(&stored[other].0, stored[index].1.clone()).await;
                }
                (Rot::Swap, None) => drop(Rot::Truncate.strike(&store, &stored, index, &mut dice).await),
                _ => drop(rot.strike(&store, &stored, index, &mut dice).await),
            }
            struck += 1;
        }
        let report = store.scrub(json!({})).await;
        let missed = store.missed(&stored).await;
        let unreadable = store.unreadable().await;
        let is_exact = store.affected().await == unreadable;
        let line = json!({
            "campaign": if rots.len() == 1 { "B11" } else { "B12" }, "seed": 12, "ops": stored.len(), "faults": struck,
            "detected": stored.len() - missed.len(), "wrong": 0, "unreadable": unreadable.len(), "affected_is_exact": is_exact,
        });
        println!("{line}");
        assert_eq!(missed, Vec::<&str>::new(), "{line} {:#}", report["counts"]);
        assert!(is_exact, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_stored_again_over_damaged_ones_are_stored_anew() {
    let mut store = Rotting::start().await;
    let mut seen = BTreeSet::new();
    for (number, bucket) in (1..).zip(BUCKETS) {
        let content = Content { family: number, member: 1, len: 100_000 };
        store.put(format!("/{bucket}/first"), content.bytes()).await;
        for (name, mut bytes) in store.stored().await.into_iter().filter(|(name, _)| !seen.contains(name)) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            store.replace(&name, bytes).await;
        }
        store.scrub(json!({})).await;
        assert!(store.affected().await.contains(&format!("/{bucket}/first")));
        let again = format!("/{bucket}/again");
        store.put(again.clone(), content.bytes()).await;
        // Something like it finds no base in what is damaged.
        let like_it = format!("/{bucket}/first-2");
        store.put(like_it.clone(), Content { member: 2, ..content }.bytes()).await;
        let unreadable = store.unreadable().await;
        assert!(unreadable.contains(&format!("/{bucket}/first")));
        assert!(!unreadable.contains(&again) && !unreadable.contains(&like_it), "{unreadable:?}");
        seen.extend(store.stored().await.into_iter().map(|(name, _)| name));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_the_blobs_is_another_part_every_time_and_what_was_seen_lately_is_left_out() {
    let mut store = Rotting::start().await;
    store.fill().await;
    let all = store.scrub(json!({})).await["counts"]["ok"].as_u64().unwrap();
    let seen = store.scrub(json!({"older_than_s": 3600})).await;
    assert_eq!(seen["counts"]["ok"], 0, "all were found well just now");
    let mut sum = 0;
    for _ in 0..4 {
        let part = store.scrub(json!({"percent": 25.0})).await["counts"]["ok"].as_u64().unwrap();
        assert!(part < all, "{part} of {all}");
        sum += part;
    }
    assert_eq!(sum, all, "four quarters are everything, and nothing twice");
    for wrong in [json!({"percent": 0.0}), json!({"percent": 101.0}), json!({"percents": 5})] {
        assert!(store.running.engine.jobs.run_job("scrub", wrong).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_asked_is_not_a_damaged_one() {
    // I10
    let mut store = Rotting::start().await;
    store.fill().await;
    for fault in [Fault::ServerError, Fault::Throttled, Fault::Timeout, Fault::Reset, Fault::CommitThenError] {
        store.faults.reschedule(FaultSchedule::From { call: 0, fault });
        let report = store.scrub(json!({})).await;
        assert!(report["counts"]["unreachable"].as_u64() > Some(5), "{fault:?}: {report:#}");
        assert_eq!(report["counts"]["damaged"], 0, "{fault:?}: {report:#}");
        assert!(store.quarantine().await.blobs.is_empty(), "{fault:?}");
    }
    store.faults.reschedule(FaultSchedule::Never);
    assert_eq!(store.scrub(json!({})).await["counts"]["unreachable"], 0);
}

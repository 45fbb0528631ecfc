//! Second copies of bases (E8): made when many deltas need a base, read where the base is damaged,
//! and what the scrub makes it well from.

use crate::{
    campaign::model::Content,
    scrub::{CONFIG, Rotting},
};
use futures::TryStreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use storage_backends::{Backend as _, BlobName, Fault, FaultSchedule, get_all, put_bytes};

const DELTAS: u64 = 6;
const LEN: usize = 280_000;
/// Buckets whose objects are deltas of each other, one plain and one sealed.
const SIMILAR: [&str; 2] = ["delta", "sealed"];

/// A base with its second copy: the names, and the bytes both have.
struct Pair {
    base: BlobName,
    copy: BlobName,
    bytes: Vec<u8>,
}

impl Rotting {
    /// A server whose bases get a copy once `base_copies` deltas need them, and a series of similar
    /// objects in two buckets.
    async fn with_series(base_copies: u64) -> Self {
        let mut store = Self::start_with(&format!("[storage]\nbase_copies = {base_copies}\n{CONFIG}")).await;
        for (family, bucket) in (1..).zip(SIMILAR) {
            for member in 0..=DELTAS {
                let content = Content { family, member, len: LEN };
                store.put(format!("/{bucket}/a-{member}.bin"), content.bytes()).await;
            }
        }
        store
    }

    async fn copy_bases(&self) -> Value {
        self.running.engine.jobs.run_job("copies", json!({})).await.unwrap()
    }

    async fn names(&self, prefix: &str) -> Vec<BlobName> {
        let listed: Vec<_> = self.blobs.list(prefix).try_collect().await.unwrap();
        listed.into_iter().map(|listed| listed.name).collect()
    }

    async fn bytes_of(&self, name: &BlobName) -> Option<Vec<u8>> {
        let len = self.blobs.head(name).await.unwrap()?;
        Some(get_all(&self.blobs, name, len).await.unwrap().unwrap().to_vec())
    }

    async fn pairs(&self) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for copy in self.names("copies/").await {
            let (blob, _) = copy.as_str().strip_prefix("copies/").unwrap().split_once('-').unwrap();
            let base = BlobName::new(format!("blobs/{blob}")).unwrap();
            let bytes = self.bytes_of(&copy).await.unwrap();
            pairs.push(Pair { base, copy, bytes });
        }
        pairs
    }

    fn reads(&self, result: &str) -> u64 {
        self.running.metrics.engine.base_copy_reads_total.with_label_values(&[result]).get()
    }
}

fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_that_enough_deltas_need_has_its_bytes_twice_and_is_copied_once() {
    let store = Rotting::with_series(DELTAS).await;
    assert_eq!(store.names("copies/").await, []);
    let report = store.copy_bases().await;
    assert_eq!((&report["copied"], &report["damaged"], &report["errors"]), (&json!(2), &json!(0), &json!(0)));
    let pairs = store.pairs().await;
    assert_eq!(pairs.len(), 2);
    for pair in &pairs {
        assert!(pair.bytes.len() > LEN / 2, "{}", pair.bytes.len());
        assert!(store.bytes_of(&pair.base).await.unwrap() == pair.bytes);
    }
    assert_eq!(store.copy_bases().await["copied"], 0);
    let bytes: usize = pairs.iter().map(|pair| pair.bytes.len()).sum();
    let stats = store.running.engine.reports.stats().await.unwrap();
    assert_eq!((&stats["totals"]["base_copies"], &stats["totals"]["base_copy_bytes"]), (&json!(2), &json!(bytes)));
    let mut stored = 0;
    for prefix in ["blobs/", "copies/", "keyset/"] {
        let listed: Vec<_> = store.blobs.list(prefix).try_collect().await.unwrap();
        stored += listed.iter().map(|listed| listed.stored_len).sum::<u64>();
    }
    assert_eq!(stats["backends"][0]["stored_bytes"], stored, "{stats:#}");

    let fewer = Rotting::with_series(DELTAS + 1).await;
    assert_eq!(fewer.copy_bases().await["copied"], 0);
    let never = Rotting::with_series(0).await;
    assert_eq!(never.copy_bases().await["copied"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_a_damaged_base_is_read_from_its_copy_and_the_scrub_writes_the_base_anew() {
    let store = Rotting::with_series(DELTAS).await;
    store.copy_bases().await;
    for pair in store.pairs().await {
        let middle = pair.bytes.len() / 2;
        let (cut, mut longer) = (pair.bytes[..middle].to_vec(), pair.bytes.clone());
        longer.push(0);
        let mut other_header = pair.bytes.clone();
        other_header[60] ^= 1;
        for damage in [None, Some(flipped(&pair.bytes)), Some(cut), Some(other_header), Some(Vec::new()), Some(longer)]
        {
            let what = format!("{:?} of {}", damage.as_ref().map(Vec::len), pair.base);
            let hurts_readers = damage.as_ref().is_none_or(|damage| damage.len() <= pair.bytes.len());
            match damage {
                None => store.blobs.delete(&pair.base).await.unwrap(),
                Some(damage) => store.replace(&pair.base, damage).await,
            }
            let served = store.reads("served");
            assert_eq!(store.unreadable().await, BTreeSet::new(), "{what}");
            assert_eq!(store.reads("served") > served, hurts_readers, "{what}");
            let report = store.scrub(json!({})).await;
            let counts = &report["counts"];
            assert_eq!((&counts["restored"], &counts["damaged"]), (&json!(1), &json!(0)), "{what}: {report:#}");
            assert!(store.quarantine().await.blobs.is_empty(), "{what}");
            assert!(store.bytes_of(&pair.base).await == Some(pair.bytes.clone()), "{what}");
            let served = store.reads("served");
            assert_eq!(store.unreadable().await, BTreeSet::new(), "{what}");
            assert_eq!(store.reads("served"), served, "{what}: it is well");
        }
    }
    assert_eq!(store.reads("damaged"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_copy_is_replaced_by_one_of_another_name() {
    let store = Rotting::with_series(DELTAS).await;
    store.copy_bases().await;
    let before = store.pairs().await;
    store.replace(&before[0].copy, flipped(&before[0].bytes)).await;
    store.blobs.delete(&before[1].copy).await.unwrap();
    let report = store.scrub(json!({})).await;
    assert_eq!((&report["counts"]["copies_replaced"], &report["counts"]["damaged"]), (&json!(2), &json!(0)));
    let after = store.pairs().await;
    assert_eq!(after.len(), 2, "the damaged one is gone");
    for (before, after) in before.iter().zip(&after) {
        assert!(before.base == after.base && before.copy != after.copy && before.bytes == after.bytes);
    }
    let again = store.scrub(json!({})).await;
    assert_eq!((&again["counts"]["copies_replaced"], &again["counts"]["restored"]), (&json!(0), &json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_base_and_copy_damaged_the_read_is_an_error_and_the_scrub_says_what_it_reaches() {
    let store = Rotting::with_series(DELTAS).await;
    store.copy_bases().await;
    let pair = store.pairs().await.remove(0);
    store.replace(&pair.base, flipped(&pair.bytes)).await;
    store.replace(&pair.copy, flipped(&pair.bytes)).await;
    let unreadable = store.unreadable().await;
    assert_eq!(unreadable.len() as u64, DELTAS + 1, "{unreadable:?}");
    assert!(store.reads("damaged") > 0);
    let report = store.scrub(json!({})).await;
    assert_eq!((&report["counts"]["restored"], &report["counts"]["copies_replaced"]), (&json!(0), &json!(0)));
    assert_eq!(store.affected().await, unreadable, "{report:#}");
    // One that comes back is enough for all.
    store.replace(&pair.copy, pair.bytes.clone()).await;
    let report = store.scrub(json!({})).await;
    assert_eq!((&report["counts"]["restored"], &report["counts"]["damaged"]), (&json!(1), &json!(0)), "{report:#}");
    assert!(store.quarantine().await.blobs.is_empty());
    assert_eq!(store.unreadable().await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_damaged_in_different_places_is_read_and_told() {
    let store = Rotting::with_series(DELTAS).await;
    store.copy_bases().await;
    let pair = store.pairs().await.remove(0);
    let mut without_trailer = pair.bytes.clone();
    *without_trailer.last_mut().unwrap() ^= 1;
    store.replace(&pair.base, without_trailer.clone()).await;
    store.replace(&pair.copy, flipped(&pair.bytes)).await;
    let report = store.scrub(json!({})).await;
    assert_eq!((&report["counts"]["copy_only"], &report["counts"]["damaged"]), (&json!(1), &json!(0)), "{report:#}");
    assert!(store.quarantine().await.blobs.is_empty());
    assert_eq!(store.unreadable().await, BTreeSet::new());
    assert!(
        store.bytes_of(&pair.base).await == Some(without_trailer),
        "nothing is removed that is not known elsewhere"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_not_copied() {
    let store = Rotting::with_series(DELTAS).await;
    for name in store.names("blobs/").await {
        let bytes = store.bytes_of(&name).await.unwrap();
        store.replace(&name, flipped(&bytes)).await;
    }
    let report = store.copy_bases().await;
    assert_eq!((&report["copied"], &report["damaged"]), (&json!(0), &json!(2)));
    assert_eq!(store.names("copies/").await, []);
    store.scrub(json!({})).await;
    assert_eq!(store.copy_bases().await["damaged"], 0, "what is in quarantine is not tried");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_asked_is_no_reason_to_write_anything_anew() {
    // I10
    let store = Rotting::with_series(DELTAS).await;
    store.copy_bases().await;
    let names = (store.names("blobs/").await, store.names("copies/").await);
    for fault in [Fault::ServerError, Fault::Throttled, Fault::Timeout, Fault::Reset] {
        store.faults.reschedule(FaultSchedule::From { call: 0, fault });
        let report = store.scrub(json!({})).await;
        for what in ["restored", "copy_only", "copies_replaced", "damaged"] {
            assert_eq!(report["counts"][what], 0, "{fault:?}: {report:#}");
        }
        for target in ["/delta/a-0.bin", "/delta/a-3.bin"] {
            store.running.engine.drop_caches();
            let reply = store.ask("GET", target, &[], &[]).await.unwrap();
            assert_eq!(reply.status, 503, "{fault:?}");
        }
        store.faults.reschedule(FaultSchedule::Never);
        assert_eq!((store.names("blobs/").await, store.names("copies/").await), names, "{fault:?}");
    }
    assert_eq!((store.reads("served"), store.reads("damaged")), (0, 0));
    assert!(store.quarantine().await.blobs.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_could_not_be_made_leaves_nothing_and_is_made_later() {
    for call in 0.. {
        let store = Rotting::with_series(DELTAS).await;
        store.faults.reschedule(FaultSchedule::At { call: store.faults.calls() + call, fault: Fault::Reset });
        let outcome = store.running.engine.jobs.run_job("copies", json!({})).await;
        let faulted = store.faults.injected(Fault::Reset) > 0;
        store.faults.reschedule(FaultSchedule::Never);
        for pair in store.pairs().await {
            assert!(store.bytes_of(&pair.base).await == Some(pair.bytes), "call {call}: {outcome:?}");
        }
        store.copy_bases().await;
        assert_eq!(store.pairs().await.len(), 2, "call {call}: {outcome:?}");
        if !faulted {
            assert!(call > 4, "the job asks the backend for more than {call} things");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_goes_with_its_blob_and_a_copy_that_no_row_names_is_left_to_its_writers_end() {
    let store = Rotting::with_series(DELTAS).await;
    store.copy_bases().await;
    // Left by a crash between the copy and its row, by this very process: it may yet name it, as
    // far as others know.
    let pair = store.pairs().await.remove(0);
    let (blob, copy) = pair.copy.as_str().strip_prefix("copies/").unwrap().split_once('-').unwrap();
    let left = BlobName::new(format!("copies/{blob}-{}{}", &copy[..8], "0".repeat(24))).unwrap();
    put_bytes(&store.blobs, &left, pair.bytes.into()).await.unwrap();
    for target in store.objects.keys() {
        assert_eq!(store.ask("DELETE", target, &[], &[]).await.unwrap().status, 204);
    }
    let report = store.running.engine.collect(true).await.unwrap();
    assert_eq!(report.errors, 0);
    assert_eq!(store.names("blobs/").await, []);
    assert_eq!(store.names("copies/").await, [left]);
    let stats = store.running.engine.reports.stats().await.unwrap();
    assert_eq!((&stats["totals"]["base_copies"], &stats["totals"]["stored"]["tombstoned"]), (&json!(0), &json!(0)));
}

//! A wrapper keeps the contract of what it wraps.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use storage_backends::{
    Backend, BlobName, Concurrency, ErrorKind, Fault, FaultRates, FaultSchedule, Faulty, Limited, LocalBackend,
    LocalOptions, Measured, MemoryBackend, RetryPolicy, Retrying, Unobserved,
    conformance::{self, ALL_PROMISES},
    get_all, put_bytes,
};

async fn conforms(backend: impl Backend) {
    let shared: Arc<dyn Backend> = Arc::new(backend);
    conformance::run(|| async { shared.clone() }, ALL_PROMISES).await;
}

fn quick() -> RetryPolicy {
    RetryPolicy {
        attempts_max: 20,
        pause_first: Duration::from_micros(10),
        pause_max: Duration::from_micros(100),
        retry_after_max: Duration::ZERO,
        deadline: Duration::from_secs(60),
        budget_tokens_max: u32::MAX,
        budget_tokens_per_s: 0.0,
    }
}

#[tokio::test]
async fn memory_conforms() {
    conforms(MemoryBackend::new()).await;
}

#[tokio::test]
async fn measured_conforms() {
    conforms(Measured::new(MemoryBackend::new(), Arc::new(Unobserved))).await;
}

#[tokio::test]
async fn limited_conforms() {
    conforms(Limited::new(MemoryBackend::new(), Concurrency { uploads_max: 1, requests_max: 1 })).await;
}

#[tokio::test]
async fn retrying_conforms() {
    conforms(Retrying::new(MemoryBackend::new(), quick(), Arc::new(Unobserved))).await;
}

#[tokio::test]
async fn faulty_without_faults_conforms() {
    conforms(Faulty::new(MemoryBackend::new(), FaultSchedule::Never)).await;
}

#[tokio::test]
async fn all_wrappers_together_conform_on_disk() {
    let root = tempfile::tempdir().expect("a directory");
    let local = LocalBackend::open(root.path(), LocalOptions::default()).await.expect("opens");
    let measured = Measured::new(local, Arc::new(Unobserved));
    let limited = Limited::new(measured, Concurrency::default());
    conforms(Retrying::new(limited, quick(), Arc::new(Unobserved))).await;
}

/// Reads, deletes and listings hide every fault of a bad day; nothing is lost, wrong, or taken for
/// absent.
#[tokio::test]
async fn on_a_bad_day_every_acknowledged_blob_is_read_back_whole() {
    let rates = FaultRates { stale_list: 0, ..FaultRates::BAD_DAY };
    for seed in 0..10 {
        let faulty = Arc::new(Faulty::new(MemoryBackend::new(), FaultSchedule::Seeded { seed, rates }));
        let backend = Retrying::new(faulty.clone(), quick(), Arc::new(Unobserved));
        let mut acknowledged = BTreeMap::new();
        for i in 0..300u32 {
            let name = BlobName::new(format!("blobs/{i:08x}")).expect("a name");
            let bytes = Bytes::from(i.to_le_bytes().repeat(i as usize * 7));
            match put_bytes(&backend, &name, bytes.clone()).await {
                Ok(_) => drop(acknowledged.insert(name, bytes)),
                Err(error) => assert!(error.is_transient(), "seed {seed}: {error}"),
            }
        }
        for (name, bytes) in &acknowledged {
            let len = bytes.len() as u64;
            assert_eq!(backend.head(name).await.expect("head answers"), Some(len), "seed {seed}: {name}");
            let read = get_all(&backend, name, len).await.expect("get answers").expect("an error is not absence");
            assert!(read == *bytes, "seed {seed}: {name}");
        }
        // A listing cut in the middle is an error to its reader, who begins again; a complete one
        // is complete.
        let listed = loop {
            match backend.list("blobs/").try_collect::<Vec<_>>().await {
                Ok(listed) => break listed,
                Err(error) => assert!(error.is_transient()),
            }
        };
        assert!(acknowledged.keys().all(|name| listed.iter().any(|item| item.name == *name)), "seed {seed}");
        for name in acknowledged.keys() {
            backend.delete(name).await.expect("delete is repeated");
            assert_eq!(backend.head(name).await.expect("head answers"), None);
        }
        for fault in Fault::ALL.into_iter().filter(|fault| *fault != Fault::StaleList) {
            assert!(faulty.injected(fault) > 0, "seed {seed}: {fault:?} was never met");
        }
    }
}

#[tokio::test]
async fn a_store_that_is_down_for_good_is_an_error_after_bounded_attempts() {
    let down = FaultSchedule::From { call: 0, fault: Fault::ServerError };
    let faulty = Arc::new(Faulty::new(MemoryBackend::new(), down));
    let backend = Retrying::new(faulty.clone(), quick(), Arc::new(Unobserved));
    let name = BlobName::new("a").expect("a name");
    assert_eq!(backend.head(&name).await.expect_err("it is down").kind(), ErrorKind::Transient);
    assert_eq!(faulty.calls(), 20);
    assert!(backend.list("").any(|item| async move { item.is_err() }).await);
    assert_eq!(faulty.calls(), 40);
}

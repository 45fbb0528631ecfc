//! Replicas that make the keys of one bucket at the same time.

use super::*;
use crate::{
    blobs::{caches::CacheBytes, open::Reads},
    metrics::Metrics,
    resources::pool::PoolKind,
};
use catalog::{SqliteCatalog, SqliteOptions};
use futures::TryStreamExt;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use storage_backends::{Backend, FaultSchedule, Faulty, MemoryBackend};

/// What one replica has of its own: its keyring and its caches. Catalog, backend and KEK are
/// everybody's.
fn replica(backend: &Arc<dyn Backend>) -> (Keyring, Blobs) {
    let metrics = Metrics::new();
    let given = Given { kek: Some(Kek::new([9; 32])), ..Given::default() };
    let keyring = Keyring::open(Path::new("."), given, &metrics).unwrap();
    let pool = Arc::new(crate::resources::pool::CodecPool::new(1, PoolKind::Codec, &metrics).unwrap());
    let backends = BTreeMap::from([("cloud".to_owned(), backend.clone())]);
    (keyring, Blobs::new(backends, Reads::Blob, CacheBytes::of(8 << 20), pool, metrics))
}

#[tokio::test]
async fn replicas_that_make_the_keys_of_a_bucket_at_once_use_one_set_and_leave_one() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = SqliteCatalog::open(dir.path().join("catalog.sqlite"), SqliteOptions::default()).await.unwrap();
    let counted = Arc::new(Faulty::new(MemoryBackend::new(), FaultSchedule::Never));
    let backend: Arc<dyn Backend> = counted.clone();
    let replicas: Vec<(Keyring, Blobs)> = (0..3).map(|_| replica(&backend)).collect();
    let mut raced = 0;
    for round in 0..20 {
        let bucket = catalog.create_bucket(&format!("b{round}"), "owner", json!({"a": 1}), 0).await.unwrap();
        let before: Vec<BlobName> = listed(&*backend).await;
        let calls_before = counted.calls();
        let making = replicas.iter().map(|(keyring, blobs)| keyring.bucket_keys(&bucket, "cloud", &catalog, blobs, 7));
        let opened: Vec<Opened> = futures::future::join_all(making).await.into_iter().map(Result::unwrap).collect();
        // The first one stores two copies; who came as early stores two and takes them back.
        raced += u32::from(counted.calls() - calls_before >= 6);
        for other in &opened[1..] {
            assert_eq!(other.domain.id(), opened[0].domain.id());
            assert_eq!(other.domain.keyed_tag("same", &[]), opened[0].domain.keyed_tag("same", &[]));
            assert_eq!(other.similarity, opened[0].similarity);
        }
        let keys = catalog.keys(bucket.id).await.unwrap();
        assert_eq!(keys.iter().map(|key| key.epoch).collect::<Vec<_>>(), [SIMILARITY_EPOCH, 1]);

        let settings = catalog.bucket(&bucket.name).await.unwrap().unwrap().settings;
        assert_eq!(settings["a"], 1);
        let named: Vec<KeysetCopy> = serde_json::from_value(settings["keysets"].clone()).unwrap();
        let named: BTreeSet<BlobName> =
            named.iter().map(|copy| keyset_name(BlobId::parse(&copy.id).unwrap()).unwrap()).collect();
        let fresh: BTreeSet<BlobName> =
            listed(&*backend).await.into_iter().filter(|name| !before.contains(name)).collect();
        assert_eq!(fresh, named, "what is stored is what is named");
        assert_eq!(named.len(), 2);
    }
    assert!(raced > 0, "no two of them ever came at the same time: nothing was proved");
}

async fn listed(backend: &dyn Backend) -> Vec<BlobName> {
    backend.list("keyset/").map_ok(|listed| listed.name).try_collect().await.unwrap()
}

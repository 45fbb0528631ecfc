//! KEKs that a provider keeps: several processes, an answer that is another key, and silence.

use super::{
    Given, Keyring,
    provider::{KekContext, KeyProvider, KeyProviders, ProviderError},
};
use crate::{error::EngineError, metrics::Metrics};
use async_trait::async_trait;
use catalog::{Catalog, SqliteCatalog, SqliteOptions};
use object_format::{DomainKey, KeyId};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use zeroize::Zeroizing;

/// Wraps by adding a number, and knows what it wrapped for which KEK.
struct Adding {
    number: u8,
    /// What it adds on the way back.
    back: AtomicU32,
    calls: AtomicU32,
}

impl Adding {
    fn new(number: u8) -> Arc<Self> {
        Arc::new(Self { number, back: AtomicU32::new(0), calls: AtomicU32::new(0) })
    }
}

#[async_trait]
impl KeyProvider for Adding {
    fn kind(&self) -> &'static str {
        "adding"
    }

    fn key(&self) -> &str {
        "k"
    }

    async fn wrap(&self, kek: &[u8; 32], context: KekContext) -> Result<Vec<u8>, ProviderError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let sealed = kek.iter().map(|byte| byte.wrapping_add(self.number));
        Ok(context.fingerprint.into_iter().chain(sealed).collect())
    }

    async fn unwrap(&self, sealed: &[u8], context: KekContext) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let back = match self.back.load(Ordering::Relaxed) {
            u32::MAX => return Err(ProviderError::Unavailable("away".into())),
            back => u8::try_from(back).unwrap_or(0),
        };
        match sealed.split_at_checked(8) {
            Some((bound, sealed)) if bound == context.fingerprint => {
                let plain = sealed.iter().map(|byte| byte.wrapping_sub(self.number).wrapping_add(back));
                Ok(Zeroizing::new(plain.collect()))
            }
            _ => Err(ProviderError::Refused("bound to another".into())),
        }
    }
}

fn keyring(provider: &Arc<Adding>) -> Keyring {
    let all: Vec<Arc<dyn KeyProvider>> = vec![provider.clone()];
    let providers = KeyProviders { active: Some(all[0].clone()), all, lifetime: Duration::from_secs(60) };
    Keyring::open(Path::new("/nowhere"), Given { providers, ..Given::default() }, &Metrics::new()).expect("opens")
}

async fn catalog(dir: &tempfile::TempDir) -> SqliteCatalog {
    SqliteCatalog::open(dir.path().join("catalog.sqlite"), SqliteOptions::default()).await.expect("opens")
}

#[tokio::test]
async fn processes_that_start_at_once_end_with_one_kek_and_later_ones_take_it_up() {
    let (dir, provider) = (tempfile::tempdir().expect("a directory"), Adding::new(7));
    let catalog: Arc<dyn Catalog> = Arc::new(catalog(&dir).await);
    let keyrings: Vec<Keyring> = (0..3).map(|_| keyring(&provider)).collect();
    let starting = keyrings.iter().map(|keyring| keyring.meet_providers(&*catalog, false));
    futures::future::try_join_all(starting).await.expect("they start");
    let prints = || keyrings.iter().map(|keyring| keyring.kek().fingerprint()).collect::<Vec<_>>();
    assert!(prints().iter().all(|print| *print == prints()[0]), "{:?}", prints());
    assert!(keyrings.iter().all(|keyring| keyring.keks().all().len() == 1));

    let before = provider.calls.load(Ordering::Relaxed);
    let later = keyring(&provider);
    later.meet_providers(&*catalog, true).await.expect("starts");
    assert_eq!(later.kek().fingerprint(), prints()[0]);
    assert_eq!(provider.calls.load(Ordering::Relaxed) - before, 1, "one call, however many keys there are");

    // One rotates, the others take it up, and everybody opens what either wrapped.
    let fresh = keyrings[0].add_kek(&*catalog).await.expect("is made");
    keyrings[1].follow_provided(&*catalog).await.expect("follows");
    let key = DomainKey::new(KeyId([1; 16]), 1, [2; 32]);
    keyrings[0].activate(fresh, &*catalog).await.expect("wraps");
    let wrapped = keyrings[0].wrapped(&key, catalog::BucketId(5));
    assert!(keyrings[1].open_key(&wrapped).expect("opens").is_some());
    keyrings[1].follow_provided(&*catalog).await.expect("follows");
    assert_eq!(keyrings[1].kek().fingerprint(), keyrings[0].kek().fingerprint());
    assert!(keyrings[0].drop_others(&*catalog).await.expect("drops"));
    let last = keyring(&provider);
    last.meet_providers(&*catalog, true).await.expect("starts");
    assert_eq!((last.keks().all().len(), last.kek().fingerprint()), (1, keyrings[0].kek().fingerprint()));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_another_key_is_refused_and_one_that_does_not_come_is_waited_for_at_a_start() {
    let (dir, provider) = (tempfile::tempdir().expect("a directory"), Adding::new(7));
    let catalog = catalog(&dir).await;
    let first = keyring(&provider);
    first.meet_providers(&catalog, true).await.expect("starts");
    provider.back.store(1, Ordering::Relaxed);
    let refused = keyring(&provider).meet_providers(&catalog, true).await;
    assert!(matches!(&refused, Err(EngineError::Other(why)) if why.contains("another key")), "{refused:?}");
    provider.back.store(u32::MAX, Ordering::Relaxed);
    let before = provider.calls.load(Ordering::Relaxed);
    let away = keyring(&provider).meet_providers(&catalog, true).await;
    assert!(matches!(away, Err(EngineError::Unavailable(_))), "{away:?}");
    assert_eq!(provider.calls.load(Ordering::Relaxed) - before, 4);

    // Silence ends what seals, and nothing else; a word begins it again.
    let key = DomainKey::new(KeyId([1; 16]), 1, [2; 32]);
    let wrapped = first.wrapped(&key, catalog::BucketId(5));
    assert!(first.may_seal().is_ok());
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(matches!(first.may_seal(), Err(EngineError::ProviderSilent)));
    assert!(first.open_key(&wrapped).expect("opens").is_some(), "reads need no provider");
    provider.back.store(0, Ordering::Relaxed);
    let stopping = tokio_util::sync::CancellationToken::new();
    let asks = first.keep_warranted(stopping.clone());
    let waits = async {
        while first.may_seal().is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stopping.cancel();
    };
    tokio::join!(asks, waits);
    assert!(first.may_seal().is_ok());
}

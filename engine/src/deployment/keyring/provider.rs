//! Who keeps a KEK that is not here as it is: a provider, which wraps it and unwraps it
//! (docs/decisions/0046-key-providers.md). What it speaks is not the engine's to know.

use crate::{error::EngineError, metrics::Metrics};
use async_trait::async_trait;
use object_format::{Kek, KekOrigin};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use zeroize::Zeroizing;

/// What a KEK is bound to when a provider wraps it: the provider refuses to unwrap it for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KekContext {
    /// Its fingerprint.
    pub fingerprint: [u8; 8],
}

/// Why a provider did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// It does not answer, or cannot now.
    #[error("{0}")]
    Unavailable(String),
    /// It says no, or something that makes no sense.
    #[error("{0}")]
    Refused(String),
}

/// Keeps KEKs: wraps them with a key that never leaves it.
#[async_trait]
pub trait KeyProvider: Send + Sync {
    /// What kind it is: `vault-transit`, `aws-kms`.
    fn kind(&self) -> &'static str;
    /// The name of its key, which says nothing secret.
    fn key(&self) -> &str;
    /// A KEK as it may lie anywhere.
    async fn wrap(&self, kek: &[u8; 32], context: KekContext) -> Result<Vec<u8>, ProviderError>;
    /// The KEK again.
    async fn unwrap(&self, sealed: &[u8], context: KekContext) -> Result<Zeroizing<Vec<u8>>, ProviderError>;
}

/// The providers of a deployment. All of them unwrap; the active one wraps new KEKs.
#[derive(Clone)]
pub struct KeyProviders {
    /// All of them.
    pub all: Vec<Arc<dyn KeyProvider>>,
    /// The one that keeps the KEK of now; `None`: the KEK of now is here as it is.
    pub active: Option<Arc<dyn KeyProvider>>,
    /// How long the KEK of now wraps and seals without a word of its provider.
    pub lifetime: Duration,
}

impl Default for KeyProviders {
    fn default() -> Self {
        Self { all: Vec::new(), active: None, lifetime: Duration::from_secs(3600) }
    }
}

impl fmt::Debug for KeyProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |provider: &Arc<dyn KeyProvider>| format!("{} {}", provider.kind(), provider.key());
        f.debug_list().entries(self.all.iter().map(named)).finish()
    }
}

/// Whether a KEK is kept by this provider.
pub(super) fn keeps(provider: &dyn KeyProvider, origin: &KekOrigin) -> bool {
    (provider.kind(), provider.key()) == (origin.provider.as_str(), origin.key.as_str())
}

impl KeyProviders {
    pub(super) fn find(&self, origin: &KekOrigin) -> Option<&Arc<dyn KeyProvider>> {
        self.all.iter().find(|provider| keeps(&***provider, origin))
    }
}

/// Asks a provider, and counts the answer.
pub(super) struct Asking<'a> {
    pub(super) provider: &'a dyn KeyProvider,
    pub(super) metrics: &'a Metrics,
}

impl Asking<'_> {
    /// Has a new KEK wrapped.
    pub(super) async fn keep(&self, secret: &[u8; 32]) -> Result<Kek, ProviderError> {
        let context = KekContext { fingerprint: Kek::new(*secret).fingerprint() };
        let sealed = self.provider.wrap(secret, context).await;
        let origin = sealed.and_then(|sealed| {
            let origin = KekOrigin::new(self.provider.kind(), self.provider.key(), sealed);
            origin.map_err(|error| ProviderError::Refused(error.to_string()))
        });
        self.count("wrap", &origin);
        let kek = Kek::kept_by(*secret, origin?);
        // What it does not unwrap again would be lost with this process.
        self.open(kek.origin().expect("it was made with one"), context.fingerprint).await
    }

    /// Has a KEK unwrapped, and sees that it is the one.
    pub(super) async fn open(&self, origin: &KekOrigin, fingerprint: [u8; 8]) -> Result<Kek, ProviderError> {
        let answer = self.provider.unwrap(&origin.sealed, KekContext { fingerprint }).await;
        let kek = answer.and_then(|secret| {
            let secret: Option<Zeroizing<[u8; 32]>> = secret.as_slice().try_into().ok().map(Zeroizing::new);
            let secret = secret.ok_or_else(|| ProviderError::Refused("its answer has another length".into()))?;
            let kek = Kek::kept_by(*secret, origin.clone());
            match kek.fingerprint() == fingerprint {
                true => Ok(kek),
                false => Err(ProviderError::Refused("its answer is another key".into())),
            }
        });
        self.count("unwrap", &kek);
        kek
    }

    fn count<T>(&self, call: &str, answer: &Result<T, ProviderError>) {
        let outcome = match answer {
            Ok(_) => "ok",
            Err(ProviderError::Unavailable(_)) => "unavailable",
            Err(ProviderError::Refused(_)) => "refused",
        };
        self.metrics.key_provider_calls_total.with_label_values(&[self.provider.kind(), call, outcome]).inc();
    }

    /// What it said, for the operator.
    pub(super) fn trouble(&self, error: &ProviderError) -> EngineError {
        let why = format!("key provider {} ({}): {error}", self.provider.kind(), self.provider.key());
        match error {
            ProviderError::Unavailable(_) => EngineError::Unavailable(why),
            ProviderError::Refused(_) => EngineError::Other(why),
        }
    }
}

/// How long the KEK of now may seal without a word of its provider.
#[derive(Default)]
pub(crate) struct Warrant {
    /// `None`: for ever.
    until: Mutex<Option<Instant>>,
}

impl Warrant {
    /// Good until then.
    pub(super) fn renew(&self, until: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Lets something be sealed, or says why not.
    ///
    /// # Errors
    /// [`EngineError::ProviderSilent`] when the provider has not been heard of for too long.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        match until.is_some_and(|until| Instant::now() >= until) {
            true => Err(EngineError::ProviderSilent),
            false => Ok(()),
        }
    }
}

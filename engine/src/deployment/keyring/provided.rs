//! The KEKs that providers keep. The catalog says which there are and which one wraps; every wrap
//! under one says it, too, so that a lost catalog takes none of them along.
//!
//! A KEK is unwrapped when it is taken up, and stays in memory: reads need no provider. Nothing is
//! wrapped under a new one before the catalog knows it.

use super::{
    Keks, Keyring,
    keks::fresh,
    provider::{Asking, KeyProvider, ProviderError, keeps},
};
use crate::error::EngineError;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use catalog::{Catalog, CatalogError};
use object_format::{Kek, KekOrigin};
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The setting that names them.
const SETTING: &str = "provided_keks";
/// Most of them that are taken up: each one is a call.
const KEKS_MAX: usize = 64;
/// How often a provider is asked at a start before it counts as away.
const ATTEMPTS_AT_START: u32 = 4;
const ATTEMPTS_PAUSE: Duration = Duration::from_millis(250);
/// How long other processes have to take up a KEK before it wraps.
const SETTLING: Duration = Duration::from_secs(3);
/// How often a start comes back to what others chose meanwhile.
const ROUNDS_MAX: usize = 16;
/// How often the provider is asked for its word, at least and at most.
const WORD_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];
/// The same after it gave none.
const WORD_AGAIN: Duration = Duration::from_secs(5);

/// A KEK as the catalog names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    /// Its fingerprint, in hex.
    kek: String,
    provider: String,
    key: String,
    /// As the provider has wrapped it; base64.
    sealed: String,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct AllNamed {
    /// The fingerprint of the one that wraps where the KEK of now is a provider's.
    active: String,
    keks: Vec<Named>,
}

impl Named {
    fn of(kek: &Kek) -> Option<Self> {
        let origin = kek.origin()?;
        Some(Self {
            kek: hex::encode(kek.fingerprint()),
            provider: origin.provider.clone(),
            key: origin.key.clone(),
            sealed: BASE64_STANDARD.encode(&origin.sealed),
        })
    }

    fn read(&self) -> Option<([u8; 8], KekOrigin)> {
        let mut fingerprint = [0; 8];
        hex::decode_to_slice(&self.kek, &mut fingerprint).ok()?;
        let sealed = BASE64_STANDARD.decode(&self.sealed).ok()?;
        Some((fingerprint, KekOrigin::new(&self.provider, &self.key, sealed).ok()?))
    }
}

impl AllNamed {
    async fn stored(catalog: &dyn Catalog) -> Result<Option<Self>, EngineError> {
        let Some(setting) = catalog.setting(SETTING).await? else { return Ok(None) };
        let named = serde_json::from_value(setting);
        named.map(Some).map_err(|error| EngineError::Other(format!("the catalog's setting {SETTING}: {error}")))
    }

    fn value(&self) -> Result<serde_json::Value, EngineError> {
        serde_json::to_value(self).map_err(|error| EngineError::Other(error.to_string()))
    }

    async fn store(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        Ok(catalog.put_setting(SETTING, self.value()?).await?)
    }

    fn add(&mut self, kek: &Kek) {
        if let Some(named) = Named::of(kek).filter(|named| self.keks.iter().all(|known| known.kek != named.kek)) {
            self.keks.push(named);
        }
    }
}

/// Asks a provider again, with growing pauses, while it is away.
async fn patiently<T, F: Future<Output = Result<T, ProviderError>>>(
    attempts: u32,
    provider: &dyn KeyProvider,
    ask: impl Fn() -> F,
) -> Result<T, ProviderError> {
    let mut attempt = 0;
    loop {
        match ask().await {
            Err(ProviderError::Unavailable(why)) if attempt + 1 < attempts => {
                tracing::warn!(why, provider = provider.kind(), key = provider.key(), "a key provider is asked again");
                tokio::time::sleep(ATTEMPTS_PAUSE * 2_u32.pow(attempt)).await;
                attempt += 1;
            }
            answer => return answer,
        }
    }
}

impl Keyring {
    /// Whether the KEK of now is to be a provider's.
    pub(crate) fn is_provided(&self) -> bool {
        self.providers.active.is_some()
    }

    /// Whether a provider may have a KEK.
    pub(crate) fn has_providers(&self) -> bool {
        !self.providers.all.is_empty()
    }

    /// Lets something be sealed, or says why not.
    ///
    /// # Errors
    /// [`EngineError::ProviderSilent`].
    pub(crate) fn may_seal(&self) -> Result<(), EngineError> {
        self.warrant.check()
    }

    fn asking<'a>(&'a self, provider: &'a dyn KeyProvider) -> Asking<'a> {
        Asking { provider, metrics: &self.metrics }
    }

    fn set(&self, change: impl FnOnce(&Keks) -> Keks) {
        let mut keks = self.keks.write().unwrap_or_else(PoisonError::into_inner);
        *keks = Arc::new(change(&keks));
    }

    /// Has a KEK unwrapped that is not here; `false` when nobody keeps it who is asked here.
    async fn learn(&self, fingerprint: [u8; 8], origin: &KekOrigin, attempts: u32) -> Result<bool, EngineError> {
        if self.keks().find(&fingerprint).is_some() {
            return Ok(true);
        }
        let Some(provider) = self.providers.find(origin) else { return Ok(false) };
        if self.keks().all().len() >= KEKS_MAX {
            return Err(EngineError::Other(format!(
                "there are more than {KEKS_MAX} KEKs: rotate with --remove-needless"
            )));
        }
        let asking = self.asking(&**provider);
        let opened = patiently(attempts, &**provider, || asking.open(origin, fingerprint)).await;
        let kek = opened.map_err(|error| asking.trouble(&error))?;
        self.set(|keks| keks.with(Arc::new(kek)));
        Ok(true)
    }

    /// Takes up a KEK of a wrap that was found in a store without a catalog.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] when its provider does not answer.
    pub(crate) async fn learn_from_wrap(&self, fingerprint: [u8; 8], wrapped: &[u8]) -> Result<(), EngineError> {
        let Ok((Some(origin), _)) = KekOrigin::of(wrapped) else { return Ok(()) };
        match self.learn(fingerprint, &origin, ATTEMPTS_AT_START).await {
            Err(error @ EngineError::Unavailable(_)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, kek = hex::encode(fingerprint), "a KEK cannot be unwrapped");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Takes up every KEK that the catalog names, and that some provider here keeps. What is in the
    /// way of the one that wraps is an error; of others it is only told.
    async fn take_up(&self, named: &AllNamed, attempts: u32) -> Result<(), EngineError> {
        for one in &named.keks {
            let Some((fingerprint, origin)) = one.read() else {
                return Err(EngineError::Other(format!("the catalog's setting {SETTING} is not understood")));
            };
            let wraps = self.is_provided() && one.kek == named.active;
            match self.learn(fingerprint, &origin, attempts).await {
                Err(error) if wraps => return Err(error),
                Err(error) => tracing::warn!(%error, kek = one.kek, "a KEK that does not wrap cannot be unwrapped"),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// The same now, for whoever wants to open everything.
    ///
    /// # Errors
    /// As its.
    pub(crate) async fn take_up_provided(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        match AllNamed::stored(catalog).await? {
            Some(named) if self.has_providers() => self.take_up(&named, 1).await,
            _ => Ok(()),
        }
    }

    /// The KEK to wrap with: the one that the catalog says, else one that is here.
    fn chosen(&self, named: &AllNamed, provider: &dyn KeyProvider) -> Option<Arc<Kek>> {
        let keks = self.keks();
        let ours = |kek: &&Arc<Kek>| kek.origin().is_some_and(|origin| keeps(provider, origin));
        let mut all = keks.all().iter().filter(ours);
        let said = all.clone().find(|kek| hex::encode(kek.fingerprint()) == named.active);
        said.or_else(|| all.next_back()).cloned()
    }

    /// Takes up the KEKs that providers keep, at the start; makes the first one of the provider
    /// that is to keep the KEK of now. Several processes that start at once end with the same.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] when the provider of the KEK of now does not answer,
    /// [`EngineError::Other`] when it refuses; what the catalog says.
    pub(crate) async fn meet_providers(&self, catalog: &dyn Catalog, alone: bool) -> Result<(), EngineError> {
        if !self.has_providers() {
            return Ok(());
        }
        for _ in 0..ROUNDS_MAX {
            let stored = AllNamed::stored(catalog).await?;
            let mut named = stored.clone().unwrap_or_default();
            let asked = Instant::now();
            self.take_up(&named, ATTEMPTS_AT_START).await?;
            if stored.is_none() {
                // A recovery that knew blobs alone leaves no setting.
                for key in catalog.all_keys().await? {
                    self.learn_from_wrap(key.kek, &key.wrapped).await?;
                }
            }
            let Some(provider) = &self.providers.active else { return Ok(()) };
            let chosen = match self.chosen(&named, &**provider) {
                Some(kek) => kek,
                None => Arc::new(self.make_provided(&**provider).await?),
            };
            self.keks().all().iter().for_each(|kek| named.add(kek));
            named.add(&chosen);
            named.active = hex::encode(chosen.fingerprint());
            if stored.as_ref() == Some(&named) {
                self.set(|keks| keks.with_active(chosen));
                self.warrant.renew(Some(asked + self.providers.lifetime));
                tracing::info!(
                    provider = provider.kind(),
                    key = provider.key(),
                    kek = named.active,
                    "a provider keeps the KEK"
                );
                return Ok(());
            }
            match stored {
                None => match catalog.create_setting(SETTING, named.value()?).await {
                    Ok(()) | Err(CatalogError::Exists) => {}
                    Err(error) => return Err(error.into()),
                },
                Some(_) => named.store(catalog).await?,
            }
            if !alone {
                tokio::time::sleep(SETTLING).await;
            }
        }
        Err(EngineError::Other(format!("the catalog's setting {SETTING} never rests")))
    }

    async fn make_provided(&self, provider: &dyn KeyProvider) -> Result<Kek, EngineError> {
        let asking = self.asking(provider);
        let secret = fresh()?;
        let kept = patiently(ATTEMPTS_AT_START, provider, || asking.keep(&secret)).await;
        kept.map_err(|error| asking.trouble(&error))
    }

    /// After a recovery has met the wraps of a store: the KEK to wrap with, which may be new.
    ///
    /// # Errors
    /// As [`Keyring::meet_providers`].
    pub(crate) async fn choose_provided(&self) -> Result<(), EngineError> {
        let Some(provider) = &self.providers.active else { return Ok(()) };
        let chosen = match self.chosen(&AllNamed::default(), &**provider) {
            Some(kek) => kek,
            None => Arc::new(self.make_provided(&**provider).await?),
        };
        self.set(|keks| keks.with_active(chosen));
        Ok(())
    }

    /// Names the KEKs that are here in a catalog that was made again.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn name_provided(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        let mut named = AllNamed::stored(catalog).await?.unwrap_or_default();
        let before = named.clone();
        let keks = self.keks();
        keks.all().iter().for_each(|kek| named.add(kek));
        if keks.active().origin().is_some() {
            named.active = hex::encode(keks.active().fingerprint());
        }
        if named == before { Ok(()) } else { named.store(catalog).await }
    }

    /// A new KEK that the provider keeps, which opens and does not wrap yet.
    pub(super) async fn add_provided(
        &self,
        provider: &dyn KeyProvider,
        catalog: &dyn Catalog,
    ) -> Result<Arc<Kek>, EngineError> {
        let kek = Arc::new(self.make_provided(provider).await?);
        let mut named = AllNamed::stored(catalog).await?.unwrap_or_default();
        named.add(&kek);
        named.store(catalog).await?;
        self.set(|keks| keks.with(kek.clone()));
        Ok(kek)
    }

    /// From now on this KEK wraps, which a provider keeps.
    pub(super) async fn activate_provided(&self, kek: Arc<Kek>, catalog: &dyn Catalog) -> Result<(), EngineError> {
        let mut named = AllNamed::stored(catalog).await?.unwrap_or_default();
        // Another process may have written it meanwhile.
        named.add(&kek);
        named.active = hex::encode(kek.fingerprint());
        named.store(catalog).await?;
        self.set(|keks| keks.with_active(kek));
        self.warrant.renew(Some(Instant::now() + self.providers.lifetime));
        Ok(())
    }

    /// Takes every KEK but the one that wraps out of the catalog's setting.
    pub(super) async fn forget_provided(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        let Some(before) = AllNamed::stored(catalog).await? else { return Ok(()) };
        let active = hex::encode(self.keks().active().fingerprint());
        let mut named = before.clone();
        named.keks.retain(|one| one.kek == active);
        if named.keks.is_empty() {
            named.active.clear();
        }
        if named == before { Ok(()) } else { named.store(catalog).await }
    }

    /// Takes up what other processes have named in the catalog.
    ///
    /// # Errors
    /// As [`Keyring::meet_providers`].
    pub(crate) async fn follow_provided(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        let Some(named) = AllNamed::stored(catalog).await? else { return Ok(()) };
        self.take_up(&named, 1).await?;
        if self.is_provided()
            && let Some(kek) = self.keks().all().iter().find(|kek| hex::encode(kek.fingerprint()) == named.active)
            && self.kek().fingerprint() != kek.fingerprint()
        {
            tracing::info!(active = named.active, "another KEK is in force");
            self.set(|keks| keks.with_active(kek.clone()));
        }
        Ok(())
    }

    /// Asks the provider for its word again and again: while it gives it, what is sealed is sealed.
    pub(crate) async fn keep_warranted(&self, stopping: CancellationToken) {
        if !self.is_provided() {
            return;
        }
        let every = (self.providers.lifetime / 4).clamp(WORD_EVERY[0], WORD_EVERY[1]);
        let (mut is_silent, mut refuses) = (false, false);
        loop {
            let pause = if is_silent { every.min(WORD_AGAIN) } else { every };
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let (kek, asked) = (self.kek(), Instant::now());
            // Another process may have chosen another provider.
            let Some((origin, provider)) = kek.origin().and_then(|origin| Some((origin, self.providers.find(origin)?)))
            else {
                continue;
            };
            match self.asking(&**provider).open(origin, kek.fingerprint()).await {
                Ok(_) => {
                    if is_silent {
                        tracing::info!(
                            provider = provider.kind(),
                            key = provider.key(),
                            "the key provider answers again"
                        );
                    }
                    self.warrant.renew(Some(asked + self.providers.lifetime));
                    is_silent = false;
                }
                Err(error) => {
                    if !is_silent {
                        tracing::warn!(%error, provider = provider.kind(), key = provider.key(), "the key provider gives no key: reads go on, writes until the key's lifetime ends");
                    }
                    is_silent = true;
                }
            }
            let refused = self.warrant.check().is_err();
            self.metrics.sealing_refused.set(i64::from(refused));
            if refused && !refuses {
                tracing::error!(
                    provider = provider.kind(),
                    key = provider.key(),
                    "the lifetime of the key is over: writes that encrypt are refused until its provider answers"
                );
            }
            if !refused && refuses {
                tracing::info!("writes that encrypt go on");
            }
            refuses = refused;
        }
    }
}

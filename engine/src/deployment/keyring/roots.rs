//! The KEKs change while they are used: a file that says something else, a new KEK, and what was
//! derived from those that are gone.

use super::{Keks, Keyring};
use crate::error::EngineError;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use catalog::Catalog;
use object_format::{DomainKey, Kek, Roots};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError};
use zeroize::Zeroizing;

/// The setting with the roots of KEKs that are gone.
const SETTING: &str = "kek_roots";

/// One of them, wrapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WrappedRoots {
    /// Fingerprint of the KEK that they are of, in hex.
    of: String,
    /// Fingerprint of the KEK that wraps them, in hex.
    kek: String,
    /// Base64.
    wrapped: String,
}

impl WrappedRoots {
    fn open(&self, keks: &Keks) -> Option<Roots> {
        let mut fingerprint = [0; 8];
        hex::decode_to_slice(&self.kek, &mut fingerprint).ok()?;
        let roots = keks.find(&fingerprint)?.unwrap_roots(&BASE64_STANDARD.decode(&self.wrapped).ok()?).ok()?;
        (hex::encode(roots.of()) == self.of).then_some(roots)
    }
}

/// What the setting holds, as far as it is understood.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FormerRoots {
    pub(crate) opened: u64,
    /// Fingerprints of KEKs whose roots are wrapped under one that is not here.
    pub(crate) closed: Vec<String>,
    /// Those that are not wrapped under the KEK of now.
    pub(crate) outdated: u64,
}

impl Keyring {
    /// Reads the file again; whether it says something else now.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be read or understood: what it said is in force.
    pub(crate) fn reload(&self) -> Result<bool, EngineError> {
        let Some(found) = self.source.read()? else { return Ok(false) };
        let prints = |keks: &Keks| keks.all().iter().map(|kek| kek.fingerprint()).collect::<Vec<_>>();
        let mut keks = self.keks.write().unwrap_or_else(PoisonError::into_inner);
        let found = keks.with_file(found);
        if prints(&keks) == prints(&found) {
            return Ok(false);
        }
        tracing::info!(active = hex::encode(found.active().fingerprint()), "other KEKs are in force");
        *keks = Arc::new(found);
        Ok(true)
    }

    /// Whether a new KEK can be made here: the one that wraps is a file's, or a provider's.
    pub(crate) fn keeps_its_keks(&self) -> bool {
        self.is_provided() || self.source.is_file()
    }

    /// Whether other processes may have the same KEKs.
    pub(crate) fn is_shared(&self) -> bool {
        self.source.is_shared_file() || self.has_providers()
    }

    /// A new KEK in the file or with the provider, which opens and does not wrap yet.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be written; what provider and catalog say.
    pub(crate) async fn add_kek(&self, catalog: &dyn Catalog) -> Result<Arc<Kek>, EngineError> {
        if let Some(provider) = &self.providers.active {
            return self.add_provided(&**provider, catalog).await;
        }
        let kek = Arc::new(Kek::new(*super::keks::fresh()?));
        self.put(self.keks().with(kek.clone()))?;
        Ok(kek)
    }

    /// From now on this KEK wraps.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be written; what the catalog says.
    pub(crate) async fn activate(&self, kek: Arc<Kek>, catalog: &dyn Catalog) -> Result<(), EngineError> {
        if self.is_provided() {
            return self.activate_provided(kek, catalog).await;
        }
        self.put(self.keks().with_active(kek))
    }

    /// Removes all KEKs but the one that wraps from the file and from the catalog's setting;
    /// `false` when the configuration goes on naming one.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be written; what the catalog says.
    pub(crate) async fn drop_others(&self, catalog: &dyn Catalog) -> Result<bool, EngineError> {
        self.forget_provided(catalog).await?;
        if !self.is_provided() && self.source.is_file() {
            self.put(self.keks().active_alone())?;
            return Ok(true);
        }
        // What is configured comes back with the next look at it.
        let all_gone = self.is_provided() && self.source.remove()?;
        let mut keks = self.keks.write().unwrap_or_else(PoisonError::into_inner);
        let alone = keks.active_alone();
        *keks = Arc::new(match self.source.read()? {
            Some(file) => alone.with_file(file),
            None => alone,
        });
        Ok(all_gone)
    }

    fn put(&self, keks: Keks) -> Result<(), EngineError> {
        let mut known = self.keks.write().unwrap_or_else(PoisonError::into_inner);
        self.source.write(&keks)?;
        *known = Arc::new(keks);
        Ok(())
    }

    /// Keys of a name, that of the KEK of now first: content keeps the one that it was encrypted
    /// under.
    pub(crate) fn named(&self, name: &str) -> Vec<Zeroizing<[u8; 32]>> {
        self.all_roots().iter().map(|roots| roots.named(name)).collect()
    }

    /// Keys of accounts, that of the KEK of now first.
    pub(crate) fn accounts_keys(&self) -> Vec<DomainKey> {
        self.all_roots().iter().map(Roots::accounts_key).collect()
    }

    fn all_roots(&self) -> Vec<Roots> {
        let mut all: Vec<Roots> = self.keks().all().iter().map(|kek| kek.roots()).collect();
        for former in self.former_roots.read().unwrap_or_else(PoisonError::into_inner).iter() {
            if all.iter().all(|roots| roots.of() != former.of()) {
                all.push(former.clone());
            }
        }
        all
    }

    async fn wrapped_roots(catalog: &dyn Catalog) -> Result<Vec<WrappedRoots>, EngineError> {
        let setting = catalog.setting(SETTING).await?.unwrap_or_else(|| serde_json::json!([]));
        serde_json::from_value(setting)
            .map_err(|error| EngineError::Other(format!("the catalog's setting {SETTING}: {error}")))
    }

    /// Opens what the catalog has of KEKs that are gone.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn load_former_roots(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        let keks = self.keks();
        let found = Self::wrapped_roots(catalog).await?.iter().filter_map(|wrapped| wrapped.open(&keks)).collect();
        *self.former_roots.write().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    /// What the catalog has of KEKs that are gone, and whether all of it opens.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn check_former_roots(&self, catalog: &dyn Catalog) -> Result<FormerRoots, EngineError> {
        let keks = self.keks();
        let active = hex::encode(keks.active().fingerprint());
        let mut found = FormerRoots::default();
        for wrapped in Self::wrapped_roots(catalog).await? {
            match wrapped.open(&keks) {
                Some(_) => found.opened += 1,
                None => found.closed.push(wrapped.of.clone()),
            }
            found.outdated += u64::from(wrapped.kek != active);
        }
        Ok(found)
    }

    /// Stores the roots of every KEK but the one that wraps under that one: it can then do without
    /// the others. How many were wrapped anew.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn keep_roots(&self, catalog: &dyn Catalog) -> Result<u64, EngineError> {
        let keks = self.keks();
        let active = keks.active();
        let before = Self::wrapped_roots(catalog).await?;
        let mut after: Vec<WrappedRoots> = Vec::new();
        let mut wrap = |roots: &Roots| {
            let (of, kek) = (hex::encode(roots.of()), hex::encode(active.fingerprint()));
            let there = before.iter().find(|wrapped| (&wrapped.of, &wrapped.kek) == (&of, &kek));
            let fresh = || BASE64_STANDARD.encode(active.wrap_roots(roots));
            let wrapped = there.map_or_else(fresh, |wrapped| wrapped.wrapped.clone());
            let known = after.iter().any(|wrapped| wrapped.of == of);
            if !known && roots.of() != active.fingerprint() {
                after.push(WrappedRoots { of, kek, wrapped });
            }
        };
        keks.others().iter().for_each(|kek| wrap(&kek.roots()));
        before.iter().filter_map(|wrapped| wrapped.open(&keks)).for_each(|roots| wrap(&roots));
        // What cannot be opened now may be later.
        let is_left = |wrapped: &&WrappedRoots| after.iter().all(|there| there.of != wrapped.of);
        let left: Vec<WrappedRoots> = before.iter().filter(is_left).cloned().collect();
        after.extend(left.into_iter().filter(|wrapped| wrapped.of != hex::encode(active.fingerprint())));
        let fresh = after.iter().filter(|wrapped| !before.contains(wrapped)).count() as u64;
        if after != before {
            let setting = serde_json::to_value(&after).map_err(|error| EngineError::Other(error.to_string()))?;
            catalog.put_setting(SETTING, setting).await?;
        }
        self.load_former_roots(catalog).await?;
        Ok(fresh)
    }
}

//! The keys of a deployment, as an operator works with them: what there is, another KEK, and
//! whether every wrap opens.
//!
//! A rotation copies no content and changes no domain key: only their wraps are others, in the
//! catalog, in the keysets beside the blobs, and what was derived from the KEK itself. It can be
//! interrupted anywhere and repeated: whatever is not wrapped under the KEK of now is wrapped anew.

use crate::{
    blobs::open::Blobs,
    deployment::{
        accounts::Accounts,
        keyring::{Keks, Keyring},
    },
    error::EngineError,
    recovery::Safety,
};
use catalog::{BucketId, Catalog, CatalogError, KeyUse, Rewrap, WrappedKey};
use object_format::KekOrigin;
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Keys whose wraps are replaced in one transaction.
const KEYS_AT_ONCE: usize = 256;
/// How often the catalog is gone through for keys that others made meanwhile.
const PASSES_MAX: usize = 16;
/// How long the other processes that share a keyring have to read a new KEK before it wraps.
const SETTLING: Duration = Duration::from_secs(3);
/// How often a shared keyring is read.
const FOLLOWS_EVERY: Duration = Duration::from_secs(1);

/// A KEK, as it is told of.
#[derive(Clone, Debug, Serialize)]
pub struct KekReport {
    /// Its fingerprint, in hex.
    pub kek: String,
    /// Whether it wraps; every KEK opens.
    pub active: bool,
    /// Whether it is at hand; otherwise only wraps of it are there.
    pub here: bool,
    /// Who keeps it: `local`, or the kind of a provider.
    pub provider: String,
    /// The provider's key that wraps it; empty for a local one.
    pub provider_key: String,
    /// Domain keys that are wrapped under it.
    pub wraps: u64,
}

/// A domain key, as it is told of.
#[derive(Clone, Debug, Serialize)]
pub struct KeyReport {
    /// The bucket; `None` when it is deleted and blobs of it wait for their purge.
    pub bucket: Option<String>,
    /// Its epoch within the bucket; 0 for the key that similarity is looked for with.
    pub epoch: u32,
    /// Its id, in hex.
    pub id: String,
    /// Fingerprint of the KEK that wraps it, in hex.
    pub kek: String,
    /// Whether the wrap opens for this bucket only.
    pub bound: bool,
    /// Whether new content is sealed with it.
    pub newest: bool,
    /// Blobs that are sealed with it.
    pub blobs: u64,
}

/// What there is.
#[derive(Clone, Debug, Serialize)]
pub struct KeysReport {
    /// The KEKs, the active one first.
    pub keks: Vec<KekReport>,
    /// The domain keys, by bucket and epoch.
    pub keys: Vec<KeyReport>,
}

/// What a rotation came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rotation {
    /// Fingerprint of the KEK that wraps now, in hex.
    pub kek: String,
    /// Whether it was made for this.
    pub made: bool,
    /// Wraps in the catalog that were replaced.
    pub wraps: u64,
    /// Keysets beside the blobs that were written again.
    pub keysets: u64,
    /// Accounts that were sealed anew.
    pub accounts: u64,
    /// KEKs whose derived keys are kept under the KEK of now.
    pub roots: u64,
    /// KEKs that nothing needs any more, by fingerprint: they were removed from the file, or can be
    /// taken out of the configuration.
    pub needless: Vec<String>,
    /// Whether they were removed.
    pub removed: bool,
}

/// What was opened, and what does not open.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KeysCheck {
    /// Wraps in the catalog that open.
    pub wraps: u64,
    /// Keysets beside the blobs in which every key opens.
    pub keysets: u64,
    /// Accounts that open.
    pub accounts: u64,
    /// KEKs that are gone, and whose derived keys open.
    pub roots: u64,
    /// Of all these, those that are not under the KEK of now: a rotation mends that.
    pub outdated: u64,
    /// Wraps in the catalog that open for any bucket: a rotation binds them.
    pub unbound: u64,
    /// What does not open, in words.
    pub problems: Vec<String>,
}

/// The keys of a deployment.
pub struct Keys {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) alone: bool,
    /// One rotation at a time in this process.
    pub(crate) rotating: tokio::sync::Mutex<()>,
}

impl Keys {
    /// Every KEK and domain key.
    ///
    /// # Errors
    /// What the catalog says.
    pub async fn list(&self) -> Result<KeysReport, EngineError> {
        let names = self.bucket_names().await?;
        let stored = self.catalog.all_keys().await?;
        // Every blob's row is read for it.
        let uses = if stored.is_empty() { Vec::new() } else { self.catalog.key_uses().await? };
        let newest = |key: &WrappedKey| stored.iter().filter(|k| k.bucket == key.bucket).map(|k| k.epoch).max();
        let blobs = |key: &WrappedKey| {
            let of_key = |used: &&KeyUse| (used.bucket, used.epoch) == (key.bucket, key.epoch) && key.epoch != 0;
            uses.iter().find(of_key).map_or(0, |used| used.blobs)
        };
        let keys = stored.iter().map(|key| KeyReport {
            bucket: names.get(&key.bucket).cloned(),
            epoch: key.epoch,
            id: hex::encode(key.id),
            kek: hex::encode(key.kek),
            bound: is_bound(key),
            newest: newest(key) == Some(key.epoch),
            blobs: blobs(key),
        });
        Ok(KeysReport { keks: keks_of(&self.keyring.keks(), &stored), keys: keys.collect() })
    }

    /// Wraps everything under another KEK: a new one where the keyring's file can take it, else the
    /// one that the configuration names. Content is neither read nor written. With `removes`, KEKs
    /// that nothing needs any more are removed from the file.
    ///
    /// # Errors
    /// [`EngineError::Other`] in words when there is no other KEK, or when a wrap does not open:
    /// what was wrapped anew stays so, and the KEKs of before are kept.
    pub async fn rotate(&self, removes: bool) -> Result<Rotation, EngineError> {
        let _one = self.rotating.lock().await;
        self.keyring.reload()?;
        self.keyring.take_up_provided(&*self.catalog).await?;
        let made = self.make_kek().await?;
        let mut done = Rotation { made, kek: hex::encode(self.keyring.kek().fingerprint()), ..Rotation::default() };
        // First what was derived from a KEK, which nothing else holds.
        done.roots = self.keyring.keep_roots(&*self.catalog).await?;
        done.wraps = self.rewrap().await?;
        done.keysets = self.rewrap_keysets().await?;
        done.accounts = if self.accounts.can_be_kept() { self.accounts.reseal().await? } else { 0 };
        let check = self.verify().await?;
        if !check.problems.is_empty() || check.outdated > 0 {
            return Err(EngineError::Other(format!(
                "{} wraps are under other KEKs still, and {} do not open: all KEKs are kept. {}",
                check.outdated,
                check.problems.len(),
                check.problems.join("; ")
            )));
        }
        done.needless = self.keyring.keks().others().iter().map(|kek| hex::encode(kek.fingerprint())).collect();
        if removes && !done.needless.is_empty() {
            done.removed = self.keyring.drop_others(&*self.catalog).await?;
        }
        tracing::info!(kek = done.kek, wraps = done.wraps, keysets = done.keysets, "the KEK was rotated");
        Ok(done)
    }

    /// Opens every wrap: in the catalog, in each copy of each keyset, of accounts, and of KEKs that
    /// are gone.
    ///
    /// # Errors
    /// What catalog and backends say; what does not open is no error here.
    pub async fn verify(&self) -> Result<KeysCheck, EngineError> {
        let mut check = KeysCheck::default();
        self.keyring.take_up_provided(&*self.catalog).await?;
        let active = self.keyring.kek().fingerprint();
        let names = self.bucket_names().await?;
        for key in self.catalog.all_keys().await? {
            let name = names.get(&key.bucket).map_or("(deleted)", String::as_str);
            match self.keyring.open_key(&key) {
                Ok(Some(_)) => check.wraps += 1,
                Ok(None) => check.problems.push(format!(
                    "key {} of bucket {name} is wrapped under KEK {}, which is not here",
                    key.epoch,
                    hex::encode(key.kek)
                )),
                Err(error) => check.problems.push(format!("key {} of bucket {name}: {error}", key.epoch)),
            }
            check.outdated += u64::from(key.kek != active);
            check.unbound += u64::from(!is_bound(&key));
        }
        self.verify_keysets(&mut check).await?;
        let roots = self.keyring.check_former_roots(&*self.catalog).await?;
        check.roots = roots.opened;
        check.outdated += roots.outdated;
        let closed = roots.closed.iter().map(|of| format!("what was derived from KEK {of} does not open"));
        check.problems.extend(closed);
        if self.accounts.can_be_kept() {
            match self.accounts.load().await {
                Ok(found) => {
                    check.accounts = (found.records.len() - found.lost.len().min(found.records.len())) as u64;
                    check.outdated += (found.outdated.len() - found.lost.len().min(found.outdated.len())) as u64;
                }
                Err(error @ (EngineError::Other(_) | EngineError::Integrity(_))) => {
                    check.problems.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(check)
    }

    /// Takes up what other processes write into a keyring that they share.
    pub(crate) async fn follow_keyring(&self, stopping: CancellationToken) {
        if self.alone || !self.keyring.is_shared() {
            return;
        }
        let mut looks = tokio::time::interval(FOLLOWS_EVERY);
        let mut is_told = false;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = looks.tick() => {}
            }
            match self.follow_once().await {
                Err(error) if !is_told => {
                    tracing::warn!(%error, "the keyring cannot be read: the KEKs of before are in force");
                    is_told = true;
                }
                Err(_) => {}
                Ok(()) => is_told = false,
            }
        }
    }

    async fn follow_once(&self) -> Result<(), EngineError> {
        let before = self.keyring.kek().fingerprint();
        let is_other_file = self.keyring.reload()?;
        self.keyring.follow_provided(&*self.catalog).await?;
        if is_other_file || self.keyring.kek().fingerprint() != before {
            self.keyring.load_former_roots(&*self.catalog).await?;
        }
        Ok(())
    }

    async fn verify_keysets(&self, check: &mut KeysCheck) -> Result<(), EngineError> {
        let mut all = Vec::new();
        for bucket in self.catalog.buckets().await? {
            match self.keyring.keyset_files(&bucket, &*self.catalog, &self.blobs).await {
                Ok(files) => all.push(files),
                Err(error @ (EngineError::Other(_) | EngineError::Integrity(_))) => {
                    check.problems.push(format!("the keysets of bucket {}: {error}", bucket.name));
                }
                Err(error) => return Err(error),
            }
        }
        all.extend(self.safety.store_keysets().await?);
        for files in &all {
            for look in files.look(&self.keyring).await {
                let found = look.found?;
                match found.good() {
                    Some(keyset) => {
                        check.keysets += 1;
                        check.outdated += u64::from(!files.is_current(keyset, &self.keyring));
                    }
                    None => check.problems.push(format!("{}: {}", look.file.name, found.why().unwrap_or_default())),
                }
            }
        }
        Ok(())
    }

    /// Makes a new KEK where the keyring can keep it, and where all that is there is wrapped under
    /// the one of now already. Otherwise a rotation is under way, or the operator chose the KEK.
    async fn make_kek(&self) -> Result<bool, EngineError> {
        let active = self.keyring.kek().fingerprint();
        let is_unfinished = self.catalog.all_keys().await?.iter().any(|key| key.kek != active);
        if is_unfinished || !self.keyring.keks().others().is_empty() {
            return Ok(false);
        }
        if !self.keyring.keeps_its_keks() {
            return Err(EngineError::Other(
                "the KEK is given by storage.kek or DELTAWEIR_KEK: put the KEK of now into the file storage.keyring names, \
                 configure a new one, and rotate then"
                    .into(),
            ));
        }
        if !self.alone && !self.keyring.is_shared() {
            return Err(EngineError::Other(
                "the keyring is this process's own, and the catalog is shared: name a keyring that all processes read \
                 with storage.keyring"
                    .into(),
            ));
        }
        let kek = self.keyring.add_kek(&*self.catalog).await?;
        if !self.alone {
            // The others read it before anything is wrapped under it.
            tokio::time::sleep(SETTLING).await;
        }
        self.keyring.activate(kek, &*self.catalog).await?;
        if !self.alone {
            // And take it up before everything is wrapped under it.
            tokio::time::sleep(SETTLING).await;
        }
        Ok(true)
    }

    /// Replaces wraps in the catalog until none is left under another KEK. Others may make keys
    /// meanwhile.
    async fn rewrap(&self) -> Result<u64, EngineError> {
        let mut rewrapped = 0;
        for _ in 0..PASSES_MAX {
            let active = self.keyring.kek().fingerprint();
            let stored = self.catalog.all_keys().await?;
            let outdated: Vec<WrappedKey> =
                stored.into_iter().filter(|key| key.kek != active || !is_bound(key)).collect();
            if outdated.is_empty() {
                return Ok(rewrapped);
            }
            for page in outdated.chunks(KEYS_AT_ONCE) {
                let mut rewraps = Vec::new();
                for key in page {
                    let opened = self.keyring.open_key(key)?.ok_or_else(|| {
                        EngineError::Other(format!(
                            "a key is wrapped under KEK {}, which is not here: put it into the keyring",
                            hex::encode(key.kek)
                        ))
                    })?;
                    rewraps
                        .push(Rewrap { before: key.wrapped.clone(), key: self.keyring.wrapped(&opened, key.bucket) });
                }
                match self.catalog.rewrap_keys(rewraps).await {
                    Ok(()) => rewrapped += page.len() as u64,
                    // Another process was faster: the next pass sees what is left.
                    Err(CatalogError::Conflict) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Err(EngineError::Conflict)
    }

    async fn rewrap_keysets(&self) -> Result<u64, EngineError> {
        let mut rewritten = 0;
        for bucket in self.catalog.buckets().await? {
            let files = self.keyring.keyset_files(&bucket, &*self.catalog, &self.blobs).await?;
            rewritten += files.rewrap(&self.keyring).await?;
            match files.note_lengths(&bucket, &*self.catalog).await {
                // It was deleted meanwhile.
                Err(EngineError::NoBucket) => {}
                noted => noted?,
            }
        }
        if let Some(files) = self.safety.store_keysets().await? {
            rewritten += files.rewrap(&self.keyring).await?;
        }
        Ok(rewritten)
    }

    async fn bucket_names(&self) -> Result<BTreeMap<BucketId, String>, EngineError> {
        Ok(self.catalog.buckets().await?.into_iter().map(|bucket| (bucket.id, bucket.name)).collect())
    }
}

/// Whether a wrap opens for its bucket only.
fn is_bound(key: &WrappedKey) -> bool {
    object_format::keys::is_bound(&key.wrapped)
}

fn keks_of(keks: &Keks, stored: &[WrappedKey]) -> Vec<KekReport> {
    let wraps = |print: &[u8; 8]| stored.iter().filter(|key| key.kek == *print).count() as u64;
    let here: Vec<[u8; 8]> = keks.all().iter().map(|kek| kek.fingerprint()).collect();
    let mut away: Vec<[u8; 8]> = stored.iter().map(|key| key.kek).filter(|print| !here.contains(print)).collect();
    away.sort_unstable();
    away.dedup();
    // One that is not here is named by its wraps.
    let origin = |print: &[u8; 8]| match keks.find(print) {
        Some(kek) => kek.origin().cloned(),
        None => stored.iter().find(|key| key.kek == *print).and_then(|key| KekOrigin::of(&key.wrapped).ok()?.0),
    };
    let told = |(index, print): (usize, &[u8; 8])| {
        let (provider, provider_key) =
            origin(print).map_or_else(|| ("local".into(), String::new()), |origin| (origin.provider, origin.key));
        let (active, here) = (index == 0, index < here.len());
        KekReport { kek: hex::encode(print), active, here, provider, provider_key, wraps: wraps(print) }
    };
    here.iter().chain(&away).enumerate().map(told).collect()
}

//! The store key: seals journal and backups from the moment on when a KEK is configured or
//! something is encrypted (docs/format/journal-v1.md §2).

use super::{
    names::{id_of, store_keyset_names},
    safety::Safety,
};
use crate::{
    deployment::keyring::{
        copies::{KeysetFile, KeysetFiles},
        random,
    },
    error::EngineError,
    resources::clock::now_ms,
};
use catalog::JournalEntry;
use object_format::{
    DomainKey, KeyId,
    keyset::{BucketLabel, Keyset, KeysetEntry},
};
use serde_json::{Value, json};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The setting that names the store key.
pub(super) const SETTING: &str = "store_key";
/// Its epoch as a domain key.
const STORE_KEY_EPOCH: u32 = 1;

impl Safety {
    /// The key that `entries` (or a backup, which has none) must be sealed with; made when it is
    /// needed for the first time.
    pub(super) async fn sealing_key(&self, entries: &[JournalEntry]) -> Result<Option<Arc<DomainKey>>, EngineError> {
        if let Some(key) = self.store_key().await? {
            return Ok(Some(key));
        }
        let brings = |entry: &JournalEntry| {
            // Few texts have the word at all.
            entry.mutation.as_str().contains("PutKey") && entry.mutation.value().get("PutKey").is_some()
        };
        let brings_a_key = entries.iter().any(brings);
        let asked_for = self.vault.keyring().is_configured() || self.config.encrypts || brings_a_key;
        if !asked_for && !self.has_encrypted_bucket().await? {
            return Ok(None);
        }
        self.make_store_key().await?;
        self.store_key().await
    }

    async fn store_key(&self) -> Result<Option<Arc<DomainKey>>, EngineError> {
        let Some(id) = self.store_key_id().await? else { return Ok(None) };
        let key = self.vault.key(id).await?;
        self.vault.trust.only_sealed();
        self.vault.trust.name_store_key(id);
        self.vault.keyring().note_sealed()?;
        Ok(Some(key))
    }

    /// The id of the store key, once there is one.
    pub(super) async fn store_key_id(&self) -> Result<Option<KeyId>, EngineError> {
        let Some(setting) = self.catalog.setting(SETTING).await? else { return Ok(None) };
        let id = setting.get("id").and_then(Value::as_str).and_then(parse_key_id);
        id.map(Some).ok_or_else(|| EngineError::Other(format!("the catalog's setting {SETTING} is not understood")))
    }

    /// The copies of the store key's keyset; `None` while there is no store key.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn store_keysets(&self) -> Result<Option<KeysetFiles>, EngineError> {
        let Some(id) = self.store_key_id().await? else { return Ok(None) };
        let mut files = Vec::new();
        for name in store_keyset_names(id)? {
            files.push(KeysetFile { backend: self.vault.backend().clone(), id: id_of(&name), name });
        }
        // From memory, or from a copy that is good.
        let known = self.vault.key(id).await.ok();
        let label = BucketLabel { id: 0, name: String::new() };
        let known = known.map(|key| KeysetEntry::new(&self.vault.keyring().kek(), &key, &label));
        Ok(Some(KeysetFiles { files, known: Keyset::new(known), needed: vec![(id, STORE_KEY_EPOCH)] }))
    }

    async fn has_encrypted_bucket(&self) -> Result<bool, EngineError> {
        for bucket in self.catalog.buckets().await? {
            if !self.catalog.keys(bucket.id).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keysets first: a key that the catalog names can always be found.
    async fn make_store_key(&self) -> Result<(), EngineError> {
        let id = KeyId(random()?);
        let secret = Zeroizing::new(random::<32>()?);
        let key = DomainKey::new(id, STORE_KEY_EPOCH, *secret);
        let label = BucketLabel { id: 0, name: String::new() };
        let keyset = Keyset::new([KeysetEntry::new(&self.vault.keyring().kek(), &key, &label)]);
        for name in store_keyset_names(id)? {
            let mut bytes = Vec::new();
            keyset.write_blob(id_of(&name), &mut bytes)?;
            self.vault.put_blob(&name, bytes).await?;
        }
        let setting = json!({"id": id.to_string(), "made_ms": now_ms()});
        Ok(self.catalog.put_setting(SETTING, setting).await?)
    }
}

fn parse_key_id(text: &str) -> Option<KeyId> {
    let mut id = [0; 16];
    hex::decode_to_slice(text, &mut id).ok()?;
    Some(KeyId(id))
}

//! The store key: seals journal and backups from the moment on when a KEK is configured or
//! something is encrypted (docs/format/journal-v1.md §2).

use super::{
    Safety,
    names::{id_of, store_keyset_names},
};
use crate::{deployment::keyring::random, error::EngineError, now_ms};
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

impl Safety {
    /// The key that `entries` (or a backup, which has none) must be sealed with; made when it is
    /// needed for the first time.
    pub(super) async fn sealing_key(&self, entries: &[JournalEntry]) -> Result<Option<Arc<DomainKey>>, EngineError> {
        if let Some(key) = self.store_key().await? {
            return Ok(Some(key));
        }
        let brings_a_key = entries.iter().any(|entry| entry.mutation.get("PutKey").is_some());
        let asked_for = self.vault.keyring().is_configured() || self.config.encrypts || brings_a_key;
        if !asked_for && !self.has_encrypted_bucket().await? {
            return Ok(None);
        }
        self.make_store_key().await?;
        self.store_key().await
    }

    async fn store_key(&self) -> Result<Option<Arc<DomainKey>>, EngineError> {
        let Some(setting) = self.catalog.setting(SETTING).await? else { return Ok(None) };
        let id = setting.get("id").and_then(Value::as_str).and_then(parse_key_id);
        let id = id.ok_or_else(|| EngineError::Other(format!("the catalog's setting {SETTING} is not understood")))?;
        let key = self.vault.key(id).await?;
        self.vault.trust.only_sealed();
        self.vault.keyring().note_sealed()?;
        Ok(Some(key))
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
        let key = DomainKey::new(id, 1, *secret);
        let label = BucketLabel { id: 0, name: String::new() };
        let keyset = Keyset::new([KeysetEntry::new(self.vault.keyring().kek(), &key, &label)]);
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

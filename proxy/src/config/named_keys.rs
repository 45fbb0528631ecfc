//! Keys that requests may name with `aws:kms`: those that have a secret of their own.

use super::{
    error::ConfigError,
    file::{KmsKey, KmsKeySource},
    reader::Reader,
};
use engine::{EngineError, NamedKey};
use object_format::Kek;
use std::{collections::BTreeMap, slice, sync::Arc};
use zeroize::Zeroizing;

/// A root key (docs/format/object-encryption-v1.md).
type RootKey = Zeroizing<[u8; 32]>;

/// The names, and where the key of each comes from.
#[derive(Clone, Default)]
pub struct NamedKeys(BTreeMap<String, Vec<KeyOrigin>>);

#[derive(Clone)]
enum KeyOrigin {
    Keyring,
    Own(Arc<Kek>),
}

impl KeyOrigin {
    fn root(&self, name: &str) -> Option<RootKey> {
        match self {
            Self::Keyring => None,
            Self::Own(secret) => Some(secret.roots().named(name)),
        }
    }
}

impl NamedKeys {
    /// Whether it is the name of a key.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The key that encrypts under this name, which `keyring` gives where it is the keyring's.
    ///
    /// # Errors
    /// Whatever `keyring` says.
    pub fn newest_or(&self, name: &str, keyring: NamedKey<'_>) -> Result<RootKey, EngineError> {
        let newest = self.0.get(name).and_then(|origins| origins.first());
        newest.and_then(|origin| origin.root(name)).map_or_else(|| keyring(name), Ok)
    }

    /// Every key of this name that is not the keyring's, the newest first.
    pub fn own(&self, name: &str) -> impl Iterator<Item = RootKey> {
        self.0.get(name).into_iter().flatten().filter_map(move |origin| origin.root(name))
    }
}

impl Reader<'_> {
    pub(super) fn named_keys(&self) -> Result<NamedKeys, ConfigError> {
        let read = |(name, key): (&String, &KmsKey)| {
            let at = format!("kms.keys.{name}");
            if name.is_empty() {
                return Err(ConfigError::at("kms.keys", "a key needs a name"));
            }
            let sources = match key {
                KmsKey::One(source) => slice::from_ref(source),
                KmsKey::Several(sources) => sources,
            };
            if sources.is_empty() {
                return Err(ConfigError::at(&at, "expected \"keyring\" or a secret"));
            }
            let origins = sources.iter().map(|source| match source {
                KmsKeySource::Keyring(_) => Ok(KeyOrigin::Keyring),
                KmsKeySource::Own(text) => self.key(&at, text).map(|secret| KeyOrigin::Own(Arc::new(secret))),
            });
            Ok((name.clone(), origins.collect::<Result<_, _>>()?))
        };
        self.file.kms.keys.iter().map(read).collect::<Result<_, _>>().map(NamedKeys)
    }
}

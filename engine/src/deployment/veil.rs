//! Veils: encryption of single objects by whoever knows their keys, which the engine does not. It
//! lends threads and buffers to it (docs/decisions/0051-veils.md).

use crate::{error::EngineError, facts::ObjectEncryption};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};
use zeroize::Zeroizing;

/// Encrypts content, or decrypts it: it is the same.
pub trait Veil: Send + Sync {
    /// Changes bytes where they are; `at` is the place of the first one in its content.
    ///
    /// # Errors
    /// [`EngineError`] when there is no key for them.
    fn apply(&self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError>;
}

/// The key of one object that is to be encrypted.
pub trait ContentKey: Send + Sync {
    /// The facts to keep of it, without stretches.
    fn facts(&self) -> ObjectEncryption;

    /// Begins a stretch of content: the salt to keep, and what encrypts it.
    ///
    /// # Errors
    /// [`EngineError`] without randomness.
    fn begin_stretch(&self) -> Result<(String, Arc<dyn Veil>), EngineError>;
}

/// Gives a key of the keyring by its name.
pub type NamedKey<'a> = &'a dyn Fn(&str) -> Result<Zeroizing<[u8; 32]>, EngineError>;

/// Gives keys to objects that are there, as a request would to new ones
/// (docs/decisions/0079-objects-encrypted-in-place.md).
pub trait ContentKeys: Send + Sync {
    /// A key as the configurations of a bucket that does not seal ask for it; `None` when they ask
    /// for none.
    ///
    /// # Errors
    /// [`EngineError::JobRefused`] in words for the operator when there is no key of that name;
    /// whatever `named` says.
    fn by_default(
        &self,
        configurations: &BTreeMap<String, Value>,
        named: NamedKey<'_>,
    ) -> Result<Option<Box<dyn ContentKey>>, EngineError>;
}

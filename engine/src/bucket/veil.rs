//! Veils: encryption of single objects by whoever knows their keys, which the engine does not. It
//! lends threads and buffers to it (docs/decisions/0051-veils.md).

use crate::error::EngineError;

/// Encrypts content, or decrypts it: it is the same.
pub trait Veil: Send + Sync {
    /// Changes bytes where they are; `at` is the place of the first one in its content.
    ///
    /// # Errors
    /// [`EngineError`] when there is no key for them.
    fn apply(&self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError>;
}

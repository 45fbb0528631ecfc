//! The KEKs of a store without a catalog: each keyset says whose its KEK is.

use super::names::id_of;
use crate::{
    deployment::keyring::{Keyring, copies::KEYSET_LEN_MAX},
    error::EngineError,
};
use futures::TryStreamExt;
use object_format::{BlobId, keyset::Keyset};
use std::sync::Arc;
use storage_backends::{Backend, get_all};

/// Has the KEKs unwrapped that providers keep and keysets name. What is damaged is passed over.
///
/// # Errors
/// [`EngineError::Unavailable`] when a provider does not answer; what the backends say.
pub(super) async fn learn_from_keysets(
    keyring: &Keyring,
    backends: impl IntoIterator<Item = &Arc<dyn Backend>>,
) -> Result<(), EngineError> {
    if !keyring.has_providers() {
        return Ok(());
    }
    for backend in backends {
        let mut listing = backend.list("keyset/");
        while let Some(listed) = listing.try_next().await? {
            if listed.stored_len > KEYSET_LEN_MAX {
                continue;
            }
            let Some(bytes) = get_all(&**backend, &listed.name, listed.stored_len).await? else { continue };
            let named = listed.name.as_str().strip_prefix("keyset/").and_then(BlobId::parse);
            let Ok(keyset) = Keyset::read_blob(&bytes, named.unwrap_or_else(|| id_of(&listed.name))) else { continue };
            for entry in keyset.entries() {
                keyring.learn_from_wrap(entry.kek_fingerprint(), entry.wrapped()).await?;
            }
        }
    }
    Ok(())
}

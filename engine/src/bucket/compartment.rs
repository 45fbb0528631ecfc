//! Compartments: parts of a bucket whose content is nobody's base or duplicate outside of them, so
//! that who writes learns nothing of what it may not read (docs/decisions/0036-compartments.md).
//!
//! Whose content is in one compartment is for the caller to say, who knows policies; here it
//! becomes a name of 16 bytes that stands in every blob's row.

use super::{BucketHandle, BucketState};
use crate::{deployment::keyring::random, error::EngineError};
use catalog::{BlobRow, Compartment, Domain};
use crypto::{Digest as _, Sha256};

/// Whose content may be the base or the duplicate of something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing<'a> {
    /// Everybody's: all of the bucket but what is in a compartment.
    Bucket,
    /// What is written below this prefix.
    Prefix(&'a str),
    /// What this writer writes.
    Writer(&'a str),
    /// Nobody's: not even the same writer's.
    Nothing,
}

impl BucketHandle {
    /// The same bucket for a write that shares with these.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the operating system gives no random bytes.
    pub fn sharing(&self, sharing: Sharing<'_>) -> Result<Self, EngineError> {
        Ok(self.within(match sharing {
            Sharing::Bucket => None,
            Sharing::Prefix(prefix) => Some(self.compartment_named(b'p', prefix)),
            Sharing::Writer(writer) => Some(self.compartment_named(b'w', writer)),
            Sharing::Nothing => Some(Compartment(random()?)),
        }))
    }

    /// The same bucket for work within a compartment.
    pub(crate) fn within(&self, compartment: Option<Compartment>) -> Self {
        Self { compartment, ..self.clone() }
    }

    /// Among what new content looks for bases and duplicates; `None`: all of the bucket.
    pub(crate) fn compartment(&self) -> Option<Compartment> {
        self.compartment
    }

    /// The domain of what is written.
    pub(crate) fn domain(&self) -> Domain {
        Domain {
            bucket: self.row.id,
            key_epoch: self.key_epoch(),
            backend: self.settings.backend.clone(),
            compartment: self.compartment,
        }
    }
}

impl BucketState {
    /// The same for ever, whatever the epoch of the bucket's key. In a sealed bucket it takes the
    /// bucket's secret to tell whose it is.
    fn compartment_named(&self, kind: u8, name: &str) -> Compartment {
        let mut digest = Sha256::new();
        digest.update(self.similarity_secret().unwrap_or_default());
        digest.update(b"deltaweir compartment 1 ");
        digest.update([kind]);
        digest.update(name);
        let digest: [u8; 32] = digest.finalize().into();
        Compartment(digest[..16].try_into().expect("16 of 32 bytes"))
    }
}

/// The compartment that all of some blobs are in. `None` where they differ: new content made of
/// them then serves those alone who may read the whole bucket.
pub(crate) fn compartment_of(blobs: &[BlobRow]) -> Option<Compartment> {
    let first = blobs.first()?.compartment;
    first.filter(|_| blobs.iter().all(|row| row.compartment == first))
}

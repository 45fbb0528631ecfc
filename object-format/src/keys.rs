//! Keys: the key-encryption key (KEK) wraps one domain key per (bucket, epoch); everything else is derived.

use crate::blob::FormatError;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Names a domain key: 16 random bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 16]);

/// The key of one domain (one bucket, one key epoch). `Debug` shows its id only.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct DomainKey {
    #[zeroize(skip)]
    id: KeyId,
    #[zeroize(skip)]
    epoch: u32,
    secret: [u8; 32],
}

impl DomainKey {
    /// A domain key from 32 bytes of the operating system's generator.
    pub fn new(id: KeyId, epoch: u32, secret: [u8; 32]) -> Self {
        Self { id, epoch, secret }
    }

    /// Its id.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Its epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// HMAC-SHA-256 of `message` under a key derived for `purpose`: content digests and hooks of encrypted buckets are kept only in this form.
    pub fn keyed_tag(&self, purpose: &'static str, message: &[u8]) -> [u8; 32] {
        let _ = (&self.secret, purpose, message);
        todo!()
    }
}

/// The key-encryption key.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Kek([u8; 32]);

impl Kek {
    /// From 32 bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// A public identifier of this KEK, so that a wrong keyring is told apart from a damaged wrap: the first 8 bytes of an HMAC under a derived key.
    pub fn fingerprint(&self) -> [u8; 8] {
        let _ = self.0;
        todo!()
    }

    /// Wraps a domain key (AES-256-KWP, RFC 5649).
    pub fn wrap(&self, key: &DomainKey) -> Vec<u8> {
        let _ = key;
        todo!()
    }

    /// Unwraps one.
    ///
    /// # Errors
    /// [`FormatError::Key`] when this KEK did not wrap it or it was altered.
    pub fn unwrap(&self, id: KeyId, epoch: u32, wrapped: &[u8]) -> Result<DomainKey, FormatError> {
        let _ = (id, epoch, wrapped);
        todo!()
    }
}

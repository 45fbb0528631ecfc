//! Keys: the key-encryption key (KEK) wraps one domain key per (bucket, epoch); everything else is
//! derived (docs/format/blob-v1.md §5).

use crate::{error::FormatError, fields::Fields, provided::KekOrigin};
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrapPadded};
use crypto::{HmacSha256, KeyInit, Mac};
use std::{fmt, sync::Arc};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

pub use crate::provided::{BOUND_KEY_LEN, WRAPPED_KEY_LEN};

/// Labels keep derivations for different uses apart. Part of the format.
const BLOB_LABEL: &[u8] = b"deltaweir blob v1";
const ROW_LABEL: &[u8] = b"deltaweir row v1";
const TAG_LABEL: &[u8] = b"deltaweir tag v1\0";
const KEYSET_LABEL: &[u8] = b"deltaweir keyset label v1";
const FINGERPRINT_LABEL: &[u8] = b"deltaweir kek fingerprint v1";
const ACCOUNTS_LABEL: &[u8] = b"deltaweir accounts v1";
const NAMED_KEY_LABEL: &[u8] = b"deltaweir named key v1";
const ROOTS_LABEL: &[u8; 16] = b"deltaweir roots1";

/// Names a domain key: 16 random bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 16]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The key of one domain (one bucket, one key epoch). `Debug` shows its id and epoch only.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct DomainKey {
    #[zeroize(skip)]
    id: KeyId,
    #[zeroize(skip)]
    epoch: u32,
    secret: [u8; 32],
}

impl fmt::Debug for DomainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainKey").field("id", &self.id).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// What one blob's chunks, pages and root are sealed with.
pub(crate) struct BlobKeys {
    pub(crate) encryption: Zeroizing<[u8; 32]>,
    pub(crate) commitment: [u8; 32],
    pub(crate) nonce_prefix: [u8; 7],
}

/// What one sealed row is sealed with.
pub(crate) struct RowKeys {
    pub(crate) encryption: Zeroizing<[u8; 32]>,
    pub(crate) nonce: [u8; 12],
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

    /// HMAC-SHA-256 of `message` under a key derived for `purpose`: content digests and hooks of
    /// encrypted buckets are kept only in this form.
    pub fn keyed_tag(&self, purpose: &'static str, message: &[u8]) -> [u8; 32] {
        let mut mac = keyed_mac(&self.tag_key(purpose));
        mac.update(message);
        mac.finalize().into_bytes().into()
    }

    /// The key of [`Self::keyed_tag`] for one purpose.
    pub(crate) fn tag_key(&self, purpose: &str) -> Zeroizing<[u8; 32]> {
        derive(&self.secret, None, &[TAG_LABEL, purpose.as_bytes()])
    }

    /// Keys of the blob with this salt; `info` is its header without the commitment.
    pub(crate) fn blob_keys(&self, salt: &[u8; 32], info: [&[u8]; 2]) -> BlobKeys {
        let okm: Zeroizing<[u8; 71]> = derive(&self.secret, Some(salt), &[BLOB_LABEL, info[0], info[1]]);
        let mut keys = BlobKeys { encryption: Zeroizing::new([0; 32]), commitment: [0; 32], nonce_prefix: [0; 7] };
        keys.encryption.copy_from_slice(&okm[..32]);
        keys.commitment.copy_from_slice(&okm[32..64]);
        keys.nonce_prefix.copy_from_slice(&okm[64..]);
        keys
    }

    /// Keys of the row sealed with this nonce.
    pub(crate) fn row_keys(&self, nonce: &[u8; 24]) -> RowKeys {
        let okm: Zeroizing<[u8; 44]> = derive(&self.secret, Some(nonce), &[ROW_LABEL, &self.id.0]);
        let mut keys = RowKeys { encryption: Zeroizing::new([0; 32]), nonce: [0; 12] };
        keys.encryption.copy_from_slice(&okm[..32]);
        keys.nonce.copy_from_slice(&okm[32..]);
        keys
    }

    /// The key that wraps this key's label in a keyset.
    pub(crate) fn label_key(&self) -> Kek {
        Kek::new(*derive(&self.secret, None, &[KEYSET_LABEL, &self.id.0]))
    }
}

/// The key-encryption key. `Debug` shows nothing of it.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Kek {
    secret: [u8; 32],
    #[zeroize(skip)]
    origin: Option<Arc<KekOrigin>>,
}

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kek").finish_non_exhaustive()
    }
}

impl Kek {
    /// From 32 bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        Self { secret, origin: None }
    }

    /// One that a provider keeps: its wraps say so.
    pub fn kept_by(secret: [u8; 32], origin: KekOrigin) -> Self {
        Self { secret, origin: Some(Arc::new(origin)) }
    }

    /// Who keeps it; `None` for one that somebody has as it is.
    pub fn origin(&self) -> Option<&KekOrigin> {
        self.origin.as_deref()
    }

    /// Its 32 bytes, for whoever keeps them.
    pub fn secret(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.secret)
    }

    /// What all keys are derived from that this KEK does not wrap.
    pub fn roots(&self) -> Roots {
        Roots { of: self.fingerprint(), secret: *crypto::extract(&self.secret) }
    }

    /// Wraps the roots of another KEK, so that what was derived from it outlives it.
    pub fn wrap_roots(&self, roots: &Roots) -> Vec<u8> {
        let mut plain = Zeroizing::new([0; 88]);
        plain[..64].copy_from_slice(&roots.secret);
        plain[64..72].copy_from_slice(&roots.of);
        plain[72..].copy_from_slice(ROOTS_LABEL);
        self.wrap_bytes(&*plain)
    }

    /// Unwraps them.
    ///
    /// # Errors
    /// [`FormatError::Key`] when this KEK did not wrap them, or they are something else.
    pub fn unwrap_roots(&self, wrapped: &[u8]) -> Result<Roots, FormatError> {
        let plain = self.unwrap_bytes(wrapped)?;
        let mut fields = Fields::new(&plain);
        let roots = Roots { secret: fields.array()?, of: fields.array()? };
        match fields.array::<16>()? == *ROOTS_LABEL && fields.is_empty() {
            true => Ok(roots),
            false => Err(FormatError::Key("the wrapped roots are something else")),
        }
    }

    /// A public identifier of this KEK, so that a wrong keyring is told apart from a damaged wrap:
    /// 8 bytes derived from it.
    pub fn fingerprint(&self) -> [u8; 8] {
        *derive(&self.secret, None, &[FINGERPRINT_LABEL])
    }

    /// Wraps a domain key with its id and epoch (AES-256-KWP, RFC 5649): [`WRAPPED_KEY_LEN`] bytes,
    /// behind what the KEK is when a provider keeps it.
    pub fn wrap(&self, key: &DomainKey) -> Vec<u8> {
        let mut plain = Zeroizing::new([0; 52]);
        plain[..32].copy_from_slice(&key.secret);
        plain[32..48].copy_from_slice(&key.id.0);
        plain[48..].copy_from_slice(&key.epoch.to_le_bytes());
        self.told(self.wrap_bytes(&*plain))
    }

    /// As [`Kek::wrap`], and bound to the bucket with this catalog id: [`BOUND_KEY_LEN`] bytes.
    pub fn wrap_for(&self, key: &DomainKey, bucket: u64) -> Vec<u8> {
        let mut plain = Zeroizing::new([0; 60]);
        plain[..32].copy_from_slice(&key.secret);
        plain[32..48].copy_from_slice(&key.id.0);
        plain[48..52].copy_from_slice(&key.epoch.to_le_bytes());
        plain[52..].copy_from_slice(&bucket.to_le_bytes());
        self.told(self.wrap_bytes(&*plain))
    }

    fn told(&self, wrap: Vec<u8>) -> Vec<u8> {
        match &self.origin {
            Some(origin) => origin.around(&wrap),
            None => wrap,
        }
    }

    /// Unwraps a key of a bucket. A wrap of [`WRAPPED_KEY_LEN`] bytes is of before wraps were bound
    /// to one, and opens for any.
    ///
    /// # Errors
    /// As [`Kek::unwrap`], and when it is bound to another bucket.
    pub fn unwrap_for(&self, id: KeyId, epoch: u32, bucket: u64, wrapped: &[u8]) -> Result<DomainKey, FormatError> {
        if !is_bound(wrapped) {
            return self.unwrap(id, epoch, wrapped);
        }
        self.unwrap_parts((id, epoch, Some(bucket)), wrapped)
    }

    /// Unwraps one.
    ///
    /// # Errors
    /// [`FormatError::Key`] when this KEK did not wrap it, it was altered, or it is the wrap of
    /// another id or epoch.
    pub fn unwrap(&self, id: KeyId, epoch: u32, wrapped: &[u8]) -> Result<DomainKey, FormatError> {
        self.unwrap_parts((id, epoch, None), wrapped)
    }

    fn unwrap_parts(&self, of: (KeyId, u32, Option<u64>), wrapped: &[u8]) -> Result<DomainKey, FormatError> {
        let altered = |_| FormatError::Key("not wrapped under this key, or altered");
        let plain = self.unwrap_bytes(KekOrigin::of(wrapped).map_err(altered)?.1)?;
        let mut fields = Fields::new(&plain);
        let mut key = DomainKey { id: of.0, epoch: of.1, secret: fields.array()? };
        let (id, epoch) = (KeyId(fields.array()?), fields.u32()?);
        let bucket = if fields.is_empty() { None } else { Some(fields.u64()?) };
        if (id, epoch, bucket) != of || !fields.is_empty() {
            key.secret.zeroize();
            return Err(FormatError::Key("the wrapped key is another one"));
        }
        Ok(key)
    }

    pub(crate) fn wrap_bytes(&self, plain: &[u8]) -> Vec<u8> {
        let mut wrapped = vec![0; plain.len() + 15];
        let len = AesKek::new(&AES_256, &self.secret)
            .and_then(|kek| kek.wrap_with_padding(plain, &mut wrapped).map(|out| out.len()))
            .expect("the key has 32 bytes, the input is short and not empty, the output has room");
        wrapped.truncate(len);
        wrapped
    }

    pub(crate) fn unwrap_bytes(&self, wrapped: &[u8]) -> Result<Zeroizing<Vec<u8>>, FormatError> {
        let mut plain = Zeroizing::new(vec![0; wrapped.len()]);
        let len = AesKek::new(&AES_256, &self.secret)
            .and_then(|kek| kek.unwrap_with_padding(wrapped, &mut plain).map(|out| out.len()))
            .map_err(|_| FormatError::Key("not wrapped under this key, or altered"))?;
        plain.truncate(len);
        Ok(plain)
    }
}

/// Whether a stored wrap opens for one bucket only.
pub fn is_bound(stored: &[u8]) -> bool {
    KekOrigin::of(stored).map_or(stored, |(_, wrap)| wrap).len() != WRAPPED_KEY_LEN
}

/// What a KEK is extracted to (RFC 5869 §2.2): keys that are derived from it, not wrapped under it.
/// Nothing leads back to the KEK, so it opens no wrap. `Debug` shows whose they are.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Roots {
    #[zeroize(skip)]
    of: [u8; 8],
    secret: [u8; 64],
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots").field("of", &self.of).finish_non_exhaustive()
    }
}

impl Roots {
    /// [`Kek::fingerprint`] of the KEK they are of.
    pub fn of(&self) -> [u8; 8] {
        self.of
    }

    /// A key of 32 bytes by its name: the same for the same name, and nothing of the KEK or of
    /// another key can be told from it.
    pub fn named(&self, name: &str) -> Zeroizing<[u8; 32]> {
        self.expand(&[NAMED_KEY_LABEL, name.as_bytes()])
    }

    /// The key that seals users, groups, policies and access keys in the catalog
    /// (docs/format/accounts-v1.md).
    pub fn accounts_key(&self) -> DomainKey {
        let okm: Zeroizing<[u8; 48]> = self.expand(&[ACCOUNTS_LABEL]);
        let (mut secret, mut id) = ([0; 32], [0; 16]);
        secret.copy_from_slice(&okm[..32]);
        id.copy_from_slice(&okm[32..]);
        DomainKey { id: KeyId(id), epoch: 0, secret }
    }

    fn expand<const N: usize>(&self, info: &[&[u8]]) -> Zeroizing<[u8; N]> {
        let mut okm = Zeroizing::new([0; N]);
        crypto::expand(&self.secret, info, &mut *okm);
        okm
    }
}

/// HKDF-SHA-512 (RFC 5869); an absent salt is 64 zero bytes.
fn derive<const N: usize>(secret: &[u8; 32], salt: Option<&[u8]>, info: &[&[u8]]) -> Zeroizing<[u8; N]> {
    let mut okm = Zeroizing::new([0; N]);
    crypto::derive(secret, salt, info, &mut *okm);
    okm
}

pub(crate) fn keyed_mac(key: &[u8; 32]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("HMAC takes keys of any length")
}

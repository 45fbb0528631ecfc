//! Keys: the key-encryption key (KEK) wraps one domain key per (bucket, epoch); everything else is
//! derived (docs/format/blob-v1.md §5).

use crate::{error::FormatError, fields::Fields};
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrapPadded};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha512};
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of a wrapped domain key. Part of the format (§5.2).
pub const WRAPPED_KEY_LEN: usize = 64;

/// Labels keep derivations for different uses apart. Part of the format.
const BLOB_LABEL: &[u8] = b"deltaweir blob v1";
const ROW_LABEL: &[u8] = b"deltaweir row v1";
const TAG_LABEL: &[u8] = b"deltaweir tag v1\0";
const KEYSET_LABEL: &[u8] = b"deltaweir keyset label v1";
const FINGERPRINT_LABEL: &[u8] = b"deltaweir kek fingerprint v1";
const ACCOUNTS_LABEL: &[u8] = b"deltaweir accounts v1";
const NAMED_KEY_LABEL: &[u8] = b"deltaweir named key v1";

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
        Kek(*derive(&self.secret, None, &[KEYSET_LABEL, &self.id.0]))
    }
}

/// The key-encryption key. `Debug` shows nothing of it.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Kek([u8; 32]);

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kek").finish_non_exhaustive()
    }
}

impl Kek {
    /// From 32 bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// A public identifier of this KEK, so that a wrong keyring is told apart from a damaged wrap:
    /// 8 bytes derived from it.
    pub fn fingerprint(&self) -> [u8; 8] {
        *derive(&self.0, None, &[FINGERPRINT_LABEL])
    }

    /// A key of 32 bytes by its name: the same for the same name, and nothing of this key or of
    /// another can be told from it.
    pub fn named(&self, name: &str) -> Zeroizing<[u8; 32]> {
        derive(&self.0, None, &[NAMED_KEY_LABEL, name.as_bytes()])
    }

    /// The key that seals users, groups, policies and access keys in the catalog
    /// (docs/format/accounts-v1.md).
    pub fn accounts_key(&self) -> DomainKey {
        let okm: Zeroizing<[u8; 48]> = derive(&self.0, None, &[ACCOUNTS_LABEL]);
        let (mut secret, mut id) = ([0; 32], [0; 16]);
        secret.copy_from_slice(&okm[..32]);
        id.copy_from_slice(&okm[32..]);
        DomainKey { id: KeyId(id), epoch: 0, secret }
    }

    /// Wraps a domain key with its id and epoch (AES-256-KWP, RFC 5649): [`WRAPPED_KEY_LEN`] bytes.
    pub fn wrap(&self, key: &DomainKey) -> Vec<u8> {
        let mut plain = Zeroizing::new([0; 52]);
        plain[..32].copy_from_slice(&key.secret);
        plain[32..48].copy_from_slice(&key.id.0);
        plain[48..].copy_from_slice(&key.epoch.to_le_bytes());
        self.wrap_bytes(&*plain)
    }

    /// Unwraps one.
    ///
    /// # Errors
    /// [`FormatError::Key`] when this KEK did not wrap it, it was altered, or it is the wrap of
    /// another id or epoch.
    pub fn unwrap(&self, id: KeyId, epoch: u32, wrapped: &[u8]) -> Result<DomainKey, FormatError> {
        let plain = self.unwrap_bytes(wrapped)?;
        let mut fields = Fields::new(&plain);
        let mut key = DomainKey { id, epoch, secret: fields.array()? };
        let of = (KeyId(fields.array()?), fields.u32()?);
        if of != (id, epoch) || !fields.is_empty() {
            key.secret.zeroize();
            return Err(FormatError::Key("the wrapped key is another one"));
        }
        Ok(key)
    }

    pub(crate) fn wrap_bytes(&self, plain: &[u8]) -> Vec<u8> {
        let mut wrapped = vec![0; plain.len() + 15];
        let len = AesKek::new(&AES_256, &self.0)
            .and_then(|kek| kek.wrap_with_padding(plain, &mut wrapped).map(|out| out.len()))
            .expect("the key has 32 bytes, the input is short and not empty, the output has room");
        wrapped.truncate(len);
        wrapped
    }

    pub(crate) fn unwrap_bytes(&self, wrapped: &[u8]) -> Result<Zeroizing<Vec<u8>>, FormatError> {
        let mut plain = Zeroizing::new(vec![0; wrapped.len()]);
        let len = AesKek::new(&AES_256, &self.0)
            .and_then(|kek| kek.unwrap_with_padding(wrapped, &mut plain).map(|out| out.len()))
            .map_err(|_| FormatError::Key("not wrapped under this key, or altered"))?;
        plain.truncate(len);
        Ok(plain)
    }
}

/// HKDF-SHA-512 (RFC 5869); an absent salt is 64 zero bytes.
fn derive<const N: usize>(secret: &[u8; 32], salt: Option<&[u8]>, info: &[&[u8]]) -> Zeroizing<[u8; N]> {
    let mut okm = Zeroizing::new([0; N]);
    Hkdf::<Sha512>::new(salt, secret)
        .expand_multi_info(info, &mut *okm)
        .expect("HKDF-SHA-512 gives up to 16,320 bytes, far more than any use here");
    okm
}

pub(crate) fn keyed_mac(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

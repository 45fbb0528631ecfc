//! Encryption of single objects: keys, salts and ciphers, for requests (`ops/encryption.rs`) and
//! for objects that are encrypted where they are (`deltaweir keys reencrypt`).
//!
//! `docs/decisions/0023-object-encryption.md` and `0051-veils.md` say why so,
//! `docs/format/object-encryption-v1.md` how.

use crate::config::NamedKeys;
use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use crypto::{HmacSha256, KeyInit as _, Mac as _, fill_random};
use engine::{
    BucketSettings, ContentKey, ContentKeys, Encryption, EngineError, NamedKey, ObjectEncryption, Stretch, Veil,
};
use s3_wire::{ETag, encryption::EncryptionConfiguration, headers::ServerSide};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The name of a bucket's default encryption among its configurations; kept as its document.
pub(crate) const ENCRYPTION: &str = "encryption";
/// The key of `aws:kms` without a name.
pub(crate) const DEFAULT_KMS_KEY: &str = "aws/s3";

pub(crate) const AES256: &str = "AES256";
pub(crate) const KMS: &str = "aws:kms";
pub(crate) const CUSTOMER: &str = "SSE-C";
/// Bytes of a block of AES.
const BLOCK: usize = 16;

pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// What one object or upload is encrypted with, unlocked.
#[derive(Clone)]
pub(crate) struct Sealing {
    /// As its facts keep it, stretches left out.
    facts: ObjectEncryption,
    root: Secret,
}

/// What encrypts one stretch of content. Every stretch has a key of its own, so the keystream of
/// each begins at zero.
struct Cipher(EncryptingKey);

impl Cipher {
    fn of(root: &Secret, salt: &[u8]) -> Self {
        let key = derive(root, b"content", salt);
        let key = UnboundCipherKey::new(&AES_256, &*key).and_then(EncryptingKey::ctr);
        Self(key.expect("a key of 32 bytes is one of AES-256"))
    }

    /// Encrypts, or decrypts: it is the same. `at` is the place of the first byte in the stretch.
    fn apply(&self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        // Whole blocks where they are; the end of a block before them elsewhere.
        let (mut block, skip) = (at / BLOCK as u64, usize::try_from(at % BLOCK as u64).unwrap_or(0));
        let mut whole = bytes;
        if skip > 0 {
            let (first, rest) = whole.split_at_mut(whole.len().min(BLOCK - skip));
            let mut around = [0; BLOCK];
            around[skip..skip + first.len()].copy_from_slice(first);
            self.apply_from(block, &mut around)?;
            first.copy_from_slice(&around[skip..skip + first.len()]);
            (block, whole) = (block + 1, rest);
        }
        self.apply_from(block, whole)
    }

    fn apply_from(&self, block: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        let counter = EncryptionContext::Iv128(u128::from(block).to_be_bytes().into());
        let applied = self.0.less_safe_encrypt(bytes, counter);
        applied.map(drop).map_err(|_| EngineError::Other("AES failed".into()))
    }
}

/// One stretch.
impl Veil for Cipher {
    fn apply(&self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        Self::apply(self, at, bytes)
    }
}

/// A key for one purpose.
fn derive(root: &Secret, purpose: &[u8], salt: &[u8]) -> Secret {
    let mut mac = HmacSha256::new_from_slice(&**root).expect("HMAC takes keys of any length");
    mac.update(b"deltaweir object encryption 1 ");
    mac.update(purpose);
    mac.update(&[0]);
    mac.update(salt);
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// A named key bound to a context: another key for each.
pub(crate) fn bound(root: Secret, context: Option<&str>) -> Secret {
    context.map_or_else(|| root.clone(), |context| derive(&root, b"context", context.as_bytes()))
}

fn salt() -> Result<[u8; 16], EngineError> {
    let mut salt = [0; 16];
    fill_random(&mut salt).map_err(|_| EngineError::Other("the system gives no random bytes".into()))?;
    Ok(salt)
}

/// Salt and check value of a key.
fn check_of(root: &Secret, salt: &[u8]) -> String {
    format!("{}:{}", hex::encode(salt), hex::encode(*derive(root, b"check", salt)))
}

pub(crate) fn is_key(root: &Secret, check: &str) -> bool {
    let Some(salt) = check.split(':').next().and_then(|salt| hex::decode(salt).ok()) else { return false };
    check_of(root, &salt).as_bytes().ct_eq(check.as_bytes()).into()
}

impl Sealing {
    /// Of something new under this key; `facts` say which one it is.
    fn under(root: Secret, facts: ObjectEncryption) -> Result<Self, EngineError> {
        let check = check_of(&root, &salt()?);
        Ok(Self { facts: ObjectEncryption { check, ..facts }, root })
    }

    /// Of something new under a customer's key.
    pub(crate) fn by_customer(key: Secret) -> Result<Self, EngineError> {
        Self::under(key, ObjectEncryption { algorithm: CUSTOMER.to_owned(), ..ObjectEncryption::default() })
    }

    /// Of something new under a key of the server. `context`: what the key is bound to;
    /// `bucket_key`: whether `aws:kms` was asked to use the key of the bucket.
    pub(crate) fn by_server(
        server: ServerSide,
        context: Option<String>,
        bucket_key: bool,
        named: NamedKey<'_>,
    ) -> Result<Self, EngineError> {
        let (algorithm, key_id) = match server {
            ServerSide::Aes256 => (AES256, None),
            ServerSide::Kms(name) => (KMS, Some(name.unwrap_or_else(|| DEFAULT_KMS_KEY.to_owned()))),
        };
        let root = bound(named(key_id.as_deref().unwrap_or_default())?, context.as_deref());
        let bucket_key = algorithm == KMS && bucket_key;
        let algorithm = algorithm.to_owned();
        let facts = ObjectEncryption { algorithm, key_id, context, bucket_key, ..ObjectEncryption::default() };
        Self::under(root, facts)
    }

    /// Of something that is encrypted already: its facts, and the key that they were found to be
    /// of.
    pub(crate) fn of(encryption: &ObjectEncryption, root: Secret) -> Self {
        Self { facts: ObjectEncryption { stretches: Vec::new(), ..encryption.clone() }, root }
    }

    /// A stretch of content to be written: the salt to keep, and what encrypts it.
    pub(crate) fn begin(&self) -> Result<(String, Arc<dyn Veil>), EngineError> {
        let salt = salt()?;
        Ok((hex::encode(salt), Arc::new(Cipher::of(&self.root, &salt))))
    }

    /// What decrypts content in these stretches.
    pub(crate) fn unlocked(self, stretches: &[Stretch]) -> Result<Unlocked, EngineError> {
        let mut end = 0;
        let of = |stretch: &Stretch| {
            end += stretch.len;
            let salt = hex::decode(&stretch.salt);
            Ok((end, salt.map_err(|_| EngineError::Integrity("the salt of some content is no salt".into()))?))
        };
        let stretches = stretches.iter().map(of).collect::<Result<_, EngineError>>()?;
        Ok(Unlocked { stretches, root: self.root })
    }

    /// The facts of content in these stretches.
    pub(crate) fn facts_of(&self, stretches: Vec<Stretch>) -> ObjectEncryption {
        ObjectEncryption { stretches, ..self.facts.clone() }
    }

    /// The tag of content with this MD5: only what the server's own key encrypts is tagged by it,
    /// as in S3.
    pub(crate) fn etag(&self, md5: [u8; 16]) -> ETag {
        if self.facts.algorithm == AES256 {
            return ETag::from_md5(md5);
        }
        let tag = derive(&self.root, b"etag", &md5);
        ETag::from_md5(std::array::from_fn(|index| tag[index]))
    }
}

/// What decrypts content that is read.
pub(crate) struct Unlocked {
    /// Where each stretch ends, and its salt.
    stretches: Vec<(u64, Vec<u8>)>,
    root: Secret,
}

impl Veil for Unlocked {
    fn apply(&self, mut at: u64, mut bytes: &mut [u8]) -> Result<(), EngineError> {
        let mut index = self.stretches.partition_point(|(end, _)| *end <= at);
        while !bytes.is_empty() {
            let start = index.checked_sub(1).map_or(0, |before| self.stretches[before].0);
            let lacks = || EngineError::Integrity(format!("no salt is kept for the byte at {at}"));
            let (end, salt) = self.stretches.get(index).ok_or_else(lacks)?;
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(bytes.len());
            let (here, rest) = bytes.split_at_mut(len);
            Cipher::of(&self.root, salt).apply(at - start, here)?;
            (at, bytes, index) = (*end, rest, index + 1);
        }
        Ok(())
    }
}

impl ContentKey for Sealing {
    fn facts(&self) -> ObjectEncryption {
        self.facts.clone()
    }

    fn begin_stretch(&self) -> Result<(String, Arc<dyn Veil>), EngineError> {
        self.begin()
    }
}

/// What a bucket's kept document says of new objects.
pub(crate) fn default_of(
    configurations: &BTreeMap<String, Value>,
) -> Result<Option<EncryptionConfiguration>, EngineError> {
    let Some(kept) = configurations.get(ENCRYPTION) else { return Ok(None) };
    let parsed = EncryptionConfiguration::parse(kept.as_str().unwrap_or_default().as_bytes());
    parsed.map(Some).map_err(|error| EngineError::Other(format!("the default encryption of the bucket: {error}")))
}

/// What new objects of a bucket that does not seal are encrypted with, for operators; `None`:
/// nothing encrypts them.
pub(crate) fn default_in_words(settings: &BucketSettings) -> Option<String> {
    if settings.encryption != Encryption::Off {
        return None;
    }
    Some(match default_of(&settings.configurations).ok()??.server? {
        ServerSide::Aes256 => AES256.to_owned(),
        ServerSide::Kms(name) => format!("{KMS} {}", name.as_deref().unwrap_or(DEFAULT_KMS_KEY)),
    })
}

/// Whether a name is one of a key; the default one's always is.
pub(crate) fn is_named(keys: &NamedKeys, name: &str) -> bool {
    name == DEFAULT_KMS_KEY || keys.has(name)
}

impl ContentKeys for NamedKeys {
    fn by_default(
        &self,
        configurations: &BTreeMap<String, Value>,
        named: NamedKey<'_>,
    ) -> Result<Option<Box<dyn ContentKey>>, EngineError> {
        let Some(EncryptionConfiguration { server: Some(server), bucket_key, .. }) = default_of(configurations)? else {
            return Ok(None);
        };
        if let ServerSide::Kms(Some(name)) = &server
            && !is_named(self, name)
        {
            return Err(EngineError::JobRefused(format!(
                "reencrypt: the bucket's default encryption names the key {name:?}, which is not one of [kms.keys]"
            )));
        }
        let newest = |name: &str| self.newest_or(name, named);
        Ok(Some(Box::new(Sealing::by_server(server, None, bucket_key, &newest)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::{KeyIvInit as _, StreamCipher as _, StreamCipherSeek as _};

    fn root(byte: u8) -> Secret {
        Zeroizing::new([byte; 32])
    }

    /// As versions before wrote it: one keystream from the beginning of the stretch to its end.
    fn by_keystream(salt: &[u8], from: u64, bytes: &mut [u8]) {
        let key = derive(&root(7), b"content", salt);
        let mut keystream = ctr::Ctr128BE::<aes::Aes256>::new((&*key).into(), &[0; BLOCK].into());
        keystream.seek(from);
        keystream.apply_keystream(bytes);
    }

    #[test]
    fn any_range_of_stretches_is_decrypted_however_it_is_cut() {
        let plain: Vec<u8> = (0..5000_u32).map(|n| n as u8).collect();
        let lens = [1_usize, 1000, 16, 3983];
        let (mut stored, mut stretches, mut at) = (plain.clone(), Vec::new(), 0);
        for (number, len) in lens.into_iter().enumerate() {
            let salt = vec![number as u8; 16];
            by_keystream(&salt, 0, &mut stored[at..at + len]);
            at += len;
            stretches.push((at as u64, salt));
        }
        let unlocked = Unlocked { stretches, root: root(7) };
        for (from, to, piece) in [(0, 5000, 4096), (0, 5000, 1), (1, 1001, 7), (999, 1020, 3), (1017, 5000, 5000)] {
            let mut read = stored[from..to].to_vec();
            for (number, piece_of) in read.chunks_mut(piece).enumerate() {
                unlocked.apply((from + number * piece) as u64, piece_of).unwrap();
            }
            assert_eq!(read, plain[from..to], "{from}..{to} by {piece}");
        }
        let beyond = unlocked.apply(4999, &mut [0; 2]);
        assert!(matches!(beyond, Err(EngineError::Integrity(_))), "content without a salt is no content");
    }

    #[test]
    fn a_stretch_is_encrypted_as_it_always_was_wherever_its_counter_stands() {
        let (salt, wraps) = ([3; 16], (1_u64 << 32) * BLOCK as u64);
        let cipher = Cipher::of(&root(7), &salt);
        for from in [0, 1, 15, 16, 17, 4096, wraps - 40, wraps - 1, wraps, (1 << 40) + 5] {
            for len in [0, 1, 15, 16, 17, 33, 1000] {
                let (mut old, mut new) = (vec![0x5a; len], vec![0x5a; len]);
                by_keystream(&salt, from, &mut old);
                cipher.apply(from, &mut new).unwrap();
                assert_eq!(new, old, "{len} bytes at {from}");
            }
        }
    }

    #[test]
    fn no_two_contents_have_the_same_keystream() {
        let sealing = Sealing::under(root(1), ObjectEncryption::default()).unwrap();
        let zeros = || {
            let mut zeros = [0; 64];
            sealing.begin().unwrap().1.apply(0, &mut zeros).unwrap();
            zeros
        };
        assert_ne!(zeros(), zeros());
    }

    #[test]
    fn a_key_is_known_by_its_check_and_no_other_is() {
        let check = check_of(&root(1), &[9; 16]);
        assert!(is_key(&root(1), &check) && !is_key(&root(2), &check) && !is_key(&root(1), ""));
        assert_ne!(check, check_of(&root(1), &[8; 16]), "the same key looks different each time");
    }
}

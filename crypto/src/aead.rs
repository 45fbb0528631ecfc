//! AES-256-GCM behind one trait, in two implementations that give the same bytes: the quicker one
//! for content, the plain one for short messages (sealed rows, journal documents, keysets). A build
//! with `fips` has the first alone.

#[cfg(not(feature = "fips"))]
use aes_gcm::{AeadInOut as _, Aes256Gcm, KeyInit as _};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize as _;

/// Bytes of a tag.
pub const TAG_LEN: usize = 16;
/// Bytes of a nonce.
pub const NONCE_LEN: usize = 12;

/// The bytes, their nonce, their associated data or their tag are not those that were sealed.
#[derive(Debug, PartialEq, Eq)]
pub struct Forged;

/// A key of AES-256-GCM (NIST SP 800-38D). A nonce is used once with it.
pub trait Aead: Send + Sync {
    /// Encrypts in place and gives the tag.
    fn seal(&self, nonce: [u8; NONCE_LEN], associated: &[u8], bytes: &mut [u8]) -> [u8; TAG_LEN];

    /// Decrypts in place.
    ///
    /// # Errors
    /// [`Forged`]; the bytes hold nothing that was decrypted then.
    fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        associated: &[u8],
        bytes: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Forged>;
}

/// How an opening ends: what did not open holds nothing of it.
fn or_wiped(opened: bool, bytes: &mut [u8]) -> Result<(), Forged> {
    if !opened {
        bytes.zeroize();
    }
    opened.then_some(()).ok_or(Forged)
}

/// For content: aws-lc's, several times as fast as the other on processors with wide AES
/// instructions.
pub struct Bulk(LessSafeKey);

impl Bulk {
    /// The cipher of a key.
    pub fn new(key: &[u8; 32]) -> Self {
        Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the key has 32 bytes")))
    }
}

impl Aead for Bulk {
    fn seal(&self, nonce: [u8; NONCE_LEN], associated: &[u8], bytes: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(associated), bytes);
        let tag = sealed.expect("a message is far shorter than AES-GCM can seal");
        tag.as_ref().try_into().expect("tags of AES-GCM have 16 bytes")
    }

    fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        associated: &[u8],
        bytes: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Forged> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(associated), tag, bytes).is_ok();
        or_wiped(opened, bytes)
    }
}

#[cfg(feature = "fips")]
pub use Bulk as Short;

/// For short messages: RustCrypto's, in Rust alone. Wipes its key when dropped.
#[cfg(not(feature = "fips"))]
pub struct Short(Aes256Gcm);

#[cfg(not(feature = "fips"))]
impl Short {
    /// The cipher of a key.
    pub fn new(key: &[u8; 32]) -> Self {
        Self(Aes256Gcm::new(key.into()))
    }
}

#[cfg(not(feature = "fips"))]
impl Aead for Short {
    fn seal(&self, nonce: [u8; NONCE_LEN], associated: &[u8], bytes: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self.0.encrypt_inout_detached(&nonce.into(), associated, bytes.into());
        tag.expect("a message is far shorter than AES-GCM can seal").into()
    }

    fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        associated: &[u8],
        bytes: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Forged> {
        let opened = self.0.decrypt_inout_detached(&nonce.into(), associated, bytes.into(), tag.into()).is_ok();
        or_wiped(opened, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_buffer_whose_tag_is_wrong_holds_nothing_afterwards() {
        let (key, nonce) = ([3; 32], [4; NONCE_LEN]);
        let ciphers: [Box<dyn Aead>; 2] = [Box::new(Bulk::new(&key)), Box::new(Short::new(&key))];
        for cipher in ciphers {
            for len in [1, 16, 17, 4096, 65_536] {
                let mut bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
                let mut tag = cipher.seal(nonce, b"", &mut bytes);
                tag[15] ^= 1;
                assert_eq!(cipher.open(nonce, b"", &mut bytes, &tag), Err(Forged));
                assert!(bytes.iter().all(|byte| *byte == 0), "{len} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn both_implementations_seal_to_the_same_bytes_and_open_each_other(
            key: [u8; 32],
            nonce: [u8; NONCE_LEN],
            associated in prop::collection::vec(any::<u8>(), 0..80),
            plain in prop::collection::vec(any::<u8>(), 0..2000),
            flip in any::<prop::sample::Index>(),
        ) {
            let (bulk, short) = (Bulk::new(&key), Short::new(&key));
            let (mut one, mut two) = (plain.clone(), plain.clone());
            let tags = (bulk.seal(nonce, &associated, &mut one), short.seal(nonce, &associated, &mut two));
            prop_assert_eq!((&one, tags.0), (&two, tags.1));
            prop_assert_eq!(short.open(nonce, &associated, &mut one, &tags.0), Ok(()));
            prop_assert_eq!(bulk.open(nonce, &associated, &mut two, &tags.1), Ok(()));
            prop_assert_eq!((&one, &two), (&plain, &plain));
            let mut tag = tags.0;
            tag[flip.index(TAG_LEN)] ^= 1;
            prop_assert_eq!(short.open(nonce, &associated, &mut one, &tag), Err(Forged));
            prop_assert_eq!(bulk.open(nonce, &associated, &mut two, &tag), Err(Forged));
        }
    }
}

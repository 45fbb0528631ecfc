//! The default build's: RustCrypto's, and the operating system's generator.

use crate::randomness::NoRandomness;
use hkdf::Hkdf;
use hmac::Hmac;
use sha1::Sha1;
pub use sha2::{Sha256, Sha512};
use zeroize::{Zeroize as _, Zeroizing};

/// HMAC-SHA-256.
pub type HmacSha256 = Hmac<Sha256>;
/// HMAC-SHA-1: Signature Version 2 alone.
pub type HmacSha1 = Hmac<Sha1>;

const SHORT_ENOUGH: &str = "HKDF-SHA-512 gives up to 16,320 bytes, far more than any use here";

/// HKDF-SHA-512 (RFC 5869) fills `out`; an absent salt is 64 zero bytes.
pub fn derive(secret: &[u8], salt: Option<&[u8]>, info: &[&[u8]], out: &mut [u8]) {
    Hkdf::<Sha512>::new(salt, secret).expand_multi_info(info, out).expect(SHORT_ENOUGH);
}

/// The first half of [`derive`], without a salt.
pub fn extract(secret: &[u8]) -> Zeroizing<[u8; 64]> {
    let (mut prk, _) = Hkdf::<Sha512>::extract(None, secret);
    let extracted = Zeroizing::new(prk.into());
    prk.as_mut_slice().zeroize();
    extracted
}

/// The second half of [`derive`].
pub fn expand(prk: &[u8; 64], info: &[&[u8]], out: &mut [u8]) {
    let hkdf = Hkdf::<Sha512>::from_prk(prk).expect("64 bytes are as many as SHA-512 gives");
    hkdf.expand_multi_info(info, out).expect(SHORT_ENOUGH);
}

/// Fills a buffer with bytes that nobody can guess.
///
/// # Errors
/// [`NoRandomness`].
pub fn fill_random(bytes: &mut [u8]) -> Result<(), NoRandomness> {
    getrandom::fill(bytes).map_err(|error| NoRandomness(error.to_string()))
}

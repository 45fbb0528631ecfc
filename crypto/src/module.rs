//! The same from aws-lc: in a build with `fips`, from its FIPS module. Tests compare it with the
//! default build's.

use crate::randomness::NoRandomness;
use ::hmac::digest::{
    FixedOutput, FixedOutputReset, HashMarker, MacMarker, Output, OutputSizeUser, Reset, Update,
    common::KeySizeUser,
    consts::{U20, U32, U64},
};
use aws_lc_rs::{digest, hkdf, hmac, rand};
use zeroize::Zeroizing;

/// What digests and MACs have in common: bytes go in, and so many come out when it ends.
macro_rules! of_a_stream {
    ($name:ident, $len:ty, $end:ident) => {
        impl OutputSizeUser for $name {
            type OutputSize = $len;
        }

        impl Update for $name {
            fn update(&mut self, data: &[u8]) {
                self.0.update(data);
            }
        }

        impl FixedOutput for $name {
            fn finalize_into(self, out: &mut Output<Self>) {
                out.copy_from_slice(self.0.$end().as_ref());
            }
        }
    };
}

macro_rules! hash {
    ($name:ident, $algorithm:ident, $len:ty) => {
        #[doc = concat!("The module's ", stringify!($algorithm), ".")]
        #[derive(Clone)]
        pub struct $name(digest::Context);

        impl Default for $name {
            fn default() -> Self {
                Self(digest::Context::new(&digest::$algorithm))
            }
        }

        impl HashMarker for $name {}

        of_a_stream!($name, $len, finish);

        impl Reset for $name {
            fn reset(&mut self) {
                *self = Self::default();
            }
        }

        impl FixedOutputReset for $name {
            fn finalize_into_reset(&mut self, out: &mut Output<Self>) {
                std::mem::take(self).finalize_into(out);
            }
        }
    };
}

macro_rules! mac {
    ($name:ident, $algorithm:ident, $len:ty) => {
        #[doc = concat!("The module's ", stringify!($algorithm), ".")]
        #[derive(Clone)]
        pub struct $name(hmac::Context);

        impl MacMarker for $name {}

        impl KeySizeUser for $name {
            type KeySize = U64;
        }

        impl ::hmac::KeyInit for $name {
            fn new(key: &::hmac::digest::Key<Self>) -> Self {
                Self(hmac::Context::with_key(&hmac::Key::new(hmac::$algorithm, key)))
            }

            fn new_from_slice(key: &[u8]) -> Result<Self, ::hmac::digest::InvalidLength> {
                Ok(Self(hmac::Context::with_key(&hmac::Key::new(hmac::$algorithm, key))))
            }
        }

        of_a_stream!($name, $len, sign);
    };
}

hash!(Sha256, SHA256, U32);
hash!(Sha512, SHA512, U64);
mac!(HmacSha256, HMAC_SHA256, U32);
mac!(HmacSha1, HMAC_SHA1_FOR_LEGACY_USE_ONLY, U20);

const SHORT_ENOUGH: &str = "HKDF-SHA-512 gives up to 16,320 bytes, far more than any use here";
/// What an absent salt is by RFC 5869. The module takes no empty one for approved.
const NO_SALT: [u8; 64] = [0; 64];

/// The length of a derived key.
struct Len(usize);

impl hkdf::KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-SHA-512 (RFC 5869) fills `out`; an absent salt is 64 zero bytes.
pub fn derive(secret: &[u8], salt: Option<&[u8]>, info: &[&[u8]], out: &mut [u8]) {
    let salt = salt.filter(|salt| !salt.is_empty()).unwrap_or(&NO_SALT);
    fill(&hkdf::Salt::new(hkdf::HKDF_SHA512, salt).extract(secret), info, out);
}

/// The first half of [`derive`], without a salt: an HMAC.
pub fn extract(secret: &[u8]) -> Zeroizing<[u8; 64]> {
    let prk = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA512, &NO_SALT), secret);
    Zeroizing::new(prk.as_ref().try_into().expect("HMAC-SHA-512 gives 64 bytes"))
}

/// The second half of [`derive`].
pub fn expand(prk: &[u8; 64], info: &[&[u8]], out: &mut [u8]) {
    fill(&hkdf::Prk::new_less_safe(hkdf::HKDF_SHA512, prk), info, out);
}

fn fill(prk: &hkdf::Prk, info: &[&[u8]], out: &mut [u8]) {
    let filled = prk.expand(info, Len(out.len())).and_then(|okm| okm.fill(out));
    filled.expect(SHORT_ENOUGH);
}

/// Fills a buffer from the module's generator.
///
/// # Errors
/// [`NoRandomness`].
pub fn fill_random(bytes: &mut [u8]) -> Result<(), NoRandomness> {
    rand::fill(bytes).map_err(|_| NoRandomness("the generator of AWS-LC failed".into()))
}

//! The cryptography of the workspace: digests, HMAC, HKDF, AES-256-GCM and random bytes.
//!
//! The default build takes each from the library that is quickest here. The feature `fips` takes
//! all of them from aws-lc's FIPS module; the bytes are the same, so either build opens what the
//! other one stored (docs/decisions/0070-fips.md). MD5, SHA-1 and CRCs that S3 defines as ETags and
//! checksums protect nothing, and are not here.

pub mod aead;
#[cfg(any(feature = "fips", test))]
#[allow(unreachable_pub, reason = "in the other build it is there for tests")]
mod module;
#[cfg(any(not(feature = "fips"), test))]
#[allow(unreachable_pub, reason = "in the other build it is there for tests")]
mod portable;
mod randomness;

#[cfg(feature = "fips")]
use module as chosen;
#[cfg(not(feature = "fips"))]
use portable as chosen;

pub use chosen::{HmacSha1, HmacSha256, Sha256, Sha512, derive, expand, extract, fill_random};
pub use hmac::{KeyInit, Mac};
pub use randomness::NoRandomness;
pub use sha2::Digest;

/// Whether this build takes all its cryptography from the FIPS module.
pub const FIPS: bool = cfg!(feature = "fips");

/// A random number, for names that nobody needs to guess.
///
/// # Errors
/// [`NoRandomness`].
pub fn random_u64() -> Result<u64, NoRandomness> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// The FIPS module that this program is linked with, by name and version.
///
/// # Errors
/// In words, when the library is not the module, or the module is not in its FIPS mode.
pub fn fips_module() -> Result<String, String> {
    aws_lc_rs::try_fips_mode().map_err(|error| format!("AWS-LC {}: {error}", aws_lc_rs::awslc_version()))?;
    Ok(format!("AWS-LC FIPS {}", aws_lc_rs::awslc_version()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmac::digest;
    use proptest::prelude::*;

    fn hash<D: Digest>(pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut digest = D::new();
        let mut pieces = pieces.iter();
        pieces.by_ref().take(2).for_each(|piece| digest.update(piece));
        pieces.fold(digest, |digest, piece| digest.chain_update(piece)).finalize().to_vec()
    }

    fn mac<M: Mac + KeyInit>(key: &[u8], pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
        pieces.iter().for_each(|piece| mac.update(piece));
        mac.finalize().into_bytes().to_vec()
    }

    fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..max)
    }

    proptest! {
        #[test]
        fn the_module_gives_the_same_digests(pieces in prop::collection::vec(bytes(300), 0..6)) {
            prop_assert_eq!(hash::<module::Sha256>(&pieces), hash::<portable::Sha256>(&pieces));
            prop_assert_eq!(hash::<module::Sha512>(&pieces), hash::<portable::Sha512>(&pieces));
        }

        #[test]
        fn the_module_gives_the_same_macs(key in bytes(200), pieces in prop::collection::vec(bytes(300), 0..6)) {
            prop_assert_eq!(mac::<module::HmacSha256>(&key, &pieces), mac::<portable::HmacSha256>(&key, &pieces));
            prop_assert_eq!(mac::<module::HmacSha1>(&key, &pieces), mac::<portable::HmacSha1>(&key, &pieces));
        }

        #[test]
        fn the_module_derives_the_same_keys(
            secret in bytes(80),
            salt in prop::option::of(bytes(200)),
            info in prop::collection::vec(bytes(200), 0..4),
            len in 1_usize..300,
        ) {
            let info: Vec<&[u8]> = info.iter().map(Vec::as_slice).collect();
            let (mut one, mut two) = (vec![0; len], vec![0; len]);
            module::derive(&secret, salt.as_deref(), &info, &mut one);
            portable::derive(&secret, salt.as_deref(), &info, &mut two);
            prop_assert_eq!(&one, &two);
            let prk = portable::extract(&secret);
            prop_assert_eq!(module::extract(&secret), prk.clone());
            module::expand(&prk, &info, &mut one);
            portable::expand(&prk, &info, &mut two);
            prop_assert_eq!(&one, &two);
        }
    }

    #[test]
    fn a_digest_goes_on_from_its_copy() {
        let one = Sha256::new().chain_update(b"deltas ");
        let two = one.clone().chain_update(b"and bases").finalize();
        assert_eq!(two, Sha256::digest(b"deltas and bases"));
        assert_eq!(one.finalize(), Sha256::digest(b"deltas "));
    }

    #[test]
    fn a_digest_that_was_taken_begins_anew() {
        fn twice<D: Digest + digest::FixedOutputReset>() -> [Vec<u8>; 2] {
            let mut digest = D::new_with_prefix(b"deltas");
            let first = Digest::finalize_reset(&mut digest).to_vec();
            Digest::update(&mut digest, b"bases");
            [first, Digest::finalize(digest).to_vec()]
        }
        assert_eq!(
            twice::<module::Sha256>(),
            [b"deltas".as_slice(), b"bases"].map(|text| Sha256::digest(text).to_vec())
        );
        assert_eq!(
            twice::<module::Sha512>(),
            [b"deltas".as_slice(), b"bases"].map(|text| Sha512::digest(text).to_vec())
        );
        assert_eq!(twice::<portable::Sha256>(), twice::<module::Sha256>());
    }

    #[test]
    fn random_bytes_are_not_the_same_twice() {
        for fill in [module::fill_random, portable::fill_random] {
            let (mut one, mut two) = ([0; 32], [0; 32]);
            fill(&mut one).expect("the system has randomness");
            fill(&mut two).expect("the system has randomness");
            assert!(one != two && one != [0; 32]);
        }
    }

    #[test]
    fn a_library_that_is_not_the_module_is_not_taken_for_it() {
        let found = fips_module();
        assert_eq!(found.is_ok(), FIPS, "{found:?}");
        assert!(found.unwrap_or_else(|error| error).contains("FIPS"));
    }
}

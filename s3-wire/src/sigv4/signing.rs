//! Signing keys, and the chain of chunk signatures that starts from them.

use super::SecretKey;
use crate::timestamp;
use aws_sigv4::sign::v4;
use crypto::{Digest, FIPS, HmacSha256, KeyInit, Mac, Sha256};
use std::{fmt, time::UNIX_EPOCH};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The service that a signature is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningService {
    /// Amazon S3.
    S3,
    /// The Security Token Service.
    Sts,
}

impl SigningService {
    /// Its name in credential scopes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Sts => "sts",
        }
    }
}

/// The credential scope of a signature: what its key is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `YYYYMMDD`
    pub date: String,
    /// The region.
    pub region: String,
    /// The service.
    pub service: SigningService,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/aws4_request", self.date, self.region, self.service.as_str())
    }
}

/// A signing key, wiped when dropped. Never printed.
#[derive(Clone)]
pub(crate) struct SigningKey(Zeroizing<[u8; 32]>);

impl SigningKey {
    /// The key of a scope, as `aws_sigv4` derives it. A date that is none gives a key that nobody
    /// signs with.
    pub(crate) fn derive(secret: &SecretKey, scope: &Scope) -> Self {
        let day = timestamp::parse_compact(&format!("{}T000000Z", scope.date)).unwrap_or(UNIX_EPOCH);
        if FIPS {
            return Self::chained(secret, &timestamp::compact(day)[..8], &scope.region, scope.service.as_str());
        }
        let derived = v4::generate_signing_key(secret.expose(), day, &scope.region, scope.service.as_str());
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(derived.as_ref());
        Self(key)
    }

    /// The same from the HMAC of this build: the chain that `aws_sigv4` has of its own.
    pub(super) fn chained(secret: &SecretKey, date: &str, region: &str, service: &str) -> Self {
        let start = Zeroizing::new(format!("AWS4{}", secret.expose()));
        let of_date = hmac(start.as_bytes(), date.as_bytes());
        let steps = [region, service, "aws4_request"];
        Self(steps.iter().fold(of_date, |key, step| hmac(&*key, step.as_bytes())))
    }

    /// The signature of a string, in lower-case hex.
    pub(crate) fn sign(&self, string_to_sign: &str) -> String {
        if FIPS {
            return self.sign_here(string_to_sign);
        }
        v4::calculate_signature(self.0.as_slice(), string_to_sign.as_bytes())
    }

    /// The same from the HMAC of this build.
    pub(super) fn sign_here(&self, string_to_sign: &str) -> String {
        hex::encode(*hmac(&*self.0, string_to_sign.as_bytes()))
    }
}

fn hmac(key: &[u8], message: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut mac = <HmacSha256 as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// Compares two signatures without telling by its time where they differ (C27).
pub(crate) fn same_signature(ours: &str, theirs: &str) -> bool {
    ours.as_bytes().ct_eq(theirs.as_bytes()).into()
}

/// Verifies the chain of chunk signatures of one streaming upload: every signature covers the one
/// before it, the first covers that of the request. Holds the signing key, wiped on drop.
///
/// Source: "Signature calculations for the Authorization header: transferring payload in multiple
/// chunks" (S3 API Reference).
#[derive(Clone)]
pub struct ChunkSigner {
    key: SigningKey,
    timestamp: String,
    scope: Scope,
    previous: String,
}

impl ChunkSigner {
    pub(crate) fn new(key: SigningKey, timestamp: String, scope: Scope, seed_signature: String) -> Self {
        Self { key, timestamp, scope, previous: seed_signature }
    }

    /// Checks the signature of the next chunk, given the SHA-256 of its data. The chain moves on
    /// only when it is good.
    pub fn verify_chunk(&mut self, data_sha256: [u8; 32], signature: &str) -> bool {
        let ours = self.chunk_signature(data_sha256);
        self.step(ours, signature)
    }

    /// Checks the signature of the trailer, given the SHA-256 of its canonical lines
    /// (`name:value\n` each).
    pub fn verify_trailer(&mut self, lines_sha256: [u8; 32], signature: &str) -> bool {
        let ours = self.trailer_signature(lines_sha256);
        self.step(ours, signature)
    }

    fn step(&mut self, ours: String, theirs: &str) -> bool {
        let same = same_signature(&ours, theirs);
        if same {
            self.previous = ours;
        }
        same
    }

    pub(crate) fn chunk_signature(&self, data_sha256: [u8; 32]) -> String {
        let empty = hex::encode(Sha256::digest(b""));
        let data = hex::encode(data_sha256);
        let Self { timestamp, scope, previous, .. } = self;
        self.key.sign(&format!("AWS4-HMAC-SHA256-PAYLOAD\n{timestamp}\n{scope}\n{previous}\n{empty}\n{data}"))
    }

    pub(crate) fn trailer_signature(&self, lines_sha256: [u8; 32]) -> String {
        let lines = hex::encode(lines_sha256);
        let Self { timestamp, scope, previous, .. } = self;
        self.key.sign(&format!("AWS4-HMAC-SHA256-TRAILER\n{timestamp}\n{scope}\n{previous}\n{lines}"))
    }
}

impl fmt::Debug for ChunkSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkSigner(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn keys_and_signatures_are_those_of_the_documented_chain(secret in "\\PC{1,60}", region in "[a-z0-9-]{1,20}", text in any::<String>(), day in 0u64..40_000) {
            let date = timestamp::compact(UNIX_EPOCH + Duration::from_secs(day * 86_400))[..8].to_owned();
            let steps = [date.as_str(), region.as_str(), "s3", "aws4_request", text.as_str()];
            let start = format!("AWS4{secret}").into_bytes();
            let chain = steps.iter().fold(start, |key, step| hmac(&key, step.as_bytes()).to_vec());
            let scope = Scope { date: date.clone(), region: region.clone(), service: SigningService::S3 };
            let secret = SecretKey::new(secret);
            let derived = SigningKey::derive(&secret, &scope);
            prop_assert_eq!(derived.sign(&text), hex::encode(chain));
            // A build with `fips` signs so; the other one as `aws_sigv4` does.
            let chained = SigningKey::chained(&secret, &date, &region, "s3");
            prop_assert_eq!(&*chained.0, &*derived.0);
            prop_assert_eq!(chained.sign_here(&text), derived.sign(&text));
        }
    }

    #[test]
    fn nothing_secret_is_printed() {
        // C116
        let secret = SecretKey::new("hunter2");
        let scope = Scope { date: "20260101".into(), region: "r".into(), service: SigningService::S3 };
        let signer = ChunkSigner::new(SigningKey::derive(&secret, &scope), String::new(), scope, "seed".into());
        let printed = format!("{secret:?} {signer:?}");
        assert!(!printed.contains("hunter2") && !printed.contains("seed"), "{printed}");
    }

    #[test]
    fn signatures_of_other_lengths_differ() {
        assert!(same_signature("ab", "ab"));
        assert!(!same_signature("ab", "abc"));
        assert!(!same_signature("ab", ""));
    }
}

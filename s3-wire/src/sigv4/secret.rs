//! Secrets that never print themselves and are wiped when dropped.

use crypto::{HmacSha256, KeyInit, Mac};
use std::fmt;
use zeroize::Zeroizing;

/// A secret access key. `Debug` shows nothing of it; its memory is wiped on drop.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<String>);

impl SecretKey {
    /// Takes a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(Zeroizing::new(secret.into()))
    }

    /// The secret itself, for who seals it or compares it with another.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A key of 32 bytes for a purpose of its own: HMAC-SHA256 of `purpose` under this secret. Who
    /// has the one cannot find the other.
    pub fn derived(&self, purpose: &[u8]) -> Zeroizing<[u8; 32]> {
        let mut mac =
            <HmacSha256 as KeyInit>::new_from_slice(self.0.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(purpose);
        Zeroizing::new(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

/// Why there is no secret to verify a signature with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSecret {
    /// There is no such key, or the session token is not one of its.
    Unknown,
    /// The session token is one of ours, and has expired.
    Expired,
    /// It is not known at the moment which keys are good.
    NotNow,
}

/// Where secrets are looked up.
pub trait CredentialStore {
    /// The secret of an access key. A session token, when the request carries one, is part of the
    /// identity: a store without sessions must answer [`NoSecret::Unknown`] for it (C26).
    ///
    /// # Errors
    /// There is no such (active) key.
    fn secret(&self, access_key_id: &str, session_token: Option<&str>) -> Result<SecretKey, NoSecret>;
}

/// A closure from access key to secret: a store without sessions.
impl<F: Fn(&str) -> Option<SecretKey>> CredentialStore for F {
    fn secret(&self, access_key_id: &str, session_token: Option<&str>) -> Result<SecretKey, NoSecret> {
        if session_token.is_some() { None } else { self(access_key_id) }.ok_or(NoSecret::Unknown)
    }
}

//! Secrets that never print themselves and are wiped when dropped.

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

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

/// Where secrets are looked up.
pub trait CredentialStore {
    /// The secret of an access key, `None` when there is no such (active) key. A session token,
    /// when the request carries one, is part of the identity: a store without sessions must answer
    /// `None` for it (C26).
    fn secret(&self, access_key_id: &str, session_token: Option<&str>) -> Option<SecretKey>;
}

/// A closure from access key to secret: a store without sessions.
impl<F: Fn(&str) -> Option<SecretKey>> CredentialStore for F {
    fn secret(&self, access_key_id: &str, session_token: Option<&str>) -> Option<SecretKey> {
        if session_token.is_some() { None } else { self(access_key_id) }
    }
}

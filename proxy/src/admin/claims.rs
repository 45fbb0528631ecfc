//! People who signed in at an issuer, until the console's page asks for its session.

use super::access::Access;
use crate::oidc::Identity;
use http::HeaderValue;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The cookie that a browser carries between both ends of a sign-in, over plain HTTP and over TLS.
/// It is sent with the navigation that the issuer causes, which a strict one would not be.
pub(super) const COOKIES: [&str; 2] = ["deltaweir-sign-in", "__Host-deltaweir-sign-in"];
/// How long a page has to make a session of a sign-in.
const CLAIMED_WITHIN: Duration = Duration::from_secs(60);
/// Sign-ins that wait for their page; the oldest makes room.
const WAITING_MAX: usize = 64;

/// People who signed in, until their page asks.
#[derive(Default)]
pub(super) struct Claims(Mutex<Vec<Waiting>>);

struct Waiting {
    code: String,
    state: String,
    who: Identity,
    until: Instant,
}

impl Claims {
    /// A code for who signed in.
    pub(super) fn leave(&self, state: String, who: Identity) -> Result<String, crypto::NoRandomness> {
        let mut random = [0; 32];
        crypto::fill_random(&mut random)?;
        let code = hex::encode(random);
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        waiting.retain(|waiting| waiting.until > now);
        if waiting.len() >= WAITING_MAX {
            waiting.remove(0);
        }
        waiting.push(Waiting { code: code.clone(), state, who, until: now + CLAIMED_WITHIN });
        Ok(code)
    }

    /// Who left a code, once. A code that is claimed by another browser is gone as well.
    pub(super) fn claim(&self, code: &str, state: &str) -> Option<Identity> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A code is as long as a key, and is looked up, not compared byte by byte with a known one.
        let found = waiting.iter().position(|waiting| waiting.code == code)?;
        let found = waiting.remove(found);
        (found.state == state && found.until > Instant::now()).then_some(found.who)
    }
}

/// The cookie of a sign-in, for so many seconds.
pub(super) fn cookie(access: &Access, sealed: &str, seconds: u32) -> HeaderValue {
    let (name, secure) = if access.is_tls() { (COOKIES[1], "; Secure") } else { (COOKIES[0], "") };
    let cookie = format!("{name}={sealed}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&cookie).expect("base64 and words are a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_is_claimed_once_and_by_its_own_browser() {
        let claims = Claims::default();
        let who = || Identity { name: "ann".into(), may_write: false };
        let code = claims.leave("mine".into(), who()).unwrap();
        assert_eq!(claims.claim("another", "mine"), None);
        assert_eq!(claims.claim(&code, "mine"), Some(who()));
        assert_eq!(claims.claim(&code, "mine"), None);
        let code = claims.leave("mine".into(), who()).unwrap();
        assert_eq!(claims.claim(&code, "yours"), None);
        assert_eq!(claims.claim(&code, "mine"), None, "who guessed has spoiled it");
    }
}

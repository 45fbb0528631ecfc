//! Sessions of the console: what a browser holds in place of the admin token. A session has two
//! halves, and a request must show both (docs/decisions/0028-console-sessions.md).

use super::scope::Scope;
use crypto::{Digest as _, NoRandomness, Sha256, fill_random};
use http::{HeaderMap, HeaderValue, header};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq as _;

/// Sessions that are open at once; the oldest makes room.
const SESSIONS_MAX: usize = 64;
/// How long one lasts.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// The header with the half that scripts of the console hold.
pub const SESSION_HEADER: &str = "x-deltaweir-session";
/// The cookie with the other half, over plain HTTP and over TLS.
const COOKIES: [&str; 2] = ["deltaweir-session", "__Host-deltaweir-session"];

/// The sessions of one server. Digests only: memory that leaks opens nothing.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Vec<Session>>);

struct Session {
    cookie: [u8; 32],
    key: [u8; 32],
    scope: Scope,
    who: Option<Arc<str>>,
    ends: Instant,
}

/// A session that is wanted.
pub(super) struct Sought {
    pub(super) scope: Scope,
    pub(super) lifetime: Duration,
    /// Whose it is, where that is known: a token has no name.
    pub(super) who: Option<String>,
}

/// A session that was opened: the two halves.
pub(super) struct Opened {
    /// The value of `Set-Cookie`.
    pub(super) cookie: HeaderValue,
    /// What [`SESSION_HEADER`] must be.
    pub(super) key: String,
    pub(super) scope: Scope,
    pub(super) who: Option<Arc<str>>,
}

impl Sessions {
    fn locked(&self) -> MutexGuard<'_, Vec<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub(super) fn open(&self, sought: Sought, tls: bool) -> Result<Opened, NoRandomness> {
        let Sought { scope, lifetime, who } = sought;
        let who: Option<Arc<str>> = who.map(Arc::from);
        let (half, key) = (random()?, random()?);
        let now = Instant::now();
        let mut held = self.locked();
        held.retain(|session| session.ends > now);
        if held.len() >= SESSIONS_MAX {
            held.remove(0);
        }
        held.push(Session { cookie: digest(&half), key: digest(&key), scope, who: who.clone(), ends: now + lifetime });
        let (name, secure) = if tls { (COOKIES[1], "; Secure") } else { (COOKIES[0], "") };
        let seconds = lifetime.as_secs();
        let cookie = format!("{name}={half}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
        let cookie = HeaderValue::from_str(&cookie).expect("hex digits and words are a header value");
        Ok(Opened { cookie, key, scope, who })
    }

    /// What the session of a request allows, and whose it is; `None` when it shows none that is
    /// open.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<(Scope, Option<Arc<str>>)> {
        let (cookie, key) = halves(headers)?;
        let now = Instant::now();
        let held = self.locked();
        let mut same = held.iter().filter(|session| {
            bool::from(session.cookie.ct_eq(&cookie) & session.key.ct_eq(&key)) && session.ends > now
        });
        same.next().map(|session| (session.scope, session.who.clone()))
    }

    /// Ends the session of a request.
    pub(super) fn end(&self, headers: &HeaderMap) {
        if let Some((cookie, key)) = halves(headers) {
            self.locked().retain(|session| !bool::from(session.cookie.ct_eq(&cookie) & session.key.ct_eq(&key)));
        }
    }
}

/// The digests of both halves that a request shows.
fn halves(headers: &HeaderMap) -> Option<([u8; 32], [u8; 32])> {
    let key = headers.get(SESSION_HEADER)?.to_str().ok()?;
    let pairs = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(name, _)| COOKIES.contains(name)).map(|(_, value)| value);
    // Two of them: somebody else has set one.
    let (Some(cookie), None) = (found.next(), found.next()) else { return None };
    Some((digest(cookie), digest(key)))
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn random() -> Result<String, NoRandomness> {
    let mut bytes = [0; 32];
    fill_random(&mut bytes)?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sought(scope: Scope) -> Sought {
        Sought { scope, lifetime: LIFETIME, who: None }
    }

    fn scope_of(sessions: &Sessions, headers: &HeaderMap) -> Option<Scope> {
        sessions.of(headers).map(|(scope, _)| scope)
    }

    fn shown(cookie: &str, key: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_str(cookie).unwrap());
        headers.insert(SESSION_HEADER, HeaderValue::from_str(key).unwrap());
        headers
    }

    #[test]
    fn a_session_takes_both_halves_and_ends() {
        let sessions = Sessions::default();
        let [first, second] = [Scope::Write, Scope::Read].map(|scope| sessions.open(sought(scope), false).unwrap());
        let pair = |opened: &Opened| opened.cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
        let (cookie, other) = (pair(&first), pair(&second));
        assert_eq!(scope_of(&sessions, &shown(&format!("a=b; {cookie}"), &first.key)), Some(Scope::Write));
        assert_eq!(scope_of(&sessions, &shown(&other, &second.key)), Some(Scope::Read));
        for (cookie, key) in [(&*cookie, &*second.key), (&other, &first.key), ("a=b", &first.key), (&cookie, "")] {
            assert_eq!(scope_of(&sessions, &shown(cookie, key)), None);
        }
        let twice = format!("{cookie}; {other}");
        assert_eq!(scope_of(&sessions, &shown(&twice, &first.key)), None);
        sessions.end(&shown(&cookie, &first.key));
        assert_eq!(scope_of(&sessions, &shown(&cookie, &first.key)), None);
        assert_eq!(scope_of(&sessions, &shown(&other, &second.key)), Some(Scope::Read));
    }

    #[test]
    fn a_session_ends_when_its_lifetime_does_and_says_whose_it_is() {
        let sessions = Sessions::default();
        let open = |lifetime| {
            let who = Some("oidc:ann".to_owned());
            let opened = sessions.open(Sought { scope: Scope::Read, lifetime, who }, false).unwrap();
            let cookie = opened.cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
            sessions.of(&shown(&cookie, &opened.key))
        };
        assert_eq!(open(LIFETIME), Some((Scope::Read, Some("oidc:ann".into()))));
        assert_eq!(open(Duration::ZERO), None);
    }

    #[test]
    fn the_cookie_is_kept_from_scripts_and_other_sites_and_the_oldest_session_makes_room() {
        let sessions = Sessions::default();
        let opened = sessions.open(sought(Scope::Write), true).unwrap();
        let cookie = opened.cookie.to_str().unwrap().to_owned();
        assert!(
            cookie.starts_with("__Host-")
                && cookie.contains("; HttpOnly; SameSite=Strict")
                && cookie.ends_with("; Secure")
        );
        let first = shown(cookie.split(';').next().unwrap(), &opened.key);
        assert_eq!(scope_of(&sessions, &first), Some(Scope::Write));
        for _ in 0..SESSIONS_MAX {
            sessions.open(sought(Scope::Read), false).unwrap();
        }
        assert_eq!(scope_of(&sessions, &first), None);
        assert_eq!(sessions.locked().len(), SESSIONS_MAX);
    }
}

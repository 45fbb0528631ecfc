//! A sign-in between its two ends. The browser carries it, sealed under a key of this process:
//! nothing is kept here, so nobody can fill it up.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use crypto::{
    NoRandomness,
    aead::{Aead as _, NONCE_LEN, Short, TAG_LEN},
    fill_random,
};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long somebody may take to sign in.
const FLOW_LIFETIME: Duration = Duration::from_secs(600);
/// Longer cookies are none of ours.
const SEALED_LEN_MAX: usize = 1024;

/// A sign-in under way.
#[derive(Deserialize, Serialize)]
pub struct Flow {
    /// What the issuer sends back with the browser.
    pub state: String,
    /// What the ID token must say.
    pub(super) nonce: String,
    /// What the code is redeemed with (RFC 7636).
    pub(super) verifier: String,
    began_s: u64,
}

/// Seals and opens sign-ins.
pub(super) struct Flows(Short);

impl Flows {
    /// # Errors
    /// [`NoRandomness`].
    pub(super) fn new() -> Result<Self, NoRandomness> {
        let mut key = zeroize::Zeroizing::new([0; 32]);
        fill_random(&mut *key)?;
        Ok(Self(Short::new(&key)))
    }

    /// A new sign-in, and what the browser carries.
    ///
    /// # Errors
    /// In words, when there are no random bytes.
    pub(super) fn begin(&self, now: SystemTime) -> Result<(Flow, String), String> {
        let failed = |error: NoRandomness| error.to_string();
        let text = || random().map_err(failed);
        let flow = Flow { state: text()?, nonce: text()?, verifier: text()?, began_s: seconds(now) };
        let mut nonce = [0; NONCE_LEN];
        fill_random(&mut nonce).map_err(failed)?;
        let mut sealed = serde_json::to_vec(&flow).map_err(|error| error.to_string())?;
        let tag = self.0.seal(nonce, b"", &mut sealed);
        Ok((flow, URL_SAFE_NO_PAD.encode([&nonce[..], &sealed, &tag[..]].concat())))
    }

    /// The sign-in that a browser carries; `None` for anything else, or one that took too long.
    pub(super) fn open(&self, carried: &str, now: SystemTime) -> Option<Flow> {
        let carried = Some(carried).filter(|carried| carried.len() <= SEALED_LEN_MAX)?;
        let bytes = URL_SAFE_NO_PAD.decode(carried).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let (sealed, tag) = sealed.split_last_chunk::<TAG_LEN>()?;
        let mut plain = zeroize::Zeroizing::new(sealed.to_vec());
        self.0.open(*nonce, b"", &mut plain, tag).ok()?;
        let flow: Flow = serde_json::from_slice(&plain).ok()?;
        let age_s = seconds(now).checked_sub(flow.began_s)?;
        (age_s <= FLOW_LIFETIME.as_secs()).then_some(flow)
    }
}

fn seconds(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// 32 random bytes as 43 characters: enough for a verifier of PKCE.
fn random() -> Result<String, NoRandomness> {
    let mut bytes = [0; 32];
    fill_random(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_comes_back_from_its_own_browser_and_in_time() {
        let (flows, others) = (Flows::new().unwrap(), Flows::new().unwrap());
        let began = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let (flow, carried) = flows.begin(began).unwrap();
        let open = |carried: &str, after_s| flows.open(carried, began + Duration::from_secs(after_s));
        let back = open(&carried, 600).unwrap();
        assert_eq!(
            (back.state, back.nonce, back.verifier),
            (flow.state.clone(), flow.nonce.clone(), flow.verifier.clone())
        );
        assert!(open(&carried, 601).is_none() && flows.open(&carried, began - Duration::from_secs(1)).is_none());
        assert!(others.open(&carried, began).is_none(), "of another process");
        let mut changed = carried.clone().into_bytes();
        changed[30] = if changed[30] == b'A' { b'B' } else { b'A' };
        for carried in [std::str::from_utf8(&changed).unwrap(), "", "A", &carried[1..], &"A".repeat(2000)] {
            assert!(open(carried, 0).is_none(), "{carried}");
        }
        assert!(flow.verifier.len() == 43 && flow.state != flow.nonce && flow.state != flow.verifier);
        assert_ne!(flows.begin(began).unwrap().0.state, flow.state);
    }
}

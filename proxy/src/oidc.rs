//! Signing in by OpenID Connect: the authorization code flow with PKCE, state and nonce
//! (docs/decisions/0035-sign-in.md). The issuer's addresses stand in its own document, which the
//! configuration names; nothing of a request leads anywhere else.

mod flow;
mod token;

pub use flow::Flow;

use crate::{
    config::{OidcConfig, is_trustworthy},
    webhooks::{in_words, outward},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use crypto::{Digest as _, Sha256};
use flow::Flows;
use jsonwebtoken::jwk::JwkSet;
use reqwest::{Client, RequestBuilder, Url, header};
use secrecy::ExposeSecret as _;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use token::{Expected, Rejected};
use tokio::sync::Mutex;

/// How long the issuer may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long the issuer's addresses and keys are believed.
const BELIEVED_FOR: Duration = Duration::from_secs(3600);
/// How soon keys are asked for again because a token names one that is not known.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Sign-in by one issuer.
pub struct Oidc {
    config: OidcConfig,
    client: Client,
    flows: Flows,
    known: Mutex<Known>,
}

/// What the issuer says of itself.
#[derive(Default)]
struct Known {
    provider: Option<(Instant, Arc<Provider>)>,
    keys: Option<(Instant, Arc<JwkSet>)>,
}

/// The issuer's document (OpenID Connect Discovery 1.0).
#[derive(Deserialize)]
struct Provider {
    issuer: String,
    #[serde(deserialize_with = "url")]
    authorization_endpoint: Url,
    #[serde(deserialize_with = "url")]
    token_endpoint: Url,
    #[serde(deserialize_with = "url")]
    jwks_uri: Url,
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    Url::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// Who signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What the issuer calls them, for people to read.
    pub name: String,
    /// Whether they may change things, or only look.
    pub may_write: bool,
}

/// Why nobody signed in.
#[derive(Debug)]
pub enum SignInError {
    /// The issuer, or this server, does not work as it should.
    Unavailable(String),
    /// What came is not a sign-in that began here.
    Refused(String),
    /// Somebody signed in who may do nothing here.
    NoRole(String),
}

impl Oidc {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// In words, when TLS or random bytes are not to be had.
    pub fn new(config: OidcConfig) -> Result<Arc<Self>, String> {
        token::install();
        let mut client = outward().timeout(ANSWER_MAX);
        if !config.authorities.is_empty() {
            client = client.tls_certs_only(config.authorities.clone());
        }
        let client = client.build().map_err(|error| format!("oidc: {error}"))?;
        let flows = Flows::new().map_err(|error| format!("oidc: {error}"))?;
        Ok(Arc::new(Self { config, client, flows, known: Mutex::default() }))
    }

    /// What the console calls it.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// How long a session lasts.
    pub fn session_lifetime(&self) -> Duration {
        self.config.session_lifetime
    }

    /// Begins a sign-in: where the browser goes, and what it must bring back sealed.
    ///
    /// # Errors
    /// [`SignInError::Unavailable`].
    pub async fn begin(&self, now: SystemTime) -> Result<(Url, String), SignInError> {
        let provider = self.provider().await?;
        let (flow, sealed) = self.flows.begin(now).map_err(SignInError::Unavailable)?;
        let scopes: Vec<&str> =
            std::iter::once("openid").chain(self.config.scopes.iter().map(String::as_str)).collect();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(flow.verifier.as_bytes()));
        let mut url = provider.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", &self.config.redirect_uri)
            .append_pair("scope", &scopes.join(" "))
            .append_pair("state", &flow.state)
            .append_pair("nonce", &flow.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok((url, sealed))
    }

    /// The sign-in that a browser brings back.
    ///
    /// # Errors
    /// [`SignInError::Refused`] when it did not begin here, or lately.
    pub fn resume(&self, sealed: &str, now: SystemTime) -> Result<Flow, SignInError> {
        let refused = || SignInError::Refused("this browser began no sign-in here within ten minutes".into());
        self.flows.open(sealed, now).ok_or_else(refused)
    }

    /// Ends a sign-in: who it is. `issuer` is who sent the browser back, where it says so (RFC
    /// 9207).
    ///
    /// # Errors
    /// [`SignInError`].
    pub async fn finish(&self, flow: &Flow, code: &str, issuer: Option<&str>) -> Result<Identity, SignInError> {
        if issuer.is_some_and(|issuer| issuer != self.config.issuer) {
            return Err(SignInError::Refused("another issuer sent this browser back".into()));
        }
        let token = self.redeem(flow, code).await?;
        let expected = Expected { issuer: &self.config.issuer, client_id: &self.config.client_id, nonce: &flow.nonce };
        let claims = match token::claims(&token, &*self.keys(BELIEVED_FOR).await?, &expected) {
            Err(Rejected::UnknownKey) => token::claims(&token, &*self.keys(ASKED_AGAIN_AFTER).await?, &expected),
            read => read,
        };
        let claims = claims.map_err(|rejected| match rejected {
            Rejected::UnknownKey => SignInError::Refused("the ID token: the issuer has no such key".into()),
            Rejected::Because(why) => SignInError::Refused(format!("the ID token: {why}")),
        })?;
        self.identity(&claims)
    }

    /// Redeems a code for an ID token.
    async fn redeem(&self, flow: &Flow, code: &str) -> Result<String, SignInError> {
        let provider = self.provider().await?;
        let request = self.redemption(self.client.post(provider.token_endpoint.clone()), flow, code);
        let (status, body) = answer(request).await?;
        if status.is_server_error() {
            return Err(SignInError::Unavailable(format!("the issuer answered {status}")));
        }
        let refused = || SignInError::Refused(format!("the issuer did not take the code: {status}"));
        let tokens = Some(body).filter(|_| status.is_success()).and_then(|body| serde_json::from_slice(&body).ok());
        tokens.map(|Tokens { id_token }| id_token).ok_or_else(refused)
    }

    /// The request that redeems a code (RFC 6749, §4.1.3; RFC 7636, §4.5).
    fn redemption(&self, request: RequestBuilder, flow: &Flow, code: &str) -> RequestBuilder {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &self.config.redirect_uri)
            .append_pair("code_verifier", &flow.verifier);
        let request = match &self.config.client_secret {
            // Both halves are form-encoded before they are Basic's (RFC 6749, §2.3.1).
            Some(secret) => {
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                request.basic_auth(encoded(&self.config.client_id), Some(encoded(secret.expose_secret())))
            }
            None => {
                form.append_pair("client_id", &self.config.client_id);
                request
            }
        };
        request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.finish())
    }

    /// What the claims come to.
    fn identity(&self, claims: &Value) -> Result<Identity, SignInError> {
        let text = |name: &str| claims[name].as_str().filter(|text| !text.is_empty());
        let name = ["preferred_username", "email", "sub"].into_iter().find_map(text).unwrap_or_default();
        let name: String = name.chars().filter(|c| !c.is_control()).take(128).collect();
        let held = values_of(claims, &self.config.claim);
        let is_any = |of: &std::collections::BTreeSet<String>| held.iter().any(|value| of.contains(*value));
        match (is_any(&self.config.write), is_any(&self.config.read)) {
            (true, _) => Ok(Identity { name, may_write: true }),
            (false, true) => Ok(Identity { name, may_write: false }),
            (false, false) => Err(SignInError::NoRole(name)),
        }
    }

    async fn provider(&self) -> Result<Arc<Provider>, SignInError> {
        let mut known = self.known.lock().await;
        if let Some((at, provider)) = &known.provider
            && at.elapsed() < BELIEVED_FOR
        {
            return Ok(provider.clone());
        }
        let url = format!("{}/.well-known/openid-configuration", self.config.issuer.trim_end_matches('/'));
        let provider: Provider = document(self.client.get(url)).await?;
        if provider.issuer != self.config.issuer {
            return Err(SignInError::Unavailable("the issuer's document is of another issuer".into()));
        }
        let urls = [&provider.authorization_endpoint, &provider.token_endpoint, &provider.jwks_uri];
        if !urls.into_iter().all(is_trustworthy) {
            return Err(SignInError::Unavailable("the issuer's document names an address without TLS".into()));
        }
        let provider = Arc::new(provider);
        known.provider = Some((Instant::now(), provider.clone()));
        Ok(provider)
    }

    /// The issuer's keys, not older than so much.
    async fn keys(&self, age_max: Duration) -> Result<Arc<JwkSet>, SignInError> {
        let provider = self.provider().await?;
        let mut known = self.known.lock().await;
        if let Some((at, keys)) = &known.keys
            && at.elapsed() < age_max
        {
            return Ok(keys.clone());
        }
        let keys: Value = document(self.client.get(provider.jwks_uri.clone())).await?;
        // A key of a kind that is not known says nothing about the others.
        let keys = keys["keys"].as_array().into_iter().flatten();
        let keys = keys.filter_map(|key| serde_json::from_value(key.clone()).ok()).collect();
        let keys = Arc::new(JwkSet { keys });
        known.keys = Some((Instant::now(), keys.clone()));
        Ok(keys)
    }
}

/// The values of a claim: text, or texts. Dots lead into objects, unless a claim has them in its
/// name.
fn values_of<'v>(claims: &'v Value, path: &str) -> Vec<&'v str> {
    let nested = || path.split('.').try_fold(claims, |value, name| value.get(name));
    match claims.get(path).or_else(nested) {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

async fn document<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, SignInError> {
    let (status, body) = answer(request).await?;
    if !status.is_success() {
        return Err(SignInError::Unavailable(format!("the issuer answered {status}")));
    }
    serde_json::from_slice(&body).map_err(|error| SignInError::Unavailable(format!("the issuer's document: {error}")))
}

async fn answer(request: RequestBuilder) -> Result<(http::StatusCode, Vec<u8>), SignInError> {
    let failed =
        |error: reqwest::Error| SignInError::Unavailable(format!("the issuer: {}", in_words(&error.without_url())));
    let mut answer = request.header(header::ACCEPT, "application/json").send().await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(failed)? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(SignInError::Unavailable("the issuer's answer is too long".into()));
        }
        body.extend_from_slice(&piece);
    }
    Ok((answer.status(), body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_is_text_or_texts_and_may_lie_in_objects() {
        let claims = json!({"groups": ["a", 7, "b"], "role": "c", "realm": {"roles": ["d"]}, "x.y": "e", "n": 1});
        assert_eq!(values_of(&claims, "groups"), ["a", "b"]);
        assert_eq!(values_of(&claims, "role"), ["c"]);
        assert_eq!(values_of(&claims, "realm.roles"), ["d"]);
        assert_eq!(values_of(&claims, "x.y"), ["e"]);
        for none in ["n", "realm", "realm.nothing", "", "groups.a"] {
            assert!(values_of(&claims, none).is_empty(), "{none}");
        }
    }
}

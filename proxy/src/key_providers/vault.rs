//! The transit engine of HashiCorp Vault and OpenBao: `encrypt` and `decrypt`, with associated data
//! that name the KEK.

use super::call::{ProviderClient, Reply};
use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::{KekContext, KeyProvider, ProviderError};
use reqwest::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// What a KEK is bound to begins so.
const LABEL: &str = "deltaweir kek ";
/// Longest token file.
const TOKEN_LEN_MAX: usize = 16 << 10;

/// A transit key and who asks for it.
#[derive(Clone, Debug)]
pub struct VaultConfig {
    /// `https://vault.example:8200`.
    pub address: String,
    /// Where the transit engine is mounted.
    pub mount: String,
    /// The name of the key.
    pub key: String,
    /// Of Vault Enterprise and OpenBao.
    pub namespace: Option<String>,
    /// Who asks.
    pub login: VaultLogin,
}

/// Who asks.
#[derive(Clone, Debug)]
pub enum VaultLogin {
    /// Whoever has this token.
    Token(SecretString),
    /// Whoever has the token of this file; it is read for each call, so an agent may renew it.
    TokenFile(PathBuf),
    /// An application.
    AppRole {
        /// Where the method is mounted.
        mount: String,
        /// The role.
        role_id: SecretString,
        /// Its secret.
        secret_id: SecretString,
    },
}

/// A token that a login gave.
struct Session {
    token: SecretString,
    until: Instant,
}

pub(super) struct TransitKey {
    config: VaultConfig,
    /// Mount and key, as wraps name it.
    name: String,
    caller: ProviderClient,
    session: tokio::sync::Mutex<Option<Session>>,
}

impl TransitKey {
    pub(super) fn new(config: VaultConfig, caller: ProviderClient) -> Self {
        let name = format!("{}/{}", config.mount, config.key);
        Self { config, name, caller, session: tokio::sync::Mutex::default() }
    }

    fn url(&self, path: &str) -> String {
        format!("{}/v1/{path}", self.config.address.trim_end_matches('/'))
    }

    async fn post(&self, path: &str, token: Option<&SecretString>, body: &Value) -> Result<Reply, ProviderError> {
        let mut request = self.caller.post(&self.url(path)).body(body.to_string());
        request = request.header("content-type", "application/json").header("x-vault-request", "true");
        if let Some(namespace) = &self.config.namespace {
            request = request.header("x-vault-namespace", namespace);
        }
        if let Some(token) = token {
            let mut value = reqwest::header::HeaderValue::from_str(token.expose_secret())
                .map_err(|_| ProviderError::Refused("the token is no header value".into()))?;
            value.set_sensitive(true);
            request = request.header("x-vault-token", value);
        }
        self.caller.call(request).await
    }

    /// The token to ask with. `anew`: the one of before was refused.
    async fn token(&self, anew: bool) -> Result<SecretString, ProviderError> {
        let (mount, role_id, secret_id) = match &self.config.login {
            VaultLogin::Token(token) => return Ok(token.clone()),
            VaultLogin::TokenFile(path) => return token_of(path).await,
            VaultLogin::AppRole { mount, role_id, secret_id } => (mount, role_id, secret_id),
        };
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| !anew && Instant::now() < session.until) {
            return Ok(session.token.clone());
        }
        *session = None;
        let body = json!({ "role_id": role_id.expose_secret(), "secret_id": secret_id.expose_secret() });
        let reply = understood(self.post(&format!("auth/{mount}/login"), None, &body).await?, "login")?;
        let token = reply["auth"]["client_token"].as_str().map(|token| SecretString::from(token.to_owned()));
        let token = token.ok_or_else(|| ProviderError::Refused("its login gives no token".into()))?;
        // Before its end: a token that ends on the way is refused, and asked for once more.
        let lease = Duration::from_secs(reply["auth"]["lease_duration"].as_u64().unwrap_or(0));
        *session = Some(Session { token: token.clone(), until: Instant::now() + lease / 3 * 2 });
        Ok(token)
    }

    async fn transit(&self, call: &str, body: &Value) -> Result<Value, ProviderError> {
        let path = format!("{}/{call}/{}", self.config.mount, self.config.key);
        let mut reply = self.post(&path, Some(&self.token(false).await?), body).await?;
        if reply.status == StatusCode::FORBIDDEN && matches!(self.config.login, VaultLogin::AppRole { .. }) {
            reply = self.post(&path, Some(&self.token(true).await?), body).await?;
        }
        understood(reply, call)
    }
}

async fn token_of(path: &Path) -> Result<SecretString, ProviderError> {
    let unreadable = |why: String| ProviderError::Unavailable(format!("the token in {}: {why}", path.display()));
    let text = tokio::fs::read_to_string(path).await.map_err(|error| unreadable(error.to_string()))?;
    let text = Zeroizing::new(text);
    match text.trim() {
        "" => Err(unreadable("it is empty".into())),
        token if token.len() > TOKEN_LEN_MAX => Err(unreadable("it is too long".into())),
        token => Ok(SecretString::from(token.to_owned())),
    }
}

/// The context as Vault binds it.
fn bound_to(context: KekContext) -> String {
    BASE64_STANDARD.encode(format!("{LABEL}{}", hex::encode(context.fingerprint)))
}

fn understood(reply: Reply, call: &str) -> Result<Value, ProviderError> {
    let errors = |value: &Value| {
        let errors = value["errors"].as_array()?.iter().filter_map(Value::as_str).collect::<Vec<_>>();
        Some(errors.join("; "))
    };
    match reply.status.as_u16() {
        200 => reply.json(),
        // Of the API: not leader, too many, standby, sealed, not initialised.
        412 | 429 | 472 | 473 | 500..=599 => Err(ProviderError::Unavailable(format!("{call}: {}", reply.said(errors)))),
        _ => Err(ProviderError::Refused(format!("{call}: {}", reply.said(errors)))),
    }
}

#[async_trait]
impl KeyProvider for TransitKey {
    fn kind(&self) -> &'static str {
        "vault-transit"
    }

    fn key(&self) -> &str {
        &self.name
    }

    async fn wrap(&self, kek: &[u8; 32], context: KekContext) -> Result<Vec<u8>, ProviderError> {
        let plaintext = Zeroizing::new(BASE64_STANDARD.encode(kek));
        let bound = bound_to(context);
        // A key that derives asks for the context, any other for nothing of it.
        let body = json!({ "plaintext": plaintext.as_str(), "associated_data": bound, "context": bound });
        let reply = self.transit("encrypt", &body).await?;
        let sealed = reply["data"]["ciphertext"].as_str().filter(|sealed| sealed.starts_with("vault:v"));
        sealed
            .map(|sealed| sealed.as_bytes().to_vec())
            .ok_or_else(|| ProviderError::Refused("encrypt: no ciphertext".into()))
    }

    async fn unwrap(&self, sealed: &[u8], context: KekContext) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        let sealed =
            std::str::from_utf8(sealed).map_err(|_| ProviderError::Refused("no ciphertext of transit".into()))?;
        let bound = bound_to(context);
        let body = json!({ "ciphertext": sealed, "associated_data": bound, "context": bound });
        let reply = self.transit("decrypt", &body).await?;
        let plain = reply["data"]["plaintext"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        plain.map(Zeroizing::new).ok_or_else(|| ProviderError::Refused("decrypt: no plaintext".into()))
    }
}

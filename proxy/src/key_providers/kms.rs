//! AWS KMS: `Encrypt` and `Decrypt` of its JSON protocol 1.1, signed with Signature Version 4, with
//! an encryption context that names the KEK.

use super::call::{ProviderClient, Reply};
use crate::webhooks::in_words;
use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::{KekContext, KeyProvider, ProviderError};
use reqwest::Url;
use s3_wire::sigv4::{SecretKey, Sender};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use std::{path::PathBuf, time::SystemTime};
use storage_backends::read_profile;
use zeroize::Zeroizing;

/// The encryption context's only name.
const CONTEXT: &str = "deltaweir:kek";
const CONTENT_TYPE: &str = "application/x-amz-json-1.1";

/// A key of KMS and who asks for it.
#[derive(Clone, Debug)]
pub struct KmsConfig {
    /// Its id, ARN or alias.
    pub key: String,
    /// The region that signs.
    pub region: String,
    /// Where KMS is.
    pub endpoint: String,
    /// Who asks.
    pub credentials: KmsCredentials,
}

/// Who asks.
#[derive(Clone, Debug)]
pub enum KmsCredentials {
    /// Always the same.
    Static {
        /// The key pair's name.
        access_key_id: String,
        /// Its secret.
        secret_access_key: SecretString,
        /// Of temporary ones.
        session_token: Option<SecretString>,
    },
    /// A profile of a file of the AWS tools, which is read for each call.
    File {
        /// The file.
        path: PathBuf,
        /// `default` when there is none.
        profile: String,
    },
}

/// A key pair.
struct Pair {
    id: String,
    secret: SecretKey,
    token: Option<String>,
}

impl KmsCredentials {
    async fn get(&self) -> Result<Pair, ProviderError> {
        let of = |id: &str, secret: &str, token| Pair { id: id.to_owned(), secret: SecretKey::new(secret), token };
        match self {
            Self::Static { access_key_id, secret_access_key, session_token } => {
                let token = session_token.as_ref().map(|token| token.expose_secret().to_owned());
                Ok(of(access_key_id, secret_access_key.expose_secret(), token))
            }
            Self::File { path, profile } => {
                let unusable = |error| ProviderError::Unavailable(format!("{}: {}", path.display(), in_words(&error)));
                let found = read_profile(path, profile).await.map_err(unusable)?;
                Ok(of(&found.key_id, &Zeroizing::new(found.secret_key), found.token))
            }
        }
    }
}

pub(super) struct AwsKmsKey {
    config: KmsConfig,
    caller: ProviderClient,
}

impl AwsKmsKey {
    pub(super) fn new(config: KmsConfig, caller: ProviderClient) -> Self {
        Self { config, caller }
    }

    /// Signs a call and sends it.
    async fn call(&self, action: &str, body: &Value) -> Result<Value, ProviderError> {
        let body = Zeroizing::new(body.to_string());
        let target = format!("TrentService.{action}");
        let headers = [("content-type", CONTENT_TYPE), ("x-amz-target", target.as_str())];
        let url = Url::parse(&format!("{}/", self.config.endpoint.trim_end_matches('/')))
            .map_err(|error| ProviderError::Refused(format!("{}: {error}", self.config.endpoint)))?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", url.host_str().unwrap_or_default());
        let pair = self.config.credentials.get().await?;
        let sender = Sender {
            access_key_id: &pair.id,
            secret: &pair.secret,
            session_token: pair.token.as_deref(),
            region: &self.config.region,
            service: "kms",
        };
        let signed = sender
            .sign_post((&host, url.path()), &headers, body.as_bytes(), SystemTime::now())
            .map_err(|why| ProviderError::Refused(format!("{action} cannot be signed: {why}")))?;
        let mut request = self.caller.post(url.as_str()).body(body.as_bytes().to_vec());
        for (name, value) in
            headers.into_iter().chain(signed.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        {
            request = request.header(name, value);
        }
        understood(&self.caller.call(request).await?, action)
    }

    fn context(context: KekContext) -> Value {
        json!({ CONTEXT: hex::encode(context.fingerprint) })
    }
}

fn understood(reply: &Reply, action: &str) -> Result<Value, ProviderError> {
    let kind = |value: &Value| {
        let kind = value["__type"].as_str()?;
        Some(kind.rsplit('#').next().unwrap_or(kind).to_owned())
    };
    let said = reply.said(kind);
    let passes = ["Throttling", "KMSInternal", "DependencyTimeout", "LimitExceeded", "ServiceUnavailable"];
    match reply.status.as_u16() {
        200 => reply.json(),
        429 | 500..=599 => Err(ProviderError::Unavailable(format!("{action}: {said}"))),
        _ if passes.iter().any(|word| said.contains(word)) => {
            Err(ProviderError::Unavailable(format!("{action}: {said}")))
        }
        _ => Err(ProviderError::Refused(format!("{action}: {said}"))),
    }
}

#[async_trait]
impl KeyProvider for AwsKmsKey {
    fn kind(&self) -> &'static str {
        "aws-kms"
    }

    fn key(&self) -> &str {
        &self.config.key
    }

    async fn wrap(&self, kek: &[u8; 32], context: KekContext) -> Result<Vec<u8>, ProviderError> {
        let plaintext = Zeroizing::new(BASE64_STANDARD.encode(kek));
        let context = Self::context(context);
        let body = json!({ "KeyId": self.config.key, "Plaintext": plaintext.as_str(), "EncryptionContext": context });
        let reply = self.call("Encrypt", &body).await?;
        let sealed = reply["CiphertextBlob"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        sealed.ok_or_else(|| ProviderError::Refused("Encrypt: no ciphertext".into()))
    }

    async fn unwrap(&self, sealed: &[u8], context: KekContext) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        let (sealed, context) = (BASE64_STANDARD.encode(sealed), Self::context(context));
        let body = json!({ "KeyId": self.config.key, "CiphertextBlob": sealed, "EncryptionContext": context });
        let reply = self.call("Decrypt", &body).await?;
        let plain = reply["Plaintext"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        plain.map(Zeroizing::new).ok_or_else(|| ProviderError::Refused("Decrypt: no plaintext".into()))
    }
}

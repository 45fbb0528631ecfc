//! Asking a server on another machine: the calls of the admin API over its listener.

use super::{
    call::{ANSWER_BYTES_MAX, Call, answer_of},
    outcome::{Failure, note},
};
use crate::{config::RemoteConfig, webhooks::in_words};
use reqwest::{Client, Response, Url, header, redirect};
use secrecy::{ExposeSecret as _, SecretString};
use std::time::Duration;

/// How long a connection may take to come about. A call itself may take as long as what it asks
/// for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the system asks whether the other machine is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A server on another machine.
pub(super) struct Remote {
    client: Client,
    url: Url,
    token: SecretString,
}

impl Remote {
    /// Opens no connection yet.
    ///
    /// # Errors
    /// [`Failure`] when TLS cannot be set up.
    pub(super) fn new(config: RemoteConfig) -> Result<Self, Failure> {
        config.warnings.iter().for_each(|warning| note(format_args!("warning: {warning}")));
        // A redirect would carry the token elsewhere.
        let mut client = Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .user_agent(concat!("deltaweir/", env!("CARGO_PKG_VERSION")));
        if config.url.scheme() == "http" {
            client = client.no_proxy();
        }
        if !config.authorities.is_empty() {
            client = client.tls_certs_only(config.authorities);
        }
        if let Some(identity) = config.identity {
            client = client.identity(identity);
        }
        let client = client.build().map_err(|error| Failure(in_words(&error)))?;
        Ok(Self { client, url: config.url, token: config.token })
    }

    /// Makes one call.
    ///
    /// # Errors
    /// [`Failure`] with why the server was not reached, or with what it refused.
    pub(super) async fn ask(&self, call: &Call) -> Result<serde_json::Value, Failure> {
        let mut url = self.url.clone();
        url.set_path(&call.path);
        url.set_query(Some(&call.query).filter(|query| !query.is_empty()).map(String::as_str));
        let mut request = self
            .client
            .request(call.method.clone(), url)
            .bearer_auth(self.token.expose_secret())
            .header(header::CONTENT_TYPE, "application/json");
        if !call.body.is_null() {
            request = request.body(call.body.to_string());
        }
        let at = |error: reqwest::Error| Failure(format!("{}: {}", self.url, in_words(&error.without_url())));
        let answer = request.send().await.map_err(at)?;
        let status = answer.status();
        let body = whole(answer).await.map_err(|Failure(why)| Failure(format!("{}: {why}", self.url)))?;
        answer_of(status, &body)
    }
}

/// An answer's body.
async fn whole(mut answer: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|error| Failure(in_words(&error.without_url())))? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(Failure("the answer is too long".into()));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

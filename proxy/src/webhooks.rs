//! Webhooks: where events are sent, one POST each.
//!
//! Their addresses stand in the configuration file; no client names one. No redirect is followed
//! and no proxy of the environment is asked, so an event goes where the file says or nowhere.

use async_trait::async_trait;
use engine::notify::{Courier, Undelivered};
use reqwest::{Client, StatusCode, Url, header, redirect};
use secrecy::{ExposeSecret as _, SecretString};
use std::{collections::BTreeMap, time::Duration};

/// Where a webhook is.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// `http` or `https`.
    pub url: Url,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<SecretString>,
    /// How long a delivery may take, its answer included.
    pub timeout: Duration,
}

/// How much of an answer is read, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long a connection may wait for the next event.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Every webhook of a configuration.
pub struct Webhooks {
    client: Client,
    webhooks: BTreeMap<String, WebhookConfig>,
}

impl Webhooks {
    /// Opens no connection yet.
    ///
    /// # Errors
    /// In words, when TLS cannot be set up.
    pub fn new(webhooks: BTreeMap<String, WebhookConfig>) -> Result<Self, String> {
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .pool_idle_timeout(IDLE_MAX)
            .user_agent(concat!("deltaweir/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("webhooks: {error}"))?;
        Ok(Self { client, webhooks })
    }
}

#[async_trait]
impl Courier for Webhooks {
    async fn deliver(&self, webhook: &str, event: Vec<u8>) -> Result<(), Undelivered> {
        let known = self.webhooks.get(webhook);
        let config = known.ok_or_else(|| Undelivered::Unavailable("the webhook is not configured".into()))?;
        let mut request = self
            .client
            .post(config.url.clone())
            .timeout(config.timeout)
            .header(header::CONTENT_TYPE, "application/json")
            .body(event);
        if let Some(token) = &config.token {
            request = request.bearer_auth(token.expose_secret());
        }
        // A URL may hold what only its webhook should know.
        let unavailable = |error: reqwest::Error| Undelivered::Unavailable(in_words(&error.without_url()));
        let mut answer = request.send().await.map_err(unavailable)?;
        let status = answer.status();
        let mut left = ANSWER_BYTES_MAX;
        while let Ok(Some(piece)) = answer.chunk().await {
            left = match left.checked_sub(piece.len()) {
                Some(left) => left,
                None => break,
            };
        }
        judge(status)
    }
}

fn judge(status: StatusCode) -> Result<(), Undelivered> {
    let words = format!("the webhook answered {status}");
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Err(Undelivered::Unavailable(words))
        }
        status if status.is_client_error() => Err(Undelivered::Refused(words)),
        _ => Err(Undelivered::Unavailable(words)),
    }
}

/// An error with its causes, which say what reqwest leaves out.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_taken_by_any_2xx_and_refused_by_most_4xx() {
        let judged = |status: u16| judge(StatusCode::from_u16(status).unwrap());
        for taken in [200, 202, 204] {
            assert!(judged(taken).is_ok(), "{taken}");
        }
        for refused in [400, 401, 403, 404, 410, 413, 422] {
            assert!(matches!(judged(refused), Err(Undelivered::Refused(_))), "{refused}");
        }
        for unavailable in [301, 307, 408, 425, 429, 500, 502, 503] {
            assert!(matches!(judged(unavailable), Err(Undelivered::Unavailable(_))), "{unavailable}");
        }
    }
}

//! Webhooks: where events are sent, one POST each.
//!
//! Their addresses stand in the configuration file; no client names one. No redirect is followed
//! and no proxy of the environment is asked, so an event goes where the file says or nowhere. A
//! name that comes to lead to this machine's own link, where clouds give out its credentials,
//! leads nowhere.

use async_trait::async_trait;
use engine::notify::{Courier, Undelivered};
use reqwest::{
    Client, ClientBuilder, Response, StatusCode, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header, redirect,
};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

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

/// Where AWS tells machines without IPv4 their credentials.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether no webhook can be at an address: it is only of this machine's link, or of nobody alone.
pub(crate) fn is_nowhere(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast() || v6 == METADATA_V6,
    }
}

/// Names as the system resolves them, without addresses that are nowhere. Asked for each
/// connection, so a name that changes its mind is asked again.
struct Names;

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let reachable: Vec<SocketAddr> = found.filter(|address| !is_nowhere(address.ip())).collect();
            match reachable.is_empty() {
                true => Err(format!("{} leads to no address that a webhook can have", name.as_str()).into()),
                false => Ok(Box::new(reachable.into_iter()) as Addrs),
            }
        })
    }
}

/// A client for addresses that the configuration names: no redirect, no proxy of the environment,
/// no address of this machine's own link.
pub(crate) fn outward() -> ClientBuilder {
    Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .dns_resolver(Arc::new(Names))
        .user_agent(concat!("deltaweir/", env!("CARGO_PKG_VERSION")))
}

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
        let client = outward().pool_idle_timeout(IDLE_MAX).build().map_err(|error| format!("webhooks: {error}"))?;
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
        beginning_of(&mut answer).await;
        judge(status)
    }
}

/// The body of an answer, as far as it comes whole and is not too long.
pub(crate) async fn beginning_of(answer: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = answer.chunk().await {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            break;
        }
        body.extend_from_slice(&piece);
    }
    body
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
/// An error with what caused it: the outer one does not say that a certificate was not trusted.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
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

    #[tokio::test]
    async fn a_name_leads_to_no_address_of_this_machines_own_link() {
        let nowhere =
            ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "::", "224.0.0.1"];
        for text in nowhere {
            assert!(is_nowhere(text.parse().unwrap()), "{text}");
        }
        for text in ["127.0.0.1", "10.0.0.1", "192.168.1.1", "203.0.113.7", "::1", "2001:db8::1"] {
            assert!(!is_nowhere(text.parse().unwrap()), "{text}");
        }
        let resolved = |name: &str| Names.resolve(name.parse().unwrap());
        assert!(resolved("localhost").await.is_ok_and(|mut found| found.next().is_some()));
        let refused = resolved("169.254.169.254").await.err().expect("nowhere").to_string();
        assert!(refused.contains("no address that a webhook can have"), "{refused}");
    }

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

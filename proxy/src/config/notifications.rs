//! The configuration of webhooks.

use super::{error::ConfigError, reader::Reader, values::Interval};
use crate::webhooks::{WebhookConfig, is_nowhere};
use engine::NotifyConfig;
use reqwest::Url;
use std::{collections::BTreeMap, net::IpAddr, time::Duration};

/// As long as an SQS queue's.
const NAME_LEN_MAX: usize = 80;

/// What an outward URL leads to.
pub(super) struct Outward {
    /// In a word.
    pub(super) what: &'static str,
    /// The key for what a URL's user would be.
    pub(super) instead: &'static str,
}

/// A URL of another program's, to which the server sends what others should not see.
pub(super) fn outward_url(key: &str, text: &str, Outward { what, instead }: Outward) -> Result<Url, ConfigError> {
    let url = Url::parse(text).map_err(|error| ConfigError::at(key, format!("not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(ConfigError::at(key, "expected an http:// or https:// URL"));
    }
    let literal = url.host_str().map(|host| host.trim_matches(['[', ']']).parse::<IpAddr>());
    if literal.is_some_and(|address| address.is_ok_and(is_nowhere)) {
        let why = format!("no {what} is at such an address: it is of this machine's own link, or of nobody alone");
        return Err(ConfigError::at(key, why));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ConfigError::at(key, format!("a URL with a user would show in logs: use {instead}")));
    }
    Ok(url)
}

/// How long another program may take to answer.
pub(super) fn outward_timeout(key: &str, Interval(timeout): Interval) -> Result<Duration, ConfigError> {
    match (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&timeout) {
        true => Ok(timeout),
        false => Err(ConfigError::at(key, "expected \"100ms\" to \"1m\"")),
    }
}

impl Reader<'_> {
    /// Who is told of changes, as far as the engine knows.
    pub(super) fn notify(&self) -> Result<NotifyConfig, ConfigError> {
        let notifications = &self.file.notifications;
        if notifications.waiting_max == 0 {
            return Err(ConfigError::at("notifications.waiting_max", "expected at least 1"));
        }
        if notifications.keep.0 < Duration::from_secs(1) {
            return Err(ConfigError::at("notifications.keep", "expected at least \"1s\""));
        }
        Ok(NotifyConfig {
            webhooks: notifications.webhooks.keys().cloned().collect(),
            waiting_max: notifications.waiting_max,
            keep: notifications.keep.0,
            region: self.file.server.region.clone(),
        })
    }

    /// Where they are.
    pub(super) fn webhooks(&self) -> Result<BTreeMap<String, WebhookConfig>, ConfigError> {
        let mut webhooks = BTreeMap::new();
        for (name, webhook) in &self.file.notifications.webhooks {
            let key = |field: &str| format!("notifications.webhooks.{name}.{field}");
            let fits = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
            if !(1..=NAME_LEN_MAX).contains(&name.len()) || !name.bytes().all(fits) {
                let expected = "expected a name of 1 to 80 letters, digits, hyphens and underscores";
                return Err(ConfigError::at(&format!("notifications.webhooks.{name}"), expected));
            }
            let url = outward_url(&key("url"), &webhook.url, Outward { what: "webhook", instead: "token" })?;
            let timeout = outward_timeout(&key("timeout"), webhook.timeout)?;
            let token = webhook.token.as_ref().map(|token| self.secret(&key("token"), token)).transpose()?;
            webhooks.insert(name.clone(), WebhookConfig { url, token, timeout });
        }
        Ok(webhooks)
    }
}

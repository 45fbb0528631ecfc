//! The configuration of traces.

use super::{
    error::ConfigError,
    notifications::{Outward, outward_timeout, outward_url},
    reader::Reader,
};
use crate::server::TracesConfig;
use http::{HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;
use std::collections::BTreeMap;

impl Reader<'_> {
    /// Where traces go, where the file says so.
    pub(super) fn traces(&self) -> Result<Option<TracesConfig>, ConfigError> {
        let Some(traces) = &self.file.traces else { return Ok(None) };
        let endpoint =
            outward_url("traces.endpoint", &traces.endpoint, Outward { what: "collector", instead: "traces.headers" })?;
        if endpoint.path() == "/" {
            let message = "expected a URL with its path, such as http://collector:4318/v1/traces";
            return Err(ConfigError::at("traces.endpoint", message));
        }
        let mut headers = BTreeMap::new();
        for (name, value) in &traces.headers {
            let key = format!("traces.headers.{name}");
            let value = self.secret(&key, value)?;
            let fits = HeaderName::try_from(name).is_ok() && HeaderValue::from_str(value.expose_secret()).is_ok();
            if !fits {
                return Err(ConfigError::at(&key, "not a header of HTTP"));
            }
            headers.insert(name.clone(), value);
        }
        if !(0.0..=1.0).contains(&traces.share) {
            return Err(ConfigError::at("traces.share", "expected 0 to 1"));
        }
        if traces.service.is_empty() {
            return Err(ConfigError::at("traces.service", "expected what collectors shall call this server"));
        }
        let timeout = outward_timeout("traces.timeout", traces.timeout)?;
        Ok(Some(TracesConfig { endpoint, headers, share: traces.share, service: traces.service.clone(), timeout }))
    }
}

//! The access log's part of the configuration, and whom it believes where requests come from.

use super::{error::ConfigError, file::access_log::AccessFormat, reader::Reader};
use crate::{peers::TrustedProxies, server::LineFormat};
use access::Network;
use std::path::PathBuf;

/// An access log with lines of its own.
#[derive(Clone, Debug)]
pub struct AccessLogConfig {
    /// What a line looks like.
    pub format: LineFormat,
    /// The file; `None`: stderr.
    pub path: Option<PathBuf>,
}

/// Most requests that are kept in memory.
const RECENT_MAX: usize = 100_000;

impl Reader<'_> {
    /// `None` where requests are logged among the log's other lines.
    pub(super) fn access_log(&self) -> Result<Option<AccessLogConfig>, ConfigError> {
        let log = &self.file.access_log;
        let format = match (log.format, &log.path) {
            (AccessFormat::Log, None) => return Ok(None),
            (AccessFormat::Log, Some(_)) => {
                let message = "a file of its own takes access_log.format = \"json\" or \"clf\"";
                return Err(ConfigError::at("access_log.path", message));
            }
            (AccessFormat::Json, _) => LineFormat::Json,
            (AccessFormat::Clf, _) => LineFormat::Clf,
        };
        Ok(Some(AccessLogConfig { format, path: log.path.clone() }))
    }

    /// How many requests are kept in memory; each takes two KiB at most.
    pub(super) fn recent_requests(&self) -> Result<usize, ConfigError> {
        let recent = self.file.access_log.recent;
        if recent > RECENT_MAX {
            return Err(ConfigError::at("access_log.recent", format!("expected 0 to {RECENT_MAX}")));
        }
        Ok(recent)
    }

    /// The proxies whose word counts.
    pub(super) fn trusted_proxies(&self) -> Result<TrustedProxies, ConfigError> {
        let network = |(index, text): (usize, &String)| {
            let wrong = || format!("expected an address or a network such as 10.0.0.0/8, not {text:?}");
            Network::parse(text).ok_or_else(|| ConfigError::at(&format!("server.trusted_proxies[{index}]"), wrong()))
        };
        let networks = self.file.server.trusted_proxies.iter().enumerate().map(network);
        Ok(TrustedProxies::new(networks.collect::<Result<_, _>>()?))
    }
}

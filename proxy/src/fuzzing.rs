//! What fuzz targets (`proxy/fuzz/`) and their smoke test call: parsers of what strangers and
//! operators send, with what must hold whatever they sent.

use crate::{
    admin::{AdminService, ROOT, ROUTES, Scope},
    auth::{Accounts, FileAccounts},
    config::{Environment, Overrides, ServeConfig, show_anything},
    engine::Engine,
    metrics::Metrics,
    ops::post::{FIELDS_BYTES_MAX, FIELDS_MAX, read_anything},
    stores::open_engine,
};
use futures::FutureExt as _;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3_wire::Query;
use std::{error::Error, sync::Arc};
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::watch};

/// Any text as a configuration.
///
/// # Panics
/// When what is shown of it says something else.
pub fn configuration(text: &str) {
    show_anything(text);
}

/// Pieces of any size as the body of a form, whose boundary is `b`.
///
/// # Panics
/// When its fields are more, or longer, than they may be.
pub fn post_body(pieces: &[&[u8]]) {
    // The pieces are there, so nothing waits.
    if let Some((count, bytes)) = read_anything(pieces).now_or_never().flatten() {
        assert!(count <= FIELDS_MAX && bytes <= FIELDS_BYTES_MAX);
    }
}

/// The admin API over a store in a temporary directory.
pub struct Admin {
    runtime: Runtime,
    api: Arc<AdminService>,
    _engine: Arc<Engine>,
    _running: watch::Sender<bool>,
    _directory: TempDir,
}

impl Admin {
    /// Opens it.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn new() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let directory = tempfile::tempdir()?;
        let overrides = Overrides { data: Some(directory.path().join("data")), ..Overrides::default() };
        let mut config = ServeConfig::from_text("", directory.path(), &overrides, &Environment::default())?;
        config.engine.schedule_jobs = false;
        let runtime = Runtime::new()?;
        let (running, stopping) = watch::channel(false);
        let (engine, api) = runtime.block_on(async {
            let metrics = Metrics::new()?;
            let engine = open_engine(config.engine, &config.stores, metrics.engine.clone()).await?;
            let accounts = Accounts::open(engine.accounts.clone(), FileAccounts::default()).await?;
            let api = AdminService::new(engine.clone(), metrics, accounts, None, stopping);
            Ok::<_, Box<dyn Error + Send + Sync>>((engine, api))
        })?;
        Ok(Self { runtime, api, _engine: engine, _running: running, _directory: directory })
    }

    /// One call with any bytes as its body; its status, where it came to one. Jobs are not started:
    /// they would have their own things to do.
    ///
    /// # Panics
    /// When the server finds itself at fault.
    pub fn call(&self, call: u8, name: &str, query: &str, body: &[u8]) -> Option<u16> {
        let (method, pattern, _) = &ROUTES[usize::from(call) % ROUTES.len()];
        let starts = *method == Method::POST && matches!(*pattern, "jobs/{name}" | "settle" | "gc" | "journal");
        let (false, Ok(query), Ok(body)) = (starts, Query::parse(query), serde_json::from_slice(body)) else {
            return None;
        };
        let name = utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
        let path = format!("{ROOT}{}", pattern.replace("{name}", &name));
        let answer = self.runtime.block_on(self.api.call(Scope::Write, method, &path, &query, body));
        let status = answer.map_or_else(|error| error.status.as_u16(), |_| 200);
        assert!(status < 500 || status == 503, "{method} {path}: {status}");
        Some(status)
    }
}

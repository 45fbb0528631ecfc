//! Connections, pooled; and how long to wait for a database that is away.

use super::{
    address::{Address, Security},
    errors,
    options::PostgresOptions,
    session::PostgresSession,
    tls::Tls,
};
use crate::{CatalogError, Result};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, PoolError, RecyclingMethod, Runtime};
use std::time::{Duration, Instant};
use tokio_postgres::{NoTls, error::SqlState};

/// What a pool's connections are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Reading,
    Writing,
}

impl Use {
    /// Longest a statement may run. Recounts read everything; changes never do.
    fn statement_timeout(self) -> Duration {
        match self {
            Use::Reading => Duration::from_secs(600),
            Use::Writing => Duration::from_secs(30),
        }
    }
}

/// A bounded number of connections.
#[derive(Clone)]
pub(super) struct Pool {
    pool: deadpool_postgres::Pool,
    purpose: Use,
    patience: Duration,
    /// Connections that are closed, as far as they are idle, when the database allows no more.
    yielding: Option<deadpool_postgres::Pool>,
}

impl Pool {
    /// Makes no connection yet.
    pub(super) fn new(address: &Address, options: &PostgresOptions, purpose: Use) -> Result<Self> {
        let mut config = address.config.clone();
        config.connect_timeout(options.connect_timeout);
        config.keepalives_idle(Duration::from_secs(15));
        config.tcp_user_timeout(Duration::from_secs(15));
        // A connection that broke is noticed when it is used; asking before each use would cost a
        // round trip each time.
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &address.security {
            Security::Plain => Manager::from_config(config, NoTls, recycling),
            Security::Verified { roots } => Manager::from_config(config, Tls::trusting(roots.as_deref())?, recycling),
        };
        let prepare = session_settings(purpose, options);
        let pool = deadpool_postgres::Pool::builder(manager)
            .max_size(match purpose {
                Use::Reading => options.readers_max.max(1),
                Use::Writing => 1,
            })
            .wait_timeout(Some(options.patience))
            .create_timeout(Some(options.connect_timeout * 2))
            .runtime(Runtime::Tokio1)
            .post_create(Hook::async_fn(move |client, _| {
                let prepare = prepare.clone();
                Box::pin(async move { client.batch_execute(&prepare).await.map_err(HookError::Backend) })
            }))
            .build()
            .map_err(|error| CatalogError::Other(error.to_string()))?;
        Ok(Pool { pool, purpose, patience: options.patience, yielding: None })
    }

    /// This pool, before whose connections idle ones of `other` give way.
    pub(super) fn before(self, other: &Pool) -> Self {
        Pool { yielding: Some(other.pool.clone()), ..self }
    }

    /// A connection, new or used before.
    pub(super) async fn session(&self) -> Result<PostgresSession> {
        let client = self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                if let (Some(idle), Some(&SqlState::TOO_MANY_CONNECTIONS)) = (&self.yielding, error.code()) {
                    idle.retain(|_, _| false);
                }
                match errors::catalog_error(&error) {
                    // Whatever keeps a connection from being made, it was not this call's doing.
                    CatalogError::Other(why) => CatalogError::Unavailable(why),
                    other => other,
                }
            }
            other => CatalogError::Unavailable(other.to_string()),
        })?;
        // The server's own limit comes first; this one is for a server that does not answer at all.
        let deadline = self.purpose.statement_timeout() + Duration::from_secs(5);
        Ok(PostgresSession::new(client, deadline))
    }
}

/// Settings of a session. They are set by statement, not at startup, so that poolers in between do
/// not lose them.
fn session_settings(purpose: Use, options: &PostgresOptions) -> String {
    format!(
        "SET statement_timeout = {statement}; SET lock_timeout = {lock}; \
         SET idle_in_transaction_session_timeout = {idle}; SET client_min_messages = 'error'; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';",
        statement = purpose.statement_timeout().as_millis(),
        lock = options.patience.as_millis(),
        idle = match purpose {
            Use::Writing => options.stall_timeout.as_millis(),
            Use::Reading => 60_000,
        },
    )
}

/// How long trouble that may pass is waited out, with growing pauses.
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(pool: &Pool) -> Self {
        Patience { until: Instant::now() + pool.patience, pause: Duration::from_millis(10) }
    }

    /// Waits when another attempt makes sense, else gives the error back.
    pub(super) async fn wait_after(&mut self, error: CatalogError) -> Result<()> {
        if !matches!(error, CatalogError::Unavailable(_)) || Instant::now() + self.pause > self.until {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(500));
        Ok(())
    }
}

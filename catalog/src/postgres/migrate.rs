//! Bringing the schema up to date, by one process at a time.

use super::pool::{Patience, Pool};
use crate::{
    CatalogError, Result,
    relational::{
        change::only,
        checksum_walk,
        schema::{self, Dialect},
        session::{Session, statement},
        stripes,
    },
};

const DIALECT: Dialect = Dialect { int: "BIGINT", bytes: "BYTEA", table: "", index_table: "" };

/// The oldest server that is tested with, as it numbers itself.
const SERVER_VERSION_MIN: i64 = 150_000;

/// Migrates what is missing. Processes that start together wait for each other at an advisory lock,
/// which the transaction's end frees.
pub(super) async fn migrate(pool: &Pool) -> Result<()> {
    let mut patience = Patience::new(pool);
    loop {
        match attempt(pool).await {
            Err(error) => patience.wait_after(error).await?,
            Ok(()) => return Ok(()),
        }
    }
}

async fn attempt(pool: &Pool) -> Result<()> {
    let mut session = pool.session().await?;
    check_server(&mut session).await?;
    session.begin("BEGIN");
    // 0x64656c7461776569 is "deltawei": the lock is this program's in the whole database.
    session.defer("SELECT pg_advisory_xact_lock(7234298802440037737)");
    session.defer("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)");
    session.flush().await?;
    let answers = session.run(vec![statement!("SELECT COALESCE(max(version), 0) FROM schema_version")]).await?;
    let found = only(&answers, 0)?.int(0)?;
    for (version, sql) in schema::missing(found, DIALECT)? {
        session.script(&sql).await?;
        session.run(vec![statement!("INSERT INTO schema_version (version) VALUES ($1)", version)]).await?;
    }
    if found < schema::STRIPES_VERSION {
        session.run(vec![stripes::fill()]).await?;
    }
    if found < schema::CHECKSUMS_VERSION {
        checksum_walk::fill(&mut session).await?;
    }
    session.end("COMMIT").await
}

/// Says plainly what would otherwise fail somewhere else.
async fn check_server<S: Session>(session: &mut S) -> Result<()> {
    let answers = session
        .run(vec![
            statement!("SELECT CAST(current_setting('server_version_num') AS BIGINT)"),
            statement!("SELECT current_setting('server_encoding')"),
            statement!("SELECT current_setting('fsync')"),
        ])
        .await?;
    let version = only(&answers, 0)?.int(0)?;
    if version < SERVER_VERSION_MIN {
        return Err(CatalogError::Other(format!("the database is PostgreSQL {}; 15 is the oldest", version / 10_000)));
    }
    let encoding = only(&answers, 1)?.text(0)?;
    if encoding != "UTF8" {
        return Err(CatalogError::Other(format!("the database's encoding is {encoding}; it must be UTF8")));
    }
    if only(&answers, 2)?.text(0)? == "off" {
        tracing::warn!("the database runs with fsync off: a crash of its machine may lose acknowledged changes");
    }
    Ok(())
}

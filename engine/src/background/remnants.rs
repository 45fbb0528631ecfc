//! What rows that are gone have left in the catalog's files, once a bucket was encrypted in place:
//! content of small objects lay in rows (docs/decisions/0083-remnants-of-rows.md).
//!
//! ```text
//! encryption ends ─► free pages overwritten, time noted ─► what died until then is purged
//!     ─► free pages and used ones overwritten, note removed
//! ```

use crate::{error::EngineError, recovery::Safety, resources::clock::now_ms};
use catalog::{Catalog, UnixMs};
use serde_json::{Value, json};
use std::sync::Arc;

/// Since when rows that hold plain content wait for their purge.
const SETTING: &str = "remnants";

/// Overwrites them.
pub(crate) struct Remnants {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) safety: Arc<Safety>,
}

impl Remnants {
    /// Overwrites what is left now, and has the rest overwritten by the collection that purges the
    /// last of what was replaced until now. What fails is left to that collection, too.
    pub(crate) async fn overwrite_and_note(&self) -> Result<(), EngineError> {
        match self.overwrite(false).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => tracing::warn!(%error, "free space of the catalog is not overwritten yet; `gc` will do it"),
        }
        Ok(self.catalog.put_setting(SETTING, json!(now_ms())).await?)
    }

    /// Whether all that was replaced until the note is purged, and its remnants are not
    /// overwritten.
    pub(crate) async fn is_due(&self) -> Result<bool, EngineError> {
        let Some(noted) = self.noted().await? else { return Ok(false) };
        Ok(self.catalog.tombstones(noted.saturating_add(1), 1).await?.is_empty())
    }

    /// Overwrites what is due.
    pub(crate) async fn overwrite_due(&self) -> Result<(), EngineError> {
        if !self.is_due().await? {
            return Ok(());
        }
        let noted = self.noted().await?;
        self.overwrite(true).await?;
        // Another encryption may have ended meanwhile.
        if self.noted().await? == noted {
            self.catalog.put_setting(SETTING, Value::Null).await?;
        }
        Ok(())
    }

    /// `false` where the database is a server's, and its operator's to compact.
    async fn overwrite(&self, moves_rows: bool) -> Result<bool, EngineError> {
        // The journal's rows hold content until they are shipped.
        self.safety.ship_once().await?;
        let is_done = self.catalog.scour(moves_rows).await?;
        match is_done {
            true if moves_rows => tracing::info!("free space of the catalog is overwritten"),
            true => {}
            false => tracing::info!(
                "the database may keep content of small objects that are encrypted now: compact it (docs/guide/encryption.md)"
            ),
        }
        Ok(is_done)
    }

    async fn noted(&self) -> Result<Option<UnixMs>, EngineError> {
        Ok(self.catalog.setting(SETTING).await?.and_then(|value| value.as_i64()))
    }
}

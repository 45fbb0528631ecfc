//! How much buckets and their owners may hold: sets quotas and shows usage. The catalog checks a
//! quota in the transaction of each commit (`catalog/src/relational/quotas.rs`).

use super::Buckets;
use crate::error::EngineError;
use catalog::{BucketId, QuotaLimits, QuotaOf, Usage};

impl Buckets {
    /// Every quota that was set.
    ///
    /// # Errors
    /// What the catalog says.
    pub async fn quotas(&self) -> Result<Vec<(QuotaOf, QuotaLimits)>, EngineError> {
        Ok(self.catalog.quotas().await?)
    }

    /// What each bucket holds; those that hold nothing may be left out.
    ///
    /// # Errors
    /// What the catalog says.
    pub async fn usage(&self) -> Result<Vec<(BucketId, Usage)>, EngineError> {
        Ok(self.catalog.usage().await?)
    }

    /// Sets a quota, or takes it away. It holds for the next commit of every process; what is there
    /// already stays.
    ///
    /// # Errors
    /// What the catalog says.
    pub async fn set_quota(&self, of: &QuotaOf, limits: Option<QuotaLimits>) -> Result<(), EngineError> {
        let value = serde_json::to_value(limits).map_err(|error| EngineError::Other(error.to_string()))?;
        Ok(self.catalog.put_setting(&of.setting(), value).await?)
    }
}

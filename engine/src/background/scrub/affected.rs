//! Which objects damage reaches.

use super::verify::Damage;
use crate::{error::EngineError, metrics::Metrics};
use catalog::{BlobKey, Catalog, Quarantined, UnixMs};
use object_format::BlobId;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Blobs in quarantine that are read from the catalog at a time.
const PAGE: usize = 256;
/// Most referrers of one blob that are looked at.
const REFERRERS_MAX: usize = 1_000_000;

/// What lies in quarantine, and everything that cannot be read because of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Quarantine {
    /// The damaged blobs, by id. A delta is among them when it cannot be decoded because a base is
    /// damaged.
    pub blobs: Vec<DamagedBlob>,
    /// Every version and part of an open upload with bytes that cannot be read, each once.
    pub affected: BTreeSet<Affected>,
}

/// A blob in quarantine.
#[derive(Clone, Debug, Serialize)]
pub struct DamagedBlob {
    /// Its id.
    pub blob: String,
    /// Where it lies.
    pub backend: String,
    /// Since when it is known, in milliseconds since 1970-01-01 UTC.
    pub since_ms: UnixMs,
    /// What is wrong.
    #[serde(flatten)]
    pub damage: Damage,
}

/// Something a client stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Affected {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// The version's id in hex; absent for a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The open upload's id in hex, and the part's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<(String, u32)>,
}

/// What is in quarantine.
pub struct Quarantines {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Quarantines {
    /// The body of `GET /api/v1/quarantine`: what is in quarantine, and the exact list of what
    /// cannot be read in full because of it.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails.
    pub async fn quarantine(&self) -> Result<Quarantine, EngineError> {
        let buckets: BTreeMap<_, _> =
            self.catalog.buckets().await?.into_iter().map(|bucket| (bucket.id, bucket.name)).collect();
        let mut found = Quarantine::default();
        let mut after: Option<BlobKey> = None;
        loop {
            let page = self.catalog.quarantined(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.row.id);
            for quarantined in page {
                let Quarantined { row, since_ms, damage } = quarantined;
                let damage: Damage = serde_json::from_value(damage)
                    .map_err(|error| EngineError::Integrity(format!("the damage of a blob: {error}")))?;
                if let Some(bucket) = buckets.get(&row.bucket) {
                    self.add_affected(row.bucket, bucket, row.id, &damage, &mut found.affected).await?;
                }
                let blob = BlobId(row.id.0).to_string();
                found.blobs.push(DamagedBlob { blob, backend: row.backend, since_ms, damage });
            }
        }
        self.metrics.quarantined_blobs.set(i64::try_from(found.blobs.len()).unwrap_or(i64::MAX));
        Ok(found)
    }

    async fn add_affected(
        &self,
        bucket: catalog::BucketId,
        bucket_name: &str,
        blob: BlobKey,
        damage: &Damage,
        affected: &mut BTreeSet<Affected>,
    ) -> Result<(), EngineError> {
        let touched = |extent: &catalog::Extent| extent.blob == blob && damage.touches(extent.offset, extent.len);
        for referrer in self.catalog.referrers(blob, REFERRERS_MAX).await? {
            let Some(content) = self.catalog.version(bucket, &referrer.key, referrer.id).await? else { continue };
            if content.extents.iter().any(touched) {
                let version = Some(hex::encode(referrer.id.0));
                affected.insert(Affected { bucket: bucket_name.to_owned(), key: referrer.key, version, part: None });
            }
        }
        for part in self.catalog.part_referrers(blob, REFERRERS_MAX).await? {
            if part.extents.iter().any(touched) {
                let number = Some((hex::encode(part.upload.0), part.number));
                affected.insert(Affected {
                    bucket: bucket_name.to_owned(),
                    key: part.key,
                    version: None,
                    part: number,
                });
            }
        }
        Ok(())
    }
}

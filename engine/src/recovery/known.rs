//! Blobs that no row knows although the catalog has what they hold: a rewrite wrote them, and its
//! process was killed before it could commit them. Nothing of theirs is lost.

use crate::error::EngineError;
use catalog::{Catalog, VersionId};
use object_format::ObjectFacts;

/// Whether the version that a manifest names is in the catalog. What a version holds never changes,
/// only where it lies.
pub(super) async fn version_is_there(
    catalog: &dyn Catalog,
    bucket: &str,
    facts: &ObjectFacts,
) -> Result<bool, EngineError> {
    let (Some(id), None) = (facts.version_id, facts.part) else { return Ok(false) };
    let Some(bucket) = catalog.bucket(bucket).await? else { return Ok(false) };
    Ok(catalog.version(bucket.id, &facts.key, VersionId(id)).await?.is_some())
}

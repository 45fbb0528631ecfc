//! A deliberate bug (feature `mutant-stale-cache`): current versions are kept by key for a moment,
//! as a cache that trusts the clock would (E16). The linearizability checker must find it. It does
//! nothing until [`switch_on`] is called, which only the binary `deltaweir-mutant` does.

use catalog::{BucketId, Catalog, CatalogError, Content};
use std::{
    collections::HashMap,
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// How long an entry is believed.
const BELIEVED: Duration = Duration::from_millis(200);

static ON: AtomicBool = AtomicBool::new(false);
static KEPT: LazyLock<Mutex<HashMap<(BucketId, String), Kept>>> = LazyLock::new(Mutex::default);

struct Kept {
    since: Instant,
    content: Option<Content>,
}

/// From now on this process serves stale versions.
pub fn switch_on() {
    ON.store(true, Ordering::Relaxed);
}

/// [`Catalog::content`], or what it was a moment ago.
pub(crate) async fn content(
    catalog: &dyn Catalog,
    bucket: BucketId,
    key: &str,
) -> Result<Option<Content>, CatalogError> {
    if !ON.load(Ordering::Relaxed) {
        return catalog.content(bucket, key).await;
    }
    let name = (bucket, key.to_owned());
    if let Some(kept) = KEPT.lock().unwrap_or_else(PoisonError::into_inner).get(&name)
        && kept.since.elapsed() < BELIEVED
    {
        return Ok(kept.content.clone());
    }
    let content = catalog.content(bucket, key).await?;
    let kept = Kept { since: Instant::now(), content: content.clone() };
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(name, kept);
    Ok(content)
}

//! A damaged SQLite catalog: it is set aside and made again from the store's backup and journal,
//! and from what can still be read of it.
//!
//! ```text
//! damage ─► marker file ─► catalog.sqlite moved to catalog.sqlite.damaged-TIME ─► rebuild ─► marker removed ─► serve
//! ```
//!
//! The marker stays until the catalog is whole, so that a process which ends in between goes on
//! where it stopped.

use super::{
    outcome::{Failure, Outcome},
    recover::{etag_of_parts, make_again},
};
use crate::{
    config::ServeConfig,
    engine::RecoveryOptions,
    stores::{CATALOG_FILE, CatalogConfig},
};
use catalog::{Catalog as _, SqliteCatalog, SqliteOptions};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What the marker is called; it holds the name of the file that is set aside.
const MARKER: &str = "catalog.sqlite.rebuilding";
/// What a catalog that is set aside is called, before the time in milliseconds.
const ASIDE: &str = "catalog.sqlite.damaged-";
/// A catalog that is damaged again so soon has a cause that a rebuild does not mend: then a person
/// should look.
const AGAIN_MIN: Duration = Duration::from_secs(3600);
/// The process that found the damage may hold the file for a moment.
const CLOSING: Duration = Duration::from_secs(30);
const CLOSING_PAUSE: Duration = Duration::from_millis(100);

/// Whether this process may make the catalog again by itself.
pub(super) fn may_rebuild(config: &ServeConfig) -> bool {
    matches!(config.stores.catalog, CatalogConfig::Sqlite) && !was_rebuilt_lately(&config.engine.data)
}

/// Whether a rebuild was begun and has not ended.
pub(super) fn is_rebuilding(config: &ServeConfig) -> bool {
    matches!(config.stores.catalog, CatalogConfig::Sqlite) && config.engine.data.join(MARKER).exists()
}

fn was_rebuilt_lately(data: &Path) -> bool {
    let Ok(files) = fs::read_dir(data) else { return false };
    let since = |name: &str| name.strip_prefix(ASIDE)?.parse::<u64>().ok();
    let newest = files.filter_map(|file| since(file.ok()?.file_name().to_str()?)).max();
    newest.is_some_and(|newest| now_ms().saturating_sub(newest) < AGAIN_MIN.as_millis() as u64)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Sets the catalog aside and makes it again.
pub(super) async fn rebuild(config: ServeConfig) -> Outcome {
    let data = config.engine.data.clone();
    let aside = begin(&data, MARKER, ASIDE)?;
    let catalog = data.join(CATALOG_FILE);
    set_aside(&catalog, &aside).await?;
    if catalog.exists() && is_made(&catalog).await? {
        return finish(&data, MARKER);
    }
    let remains = catalog::read_remains(&aside);
    let whole = remains.is_whole();
    tracing::warn!(
        file = %aside.display(), unshipped = remains.entries.len(), whole,
        "the damaged catalog is set aside and rebuilt from the store"
    );
    // Mutations that cannot be read any more may have left blobs: their manifests tell of them.
    let options = RecoveryOptions {
        backup: None,
        manifests: !whole,
        in_place: false,
        stop_at_damage: false,
        accept_less_than_anchor: false,
        accept_unsealed_until: None,
        accept_hole: false,
        remains: Some(remains),
        fork: None,
        etag_of_parts,
    };
    let report = make_again(config, &options, "", &|_, _| {}).await?;
    for hole in &report.holes {
        tracing::error!(first = hole.first, last = hole.last, "mutations of the damaged catalog are lost");
    }
    for lost in &report.lost_mutations {
        tracing::error!(
            seq = lost.seq,
            kind = lost.kind,
            key = lost.key,
            why = lost.why,
            "a mutation could not be replayed"
        );
    }
    let recovered = report.recovered.as_ref().map_or(0, |recovered| recovered.versions.len());
    tracing::warn!(
        objects = report.objects,
        replayed = report.replayed,
        unshipped = report.unshipped,
        recovered,
        lineage = report.new_lineage,
        "the catalog is whole again"
    );
    finish(&data, MARKER)
}

/// Whether an earlier process made the catalog to its end, and ended before it could say so.
pub(super) async fn is_made(path: &Path) -> Result<bool, Failure> {
    let made = SqliteCatalog::open(path, SqliteOptions::default()).await?;
    Ok(!made.is_importing().await? && made.last_seq().await? > 0 && made.setting("lineage").await?.is_some())
}

pub(super) fn finish(data: &Path, marker: &str) -> Outcome {
    fs::remove_file(data.join(marker))?;
    Ok(sync(data)?)
}

/// The file that the catalog is to be moved to, written down before anything is moved.
pub(super) fn begin(data: &Path, marker_name: &str, prefix: &str) -> Result<PathBuf, Failure> {
    let marker = data.join(marker_name);
    match fs::read_to_string(&marker) {
        Ok(name) if name.starts_with(prefix) && !name.contains('/') => return Ok(data.join(name)),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let name = format!("{prefix}{}", now_ms());
    let written = data.join(format!("{marker_name}.new"));
    fs::write(&written, &name)?;
    fs::File::open(&written)?.sync_all()?;
    fs::rename(&written, &marker)?;
    sync(data)?;
    Ok(data.join(name))
}

fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

/// Moves the catalog's file once nobody has it open. What a rebuild that did not end has made lies
/// in its place: that goes.
pub(super) async fn set_aside(path: &Path, aside: &Path) -> Result<(), Failure> {
    if aside.exists() {
        return Ok(());
    }
    let deadline = tokio::time::Instant::now() + CLOSING;
    loop {
        match catalog::set_aside(path, aside) {
            Err(catalog::CatalogError::InUse) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(CLOSING_PAUSE).await;
            }
            moved => {
                return moved.map_err(|error| Failure(format!("the catalog could not be set aside: {error}")));
            }
        }
    }
}

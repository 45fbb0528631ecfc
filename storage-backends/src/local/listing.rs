//! The path of a `list`: one directory at a time, each in one trip to the pool.

use super::{
    layout::{self, Entry},
    store::{Store, blocking, disk_error},
};
use crate::{Listed, Result};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use std::{io, path::PathBuf, sync::Arc};

/// Walks the directories that can hold names starting with `prefix`. Memory is bounded by the blobs
/// of one directory.
pub(super) fn list(store: &Arc<Store>, prefix: &str) -> BoxStream<'static, Result<Listed>> {
    let walk = Walk {
        store: store.clone(),
        prefix: Arc::from(prefix),
        dirs: layout::listing_root(prefix).map(PathBuf::from).into_iter().collect(),
    };
    stream::try_unfold(walk, |mut walk| async move {
        let Some(dir) = walk.dirs.pop() else { return Ok(None) };
        let (store, prefix) = (walk.store.clone(), walk.prefix.clone());
        let (mut dirs, blobs) = blocking(move || read_dir(&store, dir, &prefix)).await?;
        walk.dirs.append(&mut dirs);
        Ok(Some((stream::iter(blobs.into_iter().map(Ok)), walk)))
    })
    .try_flatten()
    .boxed()
}

struct Walk {
    store: Arc<Store>,
    prefix: Arc<str>,
    dirs: Vec<PathBuf>,
}

/// The directories to go on with and the blobs that lie in `dir`.
fn read_dir(store: &Store, dir: PathBuf, prefix: &str) -> Result<(Vec<PathBuf>, Vec<Listed>)> {
    let (mut dirs, mut blobs) = (Vec::new(), Vec::new());
    let entries = match store.disk.entries(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return store.absent().map(|()| (dirs, blobs)),
        Err(error) => return Err(disk_error("list", &dir.display(), error)),
    };
    for entry in entries {
        let Some(entry) = entry.to_str() else { continue };
        let stat = match store.disk.stat(&dir.join(entry)) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // removed since the directory was read
            Err(error) => return Err(disk_error("stat", &dir.join(entry).display(), error)),
        };
        match layout::classify(&dir, entry, stat.is_dir, prefix) {
            Entry::Descend(below) => dirs.push(below),
            Entry::Blob(name) if stat.is_file => {
                blobs.push(Listed { name, stored_len: stat.len, modified: stat.modified });
            }
            Entry::Blob(_) | Entry::Skip => {}
        }
    }
    Ok((dirs, blobs))
}

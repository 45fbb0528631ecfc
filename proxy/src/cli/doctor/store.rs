//! A backend: whether an object can be stored, read, listed and removed in it, and whether its
//! clock and ours agree.

use super::{
    finding::Check,
    machine::{REMOUNT, is_read_only, to_be_made},
};
use crate::stores::BackendConfig;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};
use storage_backends::{Backend, BackendError, BlobName, ErrorKind, LocalBackend, LocalOptions};

/// Where an object is stored for a moment: nothing else is there.
const FOLDER: &str = "doctor";
/// What is stored.
const CONTENT: &[u8] = b"deltaweir doctor was here, and removes this";
/// How long a store may take for all of it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Signatures of a clock that is off by more are refused.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// A clock that is kept by NTP is off by far less.
const SKEW_SEEN: Duration = Duration::from_secs(10);

/// Looks at a backend.
pub(super) async fn examine(name: &str, config: &BackendConfig) -> Vec<Check> {
    let check = format!("store {name}");
    if let BackendConfig::Local { path } = config
        && !path.is_dir()
    {
        return vec![to_be_made(&check, path)];
    }
    let tried = async {
        match config {
            BackendConfig::Local { path } => {
                let tried = try_out(&LocalBackend::open(path.clone(), LocalOptions { sync: false }).await?).await;
                remove_empty(&path.join(FOLDER));
                tried
            }
            BackendConfig::Cloud(cloud) => try_out(&cloud.store.open()?).await,
        }
    };
    let late = || -> Result<Option<Skew>, FailedStep> {
        Err(BackendError::new(ErrorKind::Transient, "it did not answer within 30 s").into())
    };
    match tokio::time::timeout(PATIENCE, tried).await.unwrap_or_else(|_| late()) {
        Ok(skew) => {
            let rights = Check::ok(check, "objects can be stored, read, listed and removed");
            [Some(rights), skew.map(|skew| clock(name, skew))].into_iter().flatten().collect()
        }
        Err(trouble) => {
            let read_only = matches!(config, BackendConfig::Local { path } if is_read_only(path));
            vec![Check::failed(check, trouble.said(), if read_only { REMOUNT } else { trouble.remedy() })]
        }
    }
}

/// Removes a directory and those below it, as far as they are empty: a directory of blobs keeps
/// those of names that come again, and these do not.
fn remove_empty(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // One that is not empty stays, and so does one that somebody uses just now.
    let _ = fs::remove_dir(directory);
}

/// What could not be done.
struct FailedStep {
    step: &'static str,
    error: BackendError,
}

impl From<BackendError> for FailedStep {
    fn from(error: BackendError) -> Self {
        Self { step: "reach it", error }
    }
}

impl FailedStep {
    fn said(&self) -> String {
        format!("cannot {}: {}", self.step, self.error)
    }

    fn remedy(&self) -> &'static str {
        match self.error.kind() {
            ErrorKind::Denied if self.step == "reach it" => "check the key pair, or who owns the directory",
            ErrorKind::Denied => "allow its user to put, get, list and delete objects below the prefix",
            ErrorKind::Full => "make room there",
            _ => "check endpoint, bucket, region and network of this backend",
        }
    }
}

/// Stores an object, reads, lists and removes it. How far the store's clock is from ours, where it
/// tells when the object was stored: positive when it is ahead.
async fn try_out(backend: &impl Backend) -> Result<Option<Skew>, FailedStep> {
    let at = |step| move |error| FailedStep { step, error };
    let random = crypto::random_u64().unwrap_or_default();
    let name = BlobName::new(format!("{FOLDER}/{random:016x}")).map_err(at("name an object"))?;
    let body = stream::iter([Ok(Bytes::from_static(CONTENT))]).boxed();
    let stored = backend.put(&name, body, Some(CONTENT.len() as u64)).await;
    let used = match &stored {
        Ok(_) => use_object(backend, &name).await,
        Err(_) => Ok(None),
    };
    // Also when storing it failed: only the answer may be lost.
    let removed = backend.delete(&name).await;
    stored.map_err(at("store an object"))?;
    let skew = used?;
    removed.map_err(at("remove an object"))?;
    match backend.head(&name).await.map_err(at("look for an object"))? {
        None => Ok(skew),
        Some(_) => Err(at("remove an object")(BackendError::new(ErrorKind::Other, format!("{name} is still there")))),
    }
}

async fn use_object(backend: &impl Backend, name: &BlobName) -> Result<Option<Skew>, FailedStep> {
    let at = |step| move |error| FailedStep { step, error };
    let wrong = |said: &str| BackendError::new(ErrorKind::Corrupt, said);
    let content = backend.get(name, 0..CONTENT.len() as u64).await.map_err(at("read an object"))?;
    let content = content.ok_or_else(|| at("read an object")(wrong("what was stored is not there")))?;
    let content: Vec<Bytes> = content.try_collect().await.map_err(at("read an object"))?;
    if content.concat() != CONTENT {
        return Err(at("read an object")(wrong("it is not what was stored")));
    }
    let listed: Vec<_> = backend.list(name.as_str()).try_collect().await.map_err(at("list objects"))?;
    let found = listed.into_iter().find(|listed| listed.name == *name);
    let found = found.ok_or_else(|| at("list objects")(wrong("what was stored is not in the list")))?;
    Ok(found.modified.map(|modified| Skew::between(modified, SystemTime::now())))
}

/// How far a store's clock is from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Skew {
    by: Duration,
    ahead: bool,
}

impl Skew {
    fn between(theirs: SystemTime, ours: SystemTime) -> Self {
        match theirs.duration_since(ours) {
            Ok(by) => Self { by, ahead: true },
            Err(behind) => Self { by: behind.duration(), ahead: false },
        }
    }
}

fn clock(name: &str, skew: Skew) -> Check {
    let check = format!("clock {name}");
    let way = if skew.ahead { "ahead of" } else { "behind" };
    let said = format!("the store's is {} s {way} ours", skew.by.as_secs());
    let remedy = "keep this machine's clock by NTP (systemd-timesyncd, chrony)";
    match skew.by {
        by if by > SKEW_MAX => Check::failed(check, said, remedy),
        by if by > SKEW_SEEN => Check::warning(check, said, remedy),
        _ => Check::ok(check, "agrees with ours"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::State;
    use storage_backends::MemoryBackend;

    #[test]
    fn a_clock_that_is_off_is_said_before_signatures_are_refused() {
        let now = SystemTime::now();
        let state = |by: u64| clock("cloud", Skew::between(now + Duration::from_secs(by), now)).state;
        assert_eq!([state(3), state(60), state(901)], [State::Ok, State::Warning, State::Failed]);
        let behind = clock("cloud", Skew::between(now - Duration::from_secs(70), now));
        assert_eq!(behind.detail, "the store's is 70 s behind ours");
    }

    #[tokio::test]
    async fn nothing_stays_of_an_object_that_was_tried() {
        let backend = MemoryBackend::new();
        assert!(try_out(&backend).await.is_ok());
        assert!(backend.list("").next().await.is_none());
    }
}

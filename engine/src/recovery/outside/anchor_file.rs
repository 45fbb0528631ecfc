//! The file that an outside anchor is: how it is read, and how several processes write one file.

use crate::{deployment::keyring::random, error::EngineError, recovery::names::Lineage};
use catalog::Seq;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    fmt::Display,
    fs,
    io::{self, ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

const VERSION: u32 = 1;
/// How often the file is written anew because another process has lowered it meanwhile.
const ROUNDS_MAX: usize = 16;

/// A place in the history of a store.
pub(super) type NotedPlace = (Lineage, Seq);

/// The same as an anchor has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnchorDocument {
    version: u32,
    lineage: String,
    seq: Seq,
}

impl AnchorDocument {
    pub(super) fn of((lineage, seq): NotedPlace) -> Self {
        Self { version: VERSION, lineage: lineage.to_string(), seq }
    }

    pub(super) fn encode(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// An anchor's file, which replicas share.
pub(super) struct AnchorFile {
    path: PathBuf,
    lock: fn(&fs::File) -> io::Result<()>,
}

impl AnchorFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, lock: fs::File::lock }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says; `None` when there is none.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the file cannot be read or understood: then nothing is known.
    pub(super) fn read(&self) -> Result<Option<(Lineage, Seq)>, EngineError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &self.path.display(), &error)),
        };
        let found: AnchorDocument =
            serde_json::from_str(&text).map_err(|error| failed("understand", &self.path.display(), &error))?;
        if found.version != VERSION {
            return Err(failed("understand", &self.path.display(), &"unknown version"));
        }
        Ok(Some((found.lineage.parse()?, found.seq)))
    }

    /// Notes a place, unless the file knows a later one. Whether that stands: where the file system
    /// has no locks, another process may lower it a moment later, and it is asked for again.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the file cannot be read, understood or written.
    pub(super) fn raise(&self, place: (Lineage, Seq)) -> Result<bool, EngineError> {
        let locked = self.lock()?;
        for _ in 0..ROUNDS_MAX {
            if self.read()?.is_some_and(|found| !is_less(found, place)) {
                break;
            }
            self.write(place)?;
            if locked.is_some() {
                break;
            }
        }
        Ok(locked.is_some())
    }

    /// Notes a place whatever the file knows.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the file cannot be written.
    pub(super) fn set(&self, place: (Lineage, Seq)) -> Result<(), EngineError> {
        let _locked = self.lock()?;
        self.write(place)
    }

    /// While this lives, nobody else writes; `None` where the file system has no locks.
    fn lock(&self) -> Result<Option<fs::File>, EngineError> {
        let lock = || {
            let mut options = fs::OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(self.beside("lock"))?;
            loop {
                match (self.lock)(&file) {
                    Ok(()) => return Ok(Some(file)),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if has_no_locks(&error) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        lock().map_err(|error| failed("lock", &self.path.display(), &error))
    }

    /// Replaces the file at once: whoever reads it finds all of the old one or all of the new one.
    fn write(&self, place: NotedPlace) -> Result<(), EngineError> {
        let text = AnchorDocument::of(place).encode().map_err(|error| failed("write", &self.path.display(), &error))?;
        // Nobody else's, even where nothing is locked.
        let staged = self.beside(&format!("{}.new", hex::encode(random::<8>()?)));
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
            let moved = file.write_all(text.as_bytes());
            let moved = moved.and_then(|()| file.sync_all()).and_then(|()| fs::rename(&staged, &self.path));
            if moved.is_err() {
                // Why it failed is said; that this fails too says nothing more.
                let _ = fs::remove_file(&staged);
            }
            moved?;
            fs::File::open(directory_of(&self.path))?.sync_all()
        };
        write().map_err(|error: io::Error| failed("write", &self.path.display(), &error))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(ending);
        name.into()
    }
}

/// Whether a history ends before another one. A later lineage stands on what the ones before it
/// came to; of two lineages of one generation neither stands on the other.
pub(super) fn is_less(history: (Lineage, Seq), other: (Lineage, Seq)) -> bool {
    match history.0.generation().cmp(&other.0.generation()) {
        std::cmp::Ordering::Equal => history.0 != other.0 || history.1 < other.1,
        order => order.is_lt(),
    }
}

/// Where a file lies; a bare name lies in the working directory.
fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

fn has_no_locks(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(Errno::NOLCK.raw_os_error())
}

pub(super) fn failed(what: &str, place: &dyn Display, error: &dyn Display) -> EngineError {
    EngineError::Other(format!("cannot {what} the anchor {place} (backup.anchor): {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITERS: Seq = 8;
    const EACH: Seq = 25;

    fn lineage() -> Lineage {
        "00000001-0000000a".parse().expect("a lineage")
    }

    /// Threads that write one file as processes do: each opens it for itself. Calls `check` with
    /// what each raised it to and what it finds then.
    fn raised_by_many(open: impl Fn() -> AnchorFile + Sync, check: impl Fn(Seq, Seq) + Sync) {
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (open, check) = (&open, &check);
                scope.spawn(move || {
                    let anchor = open();
                    for round in 0..EACH {
                        let seq = round * WRITERS + writer + 1;
                        anchor.raise((lineage(), seq)).expect("raised");
                        let (_, found) = anchor.read().expect("it is always whole").expect("it is there");
                        check(seq, found);
                    }
                });
            }
        });
    }

    fn names_in(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).expect("readable").map(|entry| entry.expect("readable").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn many_writers_of_one_file_never_lower_it_or_leave_a_part_of_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || AnchorFile::new(dir.path().join("anchor"));
        raised_by_many(open, |seq, found| assert!(found >= seq, "{found} after {seq} was noted"));
        assert_eq!(open().read().expect("read"), Some((lineage(), WRITERS * EACH)));
        assert_eq!(names_in(dir.path()), ["anchor", "anchor.lock"]);
    }

    #[test]
    fn without_locks_the_file_stays_whole_and_rises_when_it_is_asked_for_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let lock: fn(&fs::File) -> io::Result<()> = |_| Err(Errno::NOLCK.into());
        let open = || AnchorFile { path: dir.path().join("anchor"), lock };
        raised_by_many(open, |_, _| {});
        let last = WRITERS * EACH;
        for seq in last - WRITERS..=last {
            let stands = open().raise((lineage(), seq)).expect("raised");
            assert!(!stands, "it is asked for again");
        }
        assert_eq!(open().read().expect("read"), Some((lineage(), last)));
        assert_eq!(names_in(dir.path()), ["anchor", "anchor.lock"]);
    }

    #[test]
    fn what_cannot_take_the_files_place_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let anchor = AnchorFile::new(dir.path().join("anchor"));
        fs::create_dir(anchor.path()).expect("something is in its place");
        assert!(anchor.set((lineage(), 1)).is_err());
        assert_eq!(names_in(dir.path()), ["anchor", "anchor.lock"]);
    }

    #[test]
    fn an_anchor_may_be_a_bare_name() {
        let dir = tempfile::tempdir_in(".").expect("a directory");
        let name = dir.path().file_name().expect("a name").to_string_lossy().into_owned() + "-anchor";
        let anchor = AnchorFile::new(name.into());
        let (raised, found) = (anchor.raise((lineage(), 1)), anchor.read());
        for file in [anchor.path(), &anchor.beside("lock")] {
            fs::remove_file(file).expect("it was written");
        }
        assert!(raised.expect("written"), "under a lock");
        assert_eq!(found.expect("read"), Some((lineage(), 1)));
    }
}

//! The KEKs: one wraps, all of them open. They come from the configuration, or from a file of
//! several.

use crate::error::EngineError;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use object_format::Kek;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Read as _, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};
use zeroize::{Zeroize, Zeroizing};

/// Name of the file in the data directory.
const FILE_NAME: &str = "keyring.json";

/// What is at hand to wrap and to open with.
#[derive(Clone)]
pub(crate) struct Keks {
    /// The one that wraps comes first.
    all: Vec<Arc<Kek>>,
    /// The only one is nobody's: it opens nothing, and the first other one takes its place.
    is_made_up: bool,
}

impl Keks {
    pub(super) fn of(active: Kek) -> Self {
        Self { all: vec![Arc::new(active)], is_made_up: false }
    }

    /// One that nothing is wrapped under, where there is none.
    pub(super) fn made_up() -> Result<Self, EngineError> {
        Ok(Self { is_made_up: true, ..Self::of(Kek::new(*fresh()?)) })
    }

    /// The one that wraps.
    pub(crate) fn active(&self) -> &Arc<Kek> {
        &self.all[0]
    }

    /// Those that only open.
    pub(crate) fn others(&self) -> &[Arc<Kek>] {
        &self.all[1..]
    }

    /// All of them, the active one first.
    pub(crate) fn all(&self) -> &[Arc<Kek>] {
        &self.all
    }

    /// The one with a fingerprint.
    pub(crate) fn find(&self, fingerprint: &[u8; 8]) -> Option<&Arc<Kek>> {
        self.all.iter().find(|kek| kek.fingerprint() == *fingerprint)
    }

    /// The same, with another one that wraps from now on.
    pub(super) fn with_active(&self, active: Arc<Kek>) -> Self {
        let fingerprint = active.fingerprint();
        let others = self.all.iter().filter(|kek| !self.is_made_up && kek.fingerprint() != fingerprint).cloned();
        Self { all: std::iter::once(active).chain(others).collect(), is_made_up: false }
    }

    /// The same, with another one that opens.
    pub(super) fn with(&self, other: Arc<Kek>) -> Self {
        let with = self.with_active(other);
        if self.is_made_up { with } else { with.with_active(self.active().clone()) }
    }

    /// The same with what a file says now; those that providers keep stay.
    pub(super) fn with_file(&self, file: Self) -> Self {
        let kept = self.all.iter().filter(|kek| kek.origin().is_some()).cloned();
        let all = match self.active().origin() {
            Some(_) => kept.chain(file.all).collect(),
            None => file.all.into_iter().chain(kept).collect(),
        };
        Self { all, is_made_up: false }
    }

    /// The one that wraps, alone.
    pub(super) fn active_alone(&self) -> Self {
        Self { all: self.all[..1].to_vec(), ..*self }
    }
}

/// Where KEKs come from.
pub(super) struct Source {
    /// The one of the configuration: it wraps.
    configured: Option<Arc<Kek>>,
    file: PathBuf,
    is_shared_file: bool,
}

/// The file of version 1, with the only KEK.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOfOne {
    version: u32,
    kek: String,
}

/// The file of version 2.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOfSeveral {
    version: u32,
    /// The fingerprint of the one that wraps.
    active: String,
    keks: Vec<String>,
}

impl Drop for FileOfOne {
    fn drop(&mut self) {
        self.kek.zeroize();
    }
}

impl Drop for FileOfSeveral {
    fn drop(&mut self) {
        self.keks.iter_mut().for_each(Zeroize::zeroize);
    }
}

impl Source {
    pub(super) fn new(data: &Path, configured: Option<Kek>, file: Option<PathBuf>) -> Self {
        let is_shared_file = file.is_some();
        let file = keyring_file(data, file.as_deref());
        Self { configured: configured.map(Arc::new), file, is_shared_file }
    }

    /// Whether an operator says where the KEK is.
    pub(super) fn is_configured(&self) -> bool {
        self.configured.is_some() || self.is_shared_file
    }

    /// Whether the KEK that wraps is the file's.
    pub(super) fn is_file(&self) -> bool {
        self.configured.is_none()
    }

    /// Whether other processes may read the file, too.
    pub(super) fn is_shared_file(&self) -> bool {
        self.is_shared_file
    }

    /// The KEKs of now; `None` when there is none yet.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the file cannot be read or understood.
    pub(super) fn read(&self) -> Result<Option<Keks>, EngineError> {
        let found = read_file(&self.file)?;
        Ok(match (&self.configured, found) {
            (None, found) => found,
            (Some(active), None) => Some(Keks { all: vec![active.clone()], is_made_up: false }),
            (Some(active), Some(found)) => Some(found.with_active(active.clone())),
        })
    }

    /// A new KEK in a new file.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be written.
    pub(super) fn make(&self) -> Result<Keks, EngineError> {
        let secret = fresh()?;
        let file = FileOfOne { version: 1, kek: BASE64_STANDARD.encode(*secret) };
        let text = serde_json::to_string_pretty(&file).map_err(|error| self.unwritten(&error))?;
        let write = || {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&self.file)?;
            file.write_all(Zeroizing::new(text).as_bytes())?;
            file.sync_all()?;
            sync_directory(&self.file)
        };
        write().map_err(|error| self.unwritten(&error))?;
        Ok(Keks::of(Kek::new(*secret)))
    }

    /// Writes the KEKs into the file, in the place of what it says.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be written; it says what it said then.
    pub(super) fn write(&self, keks: &Keks) -> Result<(), EngineError> {
        let file = FileOfSeveral {
            version: 2,
            active: hex::encode(keks.active().fingerprint()),
            keks: keks
                .all()
                .iter()
                .filter(|kek| kek.origin().is_none())
                .map(|kek| BASE64_STANDARD.encode(*kek.secret()))
                .collect(),
        };
        let text = Zeroizing::new(serde_json::to_string_pretty(&file).map_err(|error| self.unwritten(&error))?);
        let beside = self.file.with_extension("new");
        let write = || {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &self.file)?;
            sync_directory(&self.file)
        };
        write().map_err(|error| self.unwritten(&error))
    }

    /// Removes the file in the data directory, where it is nobody else's; whether nothing is left
    /// of it.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be removed.
    pub(super) fn remove(&self) -> Result<bool, EngineError> {
        if self.is_configured() {
            return Ok(false);
        }
        match fs::remove_file(&self.file).and_then(|()| sync_directory(&self.file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("cannot remove", &self.file, &error)),
            _ => Ok(true),
        }
    }

    fn unwritten(&self, error: &dyn std::fmt::Display) -> EngineError {
        failed("cannot write", &self.file, error)
    }
}

/// 32 bytes from the operating system's generator.
pub(super) fn fresh() -> Result<Zeroizing<[u8; 32]>, EngineError> {
    let mut secret = Zeroizing::new([0; 32]);
    crypto::fill_random(&mut *secret).map_err(|error| EngineError::Other(error.to_string()))?;
    Ok(secret)
}

/// What could not be done with a file of keys.
pub(super) fn failed(what: &str, path: &Path, error: &dyn std::fmt::Display) -> EngineError {
    EngineError::Other(format!("{what} {}: {error}", path.display()))
}

fn sync_directory(file: &Path) -> io::Result<()> {
    fs::File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Where the file of KEKs is: the one that an operator names, or the one in the data directory.
pub fn keyring_file(data: &Path, named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| data.join(FILE_NAME), Path::to_owned)
}

/// Looks at a file of KEKs, if there is one.
///
/// # Errors
/// [`EngineError::Other`] when it cannot be read or understood, or everybody may write it.
pub fn check_keyring_file(path: &Path) -> Result<(), EngineError> {
    read_file(path).map(drop)
}

/// What a file says; `None` when there is none. Whoever may write it gives the store a KEK that
/// they know, so one that everybody may write is not read.
fn text_of(path: &Path) -> Result<Option<Zeroizing<String>>, EngineError> {
    let read = || {
        let mut file = fs::File::open(path)?;
        let found = file.metadata()?;
        let mut text = Zeroizing::new(String::with_capacity(usize::try_from(found.len()).unwrap_or(0)));
        file.read_to_string(&mut text)?;
        io::Result::Ok((found.permissions().mode() & 0o777, text))
    };
    match read() {
        Ok((mode, _)) if mode & 0o002 != 0 => {
            let shown = path.display();
            Err(EngineError::Other(format!("{shown} has mode {mode:04o}: everybody may write it; chmod 600 it")))
        }
        Ok((_, text)) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("cannot read", path, &error)),
    }
}

/// The KEKs of a file; `None` when there is none.
fn read_file(path: &Path) -> Result<Option<Keks>, EngineError> {
    let unclear = |error: &dyn std::fmt::Display| failed("cannot understand", path, error);
    let Some(text) = text_of(path)? else { return Ok(None) };
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_str(&text).map_err(|error| unclear(&error))?;
    let (active, texts) = match version {
        1 => {
            let mut file: FileOfOne = serde_json::from_str(&text).map_err(|error| unclear(&error))?;
            (None, vec![Zeroizing::new(std::mem::take(&mut file.kek))])
        }
        2 => {
            let mut file: FileOfSeveral = serde_json::from_str(&text).map_err(|error| unclear(&error))?;
            let texts = std::mem::take(&mut file.keks).into_iter().map(Zeroizing::new).collect();
            (Some(std::mem::take(&mut file.active)), texts)
        }
        _ => return Err(unclear(&"unknown version")),
    };
    let kek = |text: &Zeroizing<String>| {
        let secret = Zeroizing::new(BASE64_STANDARD.decode(text.as_bytes()).map_err(|error| unclear(&error))?);
        let secret: [u8; 32] = secret.as_slice().try_into().map_err(|_| unclear(&"a KEK is not 32 bytes"))?;
        Ok(Arc::new(Kek::new(secret)))
    };
    let all = texts.iter().map(kek).collect::<Result<Vec<_>, EngineError>>()?;
    let is_active = |kek: &&Arc<Kek>| active.as_ref().is_none_or(|named| hex::encode(kek.fingerprint()) == *named);
    let active = all.iter().find(is_active).cloned().ok_or_else(|| unclear(&"the active KEK is not in it"))?;
    Ok(Some(Keks { all, is_made_up: false }.with_active(active)))
}

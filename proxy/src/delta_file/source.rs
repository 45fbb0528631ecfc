//! A file that is read at many places and must stay as it is meanwhile.

use super::error::{DeltaFileError, Result, io_error};
use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

/// An open regular file. Reads at places, so threads share it.
pub(super) struct Source {
    file: File,
    what: &'static str,
    found: Stamp,
}

/// What changes when somebody writes to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified_ns: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), modified_ns: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

impl Source {
    /// Opens the file that is called `what` in messages; a failure names its path, too.
    pub(super) fn open(path: &Path, what: &'static str) -> Result<Self> {
        let named =
            |error: io::Error| io_error(what)(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
        let file = File::open(path).map_err(named)?;
        let metadata = file.metadata().map_err(named)?;
        if !metadata.is_file() {
            return Err(named(io::Error::other("not a regular file")));
        }
        Ok(Self { file, what, found: Stamp::of(&metadata) })
    }

    /// Its length when it was opened.
    pub(super) fn len(&self) -> u64 {
        self.found.len
    }

    /// Fills `bytes` from `offset` on.
    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => DeltaFileError::Changed(self.what),
            _ => io_error(self.what)(error),
        })
    }

    /// Sees to it that nobody wrote to it since it was opened.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let now = Stamp::of(&self.file.metadata().map_err(io_error(self.what))?);
        if now == self.found { Ok(()) } else { Err(DeltaFileError::Changed(self.what)) }
    }

    /// Reads all of it in pieces of `piece_len` bytes, the last one shorter.
    pub(super) fn for_each_piece(
        &self,
        piece_len: usize,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut piece = vec![0; piece_len];
        let mut at = 0;
        while at < self.len() {
            let len = (self.len() - at).min(piece_len as u64) as usize;
            self.read_at(&mut piece[..len], at)?;
            take(at, &piece[..len])?;
            at += len as u64;
        }
        Ok(())
    }
}

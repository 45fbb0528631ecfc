//! Where the lines lie: `audit-FIRST.jsonl` in one directory, FIRST the number of the first line in
//! 16 digits, and `head`, which says how far the log had come.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The file that says how far the log is.
pub(super) const HEAD: &str = "head";

/// A file of lines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinesFile {
    pub(super) first: u64,
    pub(super) path: PathBuf,
}

/// The file whose first line has this number.
pub(super) fn path_of(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("audit-{first:016}.jsonl"))
}

/// The files of a directory in order of their lines. A directory that is not there has none.
///
/// # Errors
/// It cannot be listed.
pub(super) fn list(directory: &Path) -> io::Result<Vec<LinesFile>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let first = name.strip_prefix("audit-").and_then(|name| name.strip_suffix(".jsonl"));
        if let Some(first) = first.filter(|digits| digits.len() == 16).and_then(|digits| digits.parse().ok()) {
            files.push(LinesFile { first, path });
        }
    }
    files.sort();
    Ok(files)
}

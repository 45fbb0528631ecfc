//! Reading a log: whether it is whole, and its newest lines.

use super::{
    chain::{AuditKey, Position},
    files::{HEAD, LinesFile, list},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    fmt,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
};

/// A log that is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Sound {
    /// Its lines.
    pub lines: u64,
    /// The number of the oldest line, 0 when there is none. Greater than 1 when old files were
    /// removed, which the log itself says.
    pub first: u64,
    /// The number of the newest line.
    pub last: u64,
    /// Its files.
    pub files: usize,
    /// Whether half a line stands at its end: the machine stopped while it was written.
    pub torn: bool,
}

/// Why a log is not believed, and from where on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The file.
    pub path: PathBuf,
    /// The line in it, counted from 1; 0 when it is about the whole file.
    pub line: u64,
    /// Why.
    pub why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.why),
            line => write!(f, "{}, line {line}: {}", self.path.display(), self.why),
        }
    }
}

impl std::error::Error for Broken {}

impl Broken {
    fn of(path: &Path, line: u64, why: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, why: why.into() }
    }
}

/// Follows the chain through every file of a directory, and holds it against the head.
///
/// # Errors
/// [`Broken`] at the first line that does not follow, or for a log that ends before its head.
pub fn verify(directory: &Path, key: &AuditKey) -> Result<Sound, Broken> {
    let unreadable = |path: &Path, error: io::Error| Broken::of(path, 0, error.to_string());
    // Read before the lines: a server that writes meanwhile only adds behind it.
    let head_path = directory.join(HEAD);
    let head = match fs::read_to_string(&head_path) {
        Ok(text) => {
            let head = key.read_head(&text);
            Some(head.ok_or_else(|| Broken::of(&head_path, 0, "it was not written with this log's key"))?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unreadable(&head_path, error)),
    };
    let files = list(directory).map_err(|error| unreadable(directory, error))?;
    let Some(oldest) = files.first() else {
        return match head {
            Some((seq, _)) if seq > 0 => Err(Broken::of(directory, 0, format!("{seq} lines are gone"))),
            _ => Ok(Sound::default()),
        };
    };
    let (known, known_link) = head.ok_or_else(|| Broken::of(&head_path, 0, "it is not there"))?;
    let mut position = beginning(&files).map_err(|error| unreadable(directory, error))?;
    let mut sound = Sound { first: oldest.first, files: files.len(), ..Sound::default() };
    for (index, file) in files.iter().enumerate() {
        if file.first != position.seq + 1 {
            let why = format!("it begins with line {}, and {} is due", file.first, position.seq + 1);
            return Err(Broken::of(&file.path, 0, why));
        }
        let lines = Lines::open(&file.path).map_err(|error| unreadable(&file.path, error))?;
        for (line, number) in lines.zip(1..) {
            let line = line.map_err(|error| unreadable(&file.path, error))?;
            let Some(whole) = line.strip_suffix('\n') else {
                sound.torn = index + 1 == files.len();
                if sound.torn {
                    break;
                }
                return Err(Broken::of(&file.path, number, "it ends in the middle"));
            };
            position = position.follow(key, whole).map_err(|why| Broken::of(&file.path, number, why))?.0;
            sound.lines += 1;
            if position.seq == known && position.link != known_link {
                return Err(Broken::of(&file.path, number, "the head knows another line of this number"));
            }
        }
    }
    sound.last = position.seq;
    if position.seq < known {
        let newest = files.last().unwrap_or(oldest);
        let why = format!("the log ends with line {}, and its head knows {known}", position.seq);
        return Err(Broken::of(&newest.path, sound.lines, why));
    }
    Ok(sound)
}

/// The newest `count` lines, oldest first, without their line feeds; not verified.
///
/// # Errors
/// They cannot be read.
pub fn tail(directory: &Path, count: usize) -> io::Result<Vec<String>> {
    let mut newest = Vec::new();
    for file in list(directory)?.iter().rev() {
        let mut lines = Lines::open(&file.path)?.collect::<io::Result<Vec<_>>>()?;
        lines.retain(|line| line.ends_with('\n'));
        for line in &mut lines {
            line.truncate(line.len() - 1);
        }
        lines.append(&mut newest);
        newest = lines;
        if newest.len() >= count {
            break;
        }
    }
    Ok(newest.split_off(newest.len().saturating_sub(count)))
}

/// Where the chain is before the oldest file: at its start, or where a line of the log says that
/// older files were removed. That line is verified with all others.
fn beginning(files: &[LinesFile]) -> io::Result<Position> {
    let first = files.first().map_or(1, |file| file.first);
    if first <= 1 {
        return Ok(Position::START);
    }
    for file in files {
        for line in Lines::open(&file.path)? {
            let Ok(fields) = serde_json::from_str::<Value>(&line?) else { continue };
            if fields["op"] != "files-removed" || fields["before"] != first {
                continue;
            }
            let mut link = [0; 32];
            if hex::decode_to_slice(fields["link"].as_str().unwrap_or_default(), &mut link).is_ok() {
                return Ok(Position { seq: first - 1, link });
            }
        }
    }
    // Nothing says so: the first line that is there does not follow.
    Ok(Position::START)
}

/// Where a file ends, by its last whole line, and the bytes up to there; not verified.
///
/// # Errors
/// It cannot be read.
pub(super) fn last_position(file: &LinesFile) -> io::Result<(Option<Position>, u64)> {
    let (mut last, mut bytes) = (None, 0);
    for line in Lines::open(&file.path)? {
        let line = line?;
        if !line.ends_with('\n') {
            break;
        }
        bytes += line.len() as u64;
        last = Some(line);
    }
    let position = last.and_then(|line| {
        let fields: Value = serde_json::from_str(&line).ok()?;
        let mut link = [0; 32];
        hex::decode_to_slice(fields["hash"].as_str()?, &mut link).ok()?;
        Some(Position { seq: fields["seq"].as_u64()?, link })
    });
    Ok((position, bytes))
}

/// Lines with their line feeds; bytes that are no UTF-8 are an error.
pub(super) struct Lines(BufReader<File>);

impl Lines {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(|file| Self(BufReader::new(file)))
    }
}

impl Iterator for Lines {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(Ok(line)),
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;

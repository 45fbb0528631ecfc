//! `deltaweir delta`: one file as a difference to another, without a server.

use super::{
    outcome::{Failure, Outcome, out, show},
    print,
};
use crate::delta_file::{self, DeltaFileError};
use clap::{Subcommand, ValueEnum};
use delta_codec::Effort;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

/// Bytes that are collected before they are written.
const WRITE_LEN: usize = 1 << 20;

#[derive(Subcommand)]
pub(super) enum DeltaAction {
    /// Encode TARGET as a delta against BASE into OUT
    Encode {
        /// How hard to try
        #[arg(long, value_enum, default_value_t = EffortFlag::Balanced)]
        effort: EffortFlag,
        /// The base file
        base: PathBuf,
        /// The file to encode
        target: PathBuf,
        /// Path of the new delta file
        out: PathBuf,
    },
    /// Restore the target from BASE and DELTA into OUT
    Decode {
        /// The base that the delta was made with; any other file is refused
        base: PathBuf,
        /// The delta
        delta: PathBuf,
        /// Path of the restored target
        out: PathBuf,
    },
    /// Show the contents of a delta file
    Info {
        /// The delta
        delta: PathBuf,
    },
}

/// The codec's efforts on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum EffortFlag {
    Fast,
    Balanced,
    High,
    Max,
}

impl From<EffortFlag> for Effort {
    fn from(flag: EffortFlag) -> Self {
        match flag {
            EffortFlag::Fast => Self::Fast,
            EffortFlag::Balanced => Self::Balanced,
            EffortFlag::High => Self::High,
            EffortFlag::Max => Self::Max,
        }
    }
}

pub(super) fn run(action: DeltaAction, json: bool) -> Outcome {
    match action {
        DeltaAction::Encode { effort, base, target, out } => encode(&base, &target, effort.into(), &out, json),
        DeltaAction::Decode { base, delta, out } => decode(&base, &delta, &out, json),
        DeltaAction::Info { delta } => show(json, &serde_json::to_value(delta_file::info(&delta)?)?, print::outline),
    }
}

/// `deltaweir inspect FILE`.
pub(super) fn inspect(file: &Path, base: Option<&Path>, json: bool) -> Outcome {
    show(json, &serde_json::to_value(delta_file::inspect(file, base)?)?, print::streams)
}

fn encode(base: &Path, target: &Path, effort: Effort, to: &Path, json: bool) -> Outcome {
    let bar = bar("encoding", len(base)? + len(target)?)?;
    write_whole(to, |file| delta_file::encode(base, target, effort, file, &|bytes| bar.inc(bytes)))?;
    bar.finish_and_clear();
    if json {
        return show(json, &serde_json::to_value(delta_file::info(to)?)?, print::outline);
    }
    let (plain, stored) = (len(target)?, len(to)?);
    out(&format!("{}: {stored} bytes for {plain}", to.display()))
}

fn decode(base: &Path, delta: &Path, to: &Path, json: bool) -> Outcome {
    let bar = bar("decoding", len(base)?)?;
    let opened = delta_file::open(base, delta, &|bytes| bar.inc(bytes))?;
    let target_len = opened.target_len();
    bar.inc_length(target_len);
    write_whole(to, |file| opened.decode(file, &|bytes| bar.inc(bytes)))?;
    bar.finish_and_clear();
    if json {
        return show(json, &serde_json::json!({ "target_bytes": target_len }), print::outline);
    }
    out(&format!("{}: {target_len} bytes", to.display()))
}

/// Writes a file that appears under its name when it is whole and on the disk, and not before.
fn write_whole(to: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), DeltaFileError>) -> Outcome {
    let name = to.file_name().ok_or_else(|| Failure(format!("{} is no name for a file", to.display())))?;
    let folder = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part_name = std::ffi::OsString::from(".");
    part_name.push(name);
    part_name.push(format!(".{}.part", std::process::id()));
    let part = Part(folder.join(part_name));
    let failed = |error: io::Error| Failure(format!("{}: {error}", to.display()));
    let file = File::options().write(true).create_new(true).open(&part.0).map_err(failed)?;
    let mut buffered = BufWriter::with_capacity(WRITE_LEN, &file);
    write(&mut buffered)?;
    buffered.flush().map_err(failed)?;
    drop(buffered);
    file.sync_all().map_err(failed)?;
    fs::rename(&part.0, to).map_err(failed)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// A file under construction; it is removed unless it has been renamed.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // After the rename there is none, which is as well.
        let _ = fs::remove_file(&self.0);
    }
}

fn len(path: &Path) -> Result<u64, Failure> {
    Ok(fs::metadata(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?.len())
}

/// A bar on a terminal's stderr; nothing elsewhere.
fn bar(title: &'static str, total: u64) -> Result<ProgressBar, Failure> {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")?;
    Ok(ProgressBar::new(total).with_style(style).with_message(title))
}

//! How small successors of compressed files become in a plain view, and how fast: one line of JSON
//! for each pair of files named.
//!
//! `view_study [--ns-per-byte N] BASE TARGET [BASE TARGET …]`. Every target is rebuilt from what
//! would be stored, segment by segment, and compared. A byte saved may cost `N` nanoseconds of
//! decoding: 250 as in the store's default settings, 0 for any time.

mod base;
mod clock;
mod encoding;
mod pair;

use std::{env, fs, io, process::ExitCode};

/// As in the store (`engine/src/bases/plan.rs`).
const NS_PER_BYTE: u64 = 200;

fn main() -> io::Result<ExitCode> {
    let mut paths: Vec<_> = env::args_os().skip(1).collect();
    let mut ns_per_byte = NS_PER_BYTE;
    if paths.first().is_some_and(|first| first == "--ns-per-byte") {
        let number = paths.get(1).and_then(|number| number.to_str()?.parse().ok());
        ns_per_byte = number.ok_or_else(|| io::Error::other("--ns-per-byte takes a number"))?;
        paths.drain(..2);
    }
    if paths.is_empty() || paths.len() % 2 != 0 {
        eprintln!("usage: view_study [--ns-per-byte N] BASE TARGET [BASE TARGET …]");
        return Ok(ExitCode::from(2));
    }
    for pair in paths.chunks(2) {
        let (base, target) = (fs::read(&pair[0])?, fs::read(&pair[1])?);
        println!("{}", pair::measure(&base, &target, Some(ns_per_byte).filter(|most| *most > 0)));
    }
    Ok(ExitCode::SUCCESS)
}

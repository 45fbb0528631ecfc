//! How small successors of compressed files become in a plain view, and how fast: one line of JSON
//! for each pair of files named.
//!
//! `view_study BASE TARGET [BASE TARGET …]`. Every target is rebuilt from what would be stored,
//! unit by unit, and compared.

mod base;
mod clock;
mod pair;

use std::{env, fs, io, process::ExitCode};

fn main() -> io::Result<ExitCode> {
    let paths: Vec<_> = env::args_os().skip(1).collect();
    if paths.is_empty() || paths.len() % 2 != 0 {
        eprintln!("usage: view_study BASE TARGET [BASE TARGET …]");
        return Ok(ExitCode::from(2));
    }
    for pair in paths.chunks(2) {
        let (base, target) = (fs::read(&pair[0])?, fs::read(&pair[1])?);
        println!("{}", pair::measure(&base, &target));
    }
    Ok(ExitCode::SUCCESS)
}

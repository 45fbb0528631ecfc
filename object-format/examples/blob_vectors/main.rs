//! Writes `tests/vectors/blob-v1/`: one file per scenario of `docs/format/blob-v1.md`, good ones
//! and ones that must fail.
//!
//! ```text
//! cargo run -p object-format --example blob_vectors -- tests/vectors/blob-v1
//! ```

#![allow(clippy::unwrap_used, reason = "a program run by hand: what goes wrong should be seen at once")]

mod vectors;

use std::{env, fs, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1) else {
        eprintln!("usage: blob_vectors FOLDER");
        return ExitCode::FAILURE;
    };
    fs::create_dir_all(&folder).unwrap();
    let all = vectors::all();
    for vector in &all {
        fs::write(Path::new(&folder).join(vector.name), vector.file_bytes()).unwrap();
    }
    println!("{} vectors, {} of them must fail", all.len(), all.iter().filter(|v| v.expect != "success").count());
    ExitCode::SUCCESS
}

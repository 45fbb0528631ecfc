//! Writes the vectors of docs/format/delta-v1.md:
//! `cargo run -p delta-codec --example make_vectors -- tests/vectors/delta-v1`.
//!
//! A vector is a text file: `name: value` lines, an empty line, the delta in hexadecimal. Its name
//! is the name of the function or table entry that made it.

mod arm64;
mod bad;
mod good;
mod kit;

use std::path::PathBuf;
use std::{env, fs, io};

use sha2::{Digest, Sha256};

/// Where the footprint's bytes come from.
#[derive(Clone, Copy)]
enum Footprint {
    Empty,
    /// [`kit::lcg`] with this seed, this long.
    Lcg(u64, usize),
    /// [`arm64::code`] with this seed, this many instructions. Vectors have its bytes.
    Arm64(u64, usize),
}

impl Footprint {
    fn bytes(self) -> Vec<u8> {
        match self {
            Footprint::Empty => Vec::new(),
            Footprint::Lcg(seed, len) => kit::lcg(seed, len),
            Footprint::Arm64(seed, count) => arm64::code(seed, count),
        }
    }
}

/// What a decoder must do.
enum Expect {
    Target(Vec<u8>),
    Malformed { target_len: usize },
}

struct Vector {
    name: &'static str,
    about: &'static str,
    footprint: Footprint,
    delta: Vec<u8>,
    expect: Expect,
}

impl Vector {
    fn text(&self) -> String {
        let footprint = match self.footprint {
            Footprint::Empty => "empty".to_owned(),
            Footprint::Lcg(seed, len) => format!("lcg {seed} {len}"),
            Footprint::Arm64(..) => format!("hex {}", hex::encode(self.footprint.bytes())),
        };
        let expect = match &self.expect {
            Expect::Target(target) => {
                format!(
                    "expect: target\ntarget_len: {}\ntarget_sha256: {}",
                    target.len(),
                    hex::encode(Sha256::digest(target))
                )
            }
            Expect::Malformed { target_len } => format!("expect: malformed\ntarget_len: {target_len}"),
        };
        let digits = hex::encode(&self.delta);
        let lines: Vec<&str> = (0..digits.len()).step_by(96).map(|at| &digits[at..digits.len().min(at + 96)]).collect();
        format!("about: {}\n{expect}\nfootprint: {footprint}\n\n{}\n", self.about, lines.join("\n"))
    }
}

fn main() -> io::Result<()> {
    let Some(directory) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: make_vectors DIRECTORY"));
    };
    fs::create_dir_all(&directory)?;
    let vectors: Vec<Vector> = good::vectors().into_iter().chain(bad::vectors()).collect();
    for vector in &vectors {
        fs::write(directory.join(format!("{}.vec", vector.name)), vector.text())?;
    }
    println!("{} vectors", vectors.len());
    Ok(())
}

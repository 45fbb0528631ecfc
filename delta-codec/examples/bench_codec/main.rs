//! Encodes one file against another with one codec, decodes it again, and prints what that took as
//! one line of JSON.
//!
//! `bench_codec CODEC BASE TARGET REPEATS`; `bench_codec list` names the codecs; `bench_codec
//! planes [FILE…]` takes numbers apart, made-up ones or those of files. Times are CPU
//! seconds of this thread, files already in memory; the index of the base is built in every repeat
//! and belongs to encoding. docs/benchmark/codec runs it beside other programs.

mod gdelta;
mod instructions;
mod ours;
mod planes;
mod words;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use delta_codec::Effort;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// The server's allocator: what one encode has returned the next one takes again, without the
/// kernel.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A delta of a whole file in the benchmark's own terms.
trait Codec {
    /// The delta, and bytes of memory its index took.
    fn encode(&mut self, base: &[u8], target: &[u8]) -> Encoded;
    /// Makes `target`, which has the right length already, the target again.
    fn decode(&mut self, base: &[u8], encoded: &Encoded, target: &mut Vec<u8>);
    /// What else there is to say about a delta.
    fn facts(&self, _encoded: &Encoded) -> Value {
        Value::Null
    }
}

/// What the bytes of a piece are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Delta,
    Zstd,
    Raw,
}

/// An encoded file: independent pieces, each with what its codec needs to know about it.
struct Encoded {
    pieces: Vec<Piece>,
    index_bytes: usize,
    index_cpu_s: f64,
}

struct Piece {
    target_len: usize,
    bytes: Vec<u8>,
    /// Ranges of the base that the decoder is given; stored cost 12 bytes each. Empty for codecs
    /// that need all of the base.
    footprint: Vec<(usize, usize)>,
    /// How the piece is stored.
    form: Form,
}

impl Piece {
    fn stored_len(&self) -> usize {
        self.bytes.len() + 12 * self.footprint.len()
    }
}

const NAMES: [&str; 9] =
    ["fast", "balanced", "high", "max", "gdelta", "gdelta-entropy", "gdelta-batched", "ddelta", "edelta"];

fn codec(name: &str) -> Option<Box<dyn Codec>> {
    Some(match name {
        "fast" => Box::new(ours::Ours::new(Effort::Fast)),
        "balanced" => Box::new(ours::Ours::new(Effort::Balanced)),
        "high" => Box::new(ours::Ours::new(Effort::High)),
        "max" => Box::new(ours::Ours::new(Effort::Max)),
        "gdelta" => Box::new(gdelta::Gdelta::new(gdelta::Stage::Matching)),
        "gdelta-entropy" => Box::new(gdelta::Gdelta::new(gdelta::Stage::EntropyPerDelta)),
        "gdelta-batched" => Box::new(gdelta::Gdelta::new(gdelta::Stage::EntropyPerBatch)),
        "ddelta" => Box::new(words::Words::new(words::Search::EveryWord)),
        "edelta" => Box::new(words::Words::new(words::Search::Enlarging)),
        _ => return None,
    })
}

/// CPU time of this thread.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn peak_rss_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn measure(name: &str, base: &Path, target: &Path, repeats: usize) -> Result<Value, Box<dyn Error>> {
    let (base, target) = (fs::read(base)?, fs::read(target)?);
    // Written to once, so that the kernel's work of finding pages is not counted as decoding.
    let mut decoded = vec![0xa5; target.len()];
    let inputs_rss = peak_rss_bytes().unwrap_or(0);
    let mut codec = codec(name).ok_or("no such codec")?;
    let (mut index_s, mut encode_s, mut decode_s) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = Value::Null;
    for _ in 0..repeats {
        let start = cpu_s();
        let encoded = codec.encode(&base, &target);
        encode_s.push(cpu_s() - start);
        index_s.push(encoded.index_cpu_s);
        let peak = peak_rss_bytes().unwrap_or(0);
        let start = cpu_s();
        codec.decode(&base, &encoded, &mut decoded);
        decode_s.push(cpu_s() - start);
        if decoded != target {
            return Err("decoding gave something else".into());
        }
        let stored: usize = encoded.pieces.iter().map(Piece::stored_len).sum();
        last = json!({
            "delta_bytes": stored,
            "index_bytes": encoded.index_bytes,
            "memory_bytes": peak.saturating_sub(inputs_rss),
            "facts": codec.facts(&encoded),
        });
    }
    Ok(json!({
        "codec": name,
        "base_bytes": base.len(),
        "target_bytes": target.len(),
        "index_cpu_s": index_s,
        "encode_cpu_s": encode_s,
        "decode_cpu_s": decode_s,
        "result": last,
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list"] => println!("{}", NAMES.join("\n")),
        ["planes", files @ ..] => planes::report(files)?,
        [name, base, target, repeats] => {
            println!("{}", measure(name, Path::new(base), Path::new(target), repeats.parse::<usize>()?.max(1))?);
        }
        _ => {
            return Err(
                "usage: bench_codec CODEC BASE TARGET REPEATS | bench_codec list | bench_codec planes [FILE…]".into()
            );
        }
    }
    Ok(())
}

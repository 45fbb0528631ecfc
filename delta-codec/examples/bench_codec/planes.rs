//! Byte planes on numbers: what they store, beside zstd, and how fast they are made and read.
//! Families are made up from a seed; a file given instead is read as it is.

use std::error::Error;
use std::{fs, iter};

use delta_codec::{SEGMENT_LEN_MAX, planes, whole};

use crate::cpu_s;

const LEN: usize = 16 * SEGMENT_LEN_MAX;
const ROUNDS: usize = 5;
/// Numbers of one made-up tensor, whose spread is its own.
const TENSOR: usize = 1 << 16;

/// A name, and what makes its bytes.
type Family = (&'static str, fn() -> Vec<u8>);

/// What one family came to, in CPU seconds of the best round.
#[derive(Default)]
struct Sums {
    plain: usize,
    zstd: usize,
    stored: usize,
    segments_of_planes: usize,
    zstd_s: f64,
    guess_s: f64,
    planes_s: f64,
    decode_s: f64,
}

/// Prints a line for each family, or for each file.
pub(crate) fn report(files: &[&str]) -> Result<(), Box<dyn Error>> {
    println!(
        "{:<24} {:>8} {:>8} {:>9} {:>12} {:>9} {:>13} {:>13}",
        "family", "zstd -1", "stored", "planes", "zstd MB/s", "guess %", "planes MB/s", "decode MB/s"
    );
    if files.is_empty() {
        families().for_each(|(name, bytes)| print(name, &measure(&bytes)));
    }
    for file in files {
        print(file, &measure(&fs::read(file)?));
    }
    Ok(())
}

fn print(name: &str, sums: &Sums) {
    let mb_s = |seconds: f64| sums.plain as f64 / 1e6 / seconds;
    let share = |len: usize| len as f64 / sums.plain as f64;
    println!(
        "{name:<24} {:>8.4} {:>8.4} {:>5} of {:>2} {:>9.0} {:>9.2} {:>13.0} {:>13.0}",
        share(sums.zstd),
        share(sums.stored),
        sums.segments_of_planes,
        sums.plain.div_ceil(SEGMENT_LEN_MAX),
        mb_s(sums.zstd_s),
        sums.guess_s / sums.zstd_s * 100.0,
        mb_s(sums.planes_s),
        mb_s(sums.decode_s),
    );
}

/// Each segment as the store would have it, without a base.
fn measure(bytes: &[u8]) -> Sums {
    let mut sums = Sums::default();
    for plain in bytes.chunks(SEGMENT_LEN_MAX) {
        let (mut frame, mut stored, mut again) = (Vec::new(), Vec::new(), vec![0xa5; plain.len()]);
        let (zstd_s, zstd) = best(|| {
            frame.clear();
            whole::compress(plain, 1, plain.len(), &mut frame)
        });
        let len = zstd.unwrap_or(plain.len());
        let (guess_s, words) = best(|| planes::guess(plain, len));
        let (planes_s, made) = best(|| {
            stored.clear();
            words.and_then(|words| planes::compress_as(plain, words, 1, len, &mut stored))
        });
        let (decode_s, ()) = best(|| match (made, zstd) {
            (Some(_), _) => planes::decompress(&stored, &mut again).expect("what was taken apart comes together"),
            (None, Some(_)) => whole::decompress(&frame, &mut again).expect("what was compressed decompresses"),
            (None, None) => again.copy_from_slice(plain),
        });
        assert!(again == plain, "decoding gave something else");
        sums.plain += plain.len();
        sums.zstd += len;
        sums.stored += made.unwrap_or(len);
        sums.segments_of_planes += usize::from(made.is_some());
        sums.zstd_s += zstd_s;
        sums.guess_s += guess_s;
        sums.planes_s += planes_s;
        sums.decode_s += decode_s;
    }
    sums
}

fn best<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let mut timed = || {
        let start = cpu_s();
        let made = work();
        (cpu_s() - start, made)
    };
    let first = timed();
    (1..ROUNDS).fold(first, |(least, _), _| {
        let (seconds, made) = timed();
        (least.min(seconds), made)
    })
}

/// A 64-bit generator: splitmix64.
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normally distributed (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Weights: normal in each tensor, spreads between 0.01 and 0.1.
fn weights(count: usize) -> impl Iterator<Item = f64> {
    let (mut source, mut spread) = (Source(1), 0.0);
    (0..count).map(move |at| {
        if at % TENSOR == 0 {
            spread = 0.01 * 10f64.powf(source.uniform());
        }
        source.normal() * spread
    })
}

/// The nearest bfloat16, half to even.
fn bf16(value: f64) -> [u8; 2] {
    let bits = (value as f32).to_bits();
    (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes()
}

fn families() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let makers: [Family; 8] = [
        ("bf16 weights", || weights(LEN / 2).flat_map(bf16).collect()),
        ("fp32 weights", || weights(LEN / 4).flat_map(|value| (value as f32).to_le_bytes()).collect()),
        ("fp64 weights", || weights(LEN / 8).flat_map(f64::to_le_bytes).collect()),
        ("fp32 of a smooth field", || {
            let mut source = Source(2);
            let value = |at: usize| (at as f64 / 400.0).sin() + source.normal() * 1e-4;
            (0..LEN / 4).map(value).flat_map(|value| (value as f32).to_le_bytes()).collect()
        }),
        ("fp64 of a random walk", || {
            let (mut source, mut value) = (Source(3), 0.0);
            let step = || {
                value += source.normal();
                value.to_le_bytes()
            };
            iter::repeat_with(step).take(LEN / 8).flatten().collect()
        }),
        ("16-bit samples", || {
            let mut source = Source(4);
            let value = |at: usize| 3000.0 * (at as f64 / 50.0).sin() + source.normal() * 300.0;
            (0..LEN / 2).map(value).flat_map(|value| (value as i16).to_le_bytes()).collect()
        }),
        ("base64 of noise", || {
            let mut source = Source(5);
            iter::repeat_with(|| b' ' + (source.next() & 63) as u8).take(LEN).collect()
        }),
        ("noise", || {
            let mut source = Source(6);
            iter::repeat_with(|| source.next().to_le_bytes()).take(LEN / 8).flatten().collect()
        }),
    ];
    makers.into_iter().map(|(name, make)| (name, make()))
}

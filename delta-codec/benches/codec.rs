//! The codec's hot paths on four megabytes of made-up machine code: sketch, index, match, encode,
//! decode.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use delta_codec::sketch::Sketcher;
use delta_codec::{BaseIndex, Decoder, Effort, EncodeJob, Encoded, Encoder, FootprintLimits, WindowUnit};

const SEGMENT_LEN: usize = delta_codec::SEGMENT_LEN_MAX;
/// Instructions a made-up program is written with.
const VOCABULARY: usize = 4096;
/// One instruction in this many carries an address.
const ADDRESS_EVERY: u64 = 11;

/// A 64-bit generator without state to seed: splitmix64.
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

/// Which release of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    First,
    /// One instruction in 512 is another one, and addresses behind them have moved.
    Second,
}

/// Bytes that resemble machine code: a skewed choice among short words, and little-endian addresses
/// among them.
fn program(release: Release) -> Vec<u8> {
    let mut words = Source(1);
    let vocabulary: Vec<[u8; 8]> = (0..VOCABULARY).map(|_| words.next().to_le_bytes()).collect();
    let (mut source, mut edits) = (Source(2), Source(3));
    let mut out = Vec::with_capacity(SEGMENT_LEN + 16);
    let mut moved = 0u32;
    while out.len() < SEGMENT_LEN {
        let draw = source.next();
        // The product of two draws: a few instructions are common and most are rare.
        let mut chosen = ((draw as u32 % 64) * ((draw >> 32) as u32 % 64)) as usize;
        if release == Release::Second && edits.next().is_multiple_of(512) {
            chosen = edits.next() as usize % VOCABULARY;
            moved += 16;
        }
        let word = vocabulary[chosen];
        out.extend_from_slice(&word[..2 + chosen % 6]);
        if (draw >> 16).is_multiple_of(ADDRESS_EVERY) {
            out.extend_from_slice(&((draw >> 40) as u32 + moved).to_le_bytes());
        }
    }
    out.truncate(SEGMENT_LEN);
    out
}

/// The base's blocks of 4 KiB in another order: all matching, hardly any stream to write.
fn shuffled_blocks(base: &[u8]) -> Vec<u8> {
    let mut blocks: Vec<&[u8]> = base.chunks(4096).collect();
    let mut source = Source(4);
    for at in (1..blocks.len()).rev() {
        blocks.swap(at, source.next() as usize % (at + 1));
    }
    blocks.concat()
}

fn layout(window: &[u8]) -> [WindowUnit; 1] {
    let len = u32::try_from(window.len()).unwrap();
    [WindowUnit { plain_len: len, stored_len: len, divisible: true }]
}

fn encode(
    encoder: &mut Encoder,
    window: &[u8],
    index: &BaseIndex,
    target: &[u8],
    effort: Effort,
) -> (Vec<u8>, Encoded) {
    let mut delta = Vec::new();
    let layout = layout(window);
    let limits = FootprintLimits::default();
    let job = EncodeJob { window, index, layout: &layout, target, effort, limits, delta_len_max: target.len() };
    let encoded = encoder.encode(&job, &mut delta).unwrap();
    (delta, encoded)
}

fn efforts() -> [(&'static str, Effort); 3] {
    [("fast", Effort::Fast), ("balanced", Effort::Balanced), ("high", Effort::High)]
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let (base, target) = (program(Release::First), program(Release::Second));
    let shuffled = shuffled_blocks(&base);
    let mut encoder = Encoder::new();

    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Bytes(SEGMENT_LEN as u64));
    group.bench_function("sketch", |bencher| {
        bencher.iter(|| {
            let mut sketcher = Sketcher::new(Some([7; 16]));
            sketcher.update(black_box(&target));
            sketcher.finish()
        });
    });
    for (name, effort) in efforts() {
        let index = BaseIndex::build(&base, effort);
        if effort != Effort::High {
            group.bench_function(format!("index/{name}"), |bencher| {
                bencher.iter(|| BaseIndex::build(black_box(&base), effort));
            });
            group.bench_function(format!("match/{name}"), |bencher| {
                bencher.iter(|| encode(&mut encoder, &base, &index, black_box(&shuffled), effort));
            });
        }
        group.bench_function(format!("encode/{name}"), |bencher| {
            bencher.iter(|| encode(&mut encoder, &base, &index, black_box(&target), effort));
        });
        let (delta, encoded) = encode(&mut encoder, &base, &index, &target, effort);
        let footprint: Vec<u8> = encoded
            .footprint
            .iter()
            .flat_map(|range| &base[range.offset as usize..][..range.len as usize])
            .copied()
            .collect();
        let mut decoder = Decoder::new();
        let mut decoded = vec![0; target.len()];
        group.bench_function(format!("decode/{name}"), |bencher| {
            bencher.iter(|| decoder.decode(black_box(&footprint), &delta, &mut decoded).unwrap());
        });
        assert!(decoded == target);
    }
    group.finish();
    criterion.final_summary();
}

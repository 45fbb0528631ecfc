//! Bytes per second of MD5 over one stream, and over as many as advance together.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hash_lanes::{Md5, update_all};
use std::hint::black_box;

const LEN: usize = 64 << 10;

fn md5(criterion: &mut Criterion) {
    let bytes: Vec<u8> = (0..LEN as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut group = criterion.benchmark_group("md5");
    for streams in [1, 2, 3, 4, 8, 12, 16] {
        group.throughput(Throughput::Bytes((streams * LEN) as u64));
        group.bench_function(BenchmarkId::new("streams", streams), |bencher| {
            let mut states = vec![Md5::new(); streams];
            bencher.iter(|| {
                let mut all: Vec<(&mut Md5, &[u8])> = states.iter_mut().map(|md5| (md5, &bytes[..])).collect();
                update_all(&mut all);
                black_box(all.len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, md5);
criterion_main!(benches);

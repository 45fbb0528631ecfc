//! Sealing a blob's payload and opening its chunks, with and without encryption.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use object_format::{
    BlobId, BlobKind, BlobOpener, BlobSpec, BlobWriter, CHUNK_LEN, ChunkCheck, Coding, DomainKey, Finished, HEADER_LEN,
    Header, KeyId, ObjectFacts, SEGMENT_LEN, Seal, Segment, Suite, segment_digest,
};

const ID: BlobId = BlobId([7; 16]);
/// Chunks that a range of one megabyte covers.
const CHUNKS_READ: u64 = 16;

fn key() -> DomainKey {
    DomainKey::new(KeyId([0xd0; 16]), 3, [0x11; 32])
}

fn payload() -> Vec<u8> {
    (0..SEGMENT_LEN as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// One blob of one raw segment, pushed in pieces as the engine does.
fn write(suite: Suite, key: &DomainKey, payload: &[u8], segment: &Segment, out: &mut Vec<u8>) -> Finished {
    out.clear();
    let seal = match suite {
        Suite::None => Seal::None,
        Suite::Aes256Gcm => Seal::Aes256Gcm { key, salt: [0x5a; 32] },
    };
    let mut writer = BlobWriter::new(BlobSpec { id: ID, kind: BlobKind::Whole, seal }, out);
    for piece in payload.chunks(256 << 10) {
        writer.push(piece, out).unwrap();
    }
    writer.finish(std::slice::from_ref(segment), &[], &ObjectFacts::default(), out).unwrap()
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let (key, payload) = (key(), payload());
    let segment = Segment {
        plain_len: payload.len() as u32,
        stored_offset: 0,
        stored_len: payload.len() as u32,
        coding: Coding::Raw,
        digest: segment_digest(&payload),
        footprint: Vec::new(),
    };
    let mut blob = Vec::new();
    let mut group = criterion.benchmark_group("blob");
    for (name, suite) in [("plain", Suite::None), ("aes256", Suite::Aes256Gcm)] {
        group.throughput(Throughput::Bytes(payload.len() as u64));
        group.bench_function(format!("seal/{name}"), |bencher| {
            bencher.iter(|| write(suite, &key, black_box(&payload), &segment, &mut blob));
        });

        let finished = write(suite, &key, &payload, &segment, &mut blob);
        let header = Header::decode(&blob[..HEADER_LEN]).unwrap();
        let opener = BlobOpener::new(&header, ID, (suite == Suite::Aes256Gcm).then_some(&key)).unwrap();
        let root_bytes = &blob[finished.root.offset as usize..][..finished.root.len as usize];
        let root = opener.open_root(&finished.root, root_bytes).unwrap();
        let checks: Vec<ChunkCheck> = root
            .check_pages
            .iter()
            .flat_map(|page| opener.open_check_page(page, &blob[page.offset as usize..][..page.len as usize]).unwrap())
            .take(CHUNKS_READ as usize)
            .collect();
        let range = opener.stored_range(0..CHUNKS_READ, root.payload_len);
        let stored = &blob[range.start as usize..range.end as usize];
        group.throughput(Throughput::Bytes(CHUNKS_READ * CHUNK_LEN as u64));
        group.bench_function(format!("chunk_read/{name}"), |bencher| {
            bencher.iter_batched_ref(
                || stored.to_vec(),
                |stored| opener.open_chunks(0, root.payload_len, black_box(stored), &checks).unwrap(),
                BatchSize::LargeInput,
            );
        });
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("root/{name}"), |bencher| {
            bencher.iter(|| opener.open_root(&finished.root, black_box(root_bytes)).unwrap());
        });
    }
    group.finish();
    criterion.final_summary();
}

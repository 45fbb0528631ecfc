//! Payloads that must be refused: rot, tampering, chunks of other places.

use super::{
    Vector, bad, bad_sealed,
    kit::{CHUNK, Draft, OTHER_ID, text},
};
use std::ops::Range;

const SEALED: usize = CHUNK + 16;

/// Two full chunks and the bytes between header and manifest.
fn two(sealed: bool) -> (Vec<u8>, usize) {
    let draft = Draft::raw(&text(2 * CHUNK));
    if sealed { (draft.sealed().blob(), SEALED) } else { (draft.blob(), CHUNK) }
}

fn chunk(index: usize, stride: usize) -> Range<usize> {
    160 + index * stride..160 + (index + 1) * stride
}

fn edited(sealed: bool, edit: impl FnOnce(&mut Vec<u8>, usize)) -> Vec<u8> {
    let (mut blob, stride) = two(sealed);
    edit(&mut blob, stride);
    blob
}

/// One short chunk, changed afterwards.
fn small(sealed: bool, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let draft = Draft::raw(&text(100));
    let mut blob = if sealed { draft.sealed().blob() } else { draft.blob() };
    edit(&mut blob);
    blob
}

fn swap(blob: &mut [u8], stride: usize) {
    let first = blob[chunk(0, stride)].to_vec();
    blob.copy_within(chunk(1, stride), 160);
    blob[chunk(1, stride)].copy_from_slice(&first);
}

/// A sealed blob of two chunks (the second of 5 bytes) whose chunks are sealed as something else.
fn resealed(sealed: bool, edit: impl FnOnce(&mut super::kit::Tables)) -> Vec<u8> {
    let mut draft = Draft::raw(&text(CHUNK + 5));
    if sealed {
        draft = draft.sealed();
    }
    let mut tables = draft.tables();
    edit(&mut tables);
    tables.blob()
}

pub(crate) fn all() -> Vec<Vector> {
    vec![
        bad("chunk_bit", "integrity", "one bit of a chunk", small(false, |blob| blob[160 + 77] ^= 4)),
        bad_sealed("chunk_bit_sealed", "integrity", "one bit of a chunk", small(true, |blob| blob[160 + 77] ^= 4)),
        bad_sealed(
            "chunk_tag_bit",
            "integrity",
            "one bit of a chunk's tag",
            small(true, |blob| blob[160 + 100] ^= 0x80),
        ),
        bad("chunks_swapped", "integrity", "two chunks exchanged", edited(false, |blob, stride| swap(blob, stride))),
        bad_sealed(
            "chunks_swapped_sealed",
            "integrity",
            "two chunks exchanged with their tags",
            edited(true, |blob, stride| swap(blob, stride)),
        ),
        bad_sealed(
            "chunk_doubled_sealed",
            "integrity",
            "the first chunk in the place of the second",
            edited(true, |blob, stride| {
                blob.copy_within(chunk(0, stride), 160 + stride);
            }),
        ),
        bad_sealed(
            "chunk_inserted_sealed",
            "malformed",
            "a chunk twice: the trailer tells another length",
            edited(true, |blob, stride| {
                let first = blob[chunk(0, stride)].to_vec();
                blob.splice(160..160, first);
            }),
        ),
        bad_sealed(
            "chunk_dropped_sealed",
            "malformed",
            "the first chunk taken out",
            edited(true, |blob, stride| {
                blob.drain(chunk(0, stride));
            }),
        ),
        bad_sealed("chunk_of_another_blob", "integrity", "a chunk of a blob with the same key and content", {
            let (mut blob, stride) = two(true);
            let mut other = Draft::raw(&text(2 * CHUNK)).sealed();
            other.header[48..64].copy_from_slice(&OTHER_ID);
            other.commit();
            blob[chunk(0, stride)].copy_from_slice(&other.blob()[chunk(0, stride)]);
            blob
        }),
        bad("chunks_of_another_blob", "integrity", "the payload and checks of a blob with the same content", {
            let plain = Draft::raw(&text(40)).blob();
            let mut other = Draft::raw(&text(40));
            other.header[48..64].copy_from_slice(&OTHER_ID);
            [&plain[..160], &other.blob()[160..]].concat()
        }),
        bad_sealed("chunk_zeroed", "integrity", "a chunk of zeros", small(true, |blob| blob[160..260].fill(0))),
        bad("chunk_zeroed_plain", "integrity", "a chunk of zeros", small(false, |blob| blob[160..260].fill(0))),
        bad_sealed(
            "last_chunk_as_data",
            "integrity",
            "the last chunk sealed as if more came",
            resealed(true, |tables| {
                tables.chunks[1].kind = 0;
            }),
        ),
        bad(
            "last_chunk_as_data_plain",
            "integrity",
            "the last chunk checked as if more came",
            resealed(false, |tables| {
                tables.chunks[1].kind = 0;
                tables.recheck();
            }),
        ),
        bad_sealed(
            "first_chunk_as_last",
            "integrity",
            "the first chunk sealed as the last",
            resealed(true, |tables| {
                tables.chunks[0].kind = 1;
            }),
        ),
        bad_sealed(
            "chunk_index_shifted",
            "integrity",
            "chunks counted from 1",
            resealed(true, |tables| {
                tables.chunks.iter_mut().for_each(|chunk| chunk.index += 1);
            }),
        ),
        bad(
            "chunk_index_shifted_plain",
            "integrity",
            "chunks counted from 1",
            resealed(false, |tables| {
                tables.chunks.iter_mut().for_each(|chunk| chunk.index += 1);
                tables.recheck();
            }),
        ),
        bad_sealed(
            "chunk_short",
            "malformed",
            "a first chunk shorter than 64 KiB, the rest right for it",
            resealed(true, |tables| {
                tables.chunks[0].bytes.pop();
            }),
        ),
        bad_sealed(
            "payload_short",
            "malformed",
            "the root tells of more payload than there is",
            resealed(true, |tables| {
                tables.chunks.pop();
            }),
        ),
        bad_sealed(
            "payload_long",
            "malformed",
            "a chunk the root does not tell of",
            resealed(true, |tables| {
                let mut third = tables.chunks[1].clone();
                third.index = 2;
                tables.chunks.push(third);
            }),
        ),
        bad_sealed("cut_after_chunk", "malformed", "ends after the first chunk", two(true).0[..160 + SEALED].to_vec()),
        bad_sealed("cut_within_chunk", "malformed", "ends within the first chunk", two(true).0[..30_000].to_vec()),
        bad(
            "cut_by_one",
            "malformed",
            "one byte less",
            small(false, |blob| {
                blob.pop();
            }),
        ),
        bad("longer_by_one", "malformed", "one byte more", small(false, |blob| blob.push(0))),
        bad("byte_before", "malformed", "one byte before the magic", small(false, |blob| blob.insert(0, 0))),
    ]
}

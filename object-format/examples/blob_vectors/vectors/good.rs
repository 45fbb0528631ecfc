//! Blobs every decoder must read.

use super::{
    Vector,
    kit::{CHUNK, DELTA, Draft, Row, SEGMENT, text},
    plain_blob, sealed_blob,
};

/// A zstd frame of `len` times one byte, built from RLE blocks by hand, so that it does not depend
/// on a compressor's version.
pub(crate) fn zstd_run(byte: u8, len: usize) -> Vec<u8> {
    // Magic; one byte of descriptor: single segment, four bytes of content size, no checksum, no
    // dictionary.
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    out.extend((len as u32).to_le_bytes());
    let blocks = len.div_ceil(131_072).max(1);
    for block in 0..blocks {
        let size = (len - block * 131_072).min(131_072) as u32;
        let block_header = u32::from(block + 1 == blocks) | (1 << 1) | (size << 3);
        out.extend(&block_header.to_le_bytes()[..3]);
        out.push(byte);
    }
    out
}

/// Two segments of zeros and one of ones, each a few bytes of zstd, one row per page.
pub(crate) fn three_segments() -> (Vec<u8>, Draft) {
    let plain = [vec![0; 2 * SEGMENT], vec![1; 10]].concat();
    let mut draft = Draft::raw(&[]);
    draft.rows_per_page = 1;
    for plain in plain.chunks(SEGMENT) {
        let frame = zstd_run(plain[0], plain.len());
        draft.rows.push(Row::new(plain, frame.len(), 1));
        draft.payload.extend(frame);
    }
    (plain, draft)
}

fn facts() -> Vec<(u16, Vec<u8>)> {
    vec![
        (0x8001, b"bucket".to_vec()),
        (0x8002, "key with \u{e4}\u{1f5dd} and /".into()),
        (0x8003, vec![0x33; 16]),
        (0x8004, [vec![0x44; 16], 17_u32.to_le_bytes().to_vec()].concat()),
        (0x8005, vec![0x55; 32]),
        (0x8006, b"{\"etag\":\"...\"}".to_vec()),
        (0x8007, vec![0x77; 64]),
    ]
}

pub(crate) fn all() -> Vec<Vector> {
    let mut all = Vec::new();
    let mut both = |names: [&'static str; 2], comment: &'static str, plain: &[u8], make: &dyn Fn() -> Draft| {
        all.push(plain_blob(names[0], comment, plain, make().blob()));
        all.push(sealed_blob(names[1], comment, plain, make().sealed().blob()));
    };
    let raw = |len: usize| move || Draft::raw(&text(len));
    both(["empty", "empty_sealed"], "no content: no chunks, no pages", &[], &raw(0));
    both(["one_byte", "one_byte_sealed"], "the shortest content", &text(1), &raw(1));
    both(["one_chunk", "one_chunk_sealed"], "a last chunk that is exactly full", &text(CHUNK), &raw(CHUNK));
    both(["two_chunks", "two_chunks_sealed"], "one byte more than a chunk", &text(CHUNK + 1), &raw(CHUNK + 1));
    let zeros = vec![0; 1000];
    both(["zstd", "zstd_sealed"], "one segment stored as a zstd frame", &zeros, &|| {
        let frame = zstd_run(0, 1000);
        let mut draft = Draft::raw(&[]);
        draft.rows.push(Row::new(&[0; 1000], frame.len(), 1));
        draft.payload = frame;
        draft
    });
    let (plain, _) = three_segments();
    both(["segment_pages", "segment_pages_sealed"], "three segments, a page for each", &plain, &|| three_segments().1);
    both(["facts", "facts_sealed"], "every optional root field this version knows", &text(40), &|| Draft {
        facts: facts(),
        ..Draft::raw(&text(40))
    });
    both(
        ["unknown_optional_field", "unknown_optional_field_sealed"],
        "a tag from 0x8000 up is skipped",
        &text(40),
        &|| Draft { facts: vec![(0x8002, b"key".to_vec()), (0x8fff, b"from later".to_vec())], ..Draft::raw(&text(40)) },
    );
    both(
        ["view", "view_sealed"],
        "a base view that no segment needs: raw content all the same",
        &text(100),
        &Draft::with_view,
    );
    for (names, kind) in [
        (["kind_delta_without_view", "kind_delta_without_view_sealed"], DELTA),
        (["kind_pack", "kind_pack_sealed"], 2),
        (["kind_backup", "kind_backup_sealed"], 3),
        (["kind_journal", "kind_journal_sealed"], 5),
    ] {
        both(names, "the kind does not change how content is read", &text(40), &|| {
            let mut draft = Draft::raw(&text(40));
            draft.header[8] = kind;
            draft
        });
    }
    let mut draft = Draft::raw(&text(CHUNK + 1));
    draft.rows_per_page = 1;
    all.push(plain_blob("check_pages", "two chunks, a page of checks for each", &text(CHUNK + 1), draft.blob()));
    all
}

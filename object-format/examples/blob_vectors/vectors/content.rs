//! Blobs that are right in every part, whose segments do not decode to what the table says.

use super::{
    Vector, bad, bad_sealed,
    good::zstd_run,
    kit::{Draft, Row, text},
};

/// One zstd segment of these stored bytes that should give `plain`.
fn stored_as(plain: &[u8], frame: Vec<u8>) -> Draft {
    let mut draft = Draft::raw(&[]);
    draft.rows.push(Row::new(plain, frame.len(), 1));
    draft.payload = frame;
    draft
}

/// A frame with a window descriptor instead of a content size.
fn windowed(descriptor: u8, byte: u8, len: u32) -> Vec<u8> {
    let block = 1 | (1 << 1) | (len << 3);
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, descriptor][..], &block.to_le_bytes()[..3], &[byte]].concat()
}

pub(crate) fn all() -> Vec<Vector> {
    let zeros = [0; 1000];
    let frame = |name, comment, frame| bad(name, "malformed", comment, stored_as(&zeros, frame).blob());
    vec![
        bad("content_digest", "integrity", "raw content with another digest", {
            let mut draft = Draft::raw(&text(100));
            draft.rows[0].digest[0] ^= 1;
            draft.blob()
        }),
        bad_sealed("content_digest_sealed", "integrity", "sealed raw content with another digest", {
            let mut draft = Draft::raw(&text(100)).sealed();
            draft.rows[0].digest[15] ^= 1;
            draft.blob()
        }),
        bad("zstd_other_content", "integrity", "a frame of other bytes", stored_as(&zeros, zstd_run(1, 1000)).blob()),
        frame("zstd_longer", "a frame that gives one byte too many", zstd_run(0, 1001)),
        frame("zstd_shorter", "a frame that gives one byte too few", zstd_run(0, 999)),
        frame("zstd_bomb", "a frame of 2 GiB for 1000 bytes", zstd_run(0, 1 << 31)[..4096].to_vec()),
        frame(
            "zstd_two_frames",
            "two frames that give the content together",
            [zstd_run(0, 500), zstd_run(0, 500)].concat(),
        ),
        frame("zstd_left_over", "a byte after the frame", [zstd_run(0, 1000), vec![0]].concat()),
        frame("zstd_cut", "half a frame", zstd_run(0, 1000)[..10].to_vec()),
        frame("zstd_not_a_frame", "no frame", b"not zstd".to_vec()),
        frame("zstd_skippable", "a skippable frame before the content", {
            [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0][..], &zstd_run(0, 1000)].concat()
        }),
        frame("zstd_window_2_28", "a window of 2^28 bytes", windowed(18 << 3, 0, 1000)),
        frame("zstd_window_2_41", "the largest window there is", windowed(0xff, 0, 1000)),
        frame("zstd_dictionary", "a frame that names a dictionary", {
            let mut frame = windowed(0, 0, 1000);
            frame[4] = 1;
            frame.insert(6, 7);
            frame
        }),
    ]
}

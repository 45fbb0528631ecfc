//! Headers and keys that must be refused. Unless a comment says otherwise, everything after the
//! wrong byte is right for it.

use super::{
    Vector, bad, bad_sealed,
    kit::{Draft, OTHER_ID, hex, text},
};

fn with_header(sealed: bool, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut draft = Draft::raw(&text(40));
    if sealed {
        draft = draft.sealed();
    }
    draft.header[at..at + bytes.len()].copy_from_slice(bytes);
    draft.commit();
    draft.blob()
}

/// A good sealed blob, its bytes changed afterwards.
fn altered(at: usize, byte: u8) -> Vec<u8> {
    let mut blob = Draft::raw(&text(40)).sealed().blob();
    assert_ne!(blob[at], byte);
    blob[at] = byte;
    blob
}

pub(crate) fn all() -> Vec<Vector> {
    let sealed = Draft::raw(&text(40)).sealed().blob();
    let plain = Draft::raw(&text(40)).blob();
    let header = |name, comment, at, bytes: &[u8]| bad(name, "malformed", comment, with_header(false, at, bytes));
    vec![
        header("header_magic", "another magic", 0, b"DWB2"),
        header("header_version_0", "version 0", 4, &[0]),
        header("header_version_2", "a version of the future", 4, &[2]),
        header("header_suite_2", "the reserved suite", 5, &[2]),
        header("header_suite_255", "an unknown suite", 5, &[255]),
        header("header_chunk_length", "chunks of 32 KiB", 6, &[15]),
        header("header_segment_length", "segments of 8 MiB", 7, &[23]),
        header("header_kind_6", "an unknown kind", 8, &[6]),
        header("header_reserved_9", "a reserved byte after the kind", 9, &[1]),
        header("header_reserved_15", "the last reserved byte before the key id", 15, &[0x80]),
        header("header_reserved_36", "a reserved byte after the key epoch", 36, &[1]),
        header("header_reserved_47", "the last reserved byte before the blob id", 47, &[1]),
        header("header_reserved_128", "a reserved byte after the commitment", 128, &[1]),
        header("header_reserved_159", "the last byte", 159, &[1]),
        header("header_plain_with_key_id", "a key id in suite 0", 16, &[1]),
        header("header_plain_with_epoch", "a key epoch in suite 0", 32, &[1]),
        header("header_plain_with_salt", "a salt in suite 0", 95, &[1]),
        header("header_plain_with_commitment", "a commitment in suite 0", 96, &[1]),
        bad("header_cut", "malformed", "ends within the header", plain[..100].to_vec()),
        bad("header_and_trailer_only", "malformed", "nothing between header and trailer", {
            [&plain[..160], &plain[plain.len() - 64..]].concat()
        }),
        bad("nothing", "malformed", "no bytes at all", Vec::new()),
        bad("wrong_blob", "wrong-blob", "a good blob under another blob's name", plain.clone())
            .with("blob-id", hex(&OTHER_ID)),
        bad_sealed("wrong_blob_sealed", "wrong-blob", "a good blob under another blob's name", sealed.clone())
            .with("blob-id", hex(&OTHER_ID)),
        bad("header_id_altered", "wrong-blob", "the header names another blob", with_header(false, 63, b"9")),
        bad_sealed("header_id_altered_sealed", "wrong-blob", "the header names another blob", altered(63, b'9')),
        bad_sealed(
            "header_reserved_sealed",
            "malformed",
            "a reserved byte, committed to",
            with_header(true, 130, &[1]),
        ),
        bad("key_missing", "key", "sealed, and the reader has no key", sealed.clone()),
        bad_sealed("key_for_plain", "key", "a plain blob where the reader expects a sealed one", plain.clone()),
        bad_sealed("key_id_other", "key", "sealed under another key", sealed.clone()).with("key-id", hex(&[9; 16])),
        bad_sealed("key_epoch_other", "key", "sealed under another epoch of the key", sealed.clone())
            .with("key-epoch", "10"),
        bad_sealed("key_secret_other", "key", "the id is right and the key is not", sealed.clone())
            .with("key-secret", hex(&[8; 32])),
        bad_sealed("key_id_altered", "key", "the header names another key", altered(16, b'V')),
        bad_sealed("key_epoch_altered", "key", "the header names another epoch", altered(32, 8)),
        bad_sealed("salt_altered", "key", "one bit of the salt", altered(64, b'a' ^ 1)),
        bad_sealed("commitment_altered", "key", "one byte of the commitment", altered(100, sealed[100] ^ 0x10)),
        bad_sealed("kind_altered", "key", "whole made delta: the commitment covers the kind", altered(8, 1)),
        bad_sealed("suite_lowered", "malformed", "suite 1 made 0, the key fields left", altered(5, 0)),
        bad_sealed("suite_lowered_cleanly", "key", "suite 1 made 0, the key fields zeroed", {
            let mut blob = sealed.clone();
            blob[5] = 0;
            blob[16..36].fill(0);
            blob[64..128].fill(0);
            blob
        }),
        bad("kind_altered_plain", "integrity", "whole made delta in suite 0: every check covers the header", {
            let mut blob = plain.clone();
            blob[8] = 1;
            blob
        }),
    ]
}

//! Trailers that must be refused; the check in them is right unless the comment says otherwise.

use super::{
    Vector, bad,
    kit::{Draft, text},
};

fn with_trailer(edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut ending = Draft::raw(&text(100)).tables().manifest().ending();
    edit(&mut ending.checked);
    ending.blob()
}

fn altered(from_end: usize) -> Vec<u8> {
    let mut blob = Draft::raw(&text(100)).blob();
    let at = blob.len() - from_end;
    blob[at] ^= 1;
    blob
}

fn root_at(offset: u64, len: u32) -> impl FnOnce(&mut Vec<u8>) {
    move |trailer| {
        trailer[..8].copy_from_slice(&offset.to_le_bytes());
        trailer[8..12].copy_from_slice(&len.to_le_bytes());
    }
}

pub(crate) fn all() -> Vec<Vector> {
    let trailer = |name, comment, body| bad(name, "malformed", comment, body);
    vec![
        trailer("trailer_magic", "another magic at the end", altered(1)),
        trailer("trailer_check", "a check that is not the trailer's", altered(9)),
        trailer("trailer_root_altered", "the root's place altered, the check not", altered(64)),
        trailer("trailer_reserved_12", "reserved bytes after the length", with_trailer(|trailer| trailer[12] = 1)),
        trailer("trailer_reserved_47", "the last reserved byte", with_trailer(|trailer| trailer[47] = 1)),
        trailer("trailer_version", "version 2", with_trailer(|trailer| trailer[40] = 2)),
        trailer("trailer_stored", "another length than the blob's", with_trailer(|trailer| trailer[32] ^= 1)),
        trailer("trailer_root_in_header", "a root within the header", with_trailer(root_at(8, 200))),
        trailer("trailer_root_overflows", "a root that ends past 2^64", with_trailer(root_at(u64::MAX, 64))),
        trailer(
            "trailer_root_too_short",
            "a root shorter than a tag",
            with_trailer(|trailer| {
                let end = u64::from_le_bytes(trailer[..8].try_into().unwrap())
                    + u64::from(trailer[8])
                    + u64::from(trailer[9]) * 256;
                root_at(end - 15, 15)(trailer);
            }),
        ),
        trailer(
            "trailer_root_ends_early",
            "bytes between the root and the trailer",
            with_trailer(|trailer| trailer[8] -= 1),
        ),
        bad(
            "trailer_root_over_1_mib",
            "too-large",
            "a root longer than a root may be",
            with_trailer(root_at(160, (1 << 20) + 1)),
        ),
        bad("trailer_root_tag", "integrity", "another tag than the root's", with_trailer(|trailer| trailer[16] ^= 1)),
        trailer("trailer_doubled", "a second trailer behind the first", {
            let blob = Draft::raw(&text(100)).blob();
            [&blob[..], &blob[blob.len() - 64..]].concat()
        }),
    ]
}

//! Blobs with a delta. The deltas are of form 0 (one copy), the shortest of `delta-v1.md`: what is
//! tried here is the way to the base bytes.

use super::{
    Vector, bad, bad_sealed,
    kit::{DELTA, Draft, OTHER_ID, Row, hex, text, view_range},
    plain_blob, sealed_blob,
};

const SECOND_ID: [u8; 16] = *b"\0\0\0\x02vector base2";
const TAGS: [[u8; 16]; 2] = [[0x61; 16], [0x62; 16]];

/// Content of the two bases.
fn bases() -> [Vec<u8>; 2] {
    [text(300), vec![b'-'; 50]]
}

/// `id:base tag:whole or delta:content` of each base.
fn listed(kinds: [&str; 2]) -> String {
    let of = |at: usize, id: &[u8]| format!("{}:{}:{}:{}", hex(id), hex(&TAGS[at]), kinds[at], hex(&bases()[at]));
    [of(0, &OTHER_ID), of(1, &SECOND_ID)].join(" ")
}

/// View: 100 bytes of the first base from 7, all of the second, 30 of the first from 270.
/// Footprint: two runs of it, 60 and 40 bytes, the first over the seam of the first two ranges.
fn draft() -> (Vec<u8>, Draft) {
    let [first, second] = bases();
    let view = [&first[7..107], &second[..], &first[270..300]].concat();
    let footprint = vec![(70, 60), (140, 40)];
    let base = [&view[70..130], &view[140..180]].concat();
    let plain = base[3..98].to_vec();
    let mut draft = Draft::raw(&[]);
    draft.header[8] = DELTA;
    draft.payload = vec![0, 3];
    draft.rows = vec![Row { footprint, ..Row::new(&plain, 2, 2) }];
    let range = |id, offset, len, tag| view_range(id, offset, len, tag);
    draft.view =
        [range(OTHER_ID, 7, 100, TAGS[0]), range(SECOND_ID, 0, 50, TAGS[1]), range(OTHER_ID, 270, 30, TAGS[0])]
            .concat();
    (plain, draft)
}

/// A sealed whole blob and a sealed delta over it: a pair that can be read from files alone.
fn pair() -> [Vector; 2] {
    let [content, _] = bases();
    let mut base = Draft::raw(&content).sealed();
    base.header[48..64].copy_from_slice(&OTHER_ID);
    base.commit();
    let tag = base.tables().base_tag;
    let plain = &content[20..200];
    let mut delta = Draft::raw(&[]);
    delta.header[8] = DELTA;
    delta.payload = vec![0, 20];
    delta.rows = vec![Row { footprint: vec![(0, 300)], ..Row::new(plain, 2, 2) }];
    delta.view = view_range(OTHER_ID, 0, 300, tag);
    let listed = format!("{}:{}:whole:{}", hex(&OTHER_ID), hex(&tag), hex(&content));
    [
        sealed_blob("pair_base", "the base of pair_delta", &content, base.blob()).with("blob-id", hex(&OTHER_ID)),
        sealed_blob("pair_delta", "a delta over the blob pair_base", plain, delta.sealed().blob())
            .with("bases", listed),
    ]
}

fn edited(edit: impl FnOnce(&mut Draft)) -> Vec<u8> {
    let mut draft = draft().1;
    edit(&mut draft);
    draft.blob()
}

pub(crate) fn all() -> Vec<Vector> {
    let whole = || listed(["whole", "whole"]);
    let (plain, good) = draft();
    let refused = |name, expect, comment, edit: &dyn Fn(&mut Draft)| {
        bad(name, expect, comment, edited(edit)).with("bases", whole())
    };
    let mut all = vec![
        plain_blob("delta", "a delta over two runs of a view of two bases", &plain, good.blob()).with("bases", whole()),
        sealed_blob("delta_sealed", "a delta over two runs of a view of two bases", &plain, draft().1.sealed().blob())
            .with("bases", whole()),
        refused("delta_base_tag_wrong", "wrong-blob", "the view names another content of the base", &|draft| {
            draft.view[32] ^= 1;
        }),
        refused("delta_base_exchanged", "wrong-blob", "another valid base's id in the view", &|draft| {
            draft.view[..16].copy_from_slice(&SECOND_ID);
        }),
        refused("delta_base_too_short", "wrong-blob", "a range past the base's end", &|draft| draft.view[96 + 16] += 1),
        refused("delta_base_missing", "malformed", "a base nobody has", &|draft| draft.view[15] ^= 1),
        bad("delta_over_delta", "wrong-blob", "a base that is a delta itself", good.blob())
            .with("bases", listed(["whole", "delta"])),
        refused(
            "delta_view_moved",
            "integrity",
            "the view one byte further: other bytes, noticed by the digest",
            &|draft| {
                draft.view[16] += 1;
            },
        ),
        refused("delta_footprint_moved", "integrity", "the footprint one byte further", &|draft| {
            draft.rows[0].footprint[0].0 += 1;
        }),
        refused("delta_footprint_short", "malformed", "the footprint ends before the delta's copy", &|draft| {
            draft.rows[0].footprint[1].1 = 30;
        }),
        refused("delta_form_2", "malformed", "a delta of an unknown form", &|draft| draft.payload[0] = 2),
        refused("delta_left_over", "malformed", "a byte after the delta", &|draft| {
            draft.payload.push(0);
            draft.rows[0].stored_len = 3;
        }),
        bad_sealed("delta_view_altered", "integrity", "one bit of a sealed view: the root does not open", {
            let blob = draft().1.sealed().blob();
            let at = u64::from_le_bytes(blob[blob.len() - 64..blob.len() - 56].try_into().unwrap()) as usize;
            let mut altered = blob;
            altered[at + 80] ^= 1;
            altered
        })
        .with("bases", whole()),
    ];
    all.extend(pair());
    all
}

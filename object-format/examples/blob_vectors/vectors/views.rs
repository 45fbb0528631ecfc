//! Blobs with a deflate view (coding 3 or 5). What is inside of such a segment has vectors of its
//! own (tests/vectors/deflate-view, `type: segment`): some of them lie here in blobs, and what is
//! tried is the way to them.

use super::{
    Vector, bad,
    kit::{DELTA, Draft, OTHER_ID, Row, hex, view_range},
    plain_blob, sealed_blob,
};
use std::{collections::BTreeMap, fs, path::Path};

const TAG: [u8; 16] = [0x63; 16];

/// A vector of the view's own format.
struct Inner {
    fields: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn inner(name: &str) -> Inner {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/deflate-view").join(format!("{name}.vec"));
    let text = fs::read_to_string(path).expect("a vector");
    let (header, body) = text.split_once("\n\n").expect("a header and a body");
    let fields = header.lines().filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let digits: Vec<char> = body.chars().filter(char::is_ascii_hexdigit).collect();
    let digit = |at: usize| digits[at].to_digit(16).expect("a digit") as u8;
    Inner { fields, body: (0..digits.len() / 2).map(|at| digit(2 * at) << 4 | digit(2 * at + 1)).collect() }
}

/// The segment that both vectors of a wheel make, in a blob whose view is the base whole, after 5
/// bytes of another range of it.
fn draft() -> (Vec<u8>, String, Draft) {
    draft_of(["segment_next_release", "pair_new", "pair_old"], 3)
}

/// The same of a segment, its content and its base.
fn draft_of([segment, content, base]: [&str; 3], coding: u8) -> (Vec<u8>, String, Draft) {
    let (segment, content, base) = (inner(segment), inner(content).body, inner(base).body);
    assert_eq!(segment.fields["plain-length"], content.len().to_string());
    let mut draft = Draft::raw(&[]);
    draft.header[8] = DELTA;
    draft.payload = segment.body;
    let footprint = vec![(0, base.len() as u32)];
    draft.rows = vec![Row { footprint, ..Row::new(&content, draft.payload.len(), coding) }];
    draft.view = [view_range(OTHER_ID, 0, base.len() as u64, TAG), view_range(OTHER_ID, 3, 5, TAG)].concat();
    let listed = format!("{}:{}:whole:{}", hex(&OTHER_ID), hex(&TAG), hex(&base));
    (content, listed, draft)
}

pub(crate) fn all() -> Vec<Vector> {
    let (content, bases, good) = draft();
    let refused = |name, expect, comment, edit: &dyn Fn(&mut Draft)| {
        let mut draft = draft().2;
        edit(&mut draft);
        bad(name, expect, comment, draft.blob()).with("bases", bases.clone())
    };
    let segment = "a release over the one before, its streams opened";
    let (dump, dump_bases, of_dump) = draft_of(["segment_gaps_dump", "dump_new", "dump_old"], 5);
    let gapped = "a dump over the one before, its streams put together and opened";
    let of_coding_3 = draft_of(["segment_gaps_dump", "dump_new", "dump_old"], 3).2;
    vec![
        plain_blob("deflate_view", segment, &content, good.blob()).with("bases", bases.clone()),
        sealed_blob("deflate_view_sealed", segment, &content, draft().2.sealed().blob()).with("bases", bases.clone()),
        plain_blob("gapped_view", gapped, &dump, of_dump.blob()).with("bases", dump_bases.clone()),
        bad("gapped_view_as_coding_3", "malformed", "gaps in a segment of coding 3", of_coding_3.blob())
            .with("bases", dump_bases.clone()),
        refused("deflate_view_in_whole", "malformed", "a deflate view in a blob of kind whole", &|draft| {
            draft.header[8] = 0;
            draft.view.clear();
            draft.rows[0].footprint.clear();
        }),
        refused("deflate_view_base_tag_wrong", "wrong-blob", "the view names another content of the base", &|draft| {
            draft.view[32] ^= 1;
        }),
        refused(
            "deflate_view_digest_wrong",
            "integrity",
            "another digest of the segment than of its units",
            &|draft| {
                draft.rows[0].digest[0] ^= 1;
            },
        ),
        refused("deflate_view_footprint_outside", "malformed", "a footprint past the base view", &|draft| {
            draft.rows[0].footprint[0].1 += 6;
        }),
    ]
}

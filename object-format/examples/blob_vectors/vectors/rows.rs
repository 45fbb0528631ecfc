//! Sealed rows of the catalog: right ones, and ones opened for something else than they were sealed
//! for.

use super::{
    Vector,
    kit::{BLOB_ID, KEY_EPOCH, KEY_ID, OTHER_ID, SECRET, expand, hex},
};
use aes_gcm::{Aes256Gcm, KeyInit, aead::AeadInOut};
use sha2::{Digest, Sha256};

const FACTS: &[u8] = b"etag and headers";
const NONCE: [u8; 24] = *b"a nonce of 24 bytes long";
const VERSION_ID: [u8; 16] = *b"a version's id..";

#[derive(Clone)]
struct Context {
    bucket: u64,
    key: &'static str,
    version_id: [u8; 16],
    part: Option<u32>,
    extents: Vec<([u8; 16], u64, u64)>,
}

fn context() -> Context {
    let extents = vec![(BLOB_ID, 0, 5 << 30), (OTHER_ID, 100, 200)];
    Context { bucket: 7, key: "a/k\u{eb}y", version_id: VERSION_ID, part: None, extents }
}

fn seal(context: &Context, facts: &[u8]) -> Vec<u8> {
    let mut bound = b"deltaweir row v1".to_vec();
    bound.extend(context.bucket.to_le_bytes());
    bound.extend((context.key.len() as u32).to_le_bytes());
    bound.extend(context.key.as_bytes());
    bound.extend(context.version_id);
    match context.part {
        None => bound.push(0),
        Some(part) => {
            bound.push(1);
            bound.extend(part.to_le_bytes());
        }
    }
    let mut extents = Sha256::new();
    for (blob, offset, len) in &context.extents {
        extents.update([&blob[..], &offset.to_le_bytes(), &len.to_le_bytes()].concat());
    }
    bound.extend(extents.finalize());
    let okm: [u8; 44] = expand(&SECRET, Some(&NONCE), &[b"deltaweir row v1", &KEY_ID]);
    let nonce: [u8; 12] = okm[32..].try_into().unwrap();
    let mut stored = facts.to_vec();
    let cipher = Aes256Gcm::new_from_slice(&okm[..32]).unwrap();
    cipher.encrypt_in_place(&nonce.into(), &Sha256::digest(bound), &mut stored).unwrap();
    [&[1][..], &KEY_ID, &NONCE, &stored].concat()
}

/// A row opened in `context`.
fn row(name: &'static str, expect: &'static str, comment: &'static str, context: &Context, body: Vec<u8>) -> Vector {
    let extents: Vec<_> =
        context.extents.iter().map(|(blob, offset, len)| format!("{}:{offset}:{len}", hex(blob))).collect();
    let mut fields = vec![
        ("type", "row".into()),
        ("bucket", context.bucket.to_string()),
        ("key", context.key.into()),
        ("version-id", hex(&context.version_id)),
        ("extents", extents.join(" ")),
        ("key-id", hex(&KEY_ID)),
        ("key-epoch", KEY_EPOCH.to_string()),
        ("key-secret", hex(&SECRET)),
    ];
    fields.extend(context.part.map(|part| ("part", part.to_string())));
    Vector { name, expect, comment, fields, body }
}

pub(crate) fn all() -> Vec<Vector> {
    let right = context();
    let part = Context { part: Some(17), ..context() };
    let good = seal(&right, FACTS);
    let for_other = |name, comment, edit: &dyn Fn(&mut Context)| {
        let mut other = context();
        edit(&mut other);
        row(name, "integrity", comment, &other, seal(&context(), FACTS))
    };
    let altered = |name, expect, comment, edit: &dyn Fn(&mut Vec<u8>)| {
        let mut body = seal(&context(), FACTS);
        edit(&mut body);
        row(name, expect, comment, &context(), body)
    };
    vec![
        row("row", "success", "facts of a version", &right, good.clone()).with("facts", hex(FACTS)),
        row("row_of_part", "success", "facts of a part", &part, seal(&part, FACTS)).with("facts", hex(FACTS)),
        row("row_empty", "success", "no facts", &right, seal(&right, &[])).with("facts", ""),
        for_other("row_other_bucket", "opened for another bucket", &|context| context.bucket = 8),
        for_other("row_other_key", "opened for another key", &|context| context.key = "a/key"),
        for_other("row_key_longer", "opened for a key that goes on with the next field", &|context| {
            context.key = "a/k\u{eb}ya"
        }),
        for_other("row_other_version", "opened for another version", &|context| context.version_id[15] ^= 1),
        for_other("row_as_part", "a version's row opened as a part's", &|context| context.part = Some(1)),
        row("row_part_as_version", "integrity", "a part's row opened as a version's", &right, seal(&part, FACTS)),
        row(
            "row_other_part",
            "integrity",
            "opened for another part",
            &Context { part: Some(18), ..context() },
            seal(&part, FACTS),
        ),
        for_other("row_other_extent", "opened for an extent of another length", &|context| context.extents[1].2 += 1),
        for_other("row_other_extent_blob", "opened for an extent of another blob", &|context| {
            context.extents[0].0[3] ^= 1
        }),
        for_other("row_extents_swapped", "opened for the same extents in another order", &|context| {
            context.extents.swap(0, 1)
        }),
        for_other("row_extent_missing", "opened for fewer extents", &|context| {
            context.extents.pop();
        }),
        row("row_other_secret", "integrity", "the id is right and the key is not", &right, good.clone())
            .with("key-secret", hex(&[8; 32])),
        row("row_other_key_id", "key", "sealed under another key", &right, good).with("key-id", hex(&[8; 16])),
        altered("row_version_2", "malformed", "an unknown version", &|body| body[0] = 2),
        altered("row_key_id_altered", "key", "names another key", &|body| body[1] ^= 1),
        altered("row_nonce_altered", "integrity", "one bit of the nonce", &|body| body[20] ^= 1),
        altered("row_bit", "integrity", "one bit of the facts", &|body| body[42] ^= 1),
        altered("row_tag_bit", "integrity", "one bit of the tag", &|body| body[60] ^= 1),
        altered("row_cut", "integrity", "one byte less", &|body| {
            body.pop();
        }),
        altered("row_cut_in_tag", "malformed", "too short for a tag", &|body| body.truncate(50)),
        altered("row_nothing", "malformed", "no bytes at all", &Vec::clear),
        altered("row_longer", "integrity", "one byte more", &|body| body.push(0)),
    ]
}

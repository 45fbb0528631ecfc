//! All vectors by name. Each is a few lines over the kit; the kit writes blobs by the document and
//! not by the crate, and wrong ones on demand.

mod chunks;
mod content;
mod deltas;
mod good;
mod headers;
mod keysets;
pub(crate) mod kit;
mod planes;
mod roots;
mod rows;
mod tables;
mod trailers;
mod views;

use kit::{BLOB_ID, KEY_EPOCH, KEY_ID, SECRET, hex};
use sha2::{Digest, Sha256};

/// One vector: a text header, an empty line, and the bytes.
pub(crate) struct Vector {
    pub(crate) name: &'static str,
    /// `success`, or the kind of error: `malformed`, `integrity`, `wrong-blob`, `key`, `too-large`.
    pub(crate) expect: &'static str,
    comment: &'static str,
    fields: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Vector {
    pub(crate) fn file_bytes(&self) -> Vec<u8> {
        let mut out = format!("expect: {}\n", self.expect);
        for (name, value) in &self.fields {
            out += &format!("{name}: {value}\n");
        }
        out += &format!("comment: {}\n\n", self.comment);
        [out.as_bytes(), &self.body].concat()
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.retain(|(known, _)| *known != name);
        self.fields.push((name, value.into()));
        self
    }

    fn without(mut self, name: &'static str) -> Self {
        self.fields.retain(|(known, _)| *known != name);
        self
    }
}

/// Every vector, in order of name.
pub(crate) fn all() -> Vec<Vector> {
    let mut all = [
        good::all(),
        headers::all(),
        chunks::all(),
        tables::all(),
        roots::all(),
        trailers::all(),
        content::all(),
        deltas::all(),
        keysets::all(),
        rows::all(),
        views::all(),
        planes::all(),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>();
    all.sort_by_key(|vector| vector.name);
    assert!(all.windows(2).all(|pair| pair[0].name != pair[1].name), "two vectors of one name");
    all
}

/// A blob of suite 0 that decodes to `plain`.
fn plain_blob(name: &'static str, comment: &'static str, plain: &[u8], body: Vec<u8>) -> Vector {
    let fields = vec![
        ("type", "blob".into()),
        ("blob-id", hex(&BLOB_ID)),
        ("plain-length", plain.len().to_string()),
        ("plain-sha256", hex(&Sha256::digest(plain))),
    ];
    Vector { name, expect: "success", comment, fields, body }
}

/// A blob of suite 1 that decodes to `plain`.
fn sealed_blob(name: &'static str, comment: &'static str, plain: &[u8], body: Vec<u8>) -> Vector {
    reader_with_key(plain_blob(name, comment, plain, body))
}

/// A blob of suite 0 that must be refused.
fn bad(name: &'static str, expect: &'static str, comment: &'static str, body: Vec<u8>) -> Vector {
    let vector = plain_blob(name, comment, &[], body).without("plain-length").without("plain-sha256");
    Vector { expect, ..vector }
}

/// A blob of suite 1 that must be refused by a reader with the right key.
fn bad_sealed(name: &'static str, expect: &'static str, comment: &'static str, body: Vec<u8>) -> Vector {
    reader_with_key(bad(name, expect, comment, body))
}

fn reader_with_key(vector: Vector) -> Vector {
    vector.with("key-id", hex(&KEY_ID)).with("key-epoch", KEY_EPOCH.to_string()).with("key-secret", hex(&SECRET))
}

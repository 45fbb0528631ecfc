//! Every vector of docs/format/delta-v1.md through this decoder.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::decode;
use delta_codec::summarize;

struct Vector {
    name: String,
    header: BTreeMap<String, String>,
    delta: Vec<u8>,
}

impl Vector {
    fn field(&self, name: &str) -> &str {
        self.header.get(name).unwrap_or_else(|| panic!("{}: no {name}", self.name))
    }

    fn footprint(&self) -> Vec<u8> {
        let words: Vec<&str> = self.field("footprint").split(' ').collect();
        match words.as_slice() {
            ["empty"] => Vec::new(),
            ["hex", digits] => hex::decode(digits).expect("a hexadecimal footprint"),
            ["lcg", seed, len] => lcg(seed.parse().expect("a seed"), len.parse().expect("a length")),
            other => panic!("{}: footprint {other:?}", self.name),
        }
    }
}

fn lcg(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn vectors() -> Vec<Vector> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/delta-v1");
    let mut vectors = Vec::new();
    for entry in fs::read_dir(directory).expect("the vectors are part of the repository") {
        let path = entry.expect("a directory entry").path();
        let text = fs::read_to_string(&path).expect("a vector is text");
        let (header, body) = text.split_once("\n\n").expect("an empty line ends the header");
        let header = header.lines().map(|line| line.split_once(": ").expect("name: value"));
        vectors.push(Vector {
            name: path.file_stem().expect("a file name").to_string_lossy().into_owned(),
            header: header.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            delta: hex::decode(body.split_whitespace().collect::<String>()).expect("a hexadecimal delta"),
        });
    }
    vectors
}

#[test]
fn every_vector_decodes_or_is_refused_as_it_says() {
    let vectors = vectors();
    let (mut good, mut bad) = (0, 0);
    for vector in &vectors {
        let target_len: usize = vector.field("target_len").parse().expect("a length");
        let decoded = decode(&vector.footprint(), &vector.delta, target_len);
        match vector.field("expect") {
            "target" => {
                good += 1;
                let target = decoded.unwrap_or_else(|error| panic!("{}: {error}", vector.name));
                assert_eq!(hex::encode(Sha256::digest(&target)), vector.field("target_sha256"), "{}", vector.name);
                assert!(summarize(&vector.delta, target_len).is_ok(), "{}", vector.name);
            }
            "malformed" => {
                bad += 1;
                assert!(decoded.is_err(), "{} was decoded", vector.name);
            }
            other => panic!("{}: expect {other}", vector.name),
        }
    }
    assert!(good >= 20 && bad > 2 * good, "{good} good, {bad} bad: some are missing");
}

#[test]
fn the_paths_the_good_vectors_are_about_are_taken() {
    let summary = |name: &str| {
        let vectors = vectors();
        let vector = vectors.iter().find(|vector| vector.name == name).unwrap_or_else(|| panic!("no vector {name}"));
        summarize(&vector.delta, vector.field("target_len").parse().expect("a length")).expect("well-formed")
    };
    assert!(
        summary("context_near").context && summary("context_far").context && summary("context_at_both_ends").context
    );
    let library = summary("by_the_library");
    assert!(
        library.context && library.sub_bytes > 0 && library.literal_bytes > 0 && library.copies > 10,
        "{library:?}"
    );
    assert_eq!(summary("sub_run_long").sub_bytes, 1000);
}

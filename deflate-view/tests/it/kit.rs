//! What the tests share: vectors, whole objects through units and back, random numbers.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use deflate_view::{
    AHEAD_LEN, Base, CutLimits, Cutter, Index, Malformed, Match, ParsesOfUnit, ReplayId, Run, ScanLimits, Scanner,
    StepCounts, Unit, decode_unit, encode_unit, recognise,
};
use sha2::{Digest, Sha256};

/// A file of tests/vectors/deflate-view/.
pub(crate) struct Vector {
    pub(crate) name: String,
    fields: HashMap<String, String>,
    pub(crate) bytes: Vec<u8>,
}

impl Vector {
    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.fields.get(name).is_some_and(|found| found == value)
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.name))
    }
}

/// Every vector of a type.
pub(crate) fn vectors(wanted: &str) -> Vec<Vector> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/deflate-view");
    let mut all: Vec<Vector> = fs::read_dir(directory)
        .expect("the vectors")
        .map(|entry| read(&entry.expect("an entry").path()))
        .filter(|vector| vector.field("type") == wanted)
        .collect();
    all.sort_by(|left, right| left.name.cmp(&right.name));
    assert!(!all.is_empty(), "no vectors of type {wanted}");
    all
}

/// Holds what `decode` gives for every vector of a type, with its base, against what it is expected
/// to be: content by its digest, or a refusal. Gives how many there were of either.
pub(crate) fn held_against_vectors(
    wanted: &str,
    decode: impl Fn(&Vector, &[u8]) -> Result<Vec<u8>, Malformed>,
) -> (usize, usize) {
    let containers = vectors("container");
    let (mut good, mut bad) = (0, 0);
    for vector in vectors(wanted) {
        let base = containers.iter().find(|container| container.name == vector.field("base")).expect("its base");
        let found = decode(&vector, &base.bytes);
        if vector.field("expect") == "malformed" {
            assert!(found.is_err(), "{} is not refused", vector.name);
            bad += 1;
        } else {
            let found = found.unwrap_or_else(|error| panic!("{}: {error}", vector.name));
            assert_eq!(hex::encode(Sha256::digest(found)), vector.field("expect"), "{}", vector.name);
            good += 1;
        }
    }
    (good, bad)
}

fn read(path: &Path) -> Vector {
    let text = fs::read_to_string(path).expect("a vector");
    let (header, body) = text.split_once("\n\n").expect("a header and a body");
    let fields = header.lines().map(|line| line.split_once(": ").expect("a field"));
    let digits: String = body.split_whitespace().collect();
    Vector {
        name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
        fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        bytes: hex::decode(digits).expect("hexadecimal digits"),
    }
}

/// The units of an object with all of its streams opened.
pub(crate) fn units(object: &[u8], index: &Index, limits: CutLimits) -> Vec<Unit> {
    let mut cutter = Cutter::new(index.streams.iter().collect(), object.len() as u64, limits);
    let mut units = Vec::new();
    loop {
        let at = cutter.position() as usize;
        let ahead = &object[at..object.len().min(at + AHEAD_LEN)];
        match cutter.next(ahead).expect("streams that were found") {
            Some(unit) => units.push(unit),
            None => return units,
        }
    }
}

/// What a base is made of, by value.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedBase {
    pub(crate) matches: Vec<Match>,
    pub(crate) opened: Vec<std::ops::Range<u32>>,
}

impl OwnedBase {
    pub(crate) fn borrow(&self) -> Base<'_> {
        Base { matches: &self.matches, opened: &self.opened }
    }
}

/// Takes a unit through its parse and back.
pub(crate) fn there_and_back(
    object: &[u8],
    unit: &Unit,
    base: &OwnedBase,
    runs: &[Run],
    replay: ReplayId,
) -> StepCounts {
    let parses = encode_unit(unit, base.borrow(), runs, (replay, replay), false).expect("its own text");
    assert_eq!(parses.nested.is_some(), unit.nested_parts() > 0);
    let bytes = decoded(unit, &parses, base.borrow(), runs).expect("what was encoded decodes");
    assert!(bytes == object[unit.object.start as usize..unit.object.end as usize], "other bytes");
    parses.parse.counts
}

/// A unit's bytes from its text and parses.
pub(crate) fn decoded(unit: &Unit, parses: &ParsesOfUnit, base: Base<'_>, runs: &[Run]) -> Result<Vec<u8>, Malformed> {
    decode_unit(&parses.stored(unit, Vec::new(), &[]), &unit.text, runs, base)
}

/// Takes an object through units and back without a base; returns how many parts of streams there
/// were.
pub(crate) fn whole_there_and_back(object: &[u8], limits: CutLimits) -> usize {
    let index = Scanner::index(object, ScanLimits::default());
    let mut at = 0;
    let mut parts = 0;
    for unit in units(object, &index, limits) {
        assert_eq!(unit.object.start, at);
        assert!(unit.outermost().text.len() <= limits.text_len_max && unit.text.len() <= 5 * limits.text_len_max);
        assert!(unit.len() <= limits.unit_len_max);
        at = unit.object.end;
        parts += unit.parts();
        there_and_back(object, &unit, &OwnedBase::default(), &[], recognise(&unit));
    }
    assert_eq!(at, object.len() as u64);
    parts
}

/// A gzip member with these bytes as they are, in blocks of at most `block_len`: what a container
/// in the plain text of a stream is, whose place in it is known.
pub(crate) fn wrapped(plain: &[u8], block_len: u16) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    for block in plain.chunks(usize::from(block_len)) {
        out.push(0);
        out.extend_from_slice(&(block.len() as u16).to_le_bytes());
        out.extend_from_slice(&(!(block.len() as u16)).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    out.extend_from_slice(&[0; 8]);
    out
}

/// Random numbers from a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

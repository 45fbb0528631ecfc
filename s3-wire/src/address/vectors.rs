//! The table of encoded keys that every place which decodes one is tested with.

use std::sync::LazyLock;

static TABLE: LazyLock<String> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/keys/encoded.tsv");
    std::fs::read_to_string(path).expect("the table lies in the repository")
});

/// Pairs of a key as a request writes it and the key it names.
pub(crate) fn encoded_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| row.split_once('\t').expect("a row of the table has two columns"))
}

//! Where in the directory tree a blob lies: a pure mapping from names to relative paths and back.
//!
//! ```text
//! blobs/00c0ffee…83fa   →   blobs/+fa/+3/00c0ffee…83fa
//! └ directory ┘└ leaf ┘     └ dir ┘└ fan-out ┘└ leaf ┘
//! ```
//!
//! The leaf goes below two fan-out directories made of its *last* characters, because those of a
//! blob id are random while its first ones count writers. The outer one takes two characters and
//! the inner one the character before them: 256 × 16 directories for hexadecimal names, so 10
//! million blobs make 2,500 entries each.
//!
//! `+` cannot stand in a [`BlobName`], which makes the mapping injective and reversible: a
//! directory that starts with `+` is the backend's own, every other one is a component of names,
//! and a blob `a` never collides with a directory `a`.

use crate::{BlobName, Result};
use std::path::{Path, PathBuf};

/// The directories a blob lies in, outermost last, and the blob's own path; all relative to the
/// root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The file.
    pub(super) file: PathBuf,
    /// The directory that holds the file's entry.
    pub(super) dir: PathBuf,
}

/// Temporary files live here, inside the same file system as every blob.
pub(super) const TEMP_DIR: &str = "+tmp";

/// The place of the blob called `name`.
pub(super) fn place(name: &BlobName) -> Place {
    let (dirs, leaf) = name.as_str().rsplit_once('/').unwrap_or(("", name.as_str()));
    let (rest, outer) = leaf.split_at(leaf.len().saturating_sub(2));
    let inner = &rest[rest.len().saturating_sub(1)..];
    // A path is asked for with every commit, so it is put together in one piece.
    let mut path = String::with_capacity(name.as_str().len() + 2 * "/+".len() + outer.len() + inner.len());
    if !dirs.is_empty() {
        path.push_str(dirs);
        path.push('/');
    }
    for fan_out in ["+", outer, "/+", inner] {
        path.push_str(fan_out);
    }
    let dir = PathBuf::from(path.as_str());
    path.push('/');
    path.push_str(leaf);
    Place { file: path.into(), dir }
}

/// The directory that a listing of `prefix` starts in: everything up to the last `/`. `None` when
/// no name can start so.
pub(super) fn listing_root(prefix: &str) -> Option<&Path> {
    let dirs = prefix.rsplit_once('/').map_or("", |(dirs, _)| dirs);
    (dirs.is_empty() || BlobName::new(dirs).is_ok()).then_some(Path::new(dirs))
}

/// What an entry of a directory is to a listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A directory to walk into.
    Descend(PathBuf),
    /// A regular file that stands where the blob of this name belongs.
    Blob(BlobName),
    /// Nothing of ours, or nothing under the prefix.
    Skip,
}

/// Classifies `entry` of `dir` (both relative to the root) for a listing of `prefix`.
pub(super) fn classify(dir: &Path, entry: &str, is_dir: bool, prefix: &str) -> Entry {
    let dir_is_own = dir.file_name().is_some_and(|last| last.as_encoded_bytes().starts_with(b"+"));
    if is_dir {
        return if entry == TEMP_DIR && dir.as_os_str().is_empty() {
            Entry::Skip
        } else if entry.starts_with('+') || (!dir_is_own && may_lead_to(dir, entry, prefix)) {
            Entry::Descend(dir.join(entry))
        } else {
            Entry::Skip
        };
    }
    match name_at(dir, entry) {
        Ok(name) if name.as_str().starts_with(prefix) && place(&name).dir == dir => Entry::Blob(name),
        _ => Entry::Skip,
    }
}

/// The name a file would have if it stands where it belongs.
fn name_at(dir: &Path, leaf: &str) -> Result<BlobName> {
    let mut name = String::new();
    for part in dir.iter().filter_map(|part| part.to_str()).filter(|part| !part.starts_with('+')) {
        name.push_str(part);
        name.push('/');
    }
    name.push_str(leaf);
    BlobName::new(name)
}

/// Whether names below the directory `dir/entry` can start with `prefix`.
fn may_lead_to(dir: &Path, entry: &str, prefix: &str) -> bool {
    let below = dir.join(entry);
    let Some(below) = below.to_str() else { return false };
    let below = format!("{below}/");
    below.starts_with(prefix) || prefix.starts_with(&below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> BlobName {
        BlobName::new(text).unwrap()
    }

    #[test]
    fn the_last_three_characters_choose_the_directory() {
        assert_eq!(place(&name("blobs/00c0ffee83fa")).file, Path::new("blobs/+fa/+3/00c0ffee83fa"));
        assert_eq!(place(&name("keyset/a/b")).file, Path::new("keyset/a/+b/+/b"));
        assert_eq!(place(&name("xy")).file, Path::new("+xy/+/xy"));
    }

    #[test]
    fn a_file_outside_its_place_is_not_a_blob() {
        assert_eq!(classify(Path::new("blobs"), "00c0ffee83fa", false, ""), Entry::Skip);
        assert_eq!(classify(Path::new("blobs/+aa/+a"), "00c0ffee83fa", false, ""), Entry::Skip);
        assert_eq!(classify(Path::new("blobs/+fa/+3"), "00C0FFEE83fa", false, ""), Entry::Skip);
    }

    #[test]
    fn a_prefix_that_no_name_has_starts_nowhere() {
        assert_eq!(listing_root("../etc/x"), None);
        assert_eq!(listing_root("a//b"), None);
        assert_eq!(listing_root("a/b"), Some(Path::new("a")));
    }

    #[test]
    fn the_directory_of_temporary_files_is_never_listed() {
        assert_eq!(classify(Path::new(""), TEMP_DIR, true, ""), Entry::Skip);
    }

    prop_compose! {
        fn names()(text in "[a-z0-9_-]{1,12}(/[a-z0-9_-]{1,12}){0,3}") -> BlobName { name(&text) }
    }

    proptest! {
        #[test]
        fn a_place_gives_its_name_back(name in names()) {
            let place = place(&name);
            let leaf = place.file.file_name().and_then(|leaf| leaf.to_str()).unwrap();
            prop_assert_eq!(classify(&place.dir, leaf, false, ""), Entry::Blob(name));
        }

        #[test]
        fn different_names_have_different_places(a in names(), b in names()) {
            prop_assert_eq!(a == b, place(&a) == place(&b));
        }

        #[test]
        fn no_place_is_a_directory_of_another(a in names(), b in names()) {
            prop_assert!(!place(&b).dir.starts_with(&place(&a).file));
        }

        #[test]
        fn every_directory_on_the_way_to_a_listed_blob_is_walked(name in names(), cut in 0usize..40) {
            let prefix = &name.as_str()[..cut.min(name.as_str().len())];
            let place = place(&name);
            let start = listing_root(prefix).unwrap();
            let mut at = start.to_owned();
            let way = place.dir.strip_prefix(start).unwrap();
            for part in way.iter().map(|part| part.to_str().unwrap()) {
                prop_assert_eq!(classify(&at, part, true, prefix), Entry::Descend(at.join(part)));
                at.push(part);
            }
        }
    }
}

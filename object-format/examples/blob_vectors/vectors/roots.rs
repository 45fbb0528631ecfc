//! Roots that must be refused. Everything is sealed and checked right for what it says.

use super::{
    Vector, bad, bad_sealed,
    kit::{DELTA, Draft, Manifest, OTHER_ID, text, view_range},
};

fn with_root(edit: impl FnOnce(&mut Manifest)) -> Vec<u8> {
    let mut manifest = Draft::raw(&text(100)).tables().manifest();
    edit(&mut manifest);
    manifest.blob()
}

fn with_root_bytes(edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let manifest = Draft::raw(&text(100)).tables().manifest();
    let mut bytes = manifest.root_bytes();
    edit(&mut bytes);
    manifest.ending_with(bytes).blob()
}

fn with_view(view: &[Vec<u8>]) -> Vec<u8> {
    let mut draft = Draft::raw(&text(100));
    draft.header[8] = DELTA;
    draft.view = view.concat();
    draft.blob()
}

fn with_fact(tag: u16, value: &[u8]) -> Vec<u8> {
    Draft { facts: vec![(tag, value.to_vec())], ..Draft::raw(&text(100)) }.blob()
}

/// The root of a good sealed blob, where its bytes start and how many there are without the tag.
fn sealed_root() -> (Vec<u8>, usize, usize) {
    let blob = Draft::raw(&text(100)).sealed().blob();
    let trailer = &blob[blob.len() - 64..];
    let at = u64::from_le_bytes(trailer[..8].try_into().unwrap()) as usize;
    let len = u32::from_le_bytes(trailer[8..12].try_into().unwrap()) as usize;
    (blob, at, len - 16)
}

pub(crate) fn all() -> Vec<Vector> {
    let root = |name, comment, edit: &dyn Fn(&mut Manifest)| bad(name, "malformed", comment, with_root(edit));
    let size = |at: usize, value: u64| {
        move |manifest: &mut Manifest| manifest.field(1)[at * 8..(at + 1) * 8].copy_from_slice(&value.to_le_bytes())
    };
    let range = |offset, len| view_range(OTHER_ID, offset, len, [7; 16]);
    vec![
        root("root_unknown_critical", "an unknown field that must be understood", &|manifest| {
            manifest.fields.push((0x7fff, vec![1]));
        }),
        root("root_unknown_critical_0", "tag 0", &|manifest| manifest.fields.insert(0, (0, vec![1]))),
        root("root_field_twice", "a field twice", &|manifest| {
            let field = manifest.fields[0].clone();
            manifest.fields.insert(0, field);
        }),
        root("root_fields_descending", "fields out of order", &|manifest| manifest.fields.swap(0, 1)),
        root("root_optional_twice", "an unknown field twice", &|manifest| {
            manifest.fields.extend([(0x9000, vec![1]), (0x9000, vec![1])]);
        }),
        root("root_field_empty", "a field of length 0", &|manifest| manifest.fields.push((0x8001, vec![]))),
        root("root_without_sizes", "no sizes", &|manifest| drop(manifest.fields.remove(0))),
        root("root_without_base_tag", "no base tag", &|manifest| manifest.fields.retain(|field| field.0 != 5)),
        root("root_sizes_short", "23 bytes of sizes", &|manifest| {
            manifest.field(1).pop();
        }),
        root("root_sizes_long", "25 bytes of sizes", &|manifest| manifest.field(1).push(0)),
        root("root_directory_short", "a directory that is not whole entries", &|manifest| {
            manifest.field(2).pop();
        }),
        root("root_directory_count", "a directory with another count than its page", &|manifest| {
            manifest.field(2)[4] = 2
        }),
        root("root_segments_count", "another number of segments than the length demands", &size(2, 2)),
        root("root_payload_none", "content without payload", &size(1, 0)),
        root("root_plain_none", "payload without content", &size(0, 0)),
        root("root_payload_longer", "the pages do not start where the payload ends", &size(1, 101)),
        bad(
            "root_plain_over_5_gib",
            "too-large",
            "one byte more than a blob may have",
            with_root(size(0, (5 << 30) + 1)),
        ),
        bad("root_plain_2_64", "too-large", "the largest length there is", with_root(size(0, u64::MAX))),
        bad("root_payload_2_64", "too-large", "more chunks than can be counted", with_root(size(1, u64::MAX))),
        bad("root_chunks_2_31", "too-large", "one chunk more than 2^31", with_root(size(1, (1 << 47) + 1))),
        bad(
            "root_page_tag",
            "integrity",
            "the directory names another tag",
            with_root(|manifest| manifest.field(2)[8] ^= 1),
        ),
        root("root_page_length", "the directory names another length", &|manifest| manifest.field(2)[0] ^= 1),
        root("root_page_shorter_than_tag", "a page shorter than its tag", &|manifest| {
            manifest.field(2)[..4].copy_from_slice(&15_u32.to_le_bytes());
        }),
        bad("root_base_tag_wrong", "integrity", "a base tag that is not of these segments", {
            with_root(|manifest| manifest.field(5)[0] ^= 1)
        }),
        bad(
            "root_cut",
            "malformed",
            "the last field ends early",
            with_root_bytes(|bytes| {
                bytes.pop();
            }),
        ),
        bad("root_left_over", "malformed", "a byte after the last field", with_root_bytes(|bytes| bytes.push(0))),
        bad("root_empty", "malformed", "no fields", with_root_bytes(Vec::clear)),
        bad("root_field_length_2_32", "malformed", "a field of 4 GiB", with_root_bytes(|bytes| bytes[2..6].fill(0xff))),
        bad("root_over_1_mib", "too-large", "a root of 1 MiB and some bytes", with_fact(0x8006, &vec![0; 1 << 20])),
        bad("root_bucket_not_utf8", "malformed", "a bucket name that is not UTF-8", with_fact(0x8001, &[0xff])),
        bad("root_key_not_utf8", "malformed", "a key with half a character", with_fact(0x8002, &[b'a', 0xc3])),
        bad("root_version_id_short", "malformed", "a version id of 15 bytes", with_fact(0x8003, &[1; 15])),
        bad("root_part_long", "malformed", "a part field of 21 bytes", with_fact(0x8004, &[1; 21])),
        bad("root_sha256_short", "malformed", "a SHA-256 of 31 bytes", with_fact(0x8005, &[1; 31])),
        bad("view_range_empty", "malformed", "a view range of length 0", with_view(&[range(5, 0)])),
        bad("view_range_past_5_gib", "malformed", "a range past what a blob can hold", with_view(&[range(5 << 30, 1)])),
        bad("view_range_overflows", "malformed", "a range that ends past 2^64", with_view(&[range(u64::MAX, 2)])),
        bad("view_257_ranges", "too-large", "one range too many", with_view(&vec![range(0, 1); 257])),
        bad("view_in_whole", "malformed", "a view in a blob of kind whole", {
            let mut draft = Draft::with_view();
            draft.header[8] = 0;
            draft.blob()
        }),
        bad("view_cut", "malformed", "a view that is not whole ranges", with_view(&[range(0, 9)[..47].to_vec()])),
        bad_sealed("root_bit", "integrity", "one bit of a sealed root", {
            let (mut blob, at, _) = sealed_root();
            blob[at + 3] ^= 0x20;
            blob
        }),
        bad_sealed("root_tag_bit", "integrity", "one bit of the root's tag", {
            let (mut blob, at, len) = sealed_root();
            blob[at + len] ^= 1;
            blob
        }),
        bad_sealed("root_as_page", "integrity", "the root sealed as a page", {
            let mut manifest = Draft::raw(&text(100)).sealed().tables().manifest();
            manifest.root_unit = (2, 0);
            manifest.blob()
        }),
        bad_sealed("root_index", "integrity", "the root sealed with index 1", {
            let mut manifest = Draft::raw(&text(100)).sealed().tables().manifest();
            manifest.root_unit = (4, 1);
            manifest.blob()
        }),
        bad_sealed(
            "root_of_another_blob",
            "integrity",
            "pages, root and trailer of a blob with the same key and shape",
            {
                let mut other = Draft::raw(&text(100)).sealed();
                other.header[48..64].copy_from_slice(&OTHER_ID);
                other.commit();
                let front = 160 + 116;
                [&Draft::raw(&text(100)).sealed().blob()[..front], &other.blob()[front..]].concat()
            },
        ),
        bad("root_after_gap", "malformed", "bytes between the pages and the root", {
            with_root(|manifest| manifest.front.extend([0; 8]))
        }),
    ]
}

//! No bytes make a parser panic or allocate without bound, also where checks fit: the kit makes
//! them fit.

use crate::vectors::kit::{self, BLOB_ID, Draft, Page, Unit};
use object_format::{BlobId, BlobOpener, HEADER_LEN, Header, TRAILER_LEN, inspect, whole};
use proptest::prelude::*;

const ID: BlobId = BlobId(BLOB_ID);

/// Bytes of a blob as a list, with a few of them changed.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0), Just(0xff)]), 0..4)
}

fn apply(bytes: &mut [u8], edits: &[(prop::sample::Index, u8)]) {
    for (at, value) in edits {
        if !bytes.is_empty() {
            bytes[at.index(bytes.len())] = *value;
        }
    }
}

proptest! {
    #[test]
    fn a_header_is_read_only_from_bytes_it_would_be_written_as(
        bytes in prop::collection::vec(any::<u8>(), HEADER_LEN),
        edits in edits(),
        sealed: bool,
    ) {
        let _ = Header::decode(&bytes);
        let draft = Draft::raw(&[]);
        let mut header = if sealed { draft.sealed().header } else { draft.header };
        apply(&mut header, &edits);
        if let Ok(read) = Header::decode(&header) {
            prop_assert_eq!(read.encode().to_vec(), header);
        }
    }

    #[test]
    fn any_trailer_is_refused_or_points_into_the_blob(
        mut offset: u64, len: u32, stored_len: u64, fits: bool, edits in edits(),
    ) {
        if fits {
            offset = stored_len.wrapping_sub(u64::from(len)).wrapping_sub(TRAILER_LEN as u64);
        }
        let mut ending = Draft::raw(&[]).tables().manifest().ending();
        ending.checked[..8].copy_from_slice(&offset.to_le_bytes());
        ending.checked[8..12].copy_from_slice(&len.to_le_bytes());
        ending.checked[32..40].copy_from_slice(&stored_len.to_le_bytes());
        apply(&mut ending.checked, &edits);
        let blob = ending.blob();
        if let Ok(place) = BlobOpener::root_place(&blob[blob.len() - TRAILER_LEN..], stored_len) {
            prop_assert_eq!(place.offset + u64::from(place.len) + TRAILER_LEN as u64, stored_len);
        }
    }

    #[test]
    fn any_root_with_a_right_check_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), edits in edits()) {
        let manifest = || Draft::with_view().tables().manifest();
        let _ = whole::open(&manifest().ending_with(bytes).blob(), ID, None);
        let mut root = manifest().root_bytes();
        apply(&mut root, &edits);
        let _ = whole::open(&manifest().ending_with(root).blob(), ID, None);
    }

    #[test]
    fn any_pages_with_right_checks_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        count in prop_oneof![0..9_u32, any::<u32>()],
        check_page: bool,
        edits in edits(),
    ) {
        let mut tables = Draft::with_view().tables();
        let kind = if check_page { 3 } else { 2 };
        let page = Page { unit: Unit { kind, index: 0, bytes }, count };
        if check_page { tables.check_pages = vec![page] } else { tables.segment_pages = vec![page] }
        let _ = whole::open(&tables.blob(), ID, None);
        let mut tables = Draft::with_view().tables();
        let pages = if check_page { &mut tables.check_pages } else { &mut tables.segment_pages };
        apply(&mut pages[0].unit.bytes, &edits);
        let _ = whole::open(&tables.blob(), ID, None);
    }

    #[test]
    fn sizes_of_any_blob_never_overflow(plain_len: u64, payload_len: u64, segments: u64) {
        let mut manifest = Draft::raw(&kit::text(100)).tables().manifest();
        *manifest.field(1) = [plain_len, payload_len, segments].iter().flat_map(|size| size.to_le_bytes()).collect();
        prop_assert!(whole::open(&manifest.blob(), ID, None).is_err());
    }

    #[test]
    fn any_bytes_are_no_blob(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(whole::open(&bytes, ID, None).is_err());
    }
}

#[test]
fn a_layout_is_read_without_the_content_and_without_the_key_as_far_as_that_goes() {
    let plain = kit::text(300_000);
    for sealed in [false, true] {
        let draft = Draft::raw(&plain);
        let blob = if sealed { draft.sealed().blob() } else { draft.blob() };
        let mut bytes_read = 0;
        let layout = inspect::layout(
            blob.len() as u64,
            Some(ID),
            |_| None,
            |range| {
                bytes_read += range.end - range.start;
                Ok::<_, std::convert::Infallible>(blob[range.start as usize..range.end as usize].to_vec())
            },
        )
        .unwrap();
        assert!(bytes_read < 1000, "{bytes_read}");
        assert_eq!(layout.header.blob_id, ID);
        assert_eq!(layout.manifest.is_some(), !sealed);
        if let Some(manifest) = layout.manifest {
            assert_eq!(manifest.root.plain_len, plain.len() as u64);
            assert_eq!(manifest.segments.len(), 1);
        }
    }
    let failed = inspect::layout(1000, None, |_| None, |_| Err::<Vec<u8>, _>("no such blob"));
    assert!(matches!(failed, Err(inspect::InspectError::Read("no such blob"))));
}

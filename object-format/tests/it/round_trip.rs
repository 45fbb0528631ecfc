//! What was written is what is opened.

use crate::samples::{ID, Sample, key};
use object_format::{BlobOpener, CHUNK_LEN, Header, SEGMENT_LEN, Suite, whole};
use proptest::prelude::*;

const SUITES: [Suite; 2] = [Suite::None, Suite::Aes256Gcm];

#[test]
fn blobs_around_every_boundary_open_as_they_were_written() {
    for suite in SUITES {
        for len in
            [0, 1, 15, 16, 17, CHUNK_LEN - 1, CHUNK_LEN, CHUNK_LEN + 1, 3 * CHUNK_LEN, SEGMENT_LEN, SEGMENT_LEN + 1]
        {
            let sample = Sample::raw(suite, len);
            let (bytes, finished) = sample.write(usize::MAX);
            assert_eq!(finished.stored_len, bytes.len() as u64, "{suite:?} {len}");
            let opened = whole::open(&bytes, ID, sample.key().as_ref()).unwrap();
            assert_eq!(opened.root_place, finished.root);
            assert!(opened.payload == sample.payload, "{suite:?} {len}");
            assert_eq!(opened.segments, sample.segments);
            assert_eq!(opened.root.facts, sample.facts);
            assert!(opened.root.is_whole());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_range_of_any_blob_is_the_bytes_that_were_pushed(
        sealed: bool,
        stored_len in 1..=300_000_u32,
        piece in 1..=200_000_usize,
        at in any::<prop::sample::Index>(),
        len in any::<prop::sample::Index>(),
    ) {
        let sample = Sample::every_coding(SUITES[usize::from(sealed)], stored_len);
        let (bytes, finished) = sample.write(piece);
        let key = key();
        let header = Header::decode(&bytes[..160]).unwrap();
        let opener = BlobOpener::new(&header, ID, sealed.then_some(&key)).unwrap();
        let root_bytes = &bytes[finished.root.offset as usize..][..finished.root.len as usize];
        let root = opener.open_root(&finished.root, root_bytes).unwrap();
        prop_assert_eq!(&root.view, &sample.view);
        let at = at.index(sample.payload.len());
        let len = 1 + len.index(sample.payload.len() - at);
        let chunks = opener.chunks_covering(at as u64..(at + len) as u64);
        let range = opener.stored_range(chunks.clone(), root.payload_len);
        let mut stored = bytes[range.start as usize..range.end as usize].to_vec();
        let mut checks = Vec::new();
        for place in &root.check_pages {
            checks.extend(opener.open_check_page(place, &bytes[place.offset as usize..][..place.len as usize]).unwrap());
        }
        let checks = if sealed { &[][..] } else { &checks[chunks.start as usize..chunks.end as usize] };
        opener.open_chunks(chunks.start, root.payload_len, &mut stored, checks).unwrap();
        let skip = at - chunks.start as usize * CHUNK_LEN;
        prop_assert!(stored[skip..skip + len] == sample.payload[at..at + len]);
    }

    #[test]
    fn the_blob_does_not_depend_on_how_its_payload_was_cut(sealed: bool, len in 0..400_000_usize, piece in 1..200_000_usize) {
        let sample = Sample::raw(SUITES[usize::from(sealed)], len);
        prop_assert!(sample.write(usize::MAX) == sample.write(piece));
    }
}

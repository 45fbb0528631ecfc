//! Nothing altered, cut, moved or mixed is ever accepted (B11, B12, B13).

use crate::samples::{ID, SALT, Sample, key};
use object_format::{
    BlobId, BlobOpener, CHUNK_LEN, DomainKey, FormatError, HEADER_LEN, Header, KeyId, Root, Suite, TRAILER_LEN,
    ViewRange, whole,
};
use proptest::prelude::*;

const SUITES: [Suite; 2] = [Suite::None, Suite::Aes256Gcm];
const STRIDE: usize = CHUNK_LEN + 16;

fn open(sample: &Sample, bytes: &[u8]) -> Result<whole::WholeBlob, FormatError> {
    whole::open(bytes, sample.id, sample.key().as_ref())
}

fn assert_refused(sample: &Sample, bytes: &[u8], what: &str) {
    if let Ok(opened) = open(sample, bytes) {
        panic!("{what}: accepted, payload {}", if opened.payload == sample.payload { "unchanged" } else { "CHANGED" });
    }
}

#[test]
fn every_flipped_bit_of_a_small_blob_is_noticed() {
    for suite in SUITES {
        for sample in [Sample::raw(suite, 0), Sample::every_coding(suite, 21)] {
            let (good, _) = sample.write(usize::MAX);
            assert!(open(&sample, &good).is_ok());
            for at in 0..good.len() {
                for bit in 0..8 {
                    let mut bytes = good.clone();
                    bytes[at] ^= 1 << bit;
                    assert_refused(&sample, &bytes, &format!("{suite:?}, bit {bit} of byte {at}"));
                }
            }
        }
    }
}

#[test]
fn every_value_of_every_header_byte_but_the_right_one_is_refused() {
    for suite in SUITES {
        let sample = Sample::raw(suite, 30);
        let (good, _) = sample.write(usize::MAX);
        for at in 0..HEADER_LEN {
            for value in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = value;
                if value != good[at] {
                    assert_refused(&sample, &bytes, &format!("{suite:?}, header byte {at} = {value}"));
                }
            }
        }
    }
}

#[test]
fn a_small_blob_cut_or_extended_anywhere_is_refused() {
    for suite in SUITES {
        let sample = Sample::every_coding(suite, 21);
        let (good, _) = sample.write(usize::MAX);
        for len in 0..good.len() {
            assert_refused(&sample, &good[..len], &format!("{suite:?} cut to {len}"));
            // The end kept, so that the trailer is there: bytes taken out of the middle.
            let without = [&good[..len], &good[len + 1..]].concat();
            assert_refused(&sample, &without, &format!("{suite:?} without byte {len}"));
        }
        for more in [1, 16, TRAILER_LEN, good.len()] {
            assert_refused(&sample, &[&good[..], &vec![0; more]].concat(), "zeros behind it");
            assert_refused(&sample, &[&good[..], &good[good.len() - more..]].concat(), "its own end behind it");
        }
    }
}

#[test]
fn a_blob_cut_at_every_boundary_of_its_parts_is_refused() {
    for (suite, stride) in [(Suite::None, CHUNK_LEN), (Suite::Aes256Gcm, STRIDE)] {
        let sample = Sample::raw(suite, 3 * CHUNK_LEN);
        let (good, finished) = sample.write(usize::MAX);
        let root = finished.root;
        let boundaries = (0..=3).map(|chunk| HEADER_LEN + chunk * stride).chain([
            root.offset as usize,
            root.offset as usize + root.len as usize,
            good.len() - TRAILER_LEN,
            good.len() - 1,
        ]);
        for boundary in boundaries {
            for len in [boundary - 1, boundary, boundary + 1] {
                let len = len.min(good.len() - 1);
                assert_refused(&sample, &good[..len], &format!("cut to {len}"));
                // With the right trailer at the end, which is what a reader looks for first.
                let with_trailer = [&good[..len], &good[good.len() - TRAILER_LEN..]].concat();
                if with_trailer.len() != good.len() {
                    assert_refused(&sample, &with_trailer, &format!("cut to {len} before the trailer"));
                }
            }
        }
    }
}

/// A blob of four full chunks as a range reader sees it: opener, root and chunk bytes.
fn four_chunks(sample: &Sample) -> (BlobOpener, Root, Vec<Vec<u8>>) {
    let (bytes, finished) = sample.write(usize::MAX);
    let header = Header::decode(&bytes[..HEADER_LEN]).unwrap();
    let opener = BlobOpener::new(&header, sample.id, sample.key().as_ref()).unwrap();
    let root = opener.open_root(&finished.root, &bytes[finished.root.offset as usize..][..finished.root.len as usize]);
    let root = root.unwrap();
    let chunks = (0..4).map(|chunk| {
        let range = opener.stored_range(chunk..chunk + 1, root.payload_len);
        bytes[range.start as usize..range.end as usize].to_vec()
    });
    let chunks = chunks.collect();
    (opener, root, chunks)
}

/// The sample under another id and salt: same key, same content.
fn other_blob(sample: &Sample) -> Sample {
    Sample { id: BlobId([0x99; 16]), salt: [0x77; 32], ..sample.clone() }
}

#[test]
fn chunks_dropped_doubled_reordered_or_of_other_blobs_do_not_open() {
    let sample = Sample::raw(Suite::Aes256Gcm, 4 * CHUNK_LEN);
    let (opener, root, chunks) = four_chunks(&sample);
    let (other_opener, _, other_chunks) = four_chunks(&other_blob(&sample));
    let len = root.payload_len;
    let refused = |opener: &BlobOpener, first, parts: &[&Vec<u8>]| {
        let mut stored = parts.iter().copied().flatten().copied().collect::<Vec<_>>();
        let result = opener.open_chunks(first, len, &mut stored, &[]);
        assert!(matches!(result, Err(FormatError::Integrity(_) | FormatError::Malformed(_))), "{first}: accepted");
        assert!(stored.is_empty(), "unverified bytes are left");
    };
    let mut all = chunks.concat();
    opener.open_chunks(0, len, &mut all, &[]).unwrap();
    assert!(all == sample.payload);
    for first in 0..4_u64 {
        for (at, chunk) in chunks.iter().enumerate() {
            if at as u64 != first {
                refused(&opener, first, &[chunk]);
            }
        }
        refused(&opener, first, &[&other_chunks[first as usize]]);
        refused(&other_opener, first, &[&chunks[first as usize]]);
    }
    refused(&opener, 0, &[&chunks[0], &chunks[2], &chunks[1], &chunks[3]]);
    refused(&opener, 0, &[&chunks[0], &chunks[0]]);
    refused(&opener, 0, &[&chunks[0], &chunks[2]]);
    refused(&opener, 2, &[&chunks[2], &chunks[3], &chunks[3]]);
    refused(&opener, 4, &[&chunks[3]]);
    refused(&opener, u64::MAX, &[&chunks[3]]);
    refused(&opener, 0, &[]);
    refused(&opener, 0, &[&chunks[0][..STRIDE - 1].to_vec()]);
    refused(&opener, 0, &[&chunks[0], &chunks[1][..10].to_vec()]);
}

#[test]
fn a_truncated_last_chunk_is_an_error_not_an_end() {
    let sample = Sample::raw(Suite::Aes256Gcm, 4 * CHUNK_LEN);
    let (opener, root, chunks) = four_chunks(&sample);
    // A root that told of three chunks could not make the third the last: it was sealed as one that
    // is not.
    let mut stored = chunks[..3].concat();
    let result = opener.open_chunks(0, 3 * CHUNK_LEN as u64, &mut stored, &[]);
    assert_eq!(result, Err(FormatError::Integrity("a chunk")));
    assert!(stored.is_empty());
    // Nor could one that told of five use the fourth as a chunk before the last.
    let mut stored = chunks[3].clone();
    let result = opener.open_chunks(3, root.payload_len + 1, &mut stored, &[]);
    assert_eq!(result, Err(FormatError::Integrity("a chunk")));
}

#[test]
fn checks_of_suite_0_bind_chunks_to_their_place_and_blob() {
    let sample = Sample::raw(Suite::None, 4 * CHUNK_LEN);
    let (bytes, _) = sample.write(usize::MAX);
    let (opener, root, chunks) = four_chunks(&sample);
    let (other, ..) = four_chunks(&other_blob(&sample));
    let place = &root.check_pages[0];
    let checks = opener.open_check_page(place, &bytes[place.offset as usize..][..place.len as usize]).unwrap();
    let len = root.payload_len;
    let open = |opener: &BlobOpener, first: usize, chunk: usize, check: usize| {
        opener.open_chunks(first as u64, len, &mut chunks[chunk].clone(), &checks[check..check + 1]).is_ok()
    };
    assert!((0..4).all(|at| open(&opener, at, at, at)));
    assert!(!open(&opener, 0, 1, 1), "a chunk with its check in another place");
    assert!(!open(&opener, 0, 0, 1) && !open(&opener, 0, 1, 0), "a chunk with another's check");
    assert!(!open(&other, 0, 0, 0), "a chunk with its check in another blob");
    let mut two = chunks[..2].concat();
    assert!(opener.open_chunks(0, len, &mut two, &checks[..1]).is_err(), "fewer checks than chunks");
    two = chunks[..2].concat();
    let before = two.clone();
    assert_eq!(opener.check_chunks(0, len, &two, &checks[..2]), Ok(()));
    assert!(two == before, "checking changes nothing");
    two[CHUNK_LEN] ^= 1;
    assert_eq!(opener.check_chunks(0, len, &two, &checks[..2]), Err(FormatError::Integrity("a chunk")));
    let sealed = Sample::raw(Suite::Aes256Gcm, 4 * CHUNK_LEN);
    let (opener, _, chunks) = four_chunks(&sealed);
    let refused = opener.check_chunks(0, len, &chunks[0], &checks[..1]);
    assert!(matches!(refused, Err(FormatError::Key(_))), "a sealed chunk is never taken for a plain one");
}

#[test]
fn a_sealed_blob_opens_under_its_own_key_id_and_suite_only() {
    let sample = Sample::raw(Suite::Aes256Gcm, 100);
    let (bytes, _) = sample.write(usize::MAX);
    let header = Header::decode(&bytes[..HEADER_LEN]).unwrap();
    let refused = |key: Option<&DomainKey>| matches!(BlobOpener::new(&header, ID, key), Err(FormatError::Key(_)));
    let (id, epoch) = (key().id(), key().epoch());
    assert!(BlobOpener::new(&header, ID, Some(&key())).is_ok());
    assert!(refused(None));
    assert!(refused(Some(&DomainKey::new(id, epoch, [0x12; 32]))), "another secret");
    assert!(refused(Some(&DomainKey::new(KeyId([1; 16]), epoch, [0x11; 32]))), "another id");
    assert!(refused(Some(&DomainKey::new(id, epoch + 1, [0x11; 32]))), "another epoch");
    assert_eq!(BlobOpener::new(&header, BlobId([0; 16]), Some(&key())).unwrap_err(), FormatError::WrongBlob);
    let (plain, _) = Sample::raw(Suite::None, 100).write(usize::MAX);
    let refused = whole::open(&plain, ID, Some(&key())).unwrap_err();
    assert!(matches!(refused, FormatError::Key(_)), "a plain blob in the place of a sealed one");
}

#[test]
fn the_root_must_be_the_one_the_catalog_names() {
    for suite in SUITES {
        let sample = Sample::raw(suite, 100);
        let (bytes, finished) = sample.write(usize::MAX);
        let header = Header::decode(&bytes[..HEADER_LEN]).unwrap();
        let opener = BlobOpener::new(&header, ID, sample.key().as_ref()).unwrap();
        let place = finished.root;
        let root = &bytes[place.offset as usize..][..place.len as usize];
        assert!(opener.open_root(&place, root).is_ok());
        let mut other = place;
        other.tag[15] ^= 1;
        assert!(matches!(opener.open_root(&other, root), Err(FormatError::Integrity(_))));
        other = place;
        other.offset += 1;
        assert!(matches!(opener.open_root(&other, root), Err(FormatError::Malformed(_))));
        assert!(opener.open_root(&place, &root[1..]).is_err());
    }
}

/// A delta names its base by id and by tag: one of the same id and size with other content, one
/// that is a delta itself, and one that is too short are no bases (C98, C108).
#[test]
fn only_the_base_a_delta_was_made_over_is_its_base() {
    for suite in SUITES {
        let root = |len: usize| {
            let sample = Sample::raw(suite, len);
            let (bytes, finished) = sample.write(usize::MAX);
            let header = Header::decode(&bytes[..HEADER_LEN]).unwrap();
            let opener = BlobOpener::new(&header, ID, sample.key().as_ref()).unwrap();
            let place = finished.root;
            opener.open_root(&place, &bytes[place.offset as usize..][..place.len as usize]).unwrap()
        };
        let (base, other) = (root(100), root(101));
        let range = |root: &Root| ViewRange { blob: ID, offset: 0, len: 100, base_tag: root.base_tag };
        assert_eq!(base.check_as_base(&range(&base)), Ok(()));
        assert_eq!(other.check_as_base(&range(&base)), Err(FormatError::WrongBlob), "another one that is valid");
        let past_its_end = ViewRange { offset: 1, ..range(&base) };
        assert_eq!(base.check_as_base(&past_its_end), Err(FormatError::WrongBlob));
        let wrapping = ViewRange { offset: u64::MAX, ..range(&base) };
        assert_eq!(base.check_as_base(&wrapping), Err(FormatError::WrongBlob));
        let mut delta = root(100);
        delta.view = vec![range(&base)];
        assert_eq!(delta.check_as_base(&range(&base)), Err(FormatError::WrongBlob), "no chain, so no circle");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// B11 and B12 on blobs of several chunks and pages: one fault anywhere.
    #[test]
    fn one_fault_anywhere_in_a_large_blob_is_noticed(
        sealed: bool,
        stored_len in 20_000..100_000_u32,
        fault in 0..6_u8,
        at in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let sample = Sample::every_coding(SUITES[usize::from(sealed)], stored_len);
        let (good, _) = sample.write(usize::MAX);
        let (at, to) = (at.index(good.len()), to.index(good.len()));
        let (from, to) = (at.min(to), at.max(to) + 1);
        let mut bytes = good.clone();
        match fault {
            0 => bytes[at] ^= 1 << bit,
            1 => bytes.truncate(at),
            2 => bytes[from..to].fill(0),
            3 => drop(bytes.drain(from..to)),
            4 => bytes.extend_from_within(from..to),
            _ => bytes[from..to].reverse(),
        }
        prop_assume!(bytes != good);
        prop_assert!(open(&sample, &bytes).is_err());
    }

    #[test]
    fn parts_of_two_blobs_never_make_one(sealed: bool, cut in any::<prop::sample::Index>()) {
        let sample = Sample::every_coding(SUITES[usize::from(sealed)], 500);
        let other = Sample { salt: SALT, ..other_blob(&sample) };
        let ((a, _), (b, _)) = (sample.write(usize::MAX), other.write(usize::MAX));
        prop_assert_eq!(a.len(), b.len());
        let cut = 1 + cut.index(a.len() - 1);
        let mixed = [&a[..cut], &b[cut..]].concat();
        prop_assume!(mixed != a && mixed != b);
        prop_assert!(open(&sample, &mixed).is_err());
        prop_assert!(open(&other, &mixed).is_err());
    }
}

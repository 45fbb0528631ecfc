//! What the writer refuses: tables that contradict what was pushed or each other. The limits of the
//! format from both sides.

use crate::{
    samples::{ID, Sample},
    vectors::kit,
};
use object_format::{
    BlobId, BlobKind, BlobSpec, BlobWriter, Coding, FormatError, ObjectFacts, SEGMENT_LEN, Seal, Segment, Suite,
    ViewAddress, ViewRange, blob::PLAIN_LEN_MAX, whole,
};

fn finish(kind: BlobKind, payload: &[u8], segments: &[Segment], view: &[ViewRange]) -> Result<(), FormatError> {
    finish_with(kind, payload, segments, view, &ObjectFacts::default()).map(|_| ())
}

fn finish_with(
    kind: BlobKind,
    payload: &[u8],
    segments: &[Segment],
    view: &[ViewRange],
    facts: &ObjectFacts,
) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::new();
    let mut writer = BlobWriter::new(BlobSpec { id: ID, kind, seal: Seal::None }, &mut out);
    writer.push(payload, &mut out)?;
    writer.finish(segments, view, facts, &mut out)?;
    Ok(out)
}

fn segment(plain_len: usize, stored_offset: u64, stored_len: u32, coding: Coding) -> Segment {
    Segment { plain_len: plain_len as u32, stored_offset, stored_len, coding, digest: [0; 16], footprint: Vec::new() }
}

fn range(len: u64) -> ViewRange {
    ViewRange { blob: BlobId([1; 16]), offset: 0, len, base_tag: [0; 16] }
}

#[test]
fn segment_tables_that_contradict_the_payload_are_refused() {
    let ok = |segments: &[Segment]| finish(BlobKind::Whole, &[0; 10], segments, &[]).is_ok();
    assert!(ok(&[segment(10, 0, 10, Coding::Raw)]));
    assert!(ok(&[segment(SEGMENT_LEN, 0, 4, Coding::Zstd), segment(6, 4, 6, Coding::Raw)]));
    for wrong in [
        vec![],
        vec![segment(9, 0, 9, Coding::Raw)],
        vec![segment(11, 0, 11, Coding::Raw)],
        vec![segment(10, 1, 10, Coding::Raw)],
        vec![segment(10, 0, 9, Coding::Zstd)],
        vec![segment(11, 0, 10, Coding::Raw)],
        vec![segment(0, 0, 10, Coding::Zstd)],
        vec![segment(SEGMENT_LEN + 1, 0, 10, Coding::Zstd)],
        vec![segment(5, 0, 5, Coding::Raw), segment(5, 5, 5, Coding::Raw)],
        vec![segment(SEGMENT_LEN, 0, 10, Coding::Zstd), segment(1, 10, 0, Coding::Zstd)],
        vec![segment(SEGMENT_LEN, 0, 4, Coding::Zstd), segment(6, 3, 6, Coding::Raw)],
        vec![segment(10, u64::MAX, 10, Coding::Raw)],
        vec![segment(10, 0, 10, Coding::Delta)],
        vec![Segment { footprint: vec![ViewAddress { offset: 0, len: 1 }], ..segment(10, 0, 10, Coding::Raw) }],
    ] {
        assert!(!ok(&wrong), "{wrong:?}");
    }
    assert!(finish(BlobKind::Whole, &[], &[], &[]).is_ok());
    assert!(finish(BlobKind::Whole, &[], &[segment(0, 0, 0, Coding::Raw)], &[]).is_err());
}

#[test]
fn a_view_has_at_most_256_ranges_each_within_5_gib() {
    let with = |view: &[ViewRange]| finish(BlobKind::Delta, &[0; 1], &[segment(1, 0, 1, Coding::Raw)], view);
    assert_eq!(with(&vec![range(1); 256]), Ok(()));
    assert!(matches!(with(&vec![range(1); 257]), Err(FormatError::TooLarge(_))));
    assert_eq!(with(&vec![range(PLAIN_LEN_MAX); 256]), Ok(()));
    assert!(with(&[range(0)]).is_err());
    assert!(with(&[range(PLAIN_LEN_MAX + 1)]).is_err());
    assert!(with(&[ViewRange { offset: u64::MAX, ..range(1) }]).is_err());
    assert!(finish(BlobKind::Whole, &[0; 1], &[segment(1, 0, 1, Coding::Raw)], &[range(1)]).is_err());
}

#[test]
fn a_footprint_has_at_most_16_ranges_within_the_view() {
    let with = |footprint: Vec<ViewAddress>| {
        let segments = [Segment { footprint, ..segment(1, 0, 1, Coding::Delta) }];
        finish(BlobKind::Delta, &[0; 1], &segments, &[range(600), range(400)])
    };
    let spread = |count: u64| (0..count).map(|at| ViewAddress { offset: at * 20, len: 20 }).collect::<Vec<_>>();
    assert_eq!(with(spread(0)), Ok(()));
    assert_eq!(with(spread(16)), Ok(()));
    assert!(matches!(with(spread(17)), Err(FormatError::TooLarge(_))));
    assert_eq!(with(vec![ViewAddress { offset: 999, len: 1 }]), Ok(()));
    assert!(with(vec![ViewAddress { offset: 999, len: 2 }]).is_err());
    assert!(with(vec![ViewAddress { offset: u64::MAX, len: 2 }]).is_err());
    assert!(with(vec![ViewAddress { offset: 5, len: 0 }]).is_err());
    assert!(with(vec![ViewAddress { offset: 5, len: 5 }, ViewAddress { offset: 9, len: 5 }]).is_err());
}

#[test]
fn content_of_5_gib_is_written_and_read_and_one_byte_more_is_refused() {
    let segments: Vec<_> = (0..1280).map(|number| segment(SEGMENT_LEN, number * 3, 3, Coding::Zstd)).collect();
    let payload = vec![7; 3 * segments.len()];
    let bytes = finish_with(BlobKind::Whole, &payload, &segments, &[], &ObjectFacts::default()).unwrap();
    let opened = whole::open(&bytes, ID, None).unwrap();
    assert_eq!(opened.root.plain_len, PLAIN_LEN_MAX);
    assert_eq!(opened.segments, segments);
    let one_more = [&segments[..], &[segment(1, 3840, 3, Coding::Zstd)]].concat();
    let refused = finish(BlobKind::Whole, &vec![7; 3 * one_more.len()], &one_more, &[]);
    assert_eq!(refused, Err(FormatError::TooLarge("5 GiB of plain content")));
}

#[test]
fn tables_that_need_several_pages_come_back_whole() {
    let footprint: Vec<_> = (0..16).map(|at| ViewAddress { offset: at * 20, len: 20 }).collect();
    let segments: Vec<_> = (0..1000)
        .map(|at| Segment { footprint: footprint.clone(), ..segment(SEGMENT_LEN, at, 1, Coding::Delta) })
        .collect();
    let bytes = finish_with(BlobKind::Delta, &[7; 1000], &segments, &[range(400)], &ObjectFacts::default()).unwrap();
    let opened = whole::open(&bytes, ID, None).unwrap();
    assert_eq!(opened.segments, segments);
    assert!(opened.root.segment_pages.len() > 3);
    assert!(opened.root.segment_pages.iter().all(|page| page.len <= 65_536));
}

#[test]
fn checks_that_need_several_pages_come_back_whole() {
    let chunks = 4094 + 2;
    let sample = Sample::raw(Suite::None, chunks * object_format::CHUNK_LEN);
    let (bytes, _) = sample.write(usize::MAX);
    let opened = whole::open(&bytes, ID, None).unwrap();
    let counts: Vec<_> = opened.root.check_pages.iter().map(|page| (page.first, page.count)).collect();
    assert_eq!(counts, [(0, 4094), (4094, 2)]);
    assert!(opened.payload == sample.payload);
}

#[test]
fn facts_of_any_kind_come_back_and_too_many_are_refused() {
    let facts = ObjectFacts {
        bucket: "b".into(),
        key: "\u{1f5dd}".repeat(256),
        version_id: Some([1; 16]),
        part: Some(([2; 16], 10_000)),
        sha256: Some([0; 32]),
        facts: vec![0; 100_000],
        sketch: vec![9; 200_000],
    };
    let bytes = finish_with(BlobKind::Whole, &[], &[], &[], &facts).unwrap();
    assert_eq!(whole::open(&bytes, ID, None).unwrap().root.facts, facts);
    let facts = ObjectFacts { facts: vec![0; 1 << 20], ..facts };
    let refused = finish_with(BlobKind::Whole, &[], &[], &[], &facts);
    assert_eq!(refused, Err(FormatError::TooLarge("1 MiB of root")));
}

/// The kit is written from the document with RustCrypto's AES-GCM, HKDF and HMAC and shares no code
/// with the crate.
#[test]
fn the_crate_writes_the_same_bytes_as_the_kit() {
    use kit::{BLOB_ID, CHUNK, Draft, KEY_EPOCH, KEY_ID, SALT, SECRET};
    let key = object_format::DomainKey::new(object_format::KeyId(KEY_ID), KEY_EPOCH, SECRET);
    for sealed in [false, true] {
        for len in [0, 1, 100, CHUNK, CHUNK + 1, 5 * CHUNK + 17, SEGMENT_LEN + 3] {
            let plain = kit::text(len);
            let draft = Draft::raw(&plain);
            let expected = if sealed { draft.sealed().blob() } else { draft.blob() };
            let mut at = 0;
            let segments: Vec<_> = plain
                .chunks(SEGMENT_LEN)
                .map(|plain| {
                    let len = plain.len() as u32;
                    at += u64::from(len);
                    let digest = object_format::segment_digest(plain);
                    Segment { digest, ..segment(plain.len(), at - u64::from(len), len, Coding::Raw) }
                })
                .collect();
            let seal = if sealed { Seal::Aes256Gcm { key: &key, salt: SALT } } else { Seal::None };
            let mut out = Vec::new();
            let mut writer = BlobWriter::new(BlobSpec { id: BlobId(BLOB_ID), kind: BlobKind::Whole, seal }, &mut out);
            writer.push(&plain, &mut out).unwrap();
            writer.finish(&segments, &[], &ObjectFacts::default(), &mut out).unwrap();
            assert!(out == expected, "sealed {sealed}, {len} bytes");
        }
    }
}

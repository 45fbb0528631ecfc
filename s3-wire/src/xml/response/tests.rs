use super::*;
use crate::{error::ErrorCode, xml::Document};
use proptest::prelude::*;
use quick_xml::{Reader, events::Event};
use std::time::{Duration, UNIX_EPOCH};

/// Every element with its text, in order, as a conforming parser reads it.
fn read(document: &[u8]) -> Vec<(String, String)> {
    let mut reader = Reader::from_str(std::str::from_utf8(document).unwrap());
    let (mut open, mut found) = (Vec::new(), Vec::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => open.push((start.local_name().into_inner().to_owned(), String::new())),
            Event::End(_) => found.push(open.pop().unwrap()),
            Event::Text(text) => open.last_mut().map_or((), |(_, out): &mut (String, String)| out.push_str(&text)),
            Event::GeneralRef(reference) => {
                let (_, out) = open.last_mut().unwrap();
                match reference.resolve_char_ref().unwrap() {
                    Some(c) => out.push(c),
                    None => out.push_str(quick_xml::escape::resolve_predefined_entity(&reference).unwrap()),
                }
            }
            Event::Eof => return found,
            _ => {}
        }
    }
}

fn text<'e>(elements: &'e [(String, String)], name: &str) -> Vec<&'e str> {
    elements.iter().filter(|(n, _)| n == name).map(|(_, text)| text.as_str()).collect()
}

fn at() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_255_369_830_000)
}

fn owner() -> Owner {
    Owner { id: "ab".into(), display_name: "ci".into() }
}

fn listing(key: &str, encoding_type_url: bool) -> ListObjectsV2Result {
    ListObjectsV2Result {
        bucket: "bucket".into(),
        prefix: key.into(),
        delimiter: Some("/".into()),
        start_after: None,
        continuation_token: None,
        next_continuation_token: Some("next+token".into()),
        max_keys: 1000,
        is_truncated: true,
        encoding_type_url,
        objects: vec![ObjectEntry {
            key: key.into(),
            last_modified: at(),
            etag: ETag::from_md5([0xaa; 16]),
            size: 6 << 40,
            storage_class: "STANDARD".into(),
            owner: Some(owner()),
            checksum: Some((ChecksumAlgorithm::Crc32, ChecksumType::FullObject)),
        }],
        common_prefixes: vec![key.into()],
    }
}

#[test]
fn a_listing_has_the_shape_s3_documents() {
    let document = listing("a b", true).to_bytes();
    let text = std::str::from_utf8(&document).unwrap();
    assert_eq!(
        text,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Name>bucket</Name><Prefix>a%20b</Prefix><NextContinuationToken>next+token</NextContinuationToken><KeyCount>2</KeyCount>\
         <MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
         <Contents><Key>a%20b</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>\
         <ETag>&quot;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa&quot;</ETag><ChecksumAlgorithm>CRC32</ChecksumAlgorithm>\
         <ChecksumType>FULL_OBJECT</ChecksumType><Size>6597069766656</Size><Owner><ID>ab</ID><DisplayName>ci</DisplayName></Owner>\
         <StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>a%20b</Prefix></CommonPrefixes></ListBucketResult>"
    );
}

proptest! {
    #[test]
    fn every_key_gives_a_well_formed_listing_that_reads_back(key in any::<String>()) {
        // C73
        let plain = read(&listing(&key, false).to_bytes());
        prop_assert_eq!(text(&plain, "Key"), [key.as_str()]);
        let encoded = listing(&key, true).to_bytes();
        prop_assert!(encoded.iter().all(|b| b.is_ascii_graphic() || matches!(b, b' ' | b'\n')));
        let encoded = read(&encoded);
        let decoded = percent_encoding::percent_decode_str(text(&encoded, "Key")[0]).decode_utf8().unwrap();
        prop_assert_eq!(decoded.as_ref(), key.as_str());
    }
}

#[test]
fn a_version_1_listing_names_its_markers() {
    let v1 = ListObjectsResult {
        bucket: "bucket".into(),
        prefix: String::new(),
        delimiter: None,
        marker: "m&m".into(),
        next_marker: Some("n".into()),
        max_keys: 1,
        is_truncated: true,
        encoding_type_url: false,
        objects: listing("k", false).objects,
        common_prefixes: vec![],
    };
    let elements = read(&v1.to_bytes());
    assert_eq!((text(&elements, "Marker"), text(&elements, "NextMarker")), (vec!["m&m"], vec!["n"]));
    assert!(text(&elements, "KeyCount").is_empty() && text(&elements, "EncodingType").is_empty());
}

#[test]
fn buckets_and_their_settings() {
    let buckets = vec![BucketEntry { name: "one".into(), created: at(), region: Some("us-east-1".into()) }];
    let list = ListAllMyBucketsResult { owner: owner(), buckets, prefix: None, continuation_token: None };
    let elements = read(&list.to_bytes());
    assert_eq!(text(&elements, "Name"), ["one"]);
    assert_eq!(text(&elements, "CreationDate"), ["2009-10-12T17:50:30.000Z"]);
    let location = |region: &str| read(&LocationConstraint { region: region.into() }.to_bytes())[0].1.clone();
    assert_eq!((location("us-east-1").as_str(), location("eu-west-1").as_str()), ("", "eu-west-1"));
    let versioning = |state: VersioningConfiguration| read(&state.to_bytes())[0].clone();
    assert_eq!(versioning(VersioningConfiguration::Unversioned), ("VersioningConfiguration".into(), String::new()));
    assert_eq!(versioning(VersioningConfiguration::Suspended), ("Status".into(), "Suspended".into()));
    assert_eq!(versioning(VersioningConfiguration::Enabled), ("Status".into(), "Enabled".into()));
}

#[test]
fn uploads_and_parts() {
    let checksum = Checksum::full(ChecksumAlgorithm::Sha1, &[0; 20]);
    let initiated = InitiateMultipartUploadResult { bucket: "b".into(), key: "k<".into(), upload_id: "u".into() };
    assert_eq!(text(&read(&initiated.to_bytes()), "Key"), ["k<"]);
    let parts = ListPartsResult {
        bucket: "b".into(),
        key: "k y".into(),
        upload_id: "u".into(),
        initiator: owner(),
        owner: owner(),
        storage_class: "STANDARD".into(),
        part_number_marker: 0,
        next_part_number_marker: Some(2),
        max_parts: 1000,
        is_truncated: false,
        encoding_type_url: true,
        checksum: Some((ChecksumAlgorithm::Sha1, ChecksumType::Composite)),
        parts: vec![PartEntry { number: 2, last_modified: at(), etag: ETag::from_wire("e"), size: 5, checksum }],
    };
    let elements = read(&parts.to_bytes());
    assert_eq!((text(&elements, "Key"), text(&elements, "PartNumber")), (vec!["k%20y"], vec!["2"]));
    assert_eq!(text(&elements, "ChecksumSHA1"), ["AAAAAAAAAAAAAAAAAAAAAAAAAAA="]);
    let uploads = ListMultipartUploadsResult {
        bucket: "b".into(),
        prefix: String::new(),
        delimiter: None,
        key_marker: String::new(),
        upload_id_marker: String::new(),
        next_key_marker: Some("k/1".into()),
        next_upload_id_marker: Some("u".into()),
        max_uploads: 1,
        is_truncated: true,
        encoding_type_url: false,
        uploads: vec![UploadEntry {
            key: "k".into(),
            upload_id: "u".into(),
            initiator: owner(),
            owner: owner(),
            storage_class: "STANDARD".into(),
            initiated: at(),
            checksum: None,
        }],
        common_prefixes: vec!["p/".into()],
    };
    let elements = read(&uploads.to_bytes());
    assert_eq!((text(&elements, "UploadId"), text(&elements, "NextKeyMarker")), (vec!["u"], vec!["k/1"]));
}

#[test]
fn a_completed_upload_can_follow_a_declaration_sent_before() {
    let completed = CompleteMultipartUploadResult {
        location: "/b/k".into(),
        bucket: "b".into(),
        key: "k".into(),
        etag: ETag::from_parts_md5([0; 16], 3),
        checksum: Checksum::composite(ChecksumAlgorithm::Crc32, &[0; 4], 3),
    };
    let kept_alive = [crate::xml::DECLARATION.as_bytes(), b"   \n", &completed.to_bytes_bare()].concat();
    let elements = read(&kept_alive);
    assert_eq!(text(&elements, "ETag"), ["\"00000000000000000000000000000000-3\""]);
    assert_eq!(text(&elements, "ChecksumCRC32"), ["AAAAAA==-3"]);
    assert_eq!(text(&elements, "ChecksumType"), ["COMPOSITE"]);
}

#[test]
fn copies_and_deletions() {
    let copy = |part| CopyResult { part, etag: ETag::from_wire("e"), last_modified: at(), checksum: None }.to_bytes();
    assert_eq!(read(&copy(false)).pop().unwrap().0, "CopyObjectResult");
    assert_eq!(read(&copy(true)).pop().unwrap().0, "CopyPartResult");
    let result = DeleteResult {
        deleted: vec![DeletedEntry {
            key: "a".into(),
            delete_marker_version_id: Some("m".into()),
            ..Default::default()
        }],
        errors: vec![DeleteFailure { key: "b".into(), version_id: None, error: S3Error::new(ErrorCode::AccessDenied) }],
    };
    let elements = read(&result.to_bytes());
    assert_eq!(text(&elements, "Key"), ["a", "b"]);
    assert_eq!(text(&elements, "DeleteMarkerVersionId"), ["m"]);
    assert_eq!(text(&elements, "Code"), ["AccessDenied"]);
}

#[test]
fn versions_and_markers_are_written_in_one_order() {
    let entry = ObjectEntry {
        key: "a b".into(),
        last_modified: at(),
        etag: ETag::from_wire("e"),
        size: 7,
        storage_class: "STANDARD".into(),
        owner: Some(owner()),
        checksum: None,
    };
    let marker = VersionOrMarker::Marker { key: "a b".into(), last_modified: at(), owner: owner() };
    let result = ListVersionsResult {
        bucket: "b".into(),
        prefix: String::new(),
        delimiter: Some("/".into()),
        key_marker: "a".into(),
        version_id_marker: "null".into(),
        next_key_marker: Some("a b".into()),
        next_version_id_marker: Some("v1".into()),
        max_keys: 2,
        is_truncated: true,
        encoding_type_url: true,
        versions: vec![
            ListedVersion { version_id: "v2".into(), is_latest: true, what: marker },
            ListedVersion { version_id: "v1".into(), is_latest: false, what: VersionOrMarker::Version(entry) },
        ],
        common_prefixes: vec!["p/".into()],
    };
    let elements = read(&result.to_bytes());
    assert_eq!(text(&elements, "Key"), ["a%20b", "a%20b"]);
    assert_eq!(text(&elements, "VersionId"), ["v2", "v1"]);
    assert_eq!(text(&elements, "IsLatest"), ["true", "false"]);
    assert_eq!((text(&elements, "Size"), text(&elements, "ETag")), (vec!["7"], vec!["\"e\""]));
    assert_eq!((text(&elements, "NextKeyMarker"), text(&elements, "NextVersionIdMarker")), (vec!["a%20b"], vec!["v1"]));
    assert_eq!(text(&elements, "DisplayName").len(), 2, "both have an owner");
}

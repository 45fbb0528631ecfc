//! Every typed header over arbitrary values.

#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use s3_wire::{
    checksum::Claims,
    headers::{
        ByteRange, ChecksumRequest, ContentHeaders, CopyConditions, CopySource, CopySourceRange, ReadConditions,
        UserMetadata, WriteConditions, refuse_unsupported,
    },
    sigv4::PayloadMode,
};

fuzz_target!(|pairs: Vec<(u8, &[u8])>| {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(NAMES[usize::from(name) % NAMES.len()]), value);
        }
    }
    if let Some(Ok(range)) = ByteRange::from_headers(&headers).map(|range| range.resolve(1 << 40)) {
        assert!(range.start < range.end && range.end <= 1 << 40);
    }
    let _ = ReadConditions::from_headers(&headers);
    let _ = WriteConditions::from_headers(&headers);
    let _ = CopyConditions::from_headers(&headers);
    let _ = CopySource::from_headers(&headers);
    let _ = CopySourceRange::from_headers(&headers);
    let _ = Claims::from_headers(&headers, &PayloadMode::Unsigned);
    let _ = ChecksumRequest::of_create(&headers);
    let _ = ChecksumRequest::of_complete(&headers);
    let _ = refuse_unsupported(&headers);
    let mut response = HeaderMap::new();
    if let Ok(metadata) = UserMetadata::from_headers(&headers) {
        metadata.write(&mut response);
        assert!(!response.contains_key("x-amz-missing-meta"), "what was read can be written");
    }
    if let Ok(content) = ContentHeaders::from_headers(&headers) {
        content.write(&mut response);
    }
});

const NAMES: [&str; 14] = [
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "x-amz-copy-source",
    "x-amz-copy-source-range",
    "x-amz-copy-source-if-match",
    "x-amz-checksum-crc32",
    "x-amz-checksum-algorithm",
    "content-md5",
    "x-amz-meta-a",
    "x-amz-meta-b",
    "content-encoding",
    "x-amz-acl",
];

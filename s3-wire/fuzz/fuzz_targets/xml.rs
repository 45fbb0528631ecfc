//! Request documents: whatever is accepted keeps every bound.

#![no_main]

use libfuzzer_sys::fuzz_target;
use s3_wire::xml::request::{
    CompleteMultipartUpload, CreateBucketConfiguration, DELETE_OBJECTS_MAX, Delete, PARTS_MAX,
};

fuzz_target!(|document: &[u8]| {
    if let Ok(delete) = Delete::parse(document) {
        assert!((1..=DELETE_OBJECTS_MAX).contains(&delete.objects.len()));
    }
    if let Ok(complete) = CompleteMultipartUpload::parse(document) {
        assert!((1..=PARTS_MAX).contains(&complete.parts.len()));
        assert!(complete.parts.is_sorted_by(|a, b| a.number < b.number));
    }
    let _ = CreateBucketConfiguration::parse(document);
});

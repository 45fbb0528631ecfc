//! A target, an `Authorization` and a payload mode, one per line: parsed, routed and refused.
//! Nothing forged is ever authenticated.

#![no_main]

use http::{HeaderValue, Method, Request};
use libfuzzer_sys::fuzz_target;
use s3_wire::{
    Domains, Target, headers, route,
    sigv4::{Identity, SecretKey, Verifier},
};
use std::time::{Duration, UNIX_EPOCH};

fuzz_target!(|input: (u8, u8, u8, &str)| {
    let (method, host, prefix, text) = input;
    let mut fields = text.splitn(3, '\n');
    let (rest, authorization, payload) =
        (fields.next().unwrap_or_default(), fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let uri = ["", "/bucket/key?", "/bucket?"][usize::from(prefix) % 3].to_owned() + rest;
    let Ok(uri) = uri.parse::<http::Uri>() else { return };
    let mut parts = Request::new(()).into_parts().0;
    parts.uri = uri;
    parts.method = [Method::GET, Method::PUT, Method::POST, Method::DELETE][usize::from(method) % 4].clone();
    let host = ["localhost", "bucket.s3.test", "s3.test:9000"][usize::from(host) % 3];
    parts.headers.insert("host", HeaderValue::from_static(host));
    parts.headers.insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
    for (name, value) in [("authorization", authorization), ("x-amz-content-sha256", payload)] {
        if let Some(value) = HeaderValue::from_str(value).ok().filter(|value| !value.is_empty()) {
            parts.headers.insert(name, value);
        }
    }
    let Ok(target) = Target::parse(&parts, &Domains::new(["s3.test"])) else { return };
    if let Ok(effective) = headers::effective(&target.query, &parts.headers) {
        let _ = route(&parts.method, &target, &effective);
    }
    let now = UNIX_EPOCH + Duration::from_secs(1_369_353_600);
    let secrets = |_: &str| Some(SecretKey::new("a secret the fuzzer does not know"));
    let identity = Verifier::new("us-east-1").authenticate(&parts.method, &target, &parts.headers, now, &secrets);
    assert!(!matches!(identity, Ok(Identity::Authenticated(_))), "a forged signature");
});

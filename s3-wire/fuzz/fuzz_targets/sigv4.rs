//! A request line, a `Host`, an `Authorization` and a payload mode: parsed, routed and refused. Nothing forged is ever authenticated.

#![no_main]

use http::{HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use s3_wire::{
    Domains, Target, headers, route,
    sigv4::{Identity, SecretKey, Verifier},
};
use std::time::{Duration, UNIX_EPOCH};

fuzz_target!(|input: (&str, &[u8], &[u8], &[u8], bool)| {
    let (uri, authorization, host, payload, prefixed) = input;
    let Ok(uri) = uri.parse::<http::Uri>() else { return };
    let mut parts = Request::new(()).into_parts().0;
    parts.uri = uri;
    let authorization = if prefixed { [b"AWS4-HMAC-SHA256 ", authorization].concat() } else { authorization.to_vec() };
    for (name, value) in [
        ("authorization", authorization.as_slice()),
        ("host", host),
        ("x-amz-content-sha256", payload),
        ("x-amz-date", b"20130524T000000Z"),
    ] {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            if name != "authorization" || !value.is_empty() {
                parts.headers.insert(name, value);
            }
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

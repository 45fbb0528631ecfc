//! Every error as a client gets it.

use http::Method;
use s3_wire::{
    ErrorCode, S3Error,
    response::{self, RequestIds},
};
use std::fmt::Write as _;

#[test]
fn every_error_is_sent_as_recorded() {
    let ids = RequestIds::new(0x0123_4567_89ab_cdef, "host");
    let mut sent = String::new();
    for code in ErrorCode::ALL {
        let answer = response::error(S3Error::new(*code), &Method::GET, "/bucket/key", &ids);
        let status = answer.status();
        let mut headers: Vec<_> =
            answer.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?"))).collect();
        headers.sort();
        let body = String::from_utf8_lossy(answer.body());
        writeln!(sent, "{status}\n{}\n{body}\n", headers.join("\n")).expect("a string takes it");
    }
    insta::assert_snapshot!(sent);
}

//! The canonical request: one text for one meaning, over the target and headers as they were sent.
//!
//! Source: "Create a signed AWS API request" (IAM User Guide) with S3's exceptions: the path is
//! encoded once and not normalised.

use crate::address::{Target, percent};
use crypto::{Digest, Sha256};
use http::{HeaderMap, Method, header};

/// The canonical request. `signed_headers` are in order; the payload line is what the client said
/// it signed.
///
/// The path is that of [`Target`]: decoded once and encoded again, so that the signature covers the
/// very key that is authorized and stored, whatever way it was escaped (C25).
pub(super) fn canonical_request(
    method: &Method,
    target: &Target,
    headers: &HeaderMap,
    signed_headers: &str,
    signature_parameter: Option<&str>,
    payload: &str,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    for line in [method.as_str(), &percent::encode_path(&target.path), &target.query.canonical(signature_parameter)] {
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    for name in signed_headers.split(';') {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        if name == header::HOST.as_str() {
            out.extend_from_slice(target.host.as_bytes());
        } else {
            for (i, value) in headers.get_all(name).iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                collapse_spaces(value.as_bytes(), &mut out);
            }
        }
        out.push(b'\n');
    }
    out.push(b'\n');
    out.extend_from_slice(signed_headers.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(payload.as_bytes());
    out
}

/// The string to sign for a canonical request.
pub(super) fn string_to_sign(timestamp: &str, scope: &str, canonical_request: &[u8]) -> String {
    format!("AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{}", hex::encode(Sha256::digest(canonical_request)))
}

/// Trims a value and makes one space of every run.
fn collapse_spaces(value: &[u8], out: &mut Vec<u8>) {
    let words = value.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty());
    for (i, word) in words.enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_trimmed_and_runs_of_spaces_become_one() {
        let mut out = Vec::new();
        collapse_spaces(b"  a  \t b c ", &mut out);
        assert_eq!(out, b"a b c");
    }
}

//! Percent-encoding: decoded strictly and exactly once, encoded as SigV4 and `encoding-type=url`
//! want it.

use crate::error::{ErrorCode, Result, S3Error};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::borrow::Cow;

/// What stays as it is besides letters and digits: the unreserved characters of RFC 3986.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// As above, and the slash: for paths and keys.
const UNRESERVED_AND_SLASH: &AsciiSet = &UNRESERVED.remove(b'/');

/// Decodes every escape once, and `+` to a space. S3 reads `+` so in paths and headers as well as
/// in query strings; SDKs therefore send a plus as `%2B` and a space as `%20` or `+`
/// (docs/reference/s3-api.md, "Addressing").
///
/// # Errors
/// `InvalidURI` for `%` without two hex digits and for bytes that are not UTF-8.
pub(crate) fn decode(raw: &str) -> Result<String> {
    if !raw.bytes().any(|b| matches!(b, b'%' | b'+')) {
        return Ok(raw.to_owned());
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let (high, low) = (bytes.next().and_then(hex_digit), bytes.next().and_then(hex_digit));
                match (high, low) {
                    (Some(high), Some(low)) => high << 4 | low,
                    _ => return Err(S3Error::new(ErrorCode::InvalidURI)),
                }
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(out).map_err(|_| S3Error::new(ErrorCode::InvalidURI))
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

/// Encodes everything but unreserved characters.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, UNRESERVED).into()
}

/// Encodes everything but unreserved characters and `/`.
pub(crate) fn encode_path(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, UNRESERVED_AND_SLASH).into()
}

#[cfg(test)]
mod tests {
    use super::{super::vectors, *};
    use proptest::prelude::*;

    #[test]
    fn decoding_happens_exactly_once() {
        // C25
        for (raw, key) in vectors::encoded_keys() {
            assert_eq!(decode(raw).unwrap(), key, "{raw}");
        }
    }

    #[test]
    fn broken_escapes_and_invalid_utf8_are_refused() {
        for raw in ["%", "%4", "%zz", "%+1", "a%2", "%ff", "%c0%af", "%ed%a0%80"] {
            assert_eq!(decode(raw).unwrap_err().code(), ErrorCode::InvalidURI, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn encoding_is_undone_by_decoding(text in any::<String>()) {
            prop_assert_eq!(decode(&encode(&text)).unwrap(), text.clone());
            prop_assert_eq!(decode(&encode_path(&text)).unwrap(), text);
        }

        #[test]
        fn decoding_never_panics(raw in any::<String>()) {
            let _ = decode(&raw);
        }
    }
}

//! RFC 2047 encoded words, as S3 uses them for text that a header cannot carry.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::borrow::Cow;

/// Bytes of text in one word, so that it stays within the 75 characters RFC 2047 allows.
const WORD_BYTES: usize = 45;

/// Decodes the encoded words in a value. What is not a well-formed word of UTF-8, ISO-8859-1 or
/// ASCII stays as it is. White space between two words belongs to neither.
pub(super) fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_word = false;
    while let Some(at) = rest.find("=?") {
        let (before, word) = rest.split_at(at);
        match parse_word(word) {
            Some((decoded, after)) => {
                if !(after_word && before.chars().all(|c| c == ' ' || c == '\t')) {
                    out.push_str(before);
                }
                out.push_str(&decoded);
                rest = after;
                after_word = true;
            }
            None => {
                out.push_str(before);
                out.push_str("=?");
                rest = &word[2..];
                after_word = false;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The text of the word at the start of `text`, and what follows.
fn parse_word(text: &str) -> Option<(String, &str)> {
    let (charset, text) = text.strip_prefix("=?")?.split_once('?')?;
    let (encoding, text) = text.split_once('?')?;
    let (encoded, after) = text.split_once("?=")?;
    let bytes = match encoding {
        "B" | "b" => BASE64_STANDARD.decode(encoded).ok()?,
        "Q" | "q" => decode_q(encoded)?,
        _ => return None,
    };
    let decoded = match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => String::from_utf8(bytes).ok()?,
        "iso-8859-1" => bytes.into_iter().map(char::from).collect(),
        _ => return None,
    };
    Some((decoded, after))
}

fn decode_q(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'_' => b' ',
            b'=' => {
                let digits = [bytes.next()?, bytes.next()?];
                let mut decoded = [0];
                hex::decode_to_slice(digits, &mut decoded).ok()?;
                decoded[0]
            }
            b' ' | b'?' => return None,
            byte => byte,
        });
    }
    Some(out)
}

/// Encodes a value unless it is printable ASCII already.
pub(super) fn encode(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(WORD_BYTES));
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str("=?UTF-8?B?");
        BASE64_STANDARD.encode_string(piece, &mut out);
        out.push_str("?=");
        rest = after;
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_decoded_and_everything_else_stays() {
        for (text, expected) in [
            ("plain", "plain"),
            ("=?UTF-8?Q?a=20b_c?=", "a b c"),
            ("x =?iso-8859-1?q?=e9?= y", "x é y"),
            ("=?utf-8?b?w6k=?=  =?utf-8?b?w6k=?=", "éé"),
            ("=?utf-8?b?w6k=?= a =?utf-8?b?w6k=?=", "é a é"),
            ("=?utf-8?b?w6k?=", "=?utf-8?b?w6k?="),
            ("=?utf-8?x?a?=", "=?utf-8?x?a?="),
            ("=?koi8-r?q?a?=", "=?koi8-r?q?a?="),
            ("=?utf-8?q?=ff?=", "=?utf-8?q?=ff?="),
            ("=?=?utf-8?q?a?=", "=?a"),
            ("=?", "=?"),
        ] {
            assert_eq!(decode(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn encoded_text_is_printable_and_decodes_to_itself(text in any::<String>()) {
            let encoded = encode(&text);
            prop_assert!(encoded.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
            if !text.contains("=?") {
                prop_assert_eq!(decode(&encoded), text);
            }
        }
    }
}

//! Continuation tokens: opaque to clients, a place in the order of keys to us. They hold nothing
//! but a key the client has seen, and the listing they go on with still has its own prefix and
//! permission, so they need no seal.

use super::request::Result;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use s3_wire::{ErrorCode, S3Error};

/// First byte of every token, so that a later form can be told apart.
const VERSION: u8 = 1;

/// Makes a token of the key (or common prefix) a page ended with.
pub(super) fn encode(after: &str) -> String {
    URL_SAFE_NO_PAD.encode([&[VERSION], after.as_bytes()].concat())
}

/// Reads it again.
pub(super) fn decode(token: &str) -> Result<String> {
    let wrong = || S3Error::with_message(ErrorCode::InvalidArgument, "The continuation token provided is incorrect");
    let wrong = || wrong().field("ArgumentName", "continuation-token");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
    match bytes.split_first() {
        Some((&VERSION, after)) if !after.is_empty() => String::from_utf8(after.to_vec()).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_token_is_refused() {
        for token in ["", "AQ", "!!!!", "YWJj", "AX8=", "Af8"] {
            assert_eq!(decode(token).unwrap_err().code(), ErrorCode::InvalidArgument, "{token}");
        }
    }

    proptest! {
        #[test]
        fn a_token_gives_its_place_back(after in ".{1,40}", token in any::<String>()) {
            prop_assert_eq!(decode(&encode(&after)).unwrap(), after);
            let _ = decode(&token);
        }
    }
}

//! Headers that may be given once.

use crate::error::{Result, S3Error};
use http::HeaderMap;

/// The value of a header that may be given once only, as text without surrounding white space.
///
/// # Errors
/// `InvalidArgument` when it is given twice, since two parsers might pick different ones (C17), or
/// is not UTF-8.
pub fn single<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<Option<&'h str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(S3Error::invalid_argument(name, "", "The header is given more than once."));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.trim_matches([' ', '\t']))),
        Err(_) => Err(S3Error::invalid_argument(name, "", "The header is not UTF-8.")),
    }
}

/// An unsigned decimal number: digits only, no sign, no white space (C64).
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

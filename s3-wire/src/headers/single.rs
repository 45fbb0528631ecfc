//! Headers that may be given once.

use crate::error::{Result, S3Error};
use http::{HeaderMap, HeaderValue};

/// The values that are given for a header, whose name is in lower case. Requests have a dozen
/// headers: comparing their names costs less than looking up one that is made of text first.
pub(crate) fn given<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h HeaderValue> {
    debug_assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name}");
    headers.iter().filter(move |(given, _)| given.as_str() == name).map(|(_, value)| value)
}

/// Whether a header is given, whose name is in lower case.
pub fn is_given(headers: &HeaderMap, name: &str) -> bool {
    given(headers, name).next().is_some()
}

/// The value of a header that may be given once only, as text without surrounding white space.
///
/// # Errors
/// `InvalidArgument` when it is given twice, since two parsers might pick different ones (C17), or
/// is not UTF-8.
pub fn single<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<Option<&'h str>> {
    let mut values = given(headers, name);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(S3Error::invalid_argument(name, "", "The header is given more than once."));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.trim_matches([' ', '\t']))),
        Err(_) => Err(S3Error::invalid_argument(name, "", "The header is not UTF-8.")),
    }
}

/// A header that is `true` or `false`, in any case of letters; `None` where it is not given.
///
/// # Errors
/// `InvalidArgument` for anything else.
pub(crate) fn flag(headers: &HeaderMap, name: &'static str) -> Result<Option<bool>> {
    match single(headers, name)? {
        None => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Some(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
        Some(other) => Err(S3Error::invalid_argument(name, other, "The header must be true or false.")),
    }
}

/// An unsigned decimal number: digits only, no sign, no white space (C64).
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

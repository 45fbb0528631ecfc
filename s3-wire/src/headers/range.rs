//! `Range`.

use crate::error::{ErrorCode, Result, S3Error};
use http::{HeaderMap, header};
use std::{fmt, ops::Range};

/// One range of bytes as asked for, before the size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `bytes=first-last`, both included.
    FromTo(u64, u64),
    /// `bytes=first-`
    From(u64),
    /// `bytes=-len`
    Suffix(u64),
}

impl ByteRange {
    /// Reads `Range`. `None` when there is none, or one that RFC 9110 §14.2 tells a server to
    /// ignore: another unit, not well-formed (spaces are not), or several ranges (S3 answers those
    /// with the whole object). Numbers past 2^64 count as 2^64 − 1.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(header::RANGE).iter();
        let value = values.next()?.to_str().ok()?;
        if values.next().is_some() {
            return None;
        }
        let (unit, range) = value.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.split_once('-')?;
        match (first, last) {
            ("", last) => number(last).map(Self::Suffix),
            (first, "") => number(first).map(Self::From),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::FromTo(first, last))
            }
        }
    }

    /// Whether the range asks for the end of an object that has no bytes: it is satisfiable, and
    /// means the whole, which no `Content-Range` can say.
    pub fn is_all_of_nothing(self, size: u64) -> bool {
        size == 0 && matches!(self, Self::Suffix(1..))
    }

    /// The bytes meant in an object of `size` bytes, end exclusive, not empty.
    ///
    /// # Errors
    /// `InvalidRange` with `RangeRequested` and `ActualObjectSize`.
    pub fn resolve(self, size: u64) -> Result<Range<u64>> {
        let range = match self {
            Self::FromTo(first, last) => first..last.saturating_add(1).min(size),
            Self::From(first) => first..size,
            Self::Suffix(len) => size.saturating_sub(len)..size,
        };
        if range.start < range.end {
            Ok(range)
        } else {
            Err(S3Error::new(ErrorCode::InvalidRange)
                .field("RangeRequested", self.to_string())
                .field("ActualObjectSize", size.to_string()))
        }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FromTo(first, last) => write!(f, "bytes={first}-{last}"),
            Self::From(first) => write!(f, "bytes={first}-"),
            Self::Suffix(len) => write!(f, "bytes=-{len}"),
        }
    }
}

/// The value of `Content-Range` for a range that is not empty: `bytes first-last/size`.
pub fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1))
}

/// Digits only; saturating, because a huge number is still a number.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn parse(text: &str) -> Option<ByteRange> {
        let mut headers = HeaderMap::new();
        headers.insert("range", HeaderValue::from_str(text).unwrap());
        ByteRange::from_headers(&headers)
    }

    #[test]
    fn ranges_come_to_the_bytes_s3_documents() {
        // C76
        for (text, size, expected) in [
            ("bytes=0-9", 100, Some(0..10)),
            ("bytes=0-0", 1, Some(0..1)),
            ("bytes=90-1000", 100, Some(90..100)),
            ("bytes=99-", 100, Some(99..100)),
            ("bytes=100-", 100, None),
            ("bytes=100-200", 100, None),
            ("bytes=-1", 100, Some(99..100)),
            ("bytes=-1000", 100, Some(0..100)),
            ("bytes=-0", 100, None),
            ("bytes=0-", 0, None),
            ("bytes=-5", 0, None),
            ("BYTES=1-2", 100, Some(1..3)),
            ("bytes=0-18446744073709551615", 100, Some(0..100)),
            ("bytes=0-99999999999999999999999", u64::MAX, Some(0..u64::MAX)),
            ("bytes=99999999999999999999999-", 100, None),
        ] {
            let range = parse(text).unwrap();
            match (range.resolve(size), expected) {
                (Ok(range), Some(expected)) => assert_eq!(range, expected, "{text}"),
                (Err(error), None) => {
                    assert_eq!(error.code(), ErrorCode::InvalidRange, "{text}");
                    assert_eq!(error.get_field("ActualObjectSize"), Some(size.to_string().as_str()));
                }
                (got, expected) => panic!("{text}: {got:?}, not {expected:?}"),
            }
        }
        assert_eq!(content_range(&(90..100), 100), "bytes 90-99/100");
    }

    #[test]
    fn what_is_no_single_byte_range_is_ignored() {
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=+1-2",
            "bytes=0x1-2",
            "bytes=1 2-3",
            "bytes= -1",
            "bytes=0 -1",
            "bytes=0- 1",
            "bytes=--1",
            "bytes=0--1",
            "bytes=,",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        let mut headers = HeaderMap::new();
        headers.append("range", HeaderValue::from_static("bytes=0-1"));
        headers.append("range", HeaderValue::from_static("bytes=2-3"));
        assert_eq!(ByteRange::from_headers(&headers), None);
    }

    proptest! {
        #[test]
        fn a_resolved_range_is_never_empty_and_lies_inside(text in "bytes=[0-9]{0,22}-[0-9]{0,22}", size: u64) {
            if let Some(Ok(range)) = parse(&text).map(|range| range.resolve(size)) {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }

        #[test]
        fn reading_never_panics(text in "[ -~]{0,40}") {
            let _ = parse(&text);
        }
    }
}

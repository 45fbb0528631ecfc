//! The three ways S3 writes a moment: ISO 8601 with milliseconds in documents, IMF-fixdate in headers, and the compact
//! form of SigV4.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::{Date, Month, OffsetDateTime, Time};

/// `2009-10-12T17:50:30.000Z`, as documents write it. Moments outside the years 0–9999 are clamped to the epoch.
pub fn iso8601(at: SystemTime) -> String {
    let at = utc(at);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.millisecond()
    )
}

/// `Mon, 12 Oct 2009 17:50:30 GMT`, as headers write it (whole seconds).
pub fn http_date(at: SystemTime) -> String {
    httpdate::fmt_http_date(clamp(at))
}

/// Reads an HTTP date in any of the three forms of RFC 9110 §5.6.7; `None` when it is not one.
pub fn parse_http_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

/// Reads `20091012T175030Z`; `None` when it is anything else.
pub fn parse_compact(text: &str) -> Option<SystemTime> {
    let b = text.as_bytes();
    if b.len() != 16 || b[8] != b'T' || b[15] != b'Z' {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<u16> {
        let digits = &b[from..to];
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0')))
    };
    let small = |from: usize| number(from, from + 2).and_then(|n| u8::try_from(n).ok());
    let month = Month::try_from(small(4)?).ok()?;
    let date = Date::from_calendar_date(i32::from(number(0, 4)?), month, small(6)?).ok()?;
    let time = Time::from_hms(small(9)?, small(11)?, small(13)?).ok()?;
    let seconds = date.with_time(time).assume_utc().unix_timestamp();
    u64::try_from(seconds).ok().map(|s| UNIX_EPOCH + Duration::from_secs(s))
}

/// `20091012T175030Z`, as SigV4 writes it.
pub fn compact(at: SystemTime) -> String {
    let at = utc(at);
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

/// The last second of the year 9999: beyond it none of the three forms exists.
const SECONDS_MAX: u64 = 253_402_300_799;

fn clamp(at: SystemTime) -> SystemTime {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) if since.as_secs() <= SECONDS_MAX => at,
        _ => UNIX_EPOCH,
    }
}

fn utc(at: SystemTime) -> OffsetDateTime {
    OffsetDateTime::from(clamp(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn one_moment_in_three_forms() {
        let moment = at(1_255_369_830) + Duration::from_millis(123);
        assert_eq!(iso8601(moment), "2009-10-12T17:50:30.123Z");
        assert_eq!(http_date(moment), "Mon, 12 Oct 2009 17:50:30 GMT");
        assert_eq!(compact(moment), "20091012T175030Z");
        assert_eq!(parse_compact("20091012T175030Z"), Some(at(1_255_369_830)));
        assert_eq!(parse_http_date("Mon, 12 Oct 2009 17:50:30 GMT"), Some(at(1_255_369_830)));
    }

    #[test]
    fn moments_that_do_not_exist_are_refused() {
        // C79
        for text in [
            "",
            "20130229T000000Z",
            "20131301T000000Z",
            "20130001T000000Z",
            "20130101T240000Z",
            "20130101T006000Z",
            "20130101T000060Z",
            "20130101T000000",
            "20130101T000000z",
            "20130101 000000Z",
            "2013-01-01T00:00Z",
            "+0130101T000000Z",
            "99999999T999999Z",
            "19691231T235959Z",
        ] {
            assert_eq!(parse_compact(text), None, "{text}");
        }
        assert_eq!(parse_http_date("Mon, 12 Oct 0000 17:50:30 GMT (a (nested) comment)"), None);
    }

    #[test]
    fn moments_out_of_range_do_not_panic() {
        assert_eq!(compact(at(SECONDS_MAX)), "99991231T235959Z");
        assert_eq!(compact(at(SECONDS_MAX + 1)), "19700101T000000Z");
        assert_eq!(http_date(UNIX_EPOCH - Duration::from_secs(1)), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    proptest! {
        #[test]
        fn the_compact_form_is_read_back(seconds in 0..=SECONDS_MAX) {
            prop_assert_eq!(parse_compact(&compact(at(seconds))), Some(at(seconds)));
        }

        #[test]
        fn reading_never_panics(text in "\\PC{0,40}") {
            let _ = parse_compact(&text);
            let _ = parse_http_date(&text);
        }
    }
}

//! The three ways S3 writes a moment: ISO 8601 with milliseconds in documents, IMF-fixdate in
//! headers, and the compact form of SigV4.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::{Date, Month, OffsetDateTime, Time};

/// `2009-10-12T17:50:30.000Z`, as documents write it. Moments outside the years 0–9999 are clamped
/// to the epoch.
pub fn iso8601(at: SystemTime) -> String {
    let at = utc(at);
    written(&[
        (at.year().unsigned_abs(), 4, "-"),
        (u8::from(at.month()).into(), 2, "-"),
        (at.day().into(), 2, "T"),
        (at.hour().into(), 2, ":"),
        (at.minute().into(), 2, ":"),
        (at.second().into(), 2, "."),
        (at.millisecond().into(), 3, "Z"),
    ])
}

/// `Mon, 12 Oct 2009 17:50:30 GMT`, as headers write it (whole seconds).
pub fn http_date(at: SystemTime) -> String {
    httpdate::fmt_http_date(clamp(at))
}

/// Reads an HTTP date in any of the three forms of RFC 9110 §5.6.7; `None` when it is not one.
pub fn parse_http_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

/// Reads a date as mails write it: `Tue, 27 Mar 2007 19:36:42 +0000`, with `GMT`, `UTC` or another
/// offset, with or without the day of the week, which is not looked at. `None` when it is anything
/// else, or before 1970.
pub fn parse_mail_date(text: &str) -> Option<SystemTime> {
    let text = text.split_once(',').map_or(text, |(_, date)| date);
    let mut words = text.split_ascii_whitespace();
    let day = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let month = Month::try_from(u8::try_from(month + 1).ok()?).ok()?;
    let date = Date::from_calendar_date(words.next()?.parse().ok()?, month, day).ok()?;
    let mut clock = words.next()?.split(':').map(|number| number.parse().ok());
    let time = Time::from_hms(clock.next()??, clock.next()??, clock.next()??).ok()?;
    let offset_s = match words.next()? {
        "GMT" | "UTC" | "Z" => 0,
        zone => {
            let (sign, digits) = (zone.get(..1)?, zone.get(1..)?.parse::<u16>().ok().filter(|_| zone.len() == 5)?);
            let seconds = i64::from(digits / 100) * 3600 + i64::from(digits % 100) * 60;
            match sign {
                "+" => seconds,
                "-" => -seconds,
                _ => return None,
            }
        }
    };
    if clock.next().is_some() || words.next().is_some() {
        return None;
    }
    let seconds = date.with_time(time).assume_utc().unix_timestamp() - offset_s;
    u64::try_from(seconds).ok().filter(|seconds| *seconds <= SECONDS_MAX).map(|s| UNIX_EPOCH + Duration::from_secs(s))
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Reads an ISO 8601 moment as documents and headers bring it: a date, with a time of day to the
/// second or finer, with `Z`, an offset or nothing, which means UTC. A date alone is its midnight.
/// `None` when it is anything else, or before 1970.
pub fn parse_iso8601(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let number = |text: &str, width: usize| -> Option<u32> {
        (text.len() == width && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
    };
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let month = Month::try_from(u8::try_from(number(month, 2)?).ok()?).ok()?;
    let year = i32::try_from(number(year, 4)?).ok()?;
    let date = Date::from_calendar_date(year, month, u8::try_from(number(day, 2)?).ok()?).ok()?;
    let small = |text: &str| number(text, 2).and_then(|n| u8::try_from(n).ok());
    let (time, offset_s) = match rest.strip_prefix('T').or_else(|| rest.strip_prefix(' ')) {
        None if rest.is_empty() => (Time::MIDNIGHT, 0),
        None => return None,
        Some(rest) => {
            let at = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
            let (clock, zone) = rest.split_at(at);
            let offset_s = match zone {
                "" | "Z" | "z" => 0,
                zone => {
                    let (hours, minutes) = zone[1..].split_once(':').or_else(|| zone[1..].split_at_checked(2))?;
                    let minutes = if minutes.is_empty() { 0 } else { small(minutes)? };
                    let seconds = i64::from(small(hours)?) * 3600 + i64::from(minutes) * 60;
                    if zone.starts_with('-') { -seconds } else { seconds }
                }
            };
            let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
            let mut parts = clock.split(':');
            let (hour, minute, second) = (small(parts.next()?)?, small(parts.next()?)?, small(parts.next()?)?);
            let digits = !fraction.is_empty() && fraction.len() <= 9 && fraction.bytes().all(|b| b.is_ascii_digit());
            if !digits || parts.next().is_some() {
                return None;
            }
            let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
            (Time::from_hms_nano(hour, minute, second, nanos).ok()?, offset_s)
        }
    };
    let at = date.with_time(time).assume_utc();
    let seconds = u64::try_from(at.unix_timestamp() - offset_s).ok().filter(|seconds| *seconds <= SECONDS_MAX)?;
    Some(UNIX_EPOCH + Duration::new(seconds, at.nanosecond()))
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
    written(&[
        (at.year().unsigned_abs(), 4, ""),
        (u8::from(at.month()).into(), 2, ""),
        (at.day().into(), 2, "T"),
        (at.hour().into(), 2, ""),
        (at.minute().into(), 2, ""),
        (at.second().into(), 2, "Z"),
    ])
}

/// Numbers of so many digits, each with what follows it. A listing writes a thousand dates: digit
/// by digit they take a tenth of what `format!` takes.
fn written(fields: &[(u32, u32, &str)]) -> String {
    let mut text = String::with_capacity("2009-10-12T17:50:30.000Z".len());
    for (number, width, end) in fields {
        for place in (0..*width).rev() {
            text.extend(char::from_digit(number / 10_u32.pow(place) % 10, 10));
        }
        text.push_str(end);
    }
    text
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
        for mail in ["Mon, 12 Oct 2009 17:50:30 +0000", "12 oct 2009 19:50:30 +0200", "Tue, 12 Oct 2009 17:50:30 GMT"] {
            assert_eq!(parse_mail_date(mail), Some(at(1_255_369_830)), "{mail}");
        }
        for none in
            ["", "Bad Date", "Tue, 07 Jul 1950 21:53:04 GMT", "12 Oct 2009 17:50 GMT", "12 Oct 2009 17:50:30 +é0"]
        {
            assert_eq!(parse_mail_date(none), None, "{none}");
        }
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
        fn iso_8601_is_what_a_formatter_writes(seconds in 0..=SECONDS_MAX, milliseconds in 0..1000_u64) {
            let moment = at(seconds) + Duration::from_millis(milliseconds);
            let (written, parts) = (iso8601(moment), OffsetDateTime::from(moment));
            let date = format!("{:04}-{:02}-{:02}", parts.year(), u8::from(parts.month()), parts.day());
            let time = format!("{:02}:{:02}:{:02}.{milliseconds:03}", parts.hour(), parts.minute(), parts.second());
            prop_assert_eq!(&written, &format!("{date}T{time}Z"));
            prop_assert_eq!(parse_iso8601(&written), Some(moment));
        }

        #[test]
        fn reading_never_panics(text in "\\PC{0,40}") {
            let _ = parse_compact(&text);
            let _ = parse_http_date(&text);
        }
    }

    #[test]
    fn iso_8601_is_read_with_and_without_time_fraction_and_offset() {
        let at = UNIX_EPOCH + Duration::from_secs(1_255_369_830);
        for text in [
            "2009-10-12T17:50:30Z",
            "2009-10-12T17:50:30.000Z",
            "2009-10-12T17:50:30",
            "2009-10-12T19:50:30+02:00",
            "2009-10-12T12:20:30-0530",
            " 2009-10-12 17:50:30.0+00 ",
        ] {
            assert_eq!(parse_iso8601(text), Some(at), "{text}");
        }
        assert_eq!(parse_iso8601(&iso8601(at)), Some(at));
        assert_eq!(parse_iso8601("2009-10-12T17:50:30.25Z"), Some(at + Duration::from_millis(250)));
        assert_eq!(parse_iso8601("1970-01-02"), Some(UNIX_EPOCH + Duration::from_secs(86_400)));
        for text in ["", "2009", "2009-13-12", "2009-10-12T", "2009-10-12T17:50", "2009-10-12T17:50:30.Z", "20091012"] {
            assert_eq!(parse_iso8601(text), None, "{text}");
        }
        for text in ["2009-10-12T17:50:61Z", "1969-12-31T00:00:00Z", "2009-10-12x", "2009-10-1\u{e4}T", "+009-10-12"] {
            assert_eq!(parse_iso8601(text), None, "{text}");
        }
    }
}

//! Until when a certificate is good: the one field of X.509 that the TLS library does not tell.
//!
//! Source: RFC 5280, 4.1 (Certificate, Validity); ITU-T X.690, 8.1 (tag, length, value).

use crate::config::TlsFiles;
use std::{
    io::{Error, ErrorKind, Result},
    time::SystemTime,
};
use time::{PrimitiveDateTime, macros::format_description};
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject as _};

/// When the first of a chain's certificates ends; `None` when that cannot be read out of them.
///
/// # Errors
/// The file cannot be read or holds no certificate.
pub fn expiry(files: &TlsFiles) -> Result<Option<SystemTime>> {
    let invalid = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidInput, format!("{}: {error}", files.cert.display()))
    };
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| invalid(&error))?;
    if chain.is_empty() {
        return Err(invalid(&"there is no certificate in it"));
    }
    Ok(chain.iter().filter_map(|certificate| not_after(certificate)).min())
}

const SEQUENCE: u8 = 0x30;
/// `[0] EXPLICIT`, the version.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// One field: its tag and content, and what follows it.
struct Field<'d> {
    tag: u8,
    content: &'d [u8],
    rest: &'d [u8],
}

fn field(bytes: &[u8]) -> Option<Field<'_>> {
    let (tag, bytes) = bytes.split_first()?;
    let (first, bytes) = bytes.split_first()?;
    let (length, bytes) = match usize::from(*first) {
        short @ 0..0x80 => (short, bytes),
        long => {
            let (digits, bytes) = bytes.split_at_checked(long & 0x7f).filter(|(digits, _)| digits.len() <= 4)?;
            (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), bytes)
        }
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some(Field { tag: *tag, content, rest })
}

fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let outer = field(certificate).filter(|outer| outer.tag == SEQUENCE)?;
    let signed = field(outer.content).filter(|signed| signed.tag == SEQUENCE)?;
    let first = field(signed.content)?;
    let serial = if first.tag == VERSION { field(first.rest)? } else { first };
    let algorithm = field(serial.rest)?;
    let issuer = field(algorithm.rest)?;
    let validity = field(issuer.rest).filter(|validity| validity.tag == SEQUENCE)?;
    let begin = field(validity.content)?;
    let end = field(begin.rest)?;
    let text = std::str::from_utf8(end.content).ok()?;
    let whole = match end.tag {
        // Years of two digits are those from 1950 to 2049.
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let format = format_description!("[year][month][day][hour][minute][second]Z");
    PrimitiveDateTime::parse(&whole, format).ok().map(|end| end.assume_utc().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use s3_wire::timestamp::iso8601;

    fn sequence(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
        let content = parts.concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [vec![tag, 0x82, length[0], length[1]], content].concat()
    }

    fn certificate(version: bool, end: (u8, &str)) -> Vec<u8> {
        let time = |(tag, text): (u8, &str)| [vec![tag, u8::try_from(text.len()).unwrap()], text.into()].concat();
        let validity = sequence(SEQUENCE, &[time((UTC_TIME, "200101000000Z")), time(end)]);
        let mut fields = vec![vec![2, 1, 7], sequence(SEQUENCE, &[]), sequence(SEQUENCE, &[]), validity];
        if version {
            fields.insert(0, vec![VERSION, 3, 2, 1, 2]);
        }
        sequence(SEQUENCE, &[sequence(SEQUENCE, &fields)])
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_time() {
        for (end, expected) in [
            ((UTC_TIME, "271231235959Z"), "2027-12-31T23:59:59.000Z"),
            ((UTC_TIME, "991231235959Z"), "1999-12-31T23:59:59.000Z"),
            ((GENERALIZED_TIME, "20510203040506Z"), "2051-02-03T04:05:06.000Z"),
        ] {
            for version in [true, false] {
                assert_eq!(not_after(&certificate(version, end)).map(iso8601), Some(expected.to_owned()));
            }
        }
        assert_eq!(not_after(&certificate(true, (UTC_TIME, "tomorrow"))), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), cut in 0_usize..80) {
            let _ = not_after(&bytes);
            let whole = certificate(true, (UTC_TIME, "271231235959Z"));
            let _ = not_after(&whole[..cut.min(whole.len())]);
        }
    }
}

//! Settings of buckets that this server can only have switched off.

use super::{Elements, either, malformed, set_once};
use crate::error::Result;

/// Whether an `AccelerateConfiguration` asks for accelerated transfer.
///
/// # Errors
/// `MalformedXML`, also without a status.
pub fn asks_for_acceleration(document: &[u8]) -> Result<bool> {
    one_word(document, ["AccelerateConfiguration", "Status"], ["Enabled", "Suspended"])
}

/// Whether a `RequestPaymentConfiguration` makes the requester pay.
///
/// # Errors
/// `MalformedXML`, also without a payer.
pub fn asks_the_requester_to_pay(document: &[u8]) -> Result<bool> {
    one_word(document, ["RequestPaymentConfiguration", "Payer"], ["Requester", "BucketOwner"])
}

/// Whether a `BucketLoggingStatus` asks for a log.
///
/// # Errors
/// `MalformedXML`.
pub fn asks_for_a_log(document: &[u8]) -> Result<bool> {
    let mut log = None;
    Elements::parse(document, "BucketLoggingStatus", |xml| {
        xml.children(|xml, name| match name {
            "LoggingEnabled" => {
                set_once(&mut log, ())?;
                xml.skip()
            }
            _ => Err(malformed()),
        })
    })?;
    Ok(log.is_some())
}

fn one_word(document: &[u8], [root, element]: [&'static str; 2], [yes, no]: [&str; 2]) -> Result<bool> {
    let mut asked = None;
    Elements::parse(document, root, |xml| {
        xml.children(|xml, name| match name == element {
            true => set_once(&mut asked, either(&xml.text()?, yes, no)?),
            false => Err(malformed()),
        })
    })?;
    asked.ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn a_switch_is_on_or_off_and_said_once() {
        let acceleration = |inside: &str| {
            let document = format!("<AccelerateConfiguration>{inside}</AccelerateConfiguration>");
            asks_for_acceleration(document.as_bytes()).map_err(|error| error.code())
        };
        assert_eq!(acceleration("<Status>Enabled</Status>"), Ok(true));
        assert_eq!(acceleration("<Status>Suspended</Status>"), Ok(false));
        for inside in ["", "<Status>On</Status>", "<Payer/>", "<Status>Enabled</Status><Status>Enabled</Status>"] {
            assert_eq!(acceleration(inside), Err(ErrorCode::MalformedXML), "{inside}");
        }
        let payer = |who: &str| {
            let document = format!("<RequestPaymentConfiguration><Payer>{who}</Payer></RequestPaymentConfiguration>");
            asks_the_requester_to_pay(document.as_bytes()).map_err(|error| error.code())
        };
        assert_eq!(payer("Requester"), Ok(true));
        assert_eq!(payer("BucketOwner"), Ok(false));
        assert_eq!(payer("Nobody"), Err(ErrorCode::MalformedXML));
    }

    #[test]
    fn a_log_is_asked_for_or_not() {
        let log = |inside: &str| {
            let document = format!("<BucketLoggingStatus>{inside}</BucketLoggingStatus>");
            asks_for_a_log(document.as_bytes()).map_err(|error| error.code())
        };
        assert_eq!(log(""), Ok(false));
        assert_eq!(log("<LoggingEnabled><TargetBucket>b</TargetBucket><TargetPrefix/></LoggingEnabled>"), Ok(true));
        assert_eq!(log("<Other/>"), Err(ErrorCode::MalformedXML));
    }
}

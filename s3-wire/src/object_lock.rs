//! Object lock on the wire: a bucket's configuration, a version's retention and legal hold, and the
//! headers that bring them with an object.
//!
//! Source: "Locking objects with Object Lock" (Amazon S3 User Guide), PutObjectLockConfiguration,
//! PutObjectRetention, PutObjectLegalHold and PutObject (API Reference).

use crate::{
    error::{ErrorCode, Result, S3Error},
    headers::{flag, single},
    timestamp::{iso8601, parse_iso8601},
    xml::{
        Document, XmlWriter,
        reader::Elements,
        request::{either, malformed, set_once},
    },
};
use http::HeaderMap;
use std::time::{Duration, SystemTime};

/// The longest default retention, in days.
const DAYS_MAX: u32 = 36_500;
/// The longest default retention, in years.
const YEARS_MAX: u32 = 100;

const DAY: Duration = Duration::from_secs(86_400);

/// Who may end a retention before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// Those with `s3:BypassGovernanceRetention`.
    Governance,
    /// Nobody.
    Compliance,
}

impl RetentionMode {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Governance, Self::Compliance].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// How long a version stays for which the client says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultRetention {
    /// Its mode.
    pub mode: RetentionMode,
    /// Its length.
    pub period: RetentionPeriod,
}

/// The length of a default retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionPeriod {
    /// Days, 1–36,500.
    Days(u32),
    /// Years of 365 days, 1–100.
    Years(u32),
}

impl DefaultRetention {
    /// The retention of a version that is written at `now`.
    pub fn from(&self, now: SystemTime) -> Retention {
        let days = match self.period {
            RetentionPeriod::Days(days) => days,
            RetentionPeriod::Years(years) => years * 365,
        };
        Retention { mode: self.mode, until: now + DAY * days }
    }
}

/// `ObjectLockConfiguration` of a bucket whose versions can be locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectLockConfiguration {
    /// `Rule`: what versions get by default.
    pub default_retention: Option<DefaultRetention>,
}

impl ObjectLockConfiguration {
    /// Reads a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for another word than `Enabled`, for an unknown mode, and for both or
    /// neither of days and years; `InvalidRetentionPeriod` for a period that is not positive or too
    /// long.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let (mut enabled, mut rule) = (None, None);
        Elements::parse(document, "ObjectLockConfiguration", |xml| {
            xml.children(|xml, name| match name {
                "ObjectLockEnabled" if xml.text()?.trim() == "Enabled" => set_once(&mut enabled, ()),
                "Rule" => set_once(&mut rule, default_retention(xml)?),
                _ => Err(malformed()),
            })
        })?;
        enabled.ok_or_else(malformed)?;
        Ok(Self { default_retention: rule })
    }
}

impl Document for ObjectLockConfiguration {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("ObjectLockConfiguration");
        xml.text("ObjectLockEnabled", "Enabled");
        if let Some(retention) = &self.default_retention {
            xml.open("Rule");
            xml.open("DefaultRetention");
            xml.text("Mode", retention.mode.as_str());
            match retention.period {
                RetentionPeriod::Days(days) => xml.value("Days", days),
                RetentionPeriod::Years(years) => xml.value("Years", years),
            }
            xml.close();
            xml.close();
        }
        xml.close();
    }
}

/// `Retention` of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Who may end it.
    pub mode: RetentionMode,
    /// The version may be removed from this moment on.
    pub until: SystemTime,
}

impl Retention {
    /// Reads a document; `None` for an empty `Retention`, which takes a retention away.
    ///
    /// # Errors
    /// `MalformedXML`, also for a mode without a date; `InvalidArgument` for a date that is not
    /// after `now`.
    pub fn parse(document: &[u8], now: SystemTime) -> Result<Option<Self>> {
        let (mut mode, mut until) = (None, None);
        Elements::parse(document, "Retention", |xml| {
            xml.children(|xml, name| match name {
                "Mode" => set_once(&mut mode, RetentionMode::parse(xml.text()?.trim()).ok_or_else(malformed)?),
                "RetainUntilDate" => set_once(&mut until, parse_iso8601(&xml.text()?).ok_or_else(malformed)?),
                _ => Err(malformed()),
            })
        })?;
        match (mode, until) {
            (None, None) => Ok(None),
            (Some(mode), Some(until)) => Self { mode, until }.checked(now).map(Some),
            _ => Err(malformed()),
        }
    }

    fn checked(self, now: SystemTime) -> Result<Self> {
        if self.until > now {
            return Ok(self);
        }
        Err(S3Error::invalid_argument(UNTIL, iso8601(self.until), "The retain until date must be in the future!"))
    }

    /// Writes the headers of an answer.
    pub fn headers(&self) -> [(&'static str, String); 2] {
        [(MODE, self.mode.as_str().to_owned()), (UNTIL, iso8601(self.until))]
    }
}

impl Document for Retention {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("Retention");
        xml.text("Mode", self.mode.as_str());
        xml.text("RetainUntilDate", &iso8601(self.until));
        xml.close();
    }
}

/// `LegalHold` of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegalHold(pub bool);

impl LegalHold {
    /// Reads a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for another word than `ON` and `OFF`.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut on = None;
        Elements::parse(document, "LegalHold", |xml| {
            xml.children(|xml, name| match name {
                "Status" => set_once(&mut on, either(&xml.text()?, "ON", "OFF")?),
                _ => Err(malformed()),
            })
        })?;
        on.map(Self).ok_or_else(malformed)
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        if self.0 { "ON" } else { "OFF" }
    }
}

impl Document for LegalHold {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("LegalHold");
        xml.text("Status", self.as_str());
        xml.close();
    }
}

const MODE: &str = "x-amz-object-lock-mode";
const UNTIL: &str = "x-amz-object-lock-retain-until-date";
/// The header that brings or tells a legal hold.
pub const LEGAL_HOLD: &str = "x-amz-object-lock-legal-hold";

/// What a request asks of the lock of the object it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockHeaders {
    /// Its retention.
    pub retention: Option<Retention>,
    /// Its legal hold.
    pub legal_hold: Option<LegalHold>,
}

impl LockHeaders {
    /// Reads the headers.
    ///
    /// # Errors
    /// `InvalidArgument` for words and dates that are none, a date that is not after `now`, and a
    /// mode without a date or the reverse.
    pub fn from_headers(headers: &HeaderMap, now: SystemTime) -> Result<Self> {
        let retention = match (single(headers, MODE)?, single(headers, UNTIL)?) {
            (None, None) => None,
            (Some(mode), Some(until)) => {
                let unknown = || S3Error::invalid_argument(MODE, mode, "Unknown wormMode directive.");
                let no_date = || {
                    S3Error::invalid_argument(UNTIL, until, "The retain until date must be provided in ISO 8601 format")
                };
                let mode = RetentionMode::parse(mode).ok_or_else(unknown)?;
                Some(Retention { mode, until: parse_iso8601(until).ok_or_else(no_date)? }.checked(now)?)
            }
            (mode, until) => {
                let (name, value) = if mode.is_some() { (MODE, mode) } else { (UNTIL, until) };
                let message = "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied.";
                return Err(S3Error::invalid_argument(name, value.unwrap_or_default(), message));
            }
        };
        let legal_hold = match single(headers, LEGAL_HOLD)? {
            None => None,
            Some("ON") => Some(LegalHold(true)),
            Some("OFF") => Some(LegalHold(false)),
            Some(other) => {
                return Err(S3Error::invalid_argument(LEGAL_HOLD, other, "Legal Hold must be either of 'ON' or 'OFF'"));
            }
        };
        Ok(Self { retention, legal_hold })
    }

    /// Whether nothing is asked that needs object lock: a hold that is off is what is the case
    /// anyway.
    pub fn is_none(&self) -> bool {
        self.retention.is_none() && self.legal_hold.is_none_or(|hold| !hold.0)
    }
}

/// `x-amz-bypass-governance-retention`: whether the client wants to end a retention that it may
/// end.
///
/// # Errors
/// `InvalidArgument` for another value than `true` and `false`.
pub fn bypasses_governance(headers: &HeaderMap) -> Result<bool> {
    Ok(flag(headers, "x-amz-bypass-governance-retention")?.unwrap_or(false))
}

/// `x-amz-bucket-object-lock-enabled`: whether the versions of a new bucket can be locked.
///
/// # Errors
/// `InvalidArgument` for another value than `true` and `false`.
pub fn wanted_for_bucket(headers: &HeaderMap) -> Result<bool> {
    Ok(flag(headers, "x-amz-bucket-object-lock-enabled")?.unwrap_or(false))
}

fn default_retention(xml: &mut Elements<'_>) -> Result<DefaultRetention> {
    let (mut mode, mut period) = (None, None);
    xml.children(|xml, name| match name {
        "DefaultRetention" => xml.children(|xml, name| match name {
            "Mode" => set_once(&mut mode, RetentionMode::parse(xml.text()?.trim()).ok_or_else(malformed)?),
            "Days" => set_once(&mut period, RetentionPeriod::Days(checked_period(&xml.text()?, DAYS_MAX)?)),
            "Years" => set_once(&mut period, RetentionPeriod::Years(checked_period(&xml.text()?, YEARS_MAX)?)),
            _ => Err(malformed()),
        }),
        _ => Err(malformed()),
    })?;
    Ok(DefaultRetention { mode: mode.ok_or_else(malformed)?, period: period.ok_or_else(malformed)? })
}

/// Checks the length of a default retention.
fn checked_period(number: &str, max: u32) -> Result<u32> {
    let number = number.trim();
    let signed: i64 = number.parse().map_err(|_| S3Error::new(ErrorCode::MalformedXML))?;
    let length = u32::try_from(signed).ok().filter(|length| (1..=max).contains(length));
    length.ok_or_else(|| {
        let message = if signed <= 0 {
            "Default retention period must be a positive integer value."
        } else {
            "Default retention period is too long."
        };
        S3Error::with_message(ErrorCode::InvalidRetentionPeriod, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use std::time::UNIX_EPOCH;

    fn parsed(rule: &str) -> Result<ObjectLockConfiguration, ErrorCode> {
        let document = format!(
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}</ObjectLockConfiguration>"
        );
        ObjectLockConfiguration::parse(document.as_bytes()).map_err(|error| error.code())
    }

    #[test]
    fn a_configuration_is_read_as_it_is_written() {
        for retention in [
            None,
            Some(DefaultRetention { mode: RetentionMode::Governance, period: RetentionPeriod::Days(1) }),
            Some(DefaultRetention { mode: RetentionMode::Compliance, period: RetentionPeriod::Years(100) }),
        ] {
            let configuration = ObjectLockConfiguration { default_retention: retention };
            assert_eq!(ObjectLockConfiguration::parse(&configuration.to_bytes()).unwrap(), configuration);
        }
    }

    #[test]
    fn a_rule_has_a_known_mode_and_one_positive_period() {
        let rule = |inside: &str| parsed(&format!("<Rule><DefaultRetention>{inside}</DefaultRetention></Rule>"));
        let mode = "<Mode>GOVERNANCE</Mode>";
        for period in ["<Days>0</Days>", "<Years>-1</Years>", "<Days>36501</Days>", "<Years>101</Years>"] {
            assert_eq!(rule(&format!("{mode}{period}")), Err(ErrorCode::InvalidRetentionPeriod), "{period}");
        }
        for inside in [
            "<Mode>governance</Mode><Days>1</Days>",
            "<Mode>GOVERNANCE</Mode><Days>1</Days><Years>1</Years>",
            "<Mode>GOVERNANCE</Mode>",
            "<Days>1</Days>",
            "<Mode>GOVERNANCE</Mode><Days>x</Days>",
        ] {
            assert_eq!(rule(inside), Err(ErrorCode::MalformedXML), "{inside}");
        }
        assert_eq!(parsed("<Other/>"), Err(ErrorCode::MalformedXML));
        let disabled =
            "<ObjectLockConfiguration><ObjectLockEnabled>Disabled</ObjectLockEnabled></ObjectLockConfiguration>";
        assert_eq!(ObjectLockConfiguration::parse(disabled.as_bytes()).unwrap_err().code(), ErrorCode::MalformedXML);
    }

    #[test]
    fn a_retention_has_a_mode_and_a_date_ahead_or_neither() {
        let now = UNIX_EPOCH + DAY * 20_000;
        let parsed = |inside: &str| {
            let document = format!("<Retention>{inside}</Retention>");
            Retention::parse(document.as_bytes(), now).map_err(|error| error.code())
        };
        let until = now + DAY;
        let ahead = Retention { mode: RetentionMode::Compliance, until };
        assert_eq!(Retention::parse(&ahead.to_bytes(), now).unwrap(), Some(ahead));
        assert_eq!(parsed(""), Ok(None));
        let past = format!("<Mode>GOVERNANCE</Mode><RetainUntilDate>{}</RetainUntilDate>", iso8601(now));
        assert_eq!(parsed(&past), Err(ErrorCode::InvalidArgument));
        for inside in [
            "<Mode>GOVERNANCE</Mode>",
            "<RetainUntilDate>2090-01-01T00:00:00Z</RetainUntilDate>",
            "<Mode>abc</Mode><RetainUntilDate>2090-01-01T00:00:00Z</RetainUntilDate>",
            "<Mode>GOVERNANCE</Mode><RetainUntilDate>tomorrow</RetainUntilDate>",
        ] {
            assert_eq!(parsed(inside), Err(ErrorCode::MalformedXML), "{inside}");
        }
    }

    #[test]
    fn headers_bring_a_lock_whole_or_are_refused() {
        let now = UNIX_EPOCH + DAY * 20_000;
        let read = |pairs: &[(&'static str, &'static str)]| {
            let headers =
                pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect();
            LockHeaders::from_headers(&headers, now).map_err(|error| error.code())
        };
        let date = "2090-01-01T00:00:00Z";
        let whole = read(&[(MODE, "GOVERNANCE"), (UNTIL, date), (LEGAL_HOLD, "ON")]).unwrap();
        assert_eq!(
            (whole.retention.unwrap().mode, whole.legal_hold),
            (RetentionMode::Governance, Some(LegalHold(true)))
        );
        assert!(read(&[]).unwrap().is_none() && read(&[(LEGAL_HOLD, "OFF")]).unwrap().is_none() && !whole.is_none());
        for wrong in [
            &[(MODE, "GOVERNANCE")][..],
            &[(UNTIL, date)],
            &[(MODE, "governance"), (UNTIL, date)],
            &[(MODE, "COMPLIANCE"), (UNTIL, "soon")],
            &[(MODE, "COMPLIANCE"), (UNTIL, "1999-01-01T00:00:00Z")],
            &[(LEGAL_HOLD, "on")],
        ] {
            assert_eq!(read(wrong), Err(ErrorCode::InvalidArgument), "{wrong:?}");
        }
    }
}

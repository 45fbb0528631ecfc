//! Lifecycle configurations: the rules of a bucket, and what S3 refuses of them. Nothing here
//! expires anything.
//!
//! Source: "Managing the lifecycle of objects" (Amazon S3 User Guide),
//! PutBucketLifecycleConfiguration (API Reference).

use crate::{
    error::{ErrorCode, Result, S3Error},
    tags::{OBJECT_TAGS_MAX, TagSet},
    timestamp::{iso8601, parse_iso8601},
    xml::{
        Document, XmlWriter,
        reader::Elements,
        request::{either, malformed, set_once, tag},
    },
};
use std::{
    collections::{BTreeMap, HashSet},
    time::{SystemTime, UNIX_EPOCH},
};

/// The most rules of a bucket.
const RULES_MAX: usize = 1000;
/// The longest id of a rule, in characters.
const ID_CHARS_MAX: usize = 255;
/// Most noncurrent versions that a rule may leave.
const NEWER_MAX: u32 = 100;
/// The longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 1024;

/// The classes that a transition may name. They are kept and have no effect.
const CLASSES: [&str; 6] =
    ["GLACIER", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "DEEP_ARCHIVE", "GLACIER_IR"];

/// The rules of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecycleConfiguration {
    /// 1–1000 rules, in order, every id once.
    pub rules: Vec<LifecycleRule>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecycleRule {
    /// Its name.
    pub id: String,
    /// Whether it is followed.
    pub enabled: bool,
    /// Which objects it is about.
    pub filter: LifecycleFilter,
    /// Whether the prefix came as an element of the rule itself, as in the first version of the
    /// API.
    pub legacy_prefix: bool,
    /// When current versions go.
    pub expiration: Option<Expiration>,
    /// When versions go that are not current.
    pub noncurrent: Option<NoncurrentExpiration>,
    /// After how many days an upload that nobody completed is aborted.
    pub abort_days: Option<u32>,
    /// Transitions, which are kept and have no effect.
    pub transitions: Vec<Transition>,
}

/// Which objects a rule is about: all of these must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecycleFilter {
    /// The key starts with this.
    pub prefix: Option<String>,
    /// It has all of these tags.
    pub tags: BTreeMap<String, String>,
    /// It is larger than so many bytes.
    pub larger_than: Option<u64>,
    /// It is smaller than so many bytes.
    pub smaller_than: Option<u64>,
}

/// When current versions go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiration {
    /// So many days after they were written.
    Days(u32),
    /// From this midnight on.
    Date(SystemTime),
    /// A delete marker goes when no version is left behind it.
    DeleteMarker(bool),
}

/// When versions go that are not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoncurrentExpiration {
    /// So many days after a newer one took their place.
    pub days: u32,
    /// So many of the newest of them stay whatever their age.
    pub newer: u32,
}

/// A transition to another storage class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Whether it is about versions that are not current.
    pub noncurrent: bool,
    /// When.
    pub at: TransitionAt,
    /// How many of the newest versions that are not current stay.
    pub newer: Option<u32>,
    /// The class.
    pub class: String,
}

/// When a transition would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionAt {
    /// After so many days.
    Days(u32),
    /// At this midnight.
    Date(SystemTime),
}

impl LifecycleConfiguration {
    /// Reads a document. A rule without an id gets one.
    ///
    /// # Errors
    /// `MalformedXML`, also for none or more than 1000 rules, a rule without a status, and with
    /// both or neither of `Filter` and `Prefix`; `InvalidArgument` for ids that are too long or
    /// stand twice, numbers that are not positive, and dates that are no midnight; `InvalidRequest`
    /// for a rule without an action, and for tags where S3 takes none.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut rules: Vec<LifecycleRule> = Vec::new();
        Elements::parse(document, "LifecycleConfiguration", |xml| {
            xml.children(|xml, name| match name {
                "Rule" if rules.len() < RULES_MAX => {
                    rules.push(rule(xml)?);
                    Ok(())
                }
                _ => Err(malformed()),
            })
        })?;
        if rules.is_empty() {
            return Err(malformed());
        }
        let mut ids = HashSet::new();
        for (number, rule) in rules.iter_mut().enumerate() {
            if rule.id.is_empty() {
                rule.id = made_id(number, rule);
            }
            if !ids.insert(rule.id.clone()) {
                let message = "Rule ID must be unique. Found same ID for more than one rule";
                return Err(S3Error::invalid_argument("ID", rule.id.clone(), message));
            }
        }
        Ok(Self { rules })
    }
}

/// The id of a rule that came without: the same for the same document.
fn made_id(number: usize, rule: &LifecycleRule) -> String {
    let text = format!("{number} {rule:?}");
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("rule-{hash:016x}")
}

fn rule(xml: &mut Elements<'_>) -> Result<LifecycleRule> {
    let mut rule = LifecycleRule::default();
    let (mut id, mut status, mut prefix, mut filter) = (None, None, None, None);
    xml.children(|xml, name| match name {
        "ID" => set_once(&mut id, xml.text()?),
        "Status" => set_once(&mut status, either(&xml.text()?, "Enabled", "Disabled")?),
        "Prefix" => set_once(&mut prefix, xml.text()?),
        "Filter" => set_once(&mut filter, read_filter(xml)?),
        "Expiration" => set_once(&mut rule.expiration, expiration(xml)?),
        "NoncurrentVersionExpiration" => set_once(&mut rule.noncurrent, noncurrent(xml)?),
        "AbortIncompleteMultipartUpload" => set_once(&mut rule.abort_days, abort_days(xml)?),
        "Transition" => {
            rule.transitions.push(transition(xml, false)?);
            Ok(())
        }
        "NoncurrentVersionTransition" => {
            rule.transitions.push(transition(xml, true)?);
            Ok(())
        }
        _ => Err(malformed()),
    })?;
    rule.id = id.unwrap_or_default();
    if rule.id.chars().count() > ID_CHARS_MAX {
        return Err(S3Error::invalid_argument("ID", rule.id, "ID length should not exceed allowed limit of 255"));
    }
    rule.enabled = status.ok_or_else(malformed)?;
    (rule.filter, rule.legacy_prefix) = match (prefix, filter) {
        (Some(prefix), None) => (LifecycleFilter { prefix: Some(prefix), ..LifecycleFilter::default() }, true),
        (None, Some(filter)) => (filter, false),
        _ => return Err(malformed()),
    };
    check(&rule)?;
    Ok(rule)
}

/// What a rule's parts must say together.
fn check(rule: &LifecycleRule) -> Result<()> {
    let LifecycleFilter { prefix, tags, larger_than, smaller_than } = &rule.filter;
    if prefix.as_ref().is_some_and(|prefix| prefix.len() > PREFIX_BYTES_MAX) {
        return Err(S3Error::with_message(ErrorCode::InvalidRequest, "The maximum size of a prefix is 1024."));
    }
    if let (Some(larger), Some(smaller)) = (larger_than, smaller_than)
        && smaller <= larger
    {
        return Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'",
        ));
    }
    let nothing = rule.expiration.is_none()
        && rule.noncurrent.is_none()
        && rule.abort_days.is_none()
        && rule.transitions.is_empty();
    if nothing {
        return Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            "At least one action needs to be specified in a rule",
        ));
    }
    let by_object = !tags.is_empty() || larger_than.is_some() || smaller_than.is_some();
    let what = if tags.is_empty() { "Object Size" } else { "Tags" };
    if by_object && rule.abort_days.is_some() {
        let message = format!("AbortIncompleteMultipartUpload cannot be specified with {what}.");
        return Err(S3Error::with_message(ErrorCode::InvalidRequest, message));
    }
    if by_object && rule.expiration == Some(Expiration::DeleteMarker(true)) {
        let message = format!("ExpiredObjectDeleteMarker cannot be specified with {what}.");
        return Err(S3Error::with_message(ErrorCode::InvalidRequest, message));
    }
    Ok(())
}

/// Several conditions side by side, or beside an `And`, mean what they mean inside `And`.
fn read_filter(xml: &mut Elements<'_>) -> Result<LifecycleFilter> {
    let (mut filter, mut inside) = (LifecycleFilter::default(), LifecycleFilter::default());
    let mut tags = Vec::new();
    let mut and = None;
    xml.children(|xml, name| match name {
        "And" => {
            set_once(&mut and, ())?;
            xml.children(|xml, name| condition(xml, name, &mut inside, &mut tags))
        }
        name => condition(xml, name, &mut filter, &mut tags),
    })?;
    filter.prefix = match (filter.prefix, inside.prefix) {
        (Some(one), Some(other)) if one.starts_with(&other) => Some(one),
        (Some(one), Some(other)) if other.starts_with(&one) => Some(other),
        (one, other) => once(one, other)?,
    };
    filter.larger_than = once(filter.larger_than, inside.larger_than)?;
    filter.smaller_than = once(filter.smaller_than, inside.smaller_than)?;
    filter.tags = TagSet::new(tags, OBJECT_TAGS_MAX)?.into_map();
    let conditions = usize::from(filter.prefix.is_some())
        + filter.tags.len()
        + usize::from(filter.larger_than.is_some())
        + usize::from(filter.smaller_than.is_some());
    if and.is_some() && conditions < 2 { Err(malformed()) } else { Ok(filter) }
}

/// What is said once, in either place.
fn once<T>(one: Option<T>, other: Option<T>) -> Result<Option<T>> {
    match (one, other) {
        (Some(_), Some(_)) => Err(malformed()),
        (one, other) => Ok(one.or(other)),
    }
}

fn condition(
    xml: &mut Elements<'_>,
    name: &str,
    filter: &mut LifecycleFilter,
    tags: &mut Vec<(String, String)>,
) -> Result<()> {
    match name {
        "Prefix" => set_once(&mut filter.prefix, xml.text()?),
        "ObjectSizeGreaterThan" => set_once(&mut filter.larger_than, bytes(&xml.text()?)?),
        "ObjectSizeLessThan" => set_once(&mut filter.smaller_than, bytes(&xml.text()?)?),
        "Tag" if tags.len() <= OBJECT_TAGS_MAX => {
            tags.push(tag(xml)?);
            Ok(())
        }
        _ => Err(malformed()),
    }
}

fn expiration(xml: &mut Elements<'_>) -> Result<Expiration> {
    let (mut at, mut marker) = (None, None);
    xml.children(|xml, name| match name {
        "Days" => set_once(&mut at, Expiration::Days(positive("Days", "Expiration", &xml.text()?)?)),
        "Date" => set_once(&mut at, Expiration::Date(midnight(&xml.text()?)?)),
        "ExpiredObjectDeleteMarker" => set_once(&mut marker, xml.boolean()?),
        _ => Err(malformed()),
    })?;
    match (at, marker) {
        (Some(at), None | Some(false)) => Ok(at),
        (None, Some(marker)) => Ok(Expiration::DeleteMarker(marker)),
        _ => Err(malformed()),
    }
}

fn noncurrent(xml: &mut Elements<'_>) -> Result<NoncurrentExpiration> {
    const ACTION: &str = "NoncurrentVersionExpiration";
    let (mut days, mut newer) = (None, None);
    xml.children(|xml, name| match name {
        "NoncurrentDays" => set_once(&mut days, positive("NoncurrentDays", ACTION, &xml.text()?)?),
        "NewerNoncurrentVersions" => set_once(&mut newer, newer_versions(ACTION, &xml.text()?)?),
        _ => Err(malformed()),
    })?;
    Ok(NoncurrentExpiration { days: days.ok_or_else(malformed)?, newer: newer.unwrap_or(0) })
}

fn newer_versions(action: &str, text: &str) -> Result<u32> {
    let number = positive("NewerNoncurrentVersions", action, text)?;
    if number <= NEWER_MAX {
        return Ok(number);
    }
    let message = format!("'NewerNoncurrentVersions' for {action} action must be at most {NEWER_MAX}");
    Err(S3Error::invalid_argument("NewerNoncurrentVersions", text, message))
}

fn abort_days(xml: &mut Elements<'_>) -> Result<u32> {
    let mut days = None;
    xml.children(|xml, name| match name {
        "DaysAfterInitiation" => {
            set_once(&mut days, positive("DaysAfterInitiation", "AbortIncompleteMultipartUpload", &xml.text()?)?)
        }
        _ => Err(malformed()),
    })?;
    days.ok_or_else(malformed)
}

fn transition(xml: &mut Elements<'_>, noncurrent: bool) -> Result<Transition> {
    let action = if noncurrent { "NoncurrentVersionTransition" } else { "Transition" };
    let (mut at, mut newer, mut class) = (None, None, None);
    xml.children(|xml, name| match name {
        "Days" if !noncurrent => set_once(&mut at, TransitionAt::Days(natural("Days", action, &xml.text()?)?)),
        "Date" if !noncurrent => set_once(&mut at, TransitionAt::Date(midnight(&xml.text()?)?)),
        "NoncurrentDays" if noncurrent => {
            set_once(&mut at, TransitionAt::Days(natural("NoncurrentDays", action, &xml.text()?)?))
        }
        "NewerNoncurrentVersions" if noncurrent => set_once(&mut newer, newer_versions(action, &xml.text()?)?),
        "StorageClass" => set_once(&mut class, xml.text()?),
        _ => Err(malformed()),
    })?;
    let class = class.filter(|class| CLASSES.contains(&class.as_str())).ok_or_else(malformed)?;
    Ok(Transition { noncurrent, at: at.ok_or_else(malformed)?, newer, class })
}

fn natural(name: &'static str, action: &str, text: &str) -> Result<u32> {
    let number: i64 = text.trim().parse().map_err(|_| malformed())?;
    u32::try_from(number).ok().filter(|number| *number <= i32::MAX as u32).ok_or_else(|| {
        S3Error::invalid_argument(name, text, format!("'{name}' for {action} action must be a nonnegative integer"))
    })
}

fn positive(name: &'static str, action: &str, text: &str) -> Result<u32> {
    let number = natural(name, action, text).ok().filter(|number| *number > 0);
    match (number, text.trim().parse::<i64>()) {
        (Some(number), _) => Ok(number),
        (None, Err(_)) => Err(malformed()),
        (None, Ok(_)) => {
            let message = format!("'{name}' for {action} action must be a positive integer");
            Err(S3Error::invalid_argument(name, text, message))
        }
    }
}

fn bytes(text: &str) -> Result<u64> {
    text.trim().parse().map_err(|_| malformed())
}

fn midnight(text: &str) -> Result<SystemTime> {
    let date = parse_iso8601(text).ok_or_else(malformed)?;
    let since = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    if since.as_secs().is_multiple_of(86_400) && since.subsec_nanos() == 0 {
        return Ok(date);
    }
    Err(S3Error::invalid_argument("Date", text, "'Date' must be at midnight GMT"))
}

impl Document for LifecycleConfiguration {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("LifecycleConfiguration");
        for rule in &self.rules {
            xml.open("Rule");
            xml.text("ID", &rule.id);
            if rule.legacy_prefix {
                xml.text("Prefix", rule.filter.prefix.as_deref().unwrap_or_default());
            } else {
                write_filter(xml, &rule.filter);
            }
            xml.text("Status", if rule.enabled { "Enabled" } else { "Disabled" });
            write_actions(xml, rule);
            xml.close();
        }
        xml.close();
    }
}

fn write_filter(xml: &mut XmlWriter, filter: &LifecycleFilter) {
    let LifecycleFilter { prefix, tags, larger_than, smaller_than } = filter;
    let conditions = usize::from(prefix.is_some())
        + tags.len()
        + usize::from(larger_than.is_some())
        + usize::from(smaller_than.is_some());
    xml.open("Filter");
    if conditions > 1 {
        xml.open("And");
    }
    xml.optional("Prefix", prefix.as_deref());
    for (key, value) in tags {
        xml.open("Tag");
        xml.text("Key", key);
        xml.text("Value", value);
        xml.close();
    }
    if let Some(size) = larger_than {
        xml.value("ObjectSizeGreaterThan", size);
    }
    if let Some(size) = smaller_than {
        xml.value("ObjectSizeLessThan", size);
    }
    if conditions > 1 {
        xml.close();
    }
    xml.close();
}

fn write_actions(xml: &mut XmlWriter, rule: &LifecycleRule) {
    for Transition { noncurrent, at, newer, class } in &rule.transitions {
        xml.open(if *noncurrent { "NoncurrentVersionTransition" } else { "Transition" });
        match at {
            TransitionAt::Days(days) => xml.value(if *noncurrent { "NoncurrentDays" } else { "Days" }, days),
            TransitionAt::Date(date) => xml.text("Date", &iso8601(*date)),
        }
        if let Some(newer) = newer {
            xml.value("NewerNoncurrentVersions", newer);
        }
        xml.text("StorageClass", class);
        xml.close();
    }
    if let Some(expiration) = &rule.expiration {
        xml.open("Expiration");
        match expiration {
            Expiration::Days(days) => xml.value("Days", days),
            Expiration::Date(date) => xml.text("Date", &iso8601(*date)),
            Expiration::DeleteMarker(marker) => xml.value("ExpiredObjectDeleteMarker", marker),
        }
        xml.close();
    }
    if let Some(NoncurrentExpiration { days, newer }) = &rule.noncurrent {
        xml.open("NoncurrentVersionExpiration");
        xml.value("NoncurrentDays", days);
        if *newer > 0 {
            xml.value("NewerNoncurrentVersions", newer);
        }
        xml.close();
    }
    if let Some(days) = &rule.abort_days {
        xml.open("AbortIncompleteMultipartUpload");
        xml.value("DaysAfterInitiation", days);
        xml.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(rules: &str) -> Result<LifecycleConfiguration, ErrorCode> {
        let document = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
        LifecycleConfiguration::parse(document.as_bytes()).map_err(|error| error.code())
    }

    /// A rule of a filter and actions.
    fn of(filter: &str, actions: &str) -> Result<LifecycleConfiguration, ErrorCode> {
        parsed(&format!("<Rule>{filter}<Status>Enabled</Status>{actions}</Rule>"))
    }

    const ALL: &str = "<Filter/>";
    const DAY: &str = "<Expiration><Days>1</Days></Expiration>";

    #[test]
    fn every_element_is_written_as_it_was_read() {
        let rules = "<Rule><ID>a</ID><Filter><And><Prefix>p/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag>\
             <ObjectSizeGreaterThan>1</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>\
             <Status>Enabled</Status><Transition><Days>0</Days><StorageClass>GLACIER</StorageClass></Transition>\
             <NoncurrentVersionTransition><NoncurrentDays>3</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions>\
             <StorageClass>STANDARD_IA</StorageClass></NoncurrentVersionTransition><Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration>\
             <NoncurrentVersionExpiration><NoncurrentDays>4</NoncurrentDays><NewerNoncurrentVersions>5</NewerNoncurrentVersions>\
             </NoncurrentVersionExpiration></Rule>\
             <Rule><ID>b</ID><Prefix>old</Prefix><Status>Disabled</Status><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker>\
             </Expiration><AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>";
        let configuration = parsed(rules).unwrap();
        let written = String::from_utf8(configuration.to_bytes().to_vec()).unwrap();
        assert!(written.contains(rules), "{written}");
        assert_eq!(LifecycleConfiguration::parse(written.as_bytes()).unwrap(), configuration);
        assert_eq!(configuration.rules[0].filter.tags["k"], "v");
    }

    #[test]
    fn a_rule_without_an_id_gets_one_of_its_own() {
        let rule = format!("<Rule>{ALL}<Status>Enabled</Status>{DAY}</Rule>");
        let rules = parsed(&format!("{rule}{rule}")).unwrap().rules;
        assert!(!rules[0].id.is_empty() && rules[0].id != rules[1].id);
        assert_eq!(parsed(&format!("{rule}{rule}")).unwrap().rules, rules, "the same for the same document");
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        for rules in [
            "",
            "<Rule/>",
            "<Rule><Filter/><Expiration><Days>1</Days></Expiration></Rule>",
            "<Rule><Filter/><Status>enabled</Status><Expiration><Days>1</Days></Expiration></Rule>",
            "<Rule><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>",
            "<Rule><Filter/><Prefix/><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>",
        ] {
            assert_eq!(parsed(rules), Err(ErrorCode::MalformedXML), "{rules}");
        }
        for actions in [
            "<Expiration/>",
            "<Expiration><Days>x</Days></Expiration>",
            "<Expiration><Days>1</Days><Date>2030-01-01T00:00:00Z</Date></Expiration>",
            "<Expiration><Days>1</Days><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
            "<Expiration><Date>soon</Date></Expiration>",
            "<NoncurrentVersionExpiration/>",
            "<Transition><Days>1</Days></Transition>",
            "<Transition><Days>1</Days><StorageClass>TAPE</StorageClass></Transition>",
            "<Unknown/>",
        ] {
            assert_eq!(of(ALL, actions), Err(ErrorCode::MalformedXML), "{actions}");
        }
        for filter in [
            "<Filter><And><Prefix>p</Prefix></And></Filter>",
            "<Filter><And/></Filter>",
            "<Filter><Colour/></Filter>",
            "<Filter><Prefix>p</Prefix><And><Prefix>q</Prefix><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>",
            "<Filter><And><Prefix>p</Prefix></And><And><Prefix>p</Prefix></And></Filter>",
        ] {
            assert_eq!(of(filter, DAY), Err(ErrorCode::MalformedXML), "{filter}");
        }
    }

    #[test]
    fn conditions_beside_and_hold_together_with_those_inside() {
        let tag = |key| format!("<Tag><Key>{key}</Key><Value>v</Value></Tag>");
        for (outer, inner) in [("days/", "days"), ("days", "days/")] {
            let filter = format!(
                "<Filter><Prefix>{outer}</Prefix>{}<And><Prefix>{inner}</Prefix>{}</And></Filter>",
                tag("a"),
                tag("b")
            );
            let rules = of(&filter, DAY).unwrap().rules;
            assert_eq!(rules[0].filter.prefix.as_deref(), Some("days/"));
            assert_eq!(rules[0].filter.tags.keys().collect::<Vec<_>>(), ["a", "b"]);
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_invalid_argument_or_request() {
        for actions in [
            "<Expiration><Days>0</Days></Expiration>",
            "<Expiration><Days>-1</Days></Expiration>",
            "<Expiration><Date>2030-01-01T00:00:01Z</Date></Expiration>",
            "<NoncurrentVersionExpiration><NoncurrentDays>0</NoncurrentDays></NoncurrentVersionExpiration>",
            "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>101</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
            "<AbortIncompleteMultipartUpload><DaysAfterInitiation>0</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
            "<Transition><Days>-1</Days><StorageClass>GLACIER</StorageClass></Transition>",
        ] {
            assert_eq!(of(ALL, actions), Err(ErrorCode::InvalidArgument), "{actions}");
        }
        let twice = format!("<Rule><ID>a</ID>{ALL}<Status>Enabled</Status>{DAY}</Rule>").repeat(2);
        assert_eq!(parsed(&twice), Err(ErrorCode::InvalidArgument));
        let long = format!("<Rule><ID>{}</ID>{ALL}<Status>Enabled</Status>{DAY}</Rule>", "a".repeat(256));
        assert_eq!(parsed(&long), Err(ErrorCode::InvalidArgument));
        let tagged = "<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>";
        let abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>";
        let marker = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
        for (filter, actions) in [(ALL, ""), (tagged, abort), (tagged, marker)] {
            assert_eq!(of(filter, actions), Err(ErrorCode::InvalidRequest), "{filter} {actions}");
        }
        let sizes = "<Filter><And><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan><ObjectSizeLessThan>5</ObjectSizeLessThan></And></Filter>";
        assert_eq!(of(sizes, DAY), Err(ErrorCode::InvalidRequest));
    }
}

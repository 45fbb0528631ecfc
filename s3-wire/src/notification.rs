//! A bucket's notification configuration: which events go to which destination.
//!
//! Source: PutBucketNotificationConfiguration (Amazon S3 API Reference), "Event notification types
//! and destinations" and "Configuring event notifications using object key name filtering" (Amazon
//! S3 User Guide).

use crate::{
    error::{ErrorCode, Result, S3Error},
    xml::{
        Document, XmlWriter,
        reader::Elements,
        request::{malformed, set_once},
    },
};
use std::collections::BTreeSet;

/// The most configurations of a bucket.
const CONFIGURATIONS_MAX: usize = 100;
/// The longest id and the longest value of a filter rule, in bytes.
const ID_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 1024;

/// S3's events without their `s3:`. Those of restores, replication, transitions and tiering, and of
/// reduced redundancy, are taken and never happen here.
const EVENTS: [&str; 27] = [
    "IntelligentTiering",
    "LifecycleExpiration:*",
    "LifecycleExpiration:Delete",
    "LifecycleExpiration:DeleteMarkerCreated",
    "LifecycleTransition",
    "ObjectAcl:Put",
    "ObjectCreated:*",
    "ObjectCreated:CompleteMultipartUpload",
    "ObjectCreated:Copy",
    "ObjectCreated:Post",
    "ObjectCreated:Put",
    "ObjectRemoved:*",
    "ObjectRemoved:Delete",
    "ObjectRemoved:DeleteMarkerCreated",
    "ObjectRestore:*",
    "ObjectRestore:Completed",
    "ObjectRestore:Delete",
    "ObjectRestore:Post",
    "ObjectTagging:*",
    "ObjectTagging:Delete",
    "ObjectTagging:Put",
    "ReducedRedundancyLostObject",
    "Replication:*",
    "Replication:OperationFailedReplication",
    "Replication:OperationMissedThreshold",
    "Replication:OperationNotTracked",
    "Replication:OperationReplicatedAfterThreshold",
];

/// What a destination is at AWS. Here each of them is a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// An SNS topic.
    Topic,
    /// An SQS queue.
    Queue,
    /// A Lambda function.
    Function,
}

impl Destination {
    const ALL: [Self; 3] = [Self::Topic, Self::Queue, Self::Function];

    fn element(self) -> &'static str {
        match self {
            Self::Topic => "TopicConfiguration",
            Self::Queue => "QueueConfiguration",
            Self::Function => "CloudFunctionConfiguration",
        }
    }

    fn arn_element(self) -> &'static str {
        match self {
            Self::Topic => "Topic",
            Self::Queue => "Queue",
            Self::Function => "CloudFunction",
        }
    }

    fn service(self) -> &'static str {
        match self {
            Self::Topic => "sns",
            Self::Queue => "sqs",
            Self::Function => "lambda",
        }
    }
}

/// The events that go to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its name: unique in the bucket.
    pub id: String,
    /// What the destination is.
    pub destination: Destination,
    /// The destination's ARN.
    pub arn: String,
    /// Events without their `s3:`; at least one.
    pub events: Vec<String>,
    /// Filter rules by name, as they were written: `prefix` and `suffix`, each at most once.
    pub filter: Vec<(FilterName, String)>,
}

/// Which end of a key a filter rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterName {
    /// How it begins.
    Prefix,
    /// How it ends.
    Suffix,
}

/// A bucket's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotificationConfiguration {
    /// Topics, then queues, then functions.
    pub notifications: Vec<Notification>,
    /// Whether every event goes to EventBridge.
    pub event_bridge: bool,
}

impl NotificationConfiguration {
    /// Reads a document. Ids that are missing are made up.
    ///
    /// # Errors
    /// `MalformedXML`; `InvalidArgument` for an event, a filter rule or an ARN that S3 does not
    /// take, ids that are not unique, and configurations that overlap.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let mut configuration = Self::default();
        Elements::parse(document, "NotificationConfiguration", |xml| {
            xml.children(|xml, name| {
                if name == "EventBridgeConfiguration" {
                    configuration.event_bridge = true;
                    return xml.skip();
                }
                let destination = Destination::ALL.into_iter().find(|kind| kind.element() == name);
                configuration.notifications.push(notification(xml, destination.ok_or_else(malformed)?)?);
                Ok(())
            })
        })?;
        if configuration.notifications.len() > CONFIGURATIONS_MAX {
            let count = configuration.notifications.len().to_string();
            let message = "A bucket can have at most 100 notification configurations.";
            return Err(S3Error::invalid_argument("NotificationConfiguration", count, message));
        }
        configuration.notifications.sort_by_key(|notification| notification.destination as u8);
        configuration.name_all()?;
        configuration.refuse_overlaps()?;
        Ok(configuration)
    }

    fn name_all(&mut self) -> Result<()> {
        let mut ids = BTreeSet::new();
        for notification in self.notifications.iter().filter(|notification| !notification.id.is_empty()) {
            if !ids.insert(notification.id.clone()) {
                let message = "Same ID used for multiple configurations. IDs must be unique.";
                return Err(S3Error::invalid_argument("Id", notification.id.clone(), message));
            }
        }
        let mut number = 0_usize;
        for notification in self.notifications.iter_mut().filter(|notification| notification.id.is_empty()) {
            while notification.id.is_empty() || !ids.insert(notification.id.clone()) {
                number += 1;
                notification.id = format!("notification-{number}");
            }
        }
        Ok(())
    }

    fn refuse_overlaps(&self) -> Result<()> {
        for (index, one) in self.notifications.iter().enumerate() {
            let overlap = self.notifications[..index].iter().any(|other| one.overlaps(other));
            if overlap {
                let message = match one.filter.is_empty() {
                    true => {
                        "Configurations overlap. Configurations on the same bucket cannot share a common event type."
                    }
                    false => {
                        "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the prefixes are \
                         overlapping for the same event type."
                    }
                };
                return Err(S3Error::invalid_argument("Id", one.id.clone(), message));
            }
        }
        Ok(())
    }
}

impl Notification {
    /// The value of a filter rule; empty when there is none.
    pub fn filter(&self, name: FilterName) -> &str {
        self.filter.iter().find(|(rule, _)| *rule == name).map_or("", |(_, value)| value.as_str())
    }

    /// What the destination is called: the last part of its ARN. `None` when the ARN is not that of
    /// such a destination in this region.
    pub fn destination_name(&self, region: &str) -> Option<&str> {
        let mut parts = self.arn.split(':');
        let mut next = || parts.next();
        let (arn, partition, service) = (next()?, next()?, next()?);
        let (of_region, account) = (next()?, next()?);
        let function = self.destination == Destination::Function;
        if function && next()? != "function" {
            return None;
        }
        let name = next()?;
        let whole = next().is_none();
        let is_account = account.is_empty() || (account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit()));
        let fits = arn == "arn"
            && partition.starts_with("aws")
            && service == self.destination.service()
            && (of_region.is_empty() || of_region == region)
            && is_account
            && whole;
        fits.then_some(name)
    }

    /// Whether some event on some key would meet both.
    fn overlaps(&self, other: &Self) -> bool {
        let share = |one: &str, two: &str| match (one.strip_suffix('*'), two.strip_suffix('*')) {
            (Some(kind), _) if two.starts_with(kind) => true,
            (_, Some(kind)) if one.starts_with(kind) => true,
            _ => one == two,
        };
        let (here, there) = (self.filter(FilterName::Prefix), other.filter(FilterName::Prefix));
        let prefixes = here.starts_with(there) || there.starts_with(here);
        let (here, there) = (self.filter(FilterName::Suffix), other.filter(FilterName::Suffix));
        let suffixes = here.ends_with(there) || there.ends_with(here);
        let events = self.events.iter().any(|one| other.events.iter().any(|two| share(one, two)));
        prefixes && suffixes && events
    }
}

impl Document for NotificationConfiguration {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("NotificationConfiguration");
        for notification in &self.notifications {
            xml.open(notification.destination.element());
            xml.text("Id", &notification.id);
            xml.text(notification.destination.arn_element(), &notification.arn);
            for event in &notification.events {
                xml.text("Event", &format!("s3:{event}"));
            }
            if !notification.filter.is_empty() {
                xml.open("Filter");
                xml.open("S3Key");
                for (name, value) in &notification.filter {
                    xml.open("FilterRule");
                    xml.text("Name", if *name == FilterName::Prefix { "Prefix" } else { "Suffix" });
                    xml.text("Value", value);
                    xml.close();
                }
                xml.close();
                xml.close();
            }
            xml.close();
        }
        if self.event_bridge {
            xml.open("EventBridgeConfiguration");
            xml.close();
        }
        xml.close();
    }
}

fn notification(xml: &mut Elements<'_>, destination: Destination) -> Result<Notification> {
    let (mut id, mut arn, mut filter) = (None, None, None);
    let mut events: Vec<String> = Vec::new();
    xml.children(|xml, name| match name {
        "Id" => set_once(&mut id, xml.text()?),
        "Event" => {
            let event = event(&xml.text()?)?;
            if !events.contains(&event) {
                events.push(event);
            }
            Ok(())
        }
        "Filter" => set_once(&mut filter, rules(xml)?),
        name if name == destination.arn_element() => set_once(&mut arn, xml.text()?),
        _ => Err(malformed()),
    })?;
    let id = id.unwrap_or_default();
    if id.len() > ID_BYTES_MAX {
        return Err(S3Error::invalid_argument("Id", id, "An ID has at most 255 characters."));
    }
    let arn = arn.map(|arn: String| arn.trim().to_owned()).filter(|arn| !arn.is_empty()).ok_or_else(malformed)?;
    if !arn.starts_with("arn:") {
        return Err(S3Error::invalid_argument(destination.arn_element(), arn, "The ARN is not well formed"));
    }
    if events.is_empty() {
        return Err(malformed());
    }
    Ok(Notification { id, destination, arn, events, filter: filter.unwrap_or_default() })
}

fn event(text: &str) -> Result<String> {
    let known = text.trim().strip_prefix("s3:").filter(|event| EVENTS.contains(event));
    known.map(str::to_owned).ok_or_else(|| {
        S3Error::invalid_argument("Event", text.to_owned(), "The event is not supported for notifications")
    })
}

/// The rules of a `Filter`.
fn rules(xml: &mut Elements<'_>) -> Result<Vec<(FilterName, String)>> {
    let mut rules: Vec<(FilterName, String)> = Vec::new();
    xml.children(|xml, name| match name {
        "S3Key" => xml.children(|xml, name| match name {
            "FilterRule" => {
                let (name, value) = rule(xml)?;
                if rules.iter().any(|(rule, _)| *rule == name) {
                    let message = match name {
                        FilterName::Prefix => "Cannot specify more than one prefix rule in a filter.",
                        FilterName::Suffix => "Cannot specify more than one suffix rule in a filter.",
                    };
                    return Err(S3Error::invalid_argument("FilterRule", value, message));
                }
                rules.push((name, value));
                Ok(())
            }
            _ => Err(malformed()),
        }),
        _ => Err(malformed()),
    })?;
    Ok(rules)
}

fn rule(xml: &mut Elements<'_>) -> Result<(FilterName, String)> {
    let (mut rule, mut value) = (None, None);
    xml.children(|xml, name| match name {
        "Name" => set_once(&mut rule, xml.text()?),
        "Value" => set_once(&mut value, xml.text()?),
        _ => Err(malformed()),
    })?;
    let (rule, value): (String, String) = (rule.ok_or_else(malformed)?, value.ok_or_else(malformed)?);
    let name = match rule.to_ascii_lowercase().as_str() {
        "prefix" => FilterName::Prefix,
        "suffix" => FilterName::Suffix,
        _ => {
            let message = "filter rule name must be either prefix or suffix";
            return Err(S3Error::invalid_argument("FilterRule.Name", rule, message));
        }
    };
    if value.len() > VALUE_BYTES_MAX {
        let message = "Size of filter rule value cannot exceed 1024 bytes in UTF-8 representation";
        return Err(S3Error::invalid_argument("FilterRule.Value", value, message));
    }
    Ok((name, value))
}

/// The answer to destinations that are not there.
pub fn unknown_destination(arn: &str) -> S3Error {
    let message = "Unable to validate the following destination configurations";
    let not_there = "The destination is not configured: its ARN ends in the name of no webhook of this server.";
    S3Error::with_message(ErrorCode::InvalidArgument, message)
        .field("ArgumentName1", arn)
        .field("ArgumentValue1", not_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(inside: &str) -> String {
        format!("<NotificationConfiguration>{inside}</NotificationConfiguration>")
    }

    fn queue(id: &str, event: &str, filter: &[(&str, &str)]) -> String {
        let rules: String = filter
            .iter()
            .map(|(name, value)| format!("<FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule>"))
            .collect();
        let filter = if rules.is_empty() { rules } else { format!("<Filter><S3Key>{rules}</S3Key></Filter>") };
        format!(
            "<QueueConfiguration><Id>{id}</Id><Queue>arn:aws:sqs:us-east-1:123456789012:hook</Queue>\
             <Event>s3:{event}</Event>{filter}</QueueConfiguration>"
        )
    }

    fn refused(inside: &str) -> S3Error {
        NotificationConfiguration::parse(document(inside).as_bytes()).unwrap_err()
    }

    #[test]
    fn a_document_is_read_and_written() {
        let function = "<CloudFunctionConfiguration>\
            <CloudFunction>arn:aws:lambda:us-east-1:123456789012:function:thumbs</CloudFunction>\
            <Event>s3:ObjectRemoved:*</Event></CloudFunctionConfiguration>";
        let topic = "<TopicConfiguration><Topic>arn:aws:sns:us-east-1:123456789012:hook</Topic>\
            <Event>s3:ReducedRedundancyLostObject</Event></TopicConfiguration>";
        let one = queue("one", "ObjectCreated:*", &[("prefix", "in/"), ("Suffix", ".jpg")]);
        let text = document(&format!("{function}{one}{topic}"));
        let read = NotificationConfiguration::parse(text.as_bytes()).unwrap();
        assert_eq!(NotificationConfiguration::parse(&read.to_bytes()).unwrap(), read);
        let ids: Vec<_> = read.notifications.iter().map(|notification| notification.id.as_str()).collect();
        assert_eq!(ids, ["notification-1", "one", "notification-2"], "topics, queues, functions");
        let names: Vec<_> = read.notifications.iter().map(|n| n.destination_name("us-east-1").unwrap()).collect();
        assert_eq!(names, ["hook", "hook", "thumbs"]);
        assert_eq!(read.notifications[1].filter(FilterName::Suffix), ".jpg");
        assert_eq!(NotificationConfiguration::parse(document("").as_bytes()).unwrap(), Default::default());
        let bridge = document("<EventBridgeConfiguration></EventBridgeConfiguration>");
        assert!(NotificationConfiguration::parse(bridge.as_bytes()).unwrap().event_bridge);
    }

    #[test]
    fn an_arn_names_a_destination_of_its_kind_in_this_region() {
        let name = |arn: &str| {
            let (id, events, filter) = (String::new(), Vec::new(), Vec::new());
            let notification = Notification { id, destination: Destination::Queue, arn: arn.into(), events, filter };
            notification.destination_name("eu-1").map(str::to_owned)
        };
        assert_eq!(name("arn:aws:sqs:eu-1:123456789012:hook").as_deref(), Some("hook"));
        assert_eq!(name("arn:aws-cn:sqs:::hook").as_deref(), Some("hook"));
        for arn in [
            "arn:aws:sns:eu-1:123456789012:hook",
            "arn:aws:sqs:us-1:123456789012:hook",
            "arn:aws:sqs:eu-1:12:hook",
            "arn:aws:sqs:eu-1:123456789012:hook:more",
            "arn:aws:sqs:eu-1:123456789012",
            "arn:other:sqs:eu-1:123456789012:hook",
        ] {
            assert_eq!(name(arn), None, "{arn}");
        }
    }

    #[test]
    fn documents_that_s3_does_not_take_are_refused() {
        let no_event = "<QueueConfiguration><Queue>arn:aws:sqs:::hook</Queue></QueueConfiguration>";
        let no_arn = "<QueueConfiguration><Event>s3:ObjectCreated:Put</Event></QueueConfiguration>";
        let other = "<TopicConfiguration><Queue>arn:a</Queue><Event>s3:ObjectCreated:Put</Event></TopicConfiguration>";
        for malformed in [no_event, no_arn, other, "<Colour/>"] {
            assert_eq!(refused(malformed).code(), ErrorCode::MalformedXML, "{malformed}");
        }
        let put = "ObjectCreated:Put";
        let long = "x".repeat(1025);
        for invalid in [
            queue("a", "ObjectCreated:Brew", &[]),
            queue(&"x".repeat(256), put, &[]),
            queue("a", put, &[("infix", "x")]),
            queue("a", put, &[("prefix", "x"), ("Prefix", "y")]),
            queue("a", put, &[("suffix", &long)]),
            queue("a", put, &[("prefix", "x")]) + &queue("a", "ObjectRemoved:*", &[]),
            queue("a", put, &[]).replace("arn:aws", "urn:aws"),
        ] {
            assert_eq!(refused(&invalid).code(), ErrorCode::InvalidArgument, "{invalid}");
        }
    }

    #[test]
    fn configurations_overlap_when_some_event_on_some_key_would_meet_both() {
        let meets = |one: (&str, &[(&str, &str)]), two: (&str, &[(&str, &str)])| {
            let text = document(&(queue("1", one.0, one.1) + &queue("2", two.0, two.1)));
            NotificationConfiguration::parse(text.as_bytes()).is_err()
        };
        let (put, all, removed) = ("ObjectCreated:Put", "ObjectCreated:*", "ObjectRemoved:Delete");
        assert!(meets((put, &[]), (put, &[])) && meets((put, &[]), (all, &[])) && meets((all, &[]), (put, &[])));
        assert!(!meets((put, &[]), (removed, &[])));
        assert!(meets((put, &[("prefix", "a")]), (put, &[("prefix", "ab")])));
        assert!(meets((put, &[("prefix", "a")]), (put, &[("suffix", ".jpg")])));
        assert!(!meets((put, &[("prefix", "a")]), (put, &[("prefix", "b")])));
        assert!(!meets((put, &[("prefix", "a"), ("suffix", ".jpg")]), (put, &[("prefix", "a"), ("suffix", ".png")])));
    }
}

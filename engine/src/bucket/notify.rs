//! Who is told of changes in a bucket, and in which words: a rule that a change meets leaves a
//! notice in the change's own transaction. [`crate::background::notify`] delivers them.

use super::{BucketHandle, BucketState, Buckets, RowPlace};
use crate::{config::NotifyConfig, error::EngineError, resources::clock::now_ms};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use catalog::{BucketId, NewNotice, Notice, NoticeOf, UnixMs, VersionId, VersionRef};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use time::{OffsetDateTime, macros::format_description};
use tokio::sync::Notify;

/// The name of a bucket's notifications among its configurations.
pub const NOTIFICATION: &str = "notification";
/// The part number under which an event's ETag is sealed; no part has it.
const EVENT_PART: u32 = u32::MAX;

/// Whom a bucket tells, as its configuration is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notifications {
    /// The client's document.
    pub document: String,
    /// What follows from it.
    pub rules: Vec<NotificationRule>,
}

/// Which changes one webhook is told of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationRule {
    /// The id of its configuration.
    pub id: String,
    /// The webhook's name.
    pub webhook: String,
    /// Events without their `s3:`; `*` after the colon stands for all of a kind.
    pub events: Vec<String>,
    /// How keys begin.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// How keys end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suffix: String,
}

impl NotificationRule {
    fn wants(&self, event: &str, key: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(kind) => event.starts_with(kind),
            None => pattern == event,
        };
        key.starts_with(&self.prefix) && key.ends_with(&self.suffix) && self.events.iter().any(fits)
    }
}

/// What a change is called when others are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of S3's events")]
pub enum Event {
    Put,
    Post,
    Copy,
    CompleteMultipartUpload,
    /// A client's deletion.
    Removed,
    /// A deletion by a lifecycle rule.
    Expired,
    TaggingPut,
    TaggingDelete,
    AclPut,
}

impl Event {
    /// Its names, each with the outcome it stands for, and the version of its record.
    fn names(self) -> (&'static [(&'static str, NoticeOf)], &'static str) {
        use NoticeOf::{Any, Marker, Removal};
        match self {
            Self::Put => (&[("ObjectCreated:Put", Any)], "2.1"),
            Self::Post => (&[("ObjectCreated:Post", Any)], "2.1"),
            Self::Copy => (&[("ObjectCreated:Copy", Any)], "2.1"),
            Self::CompleteMultipartUpload => (&[("ObjectCreated:CompleteMultipartUpload", Any)], "2.1"),
            Self::Removed => {
                (&[("ObjectRemoved:Delete", Removal), ("ObjectRemoved:DeleteMarkerCreated", Marker)], "2.1")
            }
            Self::Expired => {
                (&[("LifecycleExpiration:Delete", Removal), ("LifecycleExpiration:DeleteMarkerCreated", Marker)], "2.3")
            }
            Self::TaggingPut => (&[("ObjectTagging:Put", Any)], "2.3"),
            Self::TaggingDelete => (&[("ObjectTagging:Delete", Any)], "2.3"),
            Self::AclPut => (&[("ObjectAcl:Put", Any)], "2.3"),
        }
    }
}

/// What caused a change, as those who are told of it read it.
#[derive(Clone, Debug)]
pub struct Cause {
    /// What happened.
    pub event: Event,
    /// Who did it.
    pub principal: String,
    /// From where.
    pub address: String,
    /// `x-amz-request-id` of the request.
    pub request_id: String,
    /// `x-amz-id-2` of it.
    pub host_id: String,
}

impl Cause {
    /// A lifecycle rule, as S3 names it.
    pub(crate) fn lifecycle() -> Self {
        let service = || "s3.amazonaws.com".to_owned();
        let none = String::new;
        Self { event: Event::Expired, principal: service(), address: service(), request_id: none(), host_id: none() }
    }
}

/// What a change is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a str,
    pub(crate) size: Option<u64>,
    pub(crate) etag: Option<&'a str>,
    /// The version that has this ETag.
    pub(crate) id: Option<VersionId>,
    /// How requests name it, where that is known before the commit.
    pub(crate) version: Option<VersionRef>,
}

/// A notice's body.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    /// It tells of a configuration, and stands for itself.
    Test(Value),
    /// It tells of an object.
    Record {
        record: Value,
        /// Its ETag, sealed as facts are, where the bucket is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<SealedETag>,
    },
}

/// An ETag that the catalog's reader does not see.
#[derive(Debug, Serialize, Deserialize)]
struct SealedETag {
    bucket: BucketId,
    id: VersionId,
    etag: String,
}

/// Words notices, and wakes those who deliver them.
pub struct Notifier {
    config: NotifyConfig,
    bells: BTreeMap<String, Arc<Notify>>,
}

impl Notifier {
    pub(crate) fn new(config: NotifyConfig) -> Self {
        let bells = config.webhooks.iter().map(|name| (name.clone(), Arc::default())).collect();
        Self { config, bells }
    }

    /// How notices are kept.
    pub(crate) fn config(&self) -> &NotifyConfig {
        &self.config
    }

    /// The webhooks that are told here, each with the bell that is rung for it.
    pub(crate) fn bells(&self) -> impl Iterator<Item = (&String, &Arc<Notify>)> {
        self.bells.iter()
    }

    /// Wakes those who deliver these notices, whether they were left or not.
    pub(crate) fn ring(&self, lanes: &[String]) {
        lanes.iter().filter_map(|lane| self.bells.get(lane)).for_each(|bell| bell.notify_one());
    }

    /// The notices of a change in a bucket; none where nobody asked for any.
    ///
    /// # Errors
    /// [`EngineError`] when the bucket's configuration cannot be read.
    pub(crate) fn notices(
        &self,
        bucket: &BucketState,
        cause: Option<&Cause>,
        subject: Subject<'_>,
    ) -> Result<Vec<NewNotice>, EngineError> {
        let Some(cause) = cause else { return Ok(Vec::new()) };
        let Some(kept) = bucket.notifications()? else { return Ok(Vec::new()) };
        let (names, record_version) = cause.event.names();
        let at_ms = now_ms();
        let mut notices = Vec::new();
        for (name, of) in names {
            for rule in kept.rules.iter().filter(|rule| rule.wants(name, subject.key)) {
                let mut record = record(&self.config.region, bucket, cause, subject.key);
                record["eventVersion"] = record_version.into();
                record["eventName"] = (*name).into();
                record["s3"]["configurationId"] = rule.id.as_str().into();
                let sealed = describe(&mut record, bucket, subject)?;
                let body = serde_json::to_value(Body::Record { record, sealed });
                let body = body.map_err(|error| EngineError::Other(error.to_string()))?;
                notices.push(self.notice(&rule.webhook, subject.key, *of, body, at_ms));
            }
        }
        Ok(notices)
    }

    fn notice(&self, webhook: &str, key: &str, of: NoticeOf, body: Value, at_ms: UnixMs) -> NewNotice {
        let (lane, key) = (webhook.to_owned(), key.to_owned());
        NewNotice { lane, key, of, body, at_ms, waiting_max: self.config.waiting_max }
    }

    /// Replaces whom a bucket tells, or ends it. `test`: what each webhook is told of it at once.
    ///
    /// # Errors
    /// As [`Buckets::configure_bucket`].
    pub async fn configure(
        &self,
        buckets: &Buckets,
        bucket: &BucketHandle,
        kept: Option<Notifications>,
        test: Option<Value>,
    ) -> Result<(), EngineError> {
        let mut webhooks: Vec<String> = kept.iter().flat_map(|kept| &kept.rules).map(|r| r.webhook.clone()).collect();
        webhooks.sort_unstable();
        webhooks.dedup();
        let body = test.map(|test| serde_json::to_value(Body::Test(test))).transpose();
        let body = body.map_err(|error| EngineError::Other(error.to_string()))?;
        let kept = kept.map(serde_json::to_value).transpose();
        let kept = kept.map_err(|error| EngineError::Other(error.to_string()))?;
        let now_ms = now_ms();
        let notices = body.iter().flat_map(|body| {
            webhooks.iter().map(move |webhook| self.notice(webhook, "", NoticeOf::Any, body.clone(), now_ms))
        });
        let outcome = buckets.configure_bucket_telling(bucket, NOTIFICATION, kept, notices.collect()).await;
        self.ring(&webhooks);
        outcome
    }
}

/// Whom notices are for.
pub(crate) fn lanes_of(notices: &[NewNotice]) -> Vec<String> {
    notices.iter().map(|notice| notice.lane.clone()).collect()
}

impl BucketState {
    /// Whether somebody may be told of changes.
    pub fn notifies(&self) -> bool {
        self.settings.configurations.contains_key(NOTIFICATION)
    }

    /// Whom the bucket tells; `None` when nobody.
    ///
    /// # Errors
    /// [`EngineError::Other`] when what was kept cannot be read.
    pub fn notifications(&self) -> Result<Option<Notifications>, EngineError> {
        let Some(kept) = self.settings.configurations.get(NOTIFICATION) else { return Ok(None) };
        serde_json::from_value(kept.clone())
            .map(Some)
            .map_err(|error| EngineError::Other(format!("notifications of bucket {}: {error}", self.row.name)))
    }
}

/// A record as far as it follows from the request.
fn record(region: &str, bucket: &BucketState, cause: &Cause, key: &str) -> Value {
    json!({
        "eventSource": "aws:s3",
        "awsRegion": region,
        "userIdentity": { "principalId": cause.principal },
        "requestParameters": { "sourceIPAddress": cause.address },
        "responseElements": { "x-amz-request-id": cause.request_id, "x-amz-id-2": cause.host_id },
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {
                "name": bucket.row.name,
                "ownerIdentity": { "principalId": bucket.row.owner },
                "arn": format!("arn:aws:s3:::{}", bucket.row.name),
            },
            "object": { "key": form_encoded(key) },
        },
    })
}

/// Adds size, ETag and version where there are; gives the ETag back sealed where the bucket is.
fn describe(record: &mut Value, bucket: &BucketState, subject: Subject<'_>) -> Result<Option<SealedETag>, EngineError> {
    let object = &mut record["s3"]["object"];
    if let Some(size) = subject.size {
        object["size"] = size.into();
    }
    if let Some(version @ VersionRef::Id(_)) = subject.version {
        object["versionId"] = version.to_string().into();
    }
    match (subject.etag, subject.id) {
        (Some(etag), Some(id)) if bucket.is_sealed() => {
            let sealed = bucket.seal_facts(etag_place(subject.key, id), etag.as_bytes().to_vec())?;
            Ok(Some(SealedETag { bucket: bucket.row.id, id, etag: STANDARD.encode(sealed) }))
        }
        (Some(etag), _) => {
            object["eTag"] = etag.into();
            Ok(None)
        }
        (None, _) => Ok(None),
    }
}

fn etag_place(key: &str, id: VersionId) -> RowPlace<'_> {
    RowPlace { key, id: id.0, part: Some(EVENT_PART), extents_digest: [0; 32] }
}

/// A notice in the words that its webhook is told: S3's event message.
///
/// # Errors
/// [`EngineError::Other`] when it cannot be read. An ETag that cannot be opened any more, because
/// its bucket is gone, is left out.
pub(crate) async fn message(buckets: &Buckets, notice: Notice) -> Result<Vec<u8>, EngineError> {
    let unreadable = |error: serde_json::Error| EngineError::Other(format!("a notice cannot be read: {error}"));
    let told = match serde_json::from_value(notice.body).map_err(unreadable)? {
        Body::Test(test) => test,
        Body::Record { mut record, sealed } => {
            record["eventTime"] = iso8601(notice.at_ms).into();
            let bucket = record["s3"]["bucket"]["name"].as_str().unwrap_or_default().to_owned();
            let object = &mut record["s3"]["object"];
            object["sequencer"] = format!("{:016X}", notice.seq).into();
            if let Some(id) = notice.version {
                object["versionId"] = VersionRef::Id(id).to_string().into();
            }
            if let Some(sealed) = sealed
                && let Some(etag) = opened(buckets, &bucket, &notice.key, &sealed).await
            {
                object["eTag"] = etag.into();
            }
            json!({ "Records": [record] })
        }
    };
    Ok(told.to_string().into_bytes())
}

async fn opened(buckets: &Buckets, name: &str, key: &str, sealed: &SealedETag) -> Option<String> {
    let bucket = match buckets.bucket(name).await {
        Ok(bucket) => bucket.filter(|bucket| bucket.row.id == sealed.bucket)?,
        Err(error) => {
            tracing::warn!(%error, "an event is delivered without its ETag");
            return None;
        }
    };
    let stored = STANDARD.decode(&sealed.etag).ok()?;
    String::from_utf8(bucket.open_facts(etag_place(key, sealed.id), &stored).ok()?.into_owned()).ok()
}

/// A key as events show it: encoded as a form's value, its slashes left as they are.
fn form_encoded(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => encoded.push(byte.into()),
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// `1970-01-01T00:00:00.000Z`.
fn iso8601(at_ms: UnixMs) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at_ms) * 1_000_000);
    at.ok().and_then(|at| at.format(format).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_wants_the_events_it_names_of_keys_that_fit() {
        let rule = NotificationRule {
            events: vec!["ObjectCreated:*".into(), "ObjectRemoved:Delete".into()],
            prefix: "in/".into(),
            suffix: ".jpg".into(),
            ..NotificationRule::default()
        };
        assert!(rule.wants("ObjectCreated:Copy", "in/a.jpg") && rule.wants("ObjectRemoved:Delete", "in/.jpg"));
        assert!(!rule.wants("ObjectRemoved:DeleteMarkerCreated", "in/a.jpg"));
        assert!(!rule.wants("ObjectCreated:Put", "out/a.jpg") && !rule.wants("ObjectCreated:Put", "in/a.png"));
    }

    #[test]
    fn every_event_has_its_names() {
        let names = |event: Event| event.names().0.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names(Event::Expired), ["LifecycleExpiration:Delete", "LifecycleExpiration:DeleteMarkerCreated"]);
        assert_eq!(names(Event::AclPut), ["ObjectAcl:Put"]);
    }

    #[test]
    fn times_and_keys_look_as_in_s3s_messages() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso8601(1_709_210_096_789), "2024-02-29T12:34:56.789Z");
        assert_eq!(iso8601(4_107_542_399_001), "2100-02-28T23:59:59.001Z");
        assert_eq!(form_encoded("red flower/ü+*.jpg"), "red+flower/%C3%BC%2B*.jpg");
    }
}

//! Notifications of buckets: set and told. What a change tells of itself is kept and delivered by
//! the engine.

use super::{
    body::RequestBody,
    request::{Answer, InBucket, Result, S3Request, document, document_of_text, empty},
};
use crate::engine::notify::{Cause, Event, NotificationRule, Notifications};
use http::StatusCode;
use s3_wire::{
    ErrorCode, S3Error,
    checksum::Claims,
    headers::single,
    notification::{FilterName, Notification, NotificationConfiguration, unknown_destination},
    timestamp::iso8601,
    xml::Document as _,
};
use serde_json::json;
use std::time::SystemTime;

/// Replaces whom a bucket tells of changes. Each destination is told of that, too.
pub(super) async fn put(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let configuration = NotificationConfiguration::parse(&request.document(claims, body).await?)?;
    if configuration.event_bridge {
        let message = "There is no EventBridge here: use a queue, a topic or a function, each of which is a webhook.";
        return Err(S3Error::with_message(ErrorCode::NotImplemented, message));
    }
    let here = request.in_bucket().await?;
    let rules = configuration.notifications.iter().map(|notification| here.rule(notification));
    let rules = rules.collect::<Result<Vec<_>>>()?;
    let text = String::from_utf8(configuration.to_bytes().to_vec()).map_err(|_| ErrorCode::MalformedXML)?;
    let skips = single(&request.headers, "x-amz-skip-destination-validation")?
        .is_some_and(|skip| skip.eq_ignore_ascii_case("true"));
    let kept = (!rules.is_empty()).then_some(Notifications { document: text, rules });
    let test = (!skips).then(|| {
        json!({
            "Service": "Amazon S3",
            "Event": "s3:TestEvent",
            "Time": iso8601(SystemTime::now()),
            "Bucket": here.bucket.row.name,
            "RequestId": request.ids.request_id,
            "HostId": request.ids.host_id,
        })
    });
    let engine = &request.service.engine;
    let configured = engine.notifier.configure(&engine.buckets, &here.bucket, kept, test).await;
    configured.map_err(|error| request.refusal(error))?;
    Ok(empty(StatusCode::OK))
}

/// Answers with whom a bucket tells of changes.
pub(super) async fn get(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let kept = here.bucket.notifications().map_err(|error| request.refusal(error))?;
    Ok(kept.map_or_else(|| document(&NotificationConfiguration::default()), |kept| document_of_text(kept.document)))
}

impl InBucket<'_> {
    /// A notification as it is followed.
    fn rule(&self, notification: &Notification) -> Result<NotificationRule> {
        let service = &self.service;
        let webhook = notification.destination_name(&service.region);
        let webhook = webhook.filter(|name| service.webhooks.iter().any(|known| known == name));
        let webhook = webhook.ok_or_else(|| unknown_destination(&notification.arn))?;
        Ok(NotificationRule {
            id: notification.id.clone(),
            webhook: webhook.to_owned(),
            events: notification.events.clone(),
            prefix: notification.filter(FilterName::Prefix).to_owned(),
            suffix: notification.filter(FilterName::Suffix).to_owned(),
        })
    }
}

impl S3Request {
    /// What others are told of as the cause of a change in `bucket`; `None` where nobody is.
    pub(super) fn cause(&self, bucket: &crate::engine::BucketState, event: Event) -> Option<Cause> {
        bucket.notifies().then(|| Cause {
            event,
            principal: self.principal.canonical_id().to_owned(),
            address: self.peer.map(|peer| peer.to_canonical().to_string()).unwrap_or_default(),
            request_id: self.ids.request_id.clone(),
            host_id: self.ids.host_id.clone(),
        })
    }
}

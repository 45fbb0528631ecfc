//! Lifecycle configurations: set, told, removed, and what answers say of them. The rules are
//! followed by the engine's job.

use super::{
    body::RequestBody,
    request::{Answer, InBucket, Result, S3Request, document_of_text, empty, ms_of, set, time_of},
};
use catalog::UnixMs;
use engine::lifecycle::{Calendar, Expires, LIFECYCLE, Lifecycle, LifecycleRule, Noncurrent, RuleSubject};
use http::{HeaderMap, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3_wire::{
    ErrorCode, S3Error,
    lifecycle::{self, Expiration, LifecycleConfiguration},
    timestamp::http_date,
    xml::Document as _,
};
use std::collections::BTreeMap;

/// The least size of objects that transitions move: kept and told, since none is moved here.
const LEAST_SIZE: &str = "x-amz-transition-default-minimum-object-size";
/// Its words; the first is S3's default.
const LEAST_SIZES: [&str; 2] = ["all_storage_classes_128K", "varies_by_storage_class"];
/// Where a former release kept it, for rules that it was given.
const LEAST_SIZE_FORMERLY: &str = "lifecycle_least_size";

/// Replaces a bucket's rules.
pub(super) async fn put(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = request.demanded_digest()?;
    let configuration = LifecycleConfiguration::parse(&request.document(claims, body).await?)?;
    let least_size = least_size(&request.headers)?;
    let here = request.in_bucket().await?;
    let text = String::from_utf8(configuration.to_bytes().to_vec()).map_err(|_| ErrorCode::MalformedXML)?;
    let rules = configuration.rules.iter().filter(|rule| rule.enabled).map(followed).collect();
    let kept = serde_json::to_value(Lifecycle { document: text, rules, least_size: Some(least_size.to_owned()) });
    let kept = kept.map_err(|_| S3Error::new(ErrorCode::InternalError))?;
    here.configure(LIFECYCLE, Some(kept)).await?;
    let mut answer = empty(StatusCode::OK);
    set(answer.headers_mut(), LEAST_SIZE, least_size);
    Ok(answer)
}

/// Answers with a bucket's rules.
pub(super) async fn get(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let Some(lifecycle) = here.lifecycle()? else {
        let error = S3Error::new(ErrorCode::NoSuchLifecycleConfiguration);
        return Err(error.field("BucketName", &here.bucket.row.name));
    };
    let mut answer = document_of_text(lifecycle.document);
    let formerly = || here.bucket.settings.configurations.get(LEAST_SIZE_FORMERLY)?.as_str();
    let least_size = lifecycle.least_size.as_deref().or_else(formerly);
    set(answer.headers_mut(), LEAST_SIZE, least_size.unwrap_or(LEAST_SIZES[0]));
    Ok(answer)
}

/// Removes a bucket's rules.
pub(super) async fn delete(request: &S3Request) -> Result<Answer> {
    request.in_bucket().await?.configure(LIFECYCLE, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

fn least_size(headers: &HeaderMap) -> Result<&'static str> {
    let Some(asked) = headers.get(LEAST_SIZE) else { return Ok(LEAST_SIZES[0]) };
    LEAST_SIZES.into_iter().find(|known| asked == known).ok_or_else(|| {
        let text = String::from_utf8_lossy(asked.as_bytes());
        S3Error::invalid_argument(LEAST_SIZE, text, "The least size of objects for transitions is not a known one.")
    })
}

/// A rule as the job follows it.
fn followed(rule: &lifecycle::LifecycleRule) -> LifecycleRule {
    let filter = &rule.filter;
    LifecycleRule {
        id: rule.id.clone(),
        prefix: filter.prefix.clone().unwrap_or_default(),
        tags: filter.tags.clone(),
        larger_than: filter.larger_than,
        smaller_than: filter.smaller_than,
        expires: match rule.expiration {
            Some(Expiration::Days(days)) => Some(Expires::Days(days)),
            Some(Expiration::Date(date)) => Some(Expires::Date(ms_of(date))),
            Some(Expiration::DeleteMarker(_)) | None => None,
        },
        lone_markers: rule.expiration == Some(Expiration::DeleteMarker(true)),
        noncurrent: rule.noncurrent.map(|noncurrent| Noncurrent { days: noncurrent.days, newer: noncurrent.newer }),
        abort_days: rule.abort_days,
    }
}

impl InBucket<'_> {
    fn lifecycle(&self) -> Result<Option<Lifecycle>> {
        self.bucket.lifecycle().map_err(|error| self.refusal(error))
    }

    /// Says when the current version of a key expires. The date is that of real days, whatever the
    /// worker's are.
    pub(super) fn write_expiration(
        &self,
        headers: &mut HeaderMap,
        key: &str,
        size: u64,
        tags: &BTreeMap<String, String>,
        modified_ms: UnixMs,
    ) -> Result<()> {
        let Some(lifecycle) = self.lifecycle()? else { return Ok(()) };
        let candidate = RuleSubject { key, size, tags, modified_ms };
        if let Some((at_ms, rule)) = lifecycle.expiry(&candidate, Calendar::REAL) {
            let rule = utf8_percent_encode(rule, RULE_ID);
            let value = format!("expiry-date=\"{}\", rule-id=\"{rule}\"", http_date(time_of(at_ms)));
            set(headers, "x-amz-expiration", &value);
        }
        Ok(())
    }

    /// Says when an upload is aborted that nobody completes.
    pub(super) fn write_abort(&self, headers: &mut HeaderMap, key: &str, created_ms: UnixMs) -> Result<()> {
        let Some(lifecycle) = self.lifecycle()? else { return Ok(()) };
        if let Some((at_ms, rule)) = lifecycle.abort(key, created_ms, Calendar::REAL) {
            set(headers, "x-amz-abort-date", &http_date(time_of(at_ms)));
            set(headers, "x-amz-abort-rule-id", &utf8_percent_encode(rule, RULE_ID).to_string());
        }
        Ok(())
    }
}

/// A rule's id as headers can carry it.
const RULE_ID: &percent_encoding::AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'*');

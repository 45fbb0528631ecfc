//! Configurations of buckets and objects: tags and CORS rules, which are kept, and those that
//! nobody can set here and that answer as S3's do where they are unset.

use super::{
    access,
    body::RequestBody,
    request::{Answer, InBucket, Result, S3Request, document, empty},
    versions,
};
use crate::engine::{BucketHandle, EngineError, ObjectInfo, notify::Event};
use http::StatusCode;
use s3_wire::{
    CorsConfiguration, ErrorCode, Operation, S3Error, TagSet,
    checksum::Claims,
    tags::{BUCKET_TAGS_MAX, OBJECT_TAGS_MAX},
    xml::{
        Document as _,
        request::{asks_for_a_log, asks_for_acceleration, asks_the_requester_to_pay, parse_tagging},
        response::DefaultConfiguration,
    },
};

/// The name of a bucket's tags among its configurations.
const TAGGING: &str = "tagging";
/// The name of a bucket's CORS rules; kept as their document.
const CORS: &str = "cors";
/// The name of what a bucket says of accelerated transfer once it was told: that it is suspended.
const ACCELERATION: &str = "accelerate";

/// How often tags are set on a key that others overwrite all the time.
const TRIES_MAX: usize = 16;

/// Answers with a configuration of a bucket.
pub(super) async fn of_bucket(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    match request.operation {
        Operation::GetBucketTagging => match here.tags()? {
            tags if tags.is_empty() => Err(ErrorCode::NoSuchTagSet.into()),
            tags => Ok(document(&tags)),
        },
        Operation::GetBucketCors => {
            let configuration = cors_of(&here.bucket).map_err(|error| request.refusal(error))?;
            configuration.map(|rules| document(&rules)).ok_or_else(|| ErrorCode::NoSuchCORSConfiguration.into())
        }
        Operation::GetBucketAccelerateConfiguration
            if here.bucket.settings.configurations.contains_key(ACCELERATION) =>
        {
            Ok(document(&DefaultConfiguration::AccelerationSuspended))
        }
        operation => match unset(operation, request.target.query.has("id")) {
            Ok(configuration) => Ok(document(&configuration)),
            Err(code) => Err(S3Error::new(code).field("BucketName", &here.bucket.row.name)),
        },
    }
}

/// Answers with a configuration of an object.
pub(super) async fn of_object(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let info = here.tagged(request.key()?).await?;
    let mut answer = document(&TagSet::kept(info.facts.tags));
    versions::write(answer.headers_mut(), &here.bucket, info.version.reference());
    Ok(answer)
}

/// Removes a configuration of a bucket. One that was never set is removed already.
pub(super) async fn delete_of_bucket(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    match request.operation {
        Operation::DeleteBucketTagging => here.configure(TAGGING, None).await?,
        Operation::DeleteBucketCors => here.configure(CORS, None).await?,
        Operation::DeleteBucketPolicy => here.configure(access::POLICY, None).await?,
        Operation::DeletePublicAccessBlock => here.configure(access::PUBLIC_ACCESS_BLOCK, None).await?,
        _ => {}
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Replaces a bucket's tags.
pub(super) async fn put_bucket_tagging(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let tags = parse_tagging(&request.document(claims, body).await?, BUCKET_TAGS_MAX)?;
    let here = request.in_bucket().await?;
    here.configure(TAGGING, tagging_value(tags)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Takes a setting that this server has switched off, as long as it is to stay so.
pub(super) async fn put_switched_off(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let text = request.document(claims, body).await?;
    let (asked, message) = match request.operation {
        Operation::PutBucketAccelerateConfiguration => {
            (asks_for_acceleration(&text)?, "Accelerated transfer is not implemented; it can be suspended.")
        }
        Operation::PutBucketRequestPayment => {
            (asks_the_requester_to_pay(&text)?, "Requests that requesters pay are not implemented: the owner pays.")
        }
        _ => (asks_for_a_log(&text)?, "Logs in buckets are not implemented; the server has an access log of its own."),
    };
    let here = request.in_bucket().await?;
    if asked {
        return Err(S3Error::with_message(ErrorCode::NotImplemented, message));
    }
    if request.operation == Operation::PutBucketAccelerateConfiguration {
        here.configure(ACCELERATION, Some("Suspended".into())).await?;
    }
    Ok(empty(StatusCode::OK))
}

/// Replaces a bucket's CORS rules.
pub(super) async fn put_bucket_cors(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let rules = CorsConfiguration::parse(&request.document(claims, body).await?)?;
    let here = request.in_bucket().await?;
    let text = String::from_utf8(rules.to_bytes().to_vec()).map_err(|_| S3Error::new(ErrorCode::MalformedXML))?;
    here.configure(CORS, Some(text.into())).await?;
    Ok(empty(StatusCode::OK))
}

/// Answers a browser that asks whether it may send a request. Nobody is asked who they are: the
/// answer tells the bucket's rules alone.
pub(super) async fn preflight(request: &S3Request) -> Result<Answer> {
    let found =
        request.service.engine.buckets.bucket(request.bucket_name()?).await.map_err(|error| request.refusal(error))?;
    let rules = match &found {
        Some(bucket) => cors_of(bucket).map_err(|error| request.refusal(error))?,
        None => None,
    };
    let headers = CorsConfiguration::preflight(rules.as_ref(), &request.headers)?;
    let mut answer = empty(StatusCode::OK);
    answer.headers_mut().extend(headers);
    Ok(answer)
}

/// A bucket's CORS rules.
///
/// # Errors
/// [`EngineError::Other`] when what was kept cannot be read.
pub fn cors_of(bucket: &BucketHandle) -> Result<Option<CorsConfiguration>, EngineError> {
    let Some(kept) = bucket.settings.configurations.get(CORS) else { return Ok(None) };
    let document = kept.as_str().unwrap_or_default().as_bytes();
    CorsConfiguration::kept(document)
        .map(Some)
        .map_err(|error| EngineError::Other(format!("CORS rules of bucket {}: {error}", bucket.row.name)))
}

/// Replaces an object's tags.
pub(super) async fn put_object_tagging(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let tags = parse_tagging(&request.document(claims, body).await?, OBJECT_TAGS_MAX)?;
    let action = match request.version()? {
        Some(_) => request.operation.action_on_version(),
        None => request.operation.action(),
    };
    let request = &request.saying_tags(&tags);
    let bucket = request.in_bucket().await?.bucket;
    request.authorize_version(action, &bucket, request.key()?, request.version()?).await?;
    tag_object(request, tags, StatusCode::OK).await
}

/// Removes an object's tags.
pub(super) async fn delete_object_tagging(request: &S3Request) -> Result<Answer> {
    tag_object(request, TagSet::default(), StatusCode::NO_CONTENT).await
}

async fn tag_object(request: &S3Request, tags: TagSet, done: StatusCode) -> Result<Answer> {
    let event = if done == StatusCode::OK { Event::TaggingPut } else { Event::TaggingDelete };
    let here = request.in_bucket().await?;
    let key = request.key()?;
    let tags = tags.into_map();
    for _ in 0..TRIES_MAX {
        let version = here.tagged(key).await?.version;
        let cause = request.cause(&here.bucket, event);
        let set = request
            .service
            .engine
            .changes
            .amend(&here.bucket, key, version.id, cause.as_ref(), |facts| facts.tags.clone_from(&tags))
            .await;
        // A version that is gone was overwritten: the tags are for its successor.
        if set.map_err(|error| request.refusal(error))? {
            let mut answer = empty(done);
            versions::write(answer.headers_mut(), &here.bucket, version.reference());
            return Ok(answer);
        }
    }
    Err(ErrorCode::OperationAborted.into())
}

/// The configurations a new bucket has.
pub(super) fn of_new_bucket(tags: TagSet) -> Vec<(&'static str, serde_json::Value)> {
    tagging_value(tags).into_iter().map(|value| (TAGGING, value)).collect()
}

fn tagging_value(tags: TagSet) -> Option<serde_json::Value> {
    (!tags.is_empty()).then(|| serde_json::json!(tags.into_map()))
}

impl InBucket<'_> {
    /// The version whose tags a request is about. Of a delete marker S3 says that it has none,
    /// whether its id names it or it is what the key holds.
    async fn tagged(&self, key: &str) -> Result<ObjectInfo> {
        let missing = match self.addressed(key).await {
            Err(error) if error.code() == ErrorCode::NoSuchKey => error,
            found => return found,
        };
        let marker = self.service.engine.read.newest_marker(&self.bucket, key).await;
        match marker.map_err(|error| self.refusal(error))? {
            Some(marker) => Err(versions::not_for_markers(self.request, &marker)),
            None => Err(missing),
        }
    }

    fn tags(&self) -> Result<TagSet> {
        match self.bucket.settings.configurations.get(TAGGING) {
            None => Ok(TagSet::default()),
            Some(value) => serde_json::from_value(value.clone()).map(TagSet::kept).map_err(|error| {
                self.refusal(EngineError::Other(format!("tags of bucket {}: {error}", self.bucket.row.name)))
            }),
        }
    }

    /// Sets or removes one of the bucket's configurations.
    pub(super) async fn configure(&self, name: &str, value: Option<serde_json::Value>) -> Result<()> {
        self.service
            .engine
            .buckets
            .configure_bucket(&self.bucket, name, value)
            .await
            .map_err(|error| self.refusal(error))
    }
}

/// What S3 answers about a configuration that was never set. `one` is asked for by its id, where
/// there can be several.
fn unset(operation: Operation, one: bool) -> Result<DefaultConfiguration, ErrorCode> {
    use DefaultConfiguration::{Empty, EmptyList, OwnerPays};
    match operation {
        Operation::GetBucketWebsite => Err(ErrorCode::NoSuchWebsiteConfiguration),
        Operation::GetBucketReplication => Err(ErrorCode::ReplicationConfigurationNotFoundError),
        Operation::GetBucketRequestPayment => Ok(OwnerPays),
        Operation::GetBucketLogging => Ok(Empty("BucketLoggingStatus")),
        Operation::GetBucketAccelerateConfiguration => Ok(Empty("AccelerateConfiguration")),
        _ if one => Err(ErrorCode::NoSuchConfiguration),
        Operation::GetBucketInventoryConfiguration => Ok(EmptyList("ListInventoryConfigurationsResult")),
        Operation::GetBucketAnalyticsConfiguration => Ok(EmptyList("ListBucketAnalyticsConfigurationResult")),
        Operation::GetBucketMetricsConfiguration => Ok(EmptyList("ListMetricsConfigurationsResult")),
        Operation::GetBucketIntelligentTieringConfiguration => {
            Ok(EmptyList("ListBucketIntelligentTieringConfigurationsOutput"))
        }
        _ => Err(ErrorCode::NotImplemented),
    }
}

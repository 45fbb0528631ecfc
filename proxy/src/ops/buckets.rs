//! Operations on buckets and on the list of them.

use super::{
    access,
    body::RequestBody,
    configuration, object_lock,
    request::{Answer, Result, S3Request, document, empty, set, time_of},
    token,
};
use ::access::MapContext;
use http::StatusCode;
use s3_wire::{
    ErrorCode, Query, S3Error,
    checksum::Claims,
    xml::{
        request::CreateBucketConfiguration,
        response::{BucketEntry, ListAllMyBucketsResult, LocationConstraint},
    },
};
use std::sync::Arc;

/// The most buckets of a page, and without paging of a list.
const BUCKETS_MAX: usize = 10_000;

/// The parameters of ListBuckets. The answer to any of them tells each bucket's region.
const PARAMETERS: [&str; 4] = ["max-buckets", "prefix", "continuation-token", "bucket-region"];

/// The region in which a bucket may be made again by its owner: S3 keeps that for old clients, and
/// gives the bucket the ACL of the request.
const FORGIVING_REGION: &str = "us-east-1";

/// Lists the buckets the caller owns or may list.
pub(super) async fn list(request: &S3Request) -> Result<Answer> {
    let query = &request.target.query;
    let prefix = query.single("prefix")?.unwrap_or_default();
    let limit = page_len(query)?;
    let after = match query.single("continuation-token")? {
        Some(token) => token::decode(token)?,
        None => String::new(),
    };
    let region_asked = query.single("bucket-region")?;
    let buckets = request.service.engine.buckets.buckets().await.map_err(|error| request.refusal(error))?;
    let principal = &request.principal;
    let region = &request.service.region;
    let account = principal.caller().map(|caller| caller.account.as_str());
    let sees = |bucket: &catalog::Bucket| {
        let in_account = Some(request.users.resource_owner(&bucket.owner).account) == account;
        principal.is_admin()
            || (in_account && (bucket.owner == principal.canonical_id() || access::sees(request, &bucket.name)))
    };
    let mut visible = buckets.into_iter().filter(|bucket| {
        bucket.name.starts_with(prefix)
            && bucket.name > after
            && region_asked.is_none_or(|asked| asked == region)
            && sees(bucket)
    });
    let page: Vec<_> = visible.by_ref().take(limit).collect();
    let more = visible.next().is_some();
    let with_region = PARAMETERS.iter().any(|name| query.has(name));
    Ok(document(&ListAllMyBucketsResult {
        owner: request.service.users().owner(principal.canonical_id()),
        prefix: Some(prefix.to_owned()).filter(|prefix| !prefix.is_empty()),
        continuation_token: page.last().filter(|_| more).map(|bucket| token::encode(&bucket.name)),
        buckets: page
            .into_iter()
            .map(|bucket| BucketEntry {
                created: time_of(bucket.created_ms),
                region: with_region.then(|| region.clone()),
                name: bucket.name,
            })
            .collect(),
    }))
}

fn page_len(query: &Query) -> Result<usize> {
    let Some(text) = query.single("max-buckets")? else { return Ok(BUCKETS_MAX) };
    let number = text.parse::<usize>().ok().filter(|number| (1..=BUCKETS_MAX).contains(number));
    number.ok_or_else(|| {
        S3Error::invalid_argument("max-buckets", text, "Argument max-buckets must be an integer between 1 and 10000.")
    })
}

/// Creates a bucket with the settings configured for its name.
pub(super) async fn create(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let name = request.bucket_name()?;
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let wanted = CreateBucketConfiguration::parse(&request.document(claims, body).await?)?;
    let mut said = MapContext::default();
    if let Some(location) = &wanted.location_constraint {
        said.add("s3:LocationConstraint", location.as_str());
    }
    let request = &S3Request { said: Arc::new(said), ..request.clone() };
    access::authorize_creation(request, name)?;
    check_location(wanted.location_constraint.as_deref(), &request.service.region)?;
    let object_lock = object_lock::of_new_bucket(request)?;
    let owner = request.principal.canonical_id();
    let mut configurations = configuration::of_new_bucket(wanted.tags);
    configurations.extend(access::of_new_bucket(request)?);
    let engine = &request.service.engine;
    let created = engine
        .buckets
        .create_configured_bucket(name, owner, configurations, object_lock)
        .await
        .map_err(|error| request.refusal(error))?;
    if created.is_none() {
        let existing = request.bucket(name).await?;
        let code = if existing.row.owner != owner {
            ErrorCode::BucketAlreadyExists
        } else if request.service.region == FORGIVING_REGION {
            access::reset_bucket_acl(request, existing).await?;
            return Ok(made(name));
        } else {
            ErrorCode::BucketAlreadyOwnedByYou
        };
        return Err(S3Error::new(code).field("BucketName", name));
    }
    Ok(made(name))
}

fn made(name: &str) -> Answer {
    let mut answer = empty(StatusCode::OK);
    set(answer.headers_mut(), "location", &format!("/{name}"));
    set(answer.headers_mut(), "x-amz-bucket-arn", &format!("arn:aws:s3:::{name}"));
    answer
}

/// A bucket can only be where this server is.
fn check_location(wanted: Option<&str>, region: &str) -> Result<()> {
    match wanted {
        None | Some("") => Ok(()),
        Some(wanted) if wanted == region => Ok(()),
        Some(wanted) => Err(S3Error::with_message(
            ErrorCode::IllegalLocationConstraintException,
            format!("The {wanted} location constraint is incompatible for the region specific endpoint this request was sent to."),
        )
        .field("LocationConstraint", wanted)),
    }
}

/// Says that a bucket is there, and where.
pub(super) async fn head(request: &S3Request) -> Result<Answer> {
    request.in_bucket().await?;
    let mut answer = empty(StatusCode::OK);
    set(answer.headers_mut(), "x-amz-bucket-region", &request.service.region);
    set(answer.headers_mut(), "x-amz-access-point-alias", "false");
    Ok(answer)
}

/// Deletes an empty bucket. Uploads that are open in it end with it, as in S3.
pub(super) async fn delete(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let engine = &request.service.engine;
    if engine.buckets.delete_bucket(&here.bucket).await.map_err(|error| request.refusal(error))? {
        Ok(empty(StatusCode::NO_CONTENT))
    } else {
        Err(S3Error::new(ErrorCode::NoSuchBucket).field("BucketName", request.bucket_name()?))
    }
}

/// Says where a bucket is.
pub(super) async fn location(request: &S3Request) -> Result<Answer> {
    request.in_bucket().await?;
    Ok(document(&LocationConstraint { region: request.service.region.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_may_only_be_asked_for_where_the_server_is() {
        for wanted in [None, Some(""), Some("eu-west-1")] {
            assert!(check_location(wanted, "eu-west-1").is_ok());
        }
        let error = check_location(Some("us-west-2"), "eu-west-1").unwrap_err();
        assert_eq!(error.code(), ErrorCode::IllegalLocationConstraintException);
    }

    #[test]
    fn pages_of_buckets_have_bounds() {
        let len = |raw: &str| page_len(&Query::parse(raw).unwrap());
        assert_eq!((len("").unwrap(), len("max-buckets=1").unwrap()), (BUCKETS_MAX, 1));
        for raw in ["max-buckets=0", "max-buckets=10001", "max-buckets=-1", "max-buckets=x", "max-buckets="] {
            assert_eq!(len(raw).unwrap_err().code(), ErrorCode::InvalidArgument, "{raw}");
        }
    }
}

//! A bucket's policy, its ownership controls and its public access block.

use super::{
    super::{
        body::{AnswerBody, RequestBody},
        request::{Answer, Result, S3Request, document, empty},
    },
    rules::{NO_CONTROLS, OWNERSHIP, Ownership, POLICY, PUBLIC_ACCESS_BLOCK},
};
use access::{Document, Finding, PublicAccessBlock};
use http::{HeaderValue, StatusCode, header};
use s3_wire::{
    ErrorCode, S3Error,
    checksum::Claims,
    headers::single,
    xml::{
        request::{ObjectOwnership, PublicAccessBlockConfiguration},
        response::PolicyStatus,
    },
};

/// Replaces a bucket's policy.
pub(in crate::ops) async fn put_policy(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let text = request.document(claims, body).await?;
    let here = request.in_bucket().await?;
    let name = &here.bucket.row.name;
    let policy = Document::of_bucket(&text, name).map_err(|error| {
        let refused = S3Error::with_message(ErrorCode::MalformedPolicy, error.message().to_owned());
        match error.detail() {
            Some(detail) => refused.field("Detail", detail),
            None => refused,
        }
    })?;
    if policy.allows_all_but_some() {
        return Err(S3Error::with_message(ErrorCode::MalformedPolicy, "Allow with NotPrincipal is not allowed."));
    }
    let block = request.access_of(&here.bucket)?.block();
    if block.block_public_policy && policy.is_public() {
        return Err(ErrorCode::AccessDenied.into());
    }
    let confirmed = single(&request.headers, "x-amz-confirm-remove-self-bucket-access")?
        .is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let resource = format!("arn:aws:s3:::{name}");
    let verdict =
        policy.evaluate(request.principal.caller(), "s3:PutBucketPolicy", &resource, &request.context(&here.bucket));
    if matches!(verdict, Finding::Deny(..)) && !confirmed && !request.principal.is_admin() {
        return Err(S3Error::with_message(
            ErrorCode::AccessDenied,
            "The policy denies you to change it later. Send x-amz-confirm-remove-self-bucket-access: true if you mean it.",
        ));
    }
    let text = String::from_utf8(text.to_vec()).map_err(|_| S3Error::new(ErrorCode::MalformedPolicy))?;
    here.configure(POLICY, Some(text.into())).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Answers with a bucket's policy, as it was sent.
pub(in crate::ops) async fn get_policy(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let Some(policy) = here.bucket.settings.configurations.get(POLICY).and_then(|text| text.as_str()) else {
        return Err(S3Error::new(ErrorCode::NoSuchBucketPolicy).field("BucketName", &here.bucket.row.name));
    };
    let mut answer = empty(StatusCode::OK);
    *answer.body_mut() = AnswerBody::Whole(policy.to_owned().into());
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(policy.len()));
    Ok(answer)
}

/// Says whether a bucket is public, by its policy or by its grants.
pub(in crate::ops) async fn get_policy_status(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let access = request.access_of(&here.bucket)?;
    let by_acl = access.ownership.acls_count()
        && !access.block().ignore_public_acls
        && access.acl.as_ref().is_some_and(access::Acl::is_public);
    let by_policy = access.policy.as_ref().is_some_and(Document::is_public) && !access.block().restrict_public_buckets;
    Ok(document(&PolicyStatus { is_public: by_acl || by_policy }))
}

/// Says who owns what is written into a bucket.
pub(in crate::ops) async fn get_ownership(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    match request.access_of(&here.bucket)?.ownership {
        Ownership::Controlled(ownership) => Ok(document(&ownership)),
        Ownership::Older => Ok(document(&ObjectOwnership::BucketOwnerEnforced)),
        Ownership::Uncontrolled => {
            Err(S3Error::new(ErrorCode::OwnershipControlsNotFoundError).field("BucketName", &here.bucket.row.name))
        }
    }
}

/// Decides who owns what is written into a bucket.
pub(in crate::ops) async fn put_ownership(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let wanted = ObjectOwnership::parse(&request.document(claims, body).await?)?;
    let here = request.in_bucket().await?;
    let access = request.access_of(&here.bucket)?;
    let granted = access.acl.as_ref().is_some_and(|acl| !acl.is_private(&here.bucket.row.owner));
    if wanted == ObjectOwnership::BucketOwnerEnforced && granted {
        return Err(ErrorCode::InvalidBucketAclWithObjectOwnership.into());
    }
    here.configure(OWNERSHIP, Some(wanted.as_str().into())).await?;
    Ok(empty(StatusCode::OK))
}

/// Removes a bucket's ownership controls: objects are their writers'.
pub(in crate::ops) async fn delete_ownership(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    here.configure(OWNERSHIP, Some(NO_CONTROLS.into())).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Answers with a bucket's public access block.
pub(in crate::ops) async fn get_public_access_block(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let Some(block) = request.access_of(&here.bucket)?.block else {
        let error = S3Error::new(ErrorCode::NoSuchPublicAccessBlockConfiguration);
        return Err(error.field("BucketName", &here.bucket.row.name));
    };
    Ok(document(&PublicAccessBlockConfiguration {
        block_public_acls: block.block_public_acls,
        ignore_public_acls: block.ignore_public_acls,
        block_public_policy: block.block_public_policy,
        restrict_public_buckets: block.restrict_public_buckets,
    }))
}

/// Replaces a bucket's public access block.
pub(in crate::ops) async fn put_public_access_block(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let wanted = PublicAccessBlockConfiguration::parse(&request.document(claims, body).await?)?;
    let here = request.in_bucket().await?;
    let block = PublicAccessBlock {
        block_public_acls: wanted.block_public_acls,
        ignore_public_acls: wanted.ignore_public_acls,
        block_public_policy: wanted.block_public_policy,
        restrict_public_buckets: wanted.restrict_public_buckets,
    };
    here.configure(PUBLIC_ACCESS_BLOCK, Some(serde_json::json!(block))).await?;
    Ok(empty(StatusCode::OK))
}

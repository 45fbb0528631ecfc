//! What an operation is handed and what it answers with: the request, what every request shares,
//! and helpers of all operations.

use super::{
    access::AccessCache,
    body::{AnswerBody, RequestBody},
};
use crate::{
    audit::OfBody,
    auth::{Accounts, Principal, Users},
    config::{NamedKeys, ServerConfig},
    engine::{BucketHandle, Engine},
    metrics::Metrics,
};
use access::MapContext;
use bytes::Bytes;
use catalog::UnixMs;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use s3_wire::{
    DecodedBody, ErrorCode, Framing, Operation, S3Error, Target,
    checksum::{ChecksumClaim, Claims},
    headers::single,
    operation::RequestBody as BodyKind,
    response::{self, RequestIds},
    sigv4::{PayloadMode, SignatureKind, Verifier},
    xml::Document,
};
use std::{
    net::IpAddr,
    ops::Deref,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The most bytes of one PUT and of the source of one copy: 5 GiB.
pub(super) const PUT_BYTES_MAX: u64 = 5 << 30;

pub(super) type Result<T, E = S3Error> = std::result::Result<T, E>;

/// An operation's answer.
pub type Answer = Response<AnswerBody>;

/// What every request shares.
pub struct Service {
    /// Storage.
    pub engine: Arc<Engine>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Region of bucket locations.
    pub region: String,
    /// Whether answers carry `x-deltaweir-*`.
    pub storage_headers: bool,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Whether customers may send keys of their own.
    pub sse_c: bool,
    /// Keys for `aws:kms`.
    pub kms_keys: NamedKeys,
    /// Names of webhooks that buckets may tell of changes.
    pub webhooks: Vec<String>,
    accounts: Arc<Accounts>,
    /// Verifies signatures.
    pub verifier: Verifier,
    /// What buckets say about access, parsed.
    pub(super) access: AccessCache,
}

impl Service {
    /// The service of one server.
    pub fn new(config: &ServerConfig, engine: Arc<Engine>, metrics: Arc<Metrics>, accounts: Arc<Accounts>) -> Self {
        Self {
            engine,
            metrics,
            sse_c: config.tls.is_some() || config.sse_c_over_http,
            kms_keys: config.kms_keys.clone(),
            webhooks: config.webhooks.clone(),
            accounts,
            region: config.region.clone(),
            storage_headers: config.storage_headers,
            scheme: if config.tls.is_some() { "https" } else { "http" },
            verifier: Verifier::new(config.region.clone()).presign_v2(config.presign_v2).header_v2(config.header_v2),
            access: AccessCache::default(),
        }
    }

    /// Users as they are now.
    pub fn users(&self) -> Arc<Users> {
        self.accounts.users()
    }
}

/// One request after it was routed, verified and authorized: what an operation sees. Cheap to
/// clone.
#[derive(Clone)]
pub struct S3Request {
    /// What every request shares.
    pub service: Arc<Service>,
    /// The operation.
    pub operation: Operation,
    /// Bucket, key, parameters.
    pub target: Arc<Target>,
    /// Effective headers.
    pub headers: Arc<HeaderMap>,
    /// How the payload is framed.
    pub payload: PayloadMode,
    /// Who sent it.
    pub principal: Principal,
    /// Users as they were when it came.
    pub users: Arc<Users>,
    /// How and when it was signed, unless nobody did.
    pub signed: Option<Signed>,
    /// Its ids.
    pub ids: Arc<RequestIds>,
    /// The address it came from.
    pub peer: Option<IpAddr>,
    /// Values of condition keys that stand in its body.
    pub said: Arc<MapContext>,
    /// The addressed bucket, once it was looked up.
    pub found: Option<BucketHandle>,
    /// Whether the access log may show the key.
    pub key_shows: Arc<AtomicBool>,
    /// Set when stored bytes are missing or damaged.
    pub damage: Arc<OnceLock<String>>,
    /// Set where only the body tells who sent it, or which objects it is about.
    pub of_body: Arc<OnceLock<OfBody>>,
}

/// How a request was signed.
#[derive(Clone, Copy, Debug)]
pub struct Signed {
    /// Where the signature stands.
    pub kind: SignatureKind,
    /// When it was made, as it claims.
    pub at: SystemTime,
}

/// A request about a bucket that is there.
pub(super) struct InBucket<'r> {
    pub(super) request: &'r S3Request,
    pub(super) bucket: BucketHandle,
}

impl Deref for InBucket<'_> {
    type Target = S3Request;

    fn deref(&self) -> &S3Request {
        self.request
    }
}

impl S3Request {
    pub(super) fn bucket_name(&self) -> Result<&str> {
        let bucket = self.target.bucket.as_ref();
        Ok(bucket.ok_or_else(|| S3Error::new(ErrorCode::InvalidBucketName))?.as_str())
    }

    pub(super) fn key(&self) -> Result<&str> {
        let key = self.target.key.as_ref();
        Ok(key.ok_or_else(|| S3Error::invalid_argument("key", "", "A key has at least one byte."))?.as_str())
    }

    /// Looks the addressed bucket up.
    pub(super) async fn in_bucket(&self) -> Result<InBucket<'_>> {
        let bucket = match &self.found {
            Some(bucket) => bucket.clone(),
            None => self.bucket(self.bucket_name()?).await?,
        };
        self.expect_owner("x-amz-expected-bucket-owner", &bucket)?;
        self.key_shows.store(!bucket.is_sealed(), std::sync::atomic::Ordering::Relaxed);
        Ok(InBucket { request: self, bucket })
    }

    /// Refuses when the client says that a bucket is somebody's and it is not.
    pub(super) fn expect_owner(&self, header: &'static str, bucket: &BucketHandle) -> Result<()> {
        match single(&self.headers, header)? {
            Some(owner) if owner != bucket.row.owner => Err(ErrorCode::AccessDenied.into()),
            _ => Ok(()),
        }
    }

    pub(super) async fn bucket(&self, name: &str) -> Result<BucketHandle> {
        let bucket = self.service.engine.buckets.bucket(name).await.map_err(|error| self.refusal(error))?;
        bucket.ok_or_else(|| S3Error::new(ErrorCode::NoSuchBucket).field("BucketName", name))
    }

    /// Reads the request's document.
    pub(super) async fn document(&self, claims: Claims, body: &mut RequestBody) -> Result<Bytes> {
        let BodyKind::Xml { bytes_max } = self.operation.row().body else {
            return Ok(Bytes::new());
        };
        let is_empty = http_body::Body::is_end_stream(body);
        let framing = Framing::of_document(&self.headers, &self.payload, is_empty)?;
        let mut body = DecodedBody::new(body, framing);
        let document = body.collect(bytes_max).await?;
        let mut digests = s3_wire::checksum::Digests::new(claims.digests());
        digests.update(&document);
        let mut claims = claims;
        if let Some(trailers) = body.trailers() {
            claims.settle(trailers)?;
        }
        claims.verify(&digests.finish())?;
        Ok(document)
    }

    /// The claims of a document that S3 takes only with a digest.
    pub(super) fn demanded_digest(&self) -> Result<Claims> {
        let claims = Claims::from_headers(&self.headers, &self.payload)?;
        if has_digest(&claims) {
            return Ok(claims);
        }
        let message = "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
        Err(S3Error::with_message(ErrorCode::InvalidRequest, message))
    }
}

/// Whether a client vouches for its payload.
pub(super) fn has_digest(claims: &Claims) -> bool {
    claims.content_md5.is_some() || claims.checksum != ChecksumClaim::None
}

pub(super) fn no_such_version(version: &str) -> S3Error {
    S3Error::new(ErrorCode::NoSuchVersion).field("VersionId", version)
}

pub(super) fn no_such_key(key: &str) -> S3Error {
    S3Error::new(ErrorCode::NoSuchKey).field("Key", key)
}

pub(super) fn ms_of(at: SystemTime) -> UnixMs {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX))
}

pub(super) fn time_of(ms: UnixMs) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Answer {
    response::empty(status).map(AnswerBody::from)
}

/// An answer with a document.
pub(super) fn document(document: &impl Document) -> Answer {
    response::document(StatusCode::OK, document).map(AnswerBody::from)
}

/// An answer with a document that is kept as text.
pub(super) fn document_of_text(text: String) -> Answer {
    let mut answer = empty(StatusCode::OK).map(|_| AnswerBody::Whole(text.into()));
    answer.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    answer
}

/// Sets a header from text that is known to be visible ASCII; anything else is left out.
pub(super) fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    match HeaderValue::from_str(value) {
        Ok(value) => {
            // A name of ours is in lower case, and is not taken apart as a client's is.
            headers.insert(HeaderName::from_static(name), value);
        }
        Err(_) => tracing::warn!(name, "a response header has an invalid value and is left out"),
    }
}

//! Object lock: whether a bucket's versions can be locked, what a version gets by default or by
//! header, and its retention and legal hold. Whether a lock lets a version go is decided in the
//! catalog's transaction.

use super::{
    body::RequestBody,
    request::{Answer, InBucket, Result, S3Request, document, empty, has_digest, ms_of, set, time_of},
    versions,
};
use crate::engine::{BucketHandle, EngineError};
use catalog::{LockChange, VersionLock, Versioning};
use http::{HeaderMap, StatusCode};
use s3_wire::{
    ErrorCode, S3Error,
    checksum::Claims,
    object_lock::{
        LEGAL_HOLD, LegalHold, LockHeaders, ObjectLockConfiguration, Retention, RetentionMode, bypasses_governance,
        wanted_for_bucket,
    },
    xml::Document as _,
};
use std::time::SystemTime;

/// The name of a bucket's configuration of object lock; kept as its document, and only where there
/// is a default retention.
const OBJECT_LOCK: &str = "object-lock";
/// How often a lock is set on a key that others overwrite all the time.
const TRIES_MAX: usize = 16;

/// Whether the versions of a new bucket are to be lockable.
pub(super) fn of_new_bucket(request: &S3Request) -> Result<bool> {
    let wanted = wanted_for_bucket(&request.headers)?;
    if wanted {
        let name = request.bucket_name()?;
        for action in ["s3:PutBucketObjectLockConfiguration", "s3:PutBucketVersioning"] {
            request.authorize_nowhere(action, &format!("arn:aws:s3:::{name}"))?;
        }
    }
    Ok(wanted)
}

/// Answers with a bucket's configuration.
pub(super) async fn get_configuration(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    if !here.bucket.row.object_lock {
        let error = S3Error::new(ErrorCode::ObjectLockConfigurationNotFoundError);
        return Err(error.field("BucketName", &here.bucket.row.name));
    }
    Ok(document(&here.lock_configuration()?))
}

/// Lets the versions of a bucket be locked, and replaces what they get by default.
pub(super) async fn put_configuration(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = request.demanded_digest()?;
    let written = request.document(claims, body).await?;
    if written.is_empty() {
        return Err(ErrorCode::MissingRequestBodyError.into());
    }
    let configuration = ObjectLockConfiguration::parse(&written)?;
    let here = request.in_bucket().await?;
    if here.bucket.row.versioning != Versioning::Enabled {
        return Err(not_versioned());
    }
    request.service.engine.catalog().enable_object_lock(here.bucket.row.id).await.map_err(|error| {
        match error.into() {
            EngineError::BucketState => not_versioned(),
            other => request.refusal(other),
        }
    })?;
    let text = String::from_utf8(configuration.to_bytes().to_vec()).map_err(|_| ErrorCode::MalformedXML)?;
    here.configure(OBJECT_LOCK, configuration.default_retention.map(|_| text.into())).await?;
    Ok(empty(StatusCode::OK))
}

fn not_versioned() -> S3Error {
    S3Error::with_message(
        ErrorCode::InvalidBucketState,
        "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration",
    )
}

/// Answers with the retention of a version.
pub(super) async fn get_retention(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let version = here.addressed(request.key()?).await?.version;
    here.expect_object_lock()?;
    let retention = version.lock.retention.ok_or(ErrorCode::NoSuchObjectLockConfiguration)?;
    let mut answer = document(&on_wire(retention));
    versions::write(answer.headers_mut(), &here.bucket, version.reference());
    Ok(answer)
}

/// Answers with the legal hold of a version.
pub(super) async fn get_legal_hold(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let version = here.addressed(request.key()?).await?.version;
    here.expect_object_lock()?;
    let hold = version.lock.legal_hold.ok_or(ErrorCode::NoSuchObjectLockConfiguration)?;
    let mut answer = document(&LegalHold(hold));
    versions::write(answer.headers_mut(), &here.bucket, version.reference());
    Ok(answer)
}

/// Sets, prolongs, shortens or removes the retention of a version.
pub(super) async fn put_retention(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = request.demanded_digest()?;
    let retention = Retention::parse(&request.document(claims, body).await?, SystemTime::now())?;
    change(request, LockChange::Retention(retention.map(kept))).await
}

/// Sets or ends the legal hold of a version.
pub(super) async fn put_legal_hold(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = request.demanded_digest()?;
    let LegalHold(on) = LegalHold::parse(&request.document(claims, body).await?)?;
    change(request, LockChange::LegalHold(on)).await
}

async fn change(request: &S3Request, change: LockChange) -> Result<Answer> {
    let here = request.in_bucket().await?;
    here.expect_object_lock()?;
    let key = request.key()?;
    let bypass = request.may_bypass_governance(&here.bucket, key)?;
    for _ in 0..TRIES_MAX {
        let version = here.addressed(key).await?.version;
        let set = request.service.engine.changes.set_lock(&here.bucket, key, version.id, change, bypass).await;
        // A version that is gone was overwritten: the lock is for its successor.
        if set.map_err(|error| request.refusal(error))? {
            let mut answer = empty(StatusCode::OK);
            versions::write(answer.headers_mut(), &here.bucket, version.reference());
            return Ok(answer);
        }
    }
    Err(ErrorCode::OperationAborted.into())
}

impl S3Request {
    /// Whether the request asks to end a retention in governance mode, and may.
    pub(super) fn may_bypass_governance(&self, bucket: &BucketHandle, key: &str) -> Result<bool> {
        let asked = bypasses_governance(&self.headers)?;
        Ok(asked && self.may("s3:BypassGovernanceRetention", bucket, Some(key))?)
    }
}

/// What a write asks for its version's lock.
#[derive(Clone, Copy, Default)]
pub(super) struct WantedLock(LockHeaders);

impl InBucket<'_> {
    fn expect_object_lock(&self) -> Result<()> {
        if self.bucket.row.object_lock { Ok(()) } else { Err(no_object_lock()) }
    }

    fn lock_configuration(&self) -> Result<ObjectLockConfiguration> {
        let Some(kept) = self.bucket.settings.configurations.get(OBJECT_LOCK) else {
            return Ok(ObjectLockConfiguration::default());
        };
        ObjectLockConfiguration::parse(kept.as_str().unwrap_or_default().as_bytes()).map_err(|error| {
            self.refusal(EngineError::Other(format!("object lock of bucket {}: {error}", self.bucket.row.name)))
        })
    }

    /// What the request's headers ask for the lock of the version it writes. That it may was
    /// decided with the write itself.
    pub(super) fn wanted_lock(&self) -> Result<WantedLock> {
        let wanted = LockHeaders::from_headers(&self.headers, SystemTime::now())?;
        if wanted.is_none() {
            return Ok(WantedLock::default());
        }
        if !self.bucket.row.object_lock {
            let message = "Bucket is missing ObjectLockConfiguration";
            return Err(S3Error::with_message(ErrorCode::InvalidRequest, message));
        }
        Ok(WantedLock(wanted))
    }

    /// Content that will be locked comes with a digest, as in S3.
    pub(super) fn expect_digest(&self, wanted: WantedLock, claims: &Claims) -> Result<()> {
        if !self.bucket.row.object_lock || has_digest(claims) {
            return Ok(());
        }
        if wanted.0.is_none() && self.lock_configuration()?.default_retention.is_none() {
            return Ok(());
        }
        Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters",
        ))
    }

    /// The lock of a version that is committed now: what was asked for, else the bucket's default.
    pub(super) fn lock_now(&self, wanted: WantedLock) -> Result<VersionLock> {
        if !self.bucket.row.object_lock {
            return Ok(VersionLock::default());
        }
        let retention = match wanted.0.retention {
            Some(retention) => Some(retention),
            None => self.lock_configuration()?.default_retention.map(|default| default.from(SystemTime::now())),
        };
        Ok(VersionLock { retention: retention.map(kept), legal_hold: wanted.0.legal_hold.map(|hold| hold.0) })
    }
}

impl WantedLock {
    /// As an upload keeps it until it is completed; `None` when nothing was asked for.
    pub(super) fn kept(self) -> Option<VersionLock> {
        let LockHeaders { retention, legal_hold } = self.0;
        let lock = VersionLock { retention: retention.map(kept), legal_hold: legal_hold.map(|hold| hold.0) };
        Some(lock).filter(|lock| !lock.is_none())
    }

    /// What an upload kept.
    pub(super) fn of(kept: Option<VersionLock>) -> Self {
        let lock = kept.unwrap_or_default();
        Self(LockHeaders { retention: lock.retention.map(on_wire), legal_hold: lock.legal_hold.map(LegalHold) })
    }
}

/// Tells the lock of a version to those who may ask for it.
pub(super) fn write(headers: &mut HeaderMap, lock: &VersionLock, bucket: &BucketHandle, may: impl Fn(&str) -> bool) {
    if !bucket.row.object_lock {
        return;
    }
    if let Some(retention) = lock.retention.filter(|_| may("s3:GetObjectRetention")) {
        for (name, value) in on_wire(retention).headers() {
            set(headers, name, &value);
        }
    }
    if let Some(on) = lock.legal_hold.filter(|_| may("s3:GetObjectLegalHold")) {
        set(headers, LEGAL_HOLD, LegalHold(on).as_str());
    }
}

fn no_object_lock() -> S3Error {
    S3Error::with_message(ErrorCode::InvalidRequest, "Bucket is missing Object Lock Configuration")
}

fn kept(retention: Retention) -> catalog::Retention {
    let mode = match retention.mode {
        RetentionMode::Governance => catalog::RetentionMode::Governance,
        RetentionMode::Compliance => catalog::RetentionMode::Compliance,
    };
    catalog::Retention { mode, until_ms: ms_of(retention.until) }
}

fn on_wire(retention: catalog::Retention) -> Retention {
    let mode = match retention.mode {
        catalog::RetentionMode::Governance => RetentionMode::Governance,
        catalog::RetentionMode::Compliance => RetentionMode::Compliance,
    };
    Retention { mode, until: time_of(retention.until_ms) }
}

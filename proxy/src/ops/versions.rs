//! Versions: which one a request names, what an answer says of it, their listing, and whether a
//! bucket keeps them.

use super::{
    body::RequestBody,
    request::{Answer, InBucket, Result, S3Request, document, empty, no_such_version, set, time_of},
};
use crate::engine::{BucketHandle, EngineError, Named};
use catalog::{Version, VersionEntry, VersionRef, Versioning, VersionsPage, VersionsQuery};
use http::{HeaderMap, StatusCode};
use s3_wire::{
    ErrorCode, S3Error,
    checksum::Claims,
    headers::ListVersionsParams,
    timestamp,
    xml::{
        request::VersioningRequest,
        response::{ListVersionsResult, ListedVersion, VersionOrMarker, VersioningConfiguration},
    },
};

/// The header that names a version.
pub(super) const VERSION_ID: &str = "x-amz-version-id";
/// The header that says that a version is a delete marker.
pub(super) const DELETE_MARKER: &str = "x-amz-delete-marker";

/// Reads a version id; what no version is called cannot be one.
pub(super) fn parse(name: &'static str, text: &str) -> Result<VersionRef> {
    VersionRef::parse(text).ok_or_else(|| S3Error::invalid_argument(name, text, "Invalid version id specified"))
}

impl S3Request {
    /// The version that `versionId` names.
    pub(super) fn version(&self) -> Result<Option<VersionRef>> {
        match self.target.query.single("versionId")? {
            None => Ok(None),
            Some("") => Err(S3Error::invalid_argument("versionId", "", "Version id cannot be the empty string")),
            Some(text) => parse("versionId", text).map(Some),
        }
    }
}

/// Says which version an answer is about. Buckets that never kept versions say nothing, as in S3.
pub(super) fn write(headers: &mut HeaderMap, bucket: &BucketHandle, version: VersionRef) {
    if matches!(version, VersionRef::Id(_)) || !bucket.row.versioning.is_off() {
        set(headers, VERSION_ID, &version.to_string());
    }
}

/// Says which version a write made. Where versions are suspended it is the null version, and S3
/// does not name it.
pub(super) fn write_made(headers: &mut HeaderMap, version: VersionRef) {
    if matches!(version, VersionRef::Id(_)) {
        set(headers, VERSION_ID, &version.to_string());
    }
}

/// A version that was asked for, unless it is a delete marker: those have no content, and can only
/// be deleted.
pub(super) fn object_of<T>(request: &S3Request, found: Named<T>) -> Result<T> {
    match found {
        Named::Object(object) => Ok(object),
        Named::Marker(marker) => Err(not_for_markers(request, &marker)),
    }
}

/// What a delete marker says to everything but its deletion.
pub(super) fn not_for_markers(request: &S3Request, marker: &Version) -> S3Error {
    marked(S3Error::new(ErrorCode::MethodNotAllowed), marker)
        .field("Method", request.operation.row().method)
        .field("ResourceType", "DeleteMarker")
        .header("allow", "DELETE")
        .header("last-modified", timestamp::http_date(time_of(marker.modified_ms)))
}

/// An error about what a delete marker hides.
pub(super) fn marked(error: S3Error, marker: &Version) -> S3Error {
    error.header(DELETE_MARKER, "true").header(VERSION_ID, marker.reference().to_string())
}

impl InBucket<'_> {
    /// A version that is not there. Whoever may not list the bucket's versions is not told so.
    pub(super) fn missing_version(&self, key: &str, version: VersionRef) -> S3Error {
        if self.may_miss(key).unwrap_or(false) {
            no_such_version(&version.to_string()).field("Key", key)
        } else {
            S3Error::new(ErrorCode::AccessDenied)
        }
    }
}

/// Says whether a bucket keeps versions.
pub(super) async fn get_versioning(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    Ok(document(&match here.bucket.row.versioning {
        Versioning::Off => VersioningConfiguration::Unversioned,
        Versioning::Enabled => VersioningConfiguration::Enabled,
        Versioning::Suspended => VersioningConfiguration::Suspended,
    }))
}

/// Makes a bucket keep versions, or stop making new ones.
pub(super) async fn put_versioning(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    let wanted = VersioningRequest::parse(&request.document(claims, body).await?)?;
    let here = request.in_bucket().await?;
    if wanted.mfa_delete == Some(true) {
        return Err(S3Error::with_message(
            ErrorCode::NotImplemented,
            "MFA delete is not implemented: deny s3:DeleteObjectVersion in a policy instead.",
        ));
    }
    let versioning = if wanted.enabled { Versioning::Enabled } else { Versioning::Suspended };
    let catalog = request.service.engine.catalog();
    catalog.set_versioning(here.bucket.row.id, versioning).await.map_err(|error| match error.into() {
        EngineError::BucketState => S3Error::with_message(
            ErrorCode::InvalidBucketState,
            "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.",
        ),
        other => request.refusal(other),
    })?;
    Ok(empty(StatusCode::OK))
}

/// Lists versions and delete markers.
pub(super) async fn list(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let params = ListVersionsParams::from_query(&request.target.query)?;
    let version_after =
        params.version_id_marker.as_deref().map(|marker| parse("version-id-marker", marker)).transpose()?;
    let page = here.page_of_versions(&params, version_after).await?;
    let owner = here.owner();
    let mut versions = Vec::new();
    let mut common_prefixes = Vec::new();
    for entry in page.entries {
        match entry {
            VersionEntry::CommonPrefix(prefix) => common_prefixes.push(prefix),
            VersionEntry::Version { version, latest } => {
                let version_id = version.reference().to_string();
                let what = if version.marker {
                    let last_modified = time_of(version.modified_ms);
                    VersionOrMarker::Marker { key: version.key, last_modified, owner: owner.clone() }
                } else {
                    VersionOrMarker::Version(here.entry(version, Some(owner.clone()))?)
                };
                versions.push(ListedVersion { version_id, is_latest: latest, what });
            }
        }
    }
    let is_truncated = page.next.is_some();
    let (next_key_marker, next_version) = page.next.unzip();
    Ok(document(&ListVersionsResult {
        bucket: here.bucket.row.name.clone(),
        prefix: params.prefix,
        delimiter: params.delimiter,
        key_marker: params.key_marker,
        version_id_marker: params.version_id_marker.unwrap_or_default(),
        next_key_marker,
        next_version_id_marker: next_version.flatten().map(|version| version.to_string()),
        max_keys: params.max_keys,
        is_truncated,
        encoding_type_url: params.encoding_type_url,
        versions,
        common_prefixes,
    }))
}

impl InBucket<'_> {
    async fn page_of_versions(
        &self,
        params: &ListVersionsParams,
        version_after: Option<VersionRef>,
    ) -> Result<VersionsPage> {
        let limit = usize::try_from(params.max_keys).unwrap_or(usize::MAX);
        if limit == 0 {
            // S3 answers an empty page that is not truncated.
            return Ok(VersionsPage::default());
        }
        let query = VersionsQuery {
            bucket: self.bucket.row.id,
            prefix: params.prefix.clone(),
            delimiter: params.delimiter.clone(),
            key_after: Some(params.key_marker.clone()).filter(|marker| !marker.is_empty()),
            version_after,
            limit,
        };
        self.service.engine.catalog().list_versions(&query).await.map_err(|error| self.refusal(error.into()))
    }
}

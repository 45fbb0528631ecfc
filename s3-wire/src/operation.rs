//! The one table of operations: what routes where, which permission it needs, what body it has.

use crate::{
    address::Target,
    error::{ErrorCode, Result, S3Error},
    headers::is_given,
};
use http::{HeaderMap, Method};

/// The operations this server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the S3 API reference")]
pub enum Operation {
    ListBuckets,
    CreateBucket,
    HeadBucket,
    DeleteBucket,
    GetBucketLocation,
    GetBucketVersioning,
    PutBucketVersioning,
    ListObjectVersions,
    PutObject,
    GetObject,
    HeadObject,
    DeleteObject,
    DeleteObjects,
    CopyObject,
    ListObjects,
    ListObjectsV2,
    CreateMultipartUpload,
    UploadPart,
    UploadPartCopy,
    ListParts,
    ListMultipartUploads,
    CompleteMultipartUpload,
    AbortMultipartUpload,
    GetBucketAcl,
    GetBucketTagging,
    GetBucketPolicy,
    GetBucketPolicyStatus,
    GetBucketCors,
    GetBucketLifecycleConfiguration,
    GetBucketEncryption,
    GetBucketLogging,
    GetBucketOwnershipControls,
    GetPublicAccessBlock,
    GetBucketWebsite,
    GetObjectLockConfiguration,
    GetBucketReplication,
    GetBucketAccelerateConfiguration,
    GetBucketRequestPayment,
    PutBucketAccelerateConfiguration,
    PutBucketRequestPayment,
    PutBucketLogging,
    GetBucketNotificationConfiguration,
    GetBucketInventoryConfiguration,
    GetBucketAnalyticsConfiguration,
    GetBucketMetricsConfiguration,
    GetBucketIntelligentTieringConfiguration,
    GetObjectAcl,
    GetObjectTagging,
    GetObjectRetention,
    GetObjectLegalHold,
    DeleteBucketTagging,
    DeleteBucketPolicy,
    DeleteBucketCors,
    DeleteBucketLifecycle,
    DeleteBucketEncryption,
    DeletePublicAccessBlock,
    DeleteBucketWebsite,
    DeleteBucketReplication,
    PutBucketTagging,
    PutBucketCors,
    PutObjectLockConfiguration,
    PutBucketLifecycleConfiguration,
    PutBucketEncryption,
    PutObjectRetention,
    PutObjectLegalHold,
    PutObjectTagging,
    DeleteObjectTagging,
    GetObjectAttributes,
    OptionsObject,
    PostObject,
    PutBucketPolicy,
    PutBucketAcl,
    PutObjectAcl,
    PutBucketOwnershipControls,
    DeleteBucketOwnershipControls,
    PutPublicAccessBlock,
    PutBucketNotificationConfiguration,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `/`
    Service,
    /// `/bucket`
    Bucket,
    /// `/bucket/key`
    Object,
}

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestBody {
    /// None is expected; what is sent is discarded within the server's bound.
    None,
    /// The bytes of an object or part.
    Payload,
    /// A document, at most this many bytes.
    Xml {
        /// The bound.
        bytes_max: usize,
    },
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OperationRow {
    /// The operation.
    pub operation: Operation,
    /// Its method.
    pub method: &'static str,
    /// What it is about.
    pub resource: Resource,
    /// The parameter that must be present (`uploads`, `uploadId`, `list-type`), if any.
    pub subresource: Option<&'static str>,
    /// The header that must be present, if any.
    pub header: Option<&'static str>,
    /// The action a policy must allow for the addressed resource. Copies also need `s3:GetObject`
    /// on their source, and DeleteObjects needs it for each key.
    pub action: &'static str,
    /// What its body is.
    pub body: RequestBody,
}

/// Most bytes of a `CreateBucketConfiguration`.
const CREATE_BUCKET_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a `Delete`: 1,000 keys of 1,024 bytes, escaped.
const DELETE_BYTES_MAX: usize = 2 << 20;
/// Most bytes of a `CompleteMultipartUpload`: 10,000 parts with their checksums.
const COMPLETE_BYTES_MAX: usize = 4 << 20;

/// Most bytes of a policy, of a list of grants and of the other documents about access.
const ACCESS_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a `CORSConfiguration`.
const CORS_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a `LifecycleConfiguration`: 1,000 rules.
const LIFECYCLE_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a `ServerSideEncryptionConfiguration`, an `ObjectLockConfiguration`, a `Retention`
/// or a `LegalHold`.
const LOCK_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a `NotificationConfiguration`: 100 configurations.
const NOTIFICATION_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a `Tagging`: 50 tags of a bucket, escaped.
const TAGGING_BYTES_MAX: usize = 256 << 10;

const NONE: RequestBody = RequestBody::None;
const PAYLOAD: RequestBody = RequestBody::Payload;

macro_rules! table {
    ($($operation:ident $method:literal $resource:ident $subresource:expr, $header:expr, $action:literal $body:expr;)*) => {
        /// The table. Of the rows that fit a request the first is meant, so rows with more
        /// conditions stand first.
        pub const TABLE: &[OperationRow] = &[$(OperationRow {
            operation: Operation::$operation,
            method: $method,
            resource: Resource::$resource,
            subresource: $subresource,
            header: $header,
            action: $action,
            body: $body,
        },)*];

        impl Operation {
            /// The operation's name as in the S3 API reference, for logs and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$operation => stringify!($operation),)* }
            }
        }
    };
}

table! {
    ListBuckets             "GET"    Service None,              None,         "s3:ListAllMyBuckets"           NONE;
    GetBucketLocation       "GET"    Bucket  Some("location"),  None,         "s3:GetBucketLocation"          NONE;
    GetBucketVersioning     "GET"    Bucket  Some("versioning"), None,        "s3:GetBucketVersioning"        NONE;
    PutBucketVersioning     "PUT"    Bucket  Some("versioning"), None,        "s3:PutBucketVersioning"        RequestBody::Xml { bytes_max: CREATE_BUCKET_BYTES_MAX };
    GetBucketAcl            "GET"    Bucket Some("acl"), None, "s3:GetBucketAcl" NONE;
    GetBucketTagging        "GET"    Bucket Some("tagging"), None, "s3:GetBucketTagging" NONE;
    GetBucketPolicy         "GET"    Bucket Some("policy"), None, "s3:GetBucketPolicy" NONE;
    GetBucketPolicyStatus   "GET"    Bucket Some("policyStatus"), None, "s3:GetBucketPolicyStatus" NONE;
    GetBucketCors           "GET"    Bucket Some("cors"), None, "s3:GetBucketCORS" NONE;
    GetBucketLifecycleConfiguration "GET"    Bucket Some("lifecycle"), None, "s3:GetLifecycleConfiguration" NONE;
    GetBucketEncryption     "GET"    Bucket Some("encryption"), None, "s3:GetEncryptionConfiguration" NONE;
    GetBucketLogging        "GET"    Bucket Some("logging"), None, "s3:GetBucketLogging" NONE;
    GetBucketOwnershipControls "GET"    Bucket Some("ownershipControls"), None, "s3:GetBucketOwnershipControls" NONE;
    GetPublicAccessBlock    "GET"    Bucket Some("publicAccessBlock"), None, "s3:GetBucketPublicAccessBlock" NONE;
    GetBucketWebsite        "GET"    Bucket Some("website"), None, "s3:GetBucketWebsite" NONE;
    GetObjectLockConfiguration "GET"    Bucket Some("object-lock"), None, "s3:GetBucketObjectLockConfiguration" NONE;
    GetBucketReplication    "GET"    Bucket Some("replication"), None, "s3:GetReplicationConfiguration" NONE;
    GetBucketAccelerateConfiguration "GET"    Bucket Some("accelerate"), None, "s3:GetAccelerateConfiguration" NONE;
    GetBucketRequestPayment "GET"    Bucket Some("requestPayment"), None, "s3:GetBucketRequestPayment" NONE;
    GetBucketNotificationConfiguration "GET"    Bucket Some("notification"), None, "s3:GetBucketNotification" NONE;
    GetBucketInventoryConfiguration "GET"    Bucket Some("inventory"), None, "s3:GetInventoryConfiguration" NONE;
    GetBucketAnalyticsConfiguration "GET"    Bucket Some("analytics"), None, "s3:GetAnalyticsConfiguration" NONE;
    GetBucketMetricsConfiguration "GET"    Bucket Some("metrics"), None, "s3:GetMetricsConfiguration" NONE;
    GetBucketIntelligentTieringConfiguration "GET"    Bucket Some("intelligent-tiering"), None, "s3:GetIntelligentTieringConfiguration" NONE;
    ListMultipartUploads    "GET"    Bucket  Some("uploads"),   None,         "s3:ListBucketMultipartUploads" NONE;
    ListObjectVersions      "GET"    Bucket  Some("versions"),  None,         "s3:ListBucketVersions"         NONE;
    ListObjectsV2           "GET"    Bucket  Some("list-type"), None,         "s3:ListBucket"                 NONE;
    ListObjects             "GET"    Bucket  None,              None,         "s3:ListBucket"                 NONE;
    HeadBucket              "HEAD"   Bucket  None,              None,         "s3:ListBucket"                 NONE;
    CreateBucket            "PUT"    Bucket  None,              None,         "s3:CreateBucket"               RequestBody::Xml { bytes_max: CREATE_BUCKET_BYTES_MAX };
    DeleteBucket            "DELETE" Bucket  None,              None,         "s3:DeleteBucket"               NONE;
    DeleteBucketTagging     "DELETE" Bucket Some("tagging"), None, "s3:PutBucketTagging" NONE;
    DeleteBucketPolicy      "DELETE" Bucket Some("policy"), None, "s3:DeleteBucketPolicy" NONE;
    DeleteBucketCors        "DELETE" Bucket Some("cors"), None, "s3:PutBucketCORS" NONE;
    DeleteBucketLifecycle   "DELETE" Bucket Some("lifecycle"), None, "s3:PutLifecycleConfiguration" NONE;
    DeleteBucketEncryption  "DELETE" Bucket Some("encryption"), None, "s3:PutEncryptionConfiguration" NONE;
    DeletePublicAccessBlock "DELETE" Bucket Some("publicAccessBlock"), None, "s3:PutBucketPublicAccessBlock" NONE;
    DeleteBucketWebsite     "DELETE" Bucket Some("website"), None, "s3:DeleteBucketWebsite" NONE;
    DeleteBucketReplication "DELETE" Bucket Some("replication"), None, "s3:PutReplicationConfiguration" NONE;
    PutBucketTagging        "PUT"    Bucket Some("tagging"), None, "s3:PutBucketTagging" RequestBody::Xml { bytes_max: TAGGING_BYTES_MAX };
    PutBucketCors           "PUT"    Bucket Some("cors"), None, "s3:PutBucketCORS" RequestBody::Xml { bytes_max: CORS_BYTES_MAX };
    PutBucketLifecycleConfiguration "PUT" Bucket Some("lifecycle"), None, "s3:PutLifecycleConfiguration" RequestBody::Xml { bytes_max: LIFECYCLE_BYTES_MAX };
    PutBucketNotificationConfiguration "PUT" Bucket Some("notification"), None, "s3:PutBucketNotification" RequestBody::Xml { bytes_max: NOTIFICATION_BYTES_MAX };
    PutBucketAccelerateConfiguration "PUT" Bucket Some("accelerate"), None, "s3:PutAccelerateConfiguration" RequestBody::Xml { bytes_max: LOCK_BYTES_MAX };
    PutBucketRequestPayment "PUT"    Bucket Some("requestPayment"), None, "s3:PutBucketRequestPayment" RequestBody::Xml { bytes_max: LOCK_BYTES_MAX };
    PutBucketLogging        "PUT"    Bucket Some("logging"), None, "s3:PutBucketLogging" RequestBody::Xml { bytes_max: ACCESS_BYTES_MAX };
    PutBucketEncryption     "PUT"    Bucket Some("encryption"), None, "s3:PutEncryptionConfiguration" RequestBody::Xml { bytes_max: LOCK_BYTES_MAX };
    PutObjectLockConfiguration "PUT"  Bucket Some("object-lock"), None, "s3:PutBucketObjectLockConfiguration" RequestBody::Xml { bytes_max: LOCK_BYTES_MAX };
    PutBucketPolicy         "PUT"    Bucket Some("policy"), None, "s3:PutBucketPolicy" RequestBody::Xml { bytes_max: ACCESS_BYTES_MAX };
    PutBucketAcl            "PUT"    Bucket Some("acl"), None, "s3:PutBucketAcl" RequestBody::Xml { bytes_max: ACCESS_BYTES_MAX };
    PutBucketOwnershipControls "PUT" Bucket Some("ownershipControls"), None, "s3:PutBucketOwnershipControls" RequestBody::Xml { bytes_max: ACCESS_BYTES_MAX };
    DeleteBucketOwnershipControls "DELETE" Bucket Some("ownershipControls"), None, "s3:PutBucketOwnershipControls" NONE;
    PutPublicAccessBlock    "PUT"    Bucket Some("publicAccessBlock"), None, "s3:PutBucketPublicAccessBlock" RequestBody::Xml { bytes_max: ACCESS_BYTES_MAX };
    OptionsObject           "OPTIONS" Bucket None,             None,         "s3:GetBucketCORS"              NONE;
    PostObject              "POST"   Bucket None,              None,         "s3:PutObject"                  PAYLOAD;
    DeleteObjects           "POST"   Bucket  Some("delete"),    None,         "s3:DeleteObject"               RequestBody::Xml { bytes_max: DELETE_BYTES_MAX };
    ListParts               "GET"    Object  Some("uploadId"),  None,         "s3:ListMultipartUploadParts"   NONE;
    GetObjectAttributes     "GET"    Object Some("attributes"), None,         "s3:GetObjectAttributes"        NONE;
    PutObjectTagging        "PUT"    Object Some("tagging"),   None,         "s3:PutObjectTagging"           RequestBody::Xml { bytes_max: TAGGING_BYTES_MAX };
    DeleteObjectTagging     "DELETE" Object Some("tagging"),   None,         "s3:DeleteObjectTagging"        NONE;
    PutObjectAcl            "PUT"    Object Some("acl"), None, "s3:PutObjectAcl" RequestBody::Xml { bytes_max: ACCESS_BYTES_MAX };
    GetObjectAcl            "GET"    Object Some("acl"), None, "s3:GetObjectAcl" NONE;
    GetObjectTagging        "GET"    Object Some("tagging"), None, "s3:GetObjectTagging" NONE;
    PutObjectRetention      "PUT"    Object Some("retention"), None, "s3:PutObjectRetention" RequestBody::Xml { bytes_max: LOCK_BYTES_MAX };
    PutObjectLegalHold      "PUT"    Object Some("legal-hold"), None, "s3:PutObjectLegalHold" RequestBody::Xml { bytes_max: LOCK_BYTES_MAX };
    GetObjectRetention      "GET"    Object Some("retention"), None, "s3:GetObjectRetention" NONE;
    GetObjectLegalHold      "GET"    Object Some("legal-hold"), None, "s3:GetObjectLegalHold" NONE;
    GetObject               "GET"    Object  None,              None,         "s3:GetObject"                  NONE;
    HeadObject              "HEAD"   Object  None,              None,         "s3:GetObject"                  NONE;
    UploadPartCopy          "PUT"    Object  Some("uploadId"),  COPY_SOURCE,  "s3:PutObject"                  NONE;
    UploadPart              "PUT"    Object  Some("uploadId"),  None,         "s3:PutObject"                  PAYLOAD;
    CopyObject              "PUT"    Object  None,              COPY_SOURCE,  "s3:PutObject"                  NONE;
    PutObject               "PUT"    Object  None,              None,         "s3:PutObject"                  PAYLOAD;
    AbortMultipartUpload    "DELETE" Object  Some("uploadId"),  None,         "s3:AbortMultipartUpload"       NONE;
    DeleteObject            "DELETE" Object  None,              None,         "s3:DeleteObject"               NONE;
    CreateMultipartUpload   "POST"   Object  Some("uploads"),   None,         "s3:PutObject"                  NONE;
    CompleteMultipartUpload "POST"   Object  Some("uploadId"),  None,         "s3:PutObject"                  RequestBody::Xml { bytes_max: COMPLETE_BYTES_MAX };
}

const COPY_SOURCE: Option<&str> = Some("x-amz-copy-source");

/// Sub-resources S3 has and this server has not, or has for some methods. A request that names one
/// is never the plain operation.
const NOT_IMPLEMENTED: &[&str] = &[
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "annotation",
    "append",
    "attributes",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "logging",
    "metadataAnnotationTable",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "select-type",
    "session",
    "tagging",
    "torrent",
    "website",
];

impl Operation {
    /// The row of this operation.
    pub fn row(self) -> &'static OperationRow {
        TABLE.iter().find(|row| row.operation == self).expect("every operation has a row")
    }

    /// The action a policy must allow on the addressed resource, such as `s3:GetObject`.
    pub fn action(self) -> &'static str {
        self.row().action
    }

    /// The same for a request that names a version.
    pub fn action_on_version(self) -> &'static str {
        match self {
            Self::GetObject | Self::HeadObject => "s3:GetObjectVersion",
            Self::DeleteObject => "s3:DeleteObjectVersion",
            Self::GetObjectAcl => "s3:GetObjectVersionAcl",
            Self::PutObjectAcl => "s3:PutObjectVersionAcl",
            Self::GetObjectTagging => "s3:GetObjectVersionTagging",
            Self::PutObjectTagging => "s3:PutObjectVersionTagging",
            Self::DeleteObjectTagging => "s3:DeleteObjectVersionTagging",
            Self::GetObjectAttributes => "s3:GetObjectVersionAttributes",
            other => other.action(),
        }
    }
}

/// Decides which operation a request is. `headers` are the effective ones
/// ([`crate::headers::effective`]).
///
/// # Errors
/// `NotImplemented` for a sub-resource S3 has and this server has not (never the plain operation:
/// `PUT ?acl` must not write an object, C83); parameters that S3 does not know either are ignored,
/// as S3 does; `InvalidArgument` for two sub-resources at once; `MethodNotAllowed` with the methods
/// that are; `AccessForbidden` for a preflight that is about no bucket.
pub fn route(method: &Method, target: &Target, headers: &HeaderMap) -> Result<Operation> {
    let resource = match (&target.bucket, &target.key) {
        (None, _) => Resource::Service,
        (Some(_), None) => Resource::Bucket,
        (Some(_), Some(_)) => Resource::Object,
    };
    if method == Method::OPTIONS {
        // A browser asks before it sends, about whatever it is going to send: only the bucket's
        // rules matter.
        return match resource {
            Resource::Service => Err(S3Error::new(ErrorCode::AccessForbidden).field("Method", "OPTIONS")),
            Resource::Bucket | Resource::Object => Ok(Operation::OptionsObject),
        };
    }
    let copies_nothing = [Method::GET, Method::HEAD, Method::DELETE].contains(method)
        || (method == Method::POST && target.query.has("uploadId"));
    if let Some(source) = headers.get("x-amz-copy-source").filter(|_| copies_nothing) {
        let message = "You can only specify a copy source header for copy requests.";
        return Err(S3Error::invalid_argument(
            "x-amz-copy-source",
            String::from_utf8_lossy(source.as_bytes()),
            message,
        ));
    }
    let named = subresource_of(target, resource)?;
    let fits = |row: &&OperationRow| {
        row.method == method.as_str()
            && row.resource == resource
            && row.subresource == named
            && row.header.is_none_or(|header| is_given(headers, header))
    };
    let Some(row) = TABLE.iter().find(fits) else {
        return Err(match named {
            Some(name) if NOT_IMPLEMENTED.contains(&name) => not_implemented(name),
            Some("uploads") if method == Method::GET && resource == Resource::Object => S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Key is not expected for the GET method ?uploads subresource",
            ),
            Some("versions") if method == Method::GET && resource == Resource::Object => S3Error::with_message(
                ErrorCode::InvalidRequest,
                "There is no such thing as the ?versions sub-resource for a key",
            ),
            _ => method_not_allowed(method, resource, named),
        });
    };
    check_parameters(row.operation, target)?;
    Ok(row.operation)
}

/// `MethodNotAllowed` with an `Allow` of the methods that the same target has.
fn method_not_allowed(method: &Method, resource: Resource, named: Option<&str>) -> S3Error {
    let mut allowed: Vec<&str> = Vec::new();
    for row in
        TABLE.iter().filter(|row| row.resource == resource && row.subresource == named && row.method != "OPTIONS")
    {
        if !allowed.contains(&row.method) {
            allowed.push(row.method);
        }
    }
    S3Error::new(ErrorCode::MethodNotAllowed)
        .field("Method", method.as_str())
        .field("ResourceType", resource.wire_name())
        .header("allow", allowed.join(", "))
}

impl Resource {
    /// The `ResourceType` of `MethodNotAllowed`.
    fn wire_name(self) -> &'static str {
        match self {
            Self::Service => "SERVICE",
            Self::Bucket => "BUCKET",
            Self::Object => "OBJECT",
        }
    }
}

/// Whether a parameter names what a request is about, whoever implements it. `list-type` only says
/// how a bucket is listed.
pub(crate) fn is_subresource(name: &str) -> bool {
    name != "list-type"
        && (NOT_IMPLEMENTED.contains(&name)
            || TABLE.iter().any(|row| row.subresource.is_some_and(|known| known == name)))
}

/// The one sub-resource the request names that some operation has.
fn subresource_of(target: &Target, resource: Resource) -> Result<Option<&'static str>> {
    let mut found = None;
    for (name, _) in target.query.pairs() {
        let known = TABLE.iter().filter_map(|row| row.subresource).find(|known| *known == name);
        match known {
            Some("list-type") if resource != Resource::Bucket => {}
            Some(known) if found.is_none_or(|f| f == known) => found = Some(known),
            Some(known) => {
                let pair = format!("{}, {known}", found.unwrap_or_default());
                return Err(S3Error::invalid_argument("ResourceType", pair, "Conflicting query string parameters"));
            }
            None if NOT_IMPLEMENTED.contains(&name) => return Err(not_implemented(name)),
            None => {}
        }
    }
    Ok(found)
}

fn not_implemented(subresource: &str) -> S3Error {
    S3Error::new(ErrorCode::NotImplemented).field("Subresource", subresource)
}

/// Parameters that would change the meaning of an operation that does not take them.
fn check_parameters(operation: Operation, target: &Target) -> Result<()> {
    use Operation::*;
    if let Some(version) = target.query.single("versionId")?
        && !matches!(
            operation,
            GetObject
                | HeadObject
                | DeleteObject
                | GetObjectAcl
                | PutObjectAcl
                | GetObjectTagging
                | PutObjectTagging
                | DeleteObjectTagging
                | GetObjectAttributes
                | OptionsObject
                | GetObjectRetention
                | GetObjectLegalHold
                | PutObjectRetention
                | PutObjectLegalHold
        )
    {
        return Err(S3Error::invalid_argument("versionId", version, "This operation does not accept a version-id."));
    }
    let part_number = target.query.single("partNumber")?;
    match (operation, part_number) {
        (UploadPart | UploadPartCopy, None) => Err(S3Error::new(ErrorCode::MethodNotAllowed)
            .field("Method", "PUT")
            .field("ResourceType", "UPLOAD")
            .header("allow", "DELETE, POST, GET")),
        (PutObject | CopyObject, Some(number)) => Err(S3Error::invalid_argument(
            "partNumber",
            number,
            "This operation does not accept partNumber without uploadId",
        )),
        (ListObjectsV2, _) => match target.query.single("list-type")? {
            Some("2") | None => Ok(()),
            Some(other) => Err(S3Error::invalid_argument("list-type", other, "Invalid List Type specified in Request")),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Domains;
    use http::Request;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn routed(method: &str, uri: &str, copy_source: bool) -> Result<Operation> {
        let mut request = Request::builder().method(method).uri(uri).header("host", "localhost");
        if copy_source {
            request = request.header("x-amz-copy-source", "");
        }
        let parts = request.body(()).unwrap().into_parts().0;
        route(&parts.method, &Target::parse(&parts, &Domains::default())?, &parts.headers)
    }

    #[test]
    fn every_operation_is_reached_by_its_request() {
        use Operation::*;
        let requests = [
            ("GET", "/", false, ListBuckets),
            ("GET", "/?x-id=ListBuckets&max-buckets=5", false, ListBuckets),
            ("PUT", "/bucket", false, CreateBucket),
            ("PUT", "/bucket/", false, CreateBucket),
            ("HEAD", "/bucket", false, HeadBucket),
            ("DELETE", "/bucket", false, DeleteBucket),
            ("GET", "/bucket?location", false, GetBucketLocation),
            ("GET", "/bucket?versioning=", false, GetBucketVersioning),
            ("PUT", "/bucket?versioning", false, PutBucketVersioning),
            ("PUT", "/bucket?accelerate", false, PutBucketAccelerateConfiguration),
            ("PUT", "/bucket?requestPayment", false, PutBucketRequestPayment),
            ("PUT", "/bucket?logging", false, PutBucketLogging),
            ("GET", "/bucket?versions&key-marker=k&version-id-marker=v", false, ListObjectVersions),
            ("GET", "/bucket", false, ListObjects),
            ("GET", "/bucket?prefix&delimiter=/&marker=", false, ListObjects),
            ("GET", "/bucket?list-type=2&prefix=", false, ListObjectsV2),
            ("GET", "/bucket?uploads", false, ListMultipartUploads),
            ("POST", "/bucket?delete", false, DeleteObjects),
            ("PUT", "/bucket/key", false, PutObject),
            ("PUT", "/bucket/key?x-id=PutObject", false, PutObject),
            ("PUT", "/bucket/key", true, CopyObject),
            ("GET", "/bucket/key", false, GetObject),
            ("GET", "/bucket/key?versionId=null&partNumber=3", false, GetObject),
            ("GET", "/bucket/key?response-content-type=text/plain", false, GetObject),
            ("GET", "/bucket/key?unknown=value&list-type=2", false, GetObject),
            ("GET", "/bucket/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Security-Token=", false, GetObject),
            ("HEAD", "/bucket/key", false, HeadObject),
            ("OPTIONS", "/bucket/key?X-Amz-Signature=s&tagging&partNumber=1&versionId=v", false, OptionsObject),
            ("OPTIONS", "/bucket", false, OptionsObject),
            ("POST", "/bucket", false, PostObject),
            ("DELETE", "/bucket/key", false, DeleteObject),
            ("POST", "/bucket/key?uploads", false, CreateMultipartUpload),
            ("PUT", "/bucket/key?partNumber=1&uploadId=u", false, UploadPart),
            ("PUT", "/bucket/key?partNumber=1&uploadId=u", true, UploadPartCopy),
            ("GET", "/bucket/key?uploadId=u", false, ListParts),
            ("POST", "/bucket/key?uploadId=u", false, CompleteMultipartUpload),
            ("DELETE", "/bucket/key?uploadId=u", false, AbortMultipartUpload),
        ];
        let by_subresource: Vec<_> = TABLE
            .iter()
            .filter_map(|row| {
                let path = if row.resource == Resource::Object { "/bucket/key" } else { "/bucket" };
                let subresource = row.subresource.filter(|name| NOT_IMPLEMENTED.contains(name))?;
                Some((row.method, format!("{path}?{subresource}"), false, row.operation))
            })
            .collect();
        let requests =
            requests.map(|(method, uri, copy_source, expected)| (method, uri.to_owned(), copy_source, expected));
        let requests: Vec<_> = requests.into_iter().chain(by_subresource).collect();
        for (method, uri, copy_source, expected) in &requests {
            let (copy_source, expected) = (*copy_source, *expected);
            assert_eq!(routed(method, uri, copy_source).unwrap(), expected, "{method} {uri}");
        }
        let reached: HashSet<_> = requests.iter().map(|r| r.3).collect();
        assert_eq!(reached.len(), TABLE.len(), "every row is reached");
    }

    #[test]
    fn a_subresource_of_s3_is_never_the_plain_operation() {
        // C83
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE"] {
            for name in NOT_IMPLEMENTED {
                for uri in [
                    format!("/?{name}"),
                    format!("/bucket?{name}"),
                    format!("/bucket?{name}=value"),
                    format!("/bucket/key?{name}="),
                    format!("/bucket/key?{name}=value"),
                    format!("/bucket/key?prefix=x&{name}"),
                ] {
                    match routed(method, &uri, false) {
                        Ok(operation) => assert_eq!(operation.row().subresource, Some(*name), "{method} {uri}"),
                        Err(error) => assert_eq!(error.code(), ErrorCode::NotImplemented, "{method} {uri}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_parameter_that_s3_does_not_know_is_ignored() {
        for (uri, plain) in [
            ("/?", Operation::ListBuckets),
            ("/bucket?", Operation::ListObjects),
            ("/bucket/key?", Operation::GetObject),
        ] {
            for unknown in ["foo", "foo=", "foo=bar", "ACL", "Uploads", "uploadid=", "x-id=GetObject", "list-type2"] {
                assert_eq!(routed("GET", &format!("{uri}{unknown}"), false).unwrap(), plain, "{uri}{unknown}");
            }
        }
    }

    #[test]
    fn a_method_that_is_not_allowed_is_told_which_are() {
        let allow = |method, uri| routed(method, uri, false).unwrap_err().get_header("allow").map(str::to_owned);
        assert_eq!(allow("POST", "/bucket/key").as_deref(), Some("GET, HEAD, PUT, DELETE"));
        assert_eq!(allow("PUT", "/bucket?location").as_deref(), Some("GET"));
        assert_eq!(allow("PATCH", "/").as_deref(), Some("GET"));
    }

    #[test]
    fn requests_that_fit_no_row_are_refused() {
        for (method, uri, code) in [
            ("PUT", "/", ErrorCode::MethodNotAllowed),
            ("HEAD", "/", ErrorCode::MethodNotAllowed),
            ("POST", "/", ErrorCode::MethodNotAllowed),
            ("PATCH", "/bucket/key", ErrorCode::MethodNotAllowed),
            ("TRACE", "/bucket/key", ErrorCode::MethodNotAllowed),
            ("POST", "/bucket/key", ErrorCode::MethodNotAllowed),
            ("DELETE", "/bucket?versioning", ErrorCode::MethodNotAllowed),
            ("PUT", "/bucket?versions", ErrorCode::MethodNotAllowed),
            ("GET", "/bucket/key?versions", ErrorCode::InvalidRequest),
            ("GET", "/bucket/key?uploads", ErrorCode::InvalidRequest),
            ("PUT", "/bucket?location", ErrorCode::MethodNotAllowed),
            ("PUT", "/bucket?delete", ErrorCode::MethodNotAllowed),
            ("PUT", "/bucket/key?delete", ErrorCode::MethodNotAllowed),
            ("PUT", "/bucket/key?uploads", ErrorCode::MethodNotAllowed),
            ("GET", "/bucket/key?location", ErrorCode::MethodNotAllowed),
            ("GET", "/?location", ErrorCode::MethodNotAllowed),
            ("GET", "/bucket?location&uploads", ErrorCode::InvalidArgument),
            ("GET", "/bucket?list-type=1", ErrorCode::InvalidArgument),
            ("GET", "/bucket?list-type", ErrorCode::InvalidArgument),
            ("PUT", "/bucket/key?partNumber=1", ErrorCode::InvalidArgument),
            ("PUT", "/bucket/key?uploadId=u", ErrorCode::MethodNotAllowed),
            ("PUT", "/bucket/key?uploadId=u&partNumber=1&partNumber=2", ErrorCode::InvalidArgument),
            ("PUT", "/bucket/key?versionId=v", ErrorCode::InvalidArgument),
            ("GET", "/bucket/key?versionId=v&versionId=w", ErrorCode::InvalidArgument),
            ("OPTIONS", "/", ErrorCode::AccessForbidden),
        ] {
            assert_eq!(routed(method, uri, false).unwrap_err().code(), code, "{method} {uri}");
        }
    }

    #[test]
    fn names_and_actions_come_from_the_table() {
        for row in TABLE {
            assert_eq!(row.operation.row().action, row.action);
            assert_eq!(row.operation.name(), format!("{:?}", row.operation));
            assert!(row.action.starts_with("s3:"));
        }
    }

    #[test]
    fn the_reference_has_every_operation_with_its_action() {
        let reference = include_str!("../../docs/reference/s3-api.md");
        for row in TABLE {
            let line = reference.lines().find(|line| line.starts_with(&format!("| {} |", row.operation.name())));
            let line = line.unwrap_or_else(|| panic!("{} is not in the reference", row.operation.name()));
            assert!(line.contains(&format!("`{}`", row.action)), "{line}");
        }
    }

    proptest! {
        #[test]
        fn routing_never_panics_and_answers_within_its_resource(
            method in "GET|PUT|POST|DELETE|HEAD",
            query in proptest::collection::vec(("[a-zA-Z-]{0,12}|uploads|uploadId|acl|partNumber|list-type|delete", "[0-9a-z]{0,3}"), 0..5),
        ) {
            let query: Vec<_> = query.iter().map(|(n, v)| format!("{n}={v}")).collect();
            if let Ok(operation) = routed(&method, &format!("/bucket/key?{}", query.join("&")), false) {
                prop_assert_eq!(operation.row().resource, Resource::Object);
                prop_assert_eq!(operation.row().method, method.as_str());
            }
        }
    }
}

//! The one table of operations: what routes where, which permission it needs, what body it has.

use crate::{
    address::Target,
    error::{ErrorCode, Result, S3Error},
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
    /// The action a policy must allow for the addressed resource. Copies also need `s3:GetObject` on their source, and
    /// DeleteObjects needs it for each key.
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

const NONE: RequestBody = RequestBody::None;
const PAYLOAD: RequestBody = RequestBody::Payload;

macro_rules! table {
    ($($operation:ident $method:literal $resource:ident $subresource:expr, $header:expr, $action:literal $body:expr;)*) => {
        /// The table. Of the rows that fit a request the first is meant, so rows with more conditions stand first.
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
    ListMultipartUploads    "GET"    Bucket  Some("uploads"),   None,         "s3:ListBucketMultipartUploads" NONE;
    ListObjectsV2           "GET"    Bucket  Some("list-type"), None,         "s3:ListBucket"                 NONE;
    ListObjects             "GET"    Bucket  None,              None,         "s3:ListBucket"                 NONE;
    HeadBucket              "HEAD"   Bucket  None,              None,         "s3:ListBucket"                 NONE;
    CreateBucket            "PUT"    Bucket  None,              None,         "s3:CreateBucket"               RequestBody::Xml { bytes_max: CREATE_BUCKET_BYTES_MAX };
    DeleteBucket            "DELETE" Bucket  None,              None,         "s3:DeleteBucket"               NONE;
    DeleteObjects           "POST"   Bucket  Some("delete"),    None,         "s3:DeleteObject"               RequestBody::Xml { bytes_max: DELETE_BYTES_MAX };
    ListParts               "GET"    Object  Some("uploadId"),  None,         "s3:ListMultipartUploadParts"   NONE;
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

/// Sub-resources S3 has and this server has not. A request that names one is never the plain operation.
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
    "versions",
    "website",
];

/// Parameters that say more about an operation and are never a sub-resource, whatever their value.
const PARAMETERS: &[&str] = &[
    "bucket-region",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "marker",
    "max-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "partNumber",
    "prefix",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "start-after",
    "upload-id-marker",
    "versionId",
    "x-id",
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
}

/// Decides which operation a request is. `headers` are the effective ones ([`crate::headers::effective`]).
///
/// # Errors
/// `NotImplemented` for a sub-resource S3 has and this server has not, and for any unknown parameter that looks like one, having no
/// value (never the plain operation: `PUT ?acl` must not write an object, C83); `InvalidArgument` for two sub-resources at once;
/// `MethodNotAllowed`; `AccessForbidden` for CORS preflights.
pub fn route(method: &Method, target: &Target, headers: &HeaderMap) -> Result<Operation> {
    if method == Method::OPTIONS {
        return Err(S3Error::new(ErrorCode::AccessForbidden).field("Method", "OPTIONS"));
    }
    let resource = match (&target.bucket, &target.key) {
        (None, _) => Resource::Service,
        (Some(_), None) => Resource::Bucket,
        (Some(_), Some(_)) => Resource::Object,
    };
    let named = subresource_of(target, resource)?;
    if named == Some("versioning") && method != Method::GET {
        return Err(not_implemented("versioning"));
    }
    if resource == Resource::Bucket && method == Method::POST && named.is_none() {
        // Browser uploads with a POST policy.
        return Err(S3Error::with_message(ErrorCode::NotImplemented, "Form uploads are not implemented."));
    }
    let fits = |row: &&OperationRow| {
        row.method == method.as_str()
            && row.resource == resource
            && row.subresource == named
            && row.header.is_none_or(|header| headers.contains_key(header))
    };
    let Some(row) = TABLE.iter().find(fits) else {
        return Err(S3Error::new(ErrorCode::MethodNotAllowed)
            .field("Method", method.as_str())
            .field("ResourceType", resource.wire_name()));
    };
    check_parameters(row.operation, target)?;
    Ok(row.operation)
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

/// The one implemented sub-resource the request names.
fn subresource_of(target: &Target, resource: Resource) -> Result<Option<&'static str>> {
    let mut found = None;
    for (name, value) in target.query.pairs() {
        let known = TABLE.iter().filter_map(|row| row.subresource).find(|known| *known == name);
        match known {
            Some("list-type") if resource != Resource::Bucket => {}
            Some(known) if found.is_none_or(|f| f == known) => found = Some(known),
            Some(known) => {
                let pair = format!("{}, {known}", found.unwrap_or_default());
                return Err(S3Error::invalid_argument("ResourceType", pair, "Conflicting query string parameters"));
            }
            None if NOT_IMPLEMENTED.contains(&name) => return Err(not_implemented(name)),
            None if value.is_empty() && !PARAMETERS.contains(&name) && !is_amz(name) => {
                return Err(not_implemented(name));
            }
            None => {}
        }
    }
    Ok(found)
}

/// Parameters of a signature, and headers that signers move into the query.
fn is_amz(name: &str) -> bool {
    name.get(..6).is_some_and(|prefix| prefix.eq_ignore_ascii_case("x-amz-"))
}

fn not_implemented(subresource: &str) -> S3Error {
    S3Error::new(ErrorCode::NotImplemented).field("Subresource", subresource)
}

/// Parameters that would change the meaning of an operation that does not take them.
fn check_parameters(operation: Operation, target: &Target) -> Result<()> {
    use Operation::*;
    if let Some(version) = target.query.single("versionId")?
        && !matches!(operation, GetObject | HeadObject | DeleteObject)
    {
        return Err(S3Error::invalid_argument("versionId", version, "This operation does not accept a version-id."));
    }
    let part_number = target.query.single("partNumber")?;
    match (operation, part_number) {
        (UploadPart | UploadPartCopy, None) => {
            Err(S3Error::invalid_argument("partNumber", "", "The request needs a partNumber."))
        }
        (PutObject | CopyObject, Some(number)) => {
            Err(S3Error::invalid_argument("partNumber", number, "A partNumber needs an uploadId."))
        }
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
            ("DELETE", "/bucket/key", false, DeleteObject),
            ("POST", "/bucket/key?uploads", false, CreateMultipartUpload),
            ("PUT", "/bucket/key?partNumber=1&uploadId=u", false, UploadPart),
            ("PUT", "/bucket/key?partNumber=1&uploadId=u", true, UploadPartCopy),
            ("GET", "/bucket/key?uploadId=u", false, ListParts),
            ("POST", "/bucket/key?uploadId=u", false, CompleteMultipartUpload),
            ("DELETE", "/bucket/key?uploadId=u", false, AbortMultipartUpload),
        ];
        for (method, uri, copy_source, expected) in requests {
            assert_eq!(routed(method, uri, copy_source).unwrap(), expected, "{method} {uri}");
        }
        let reached: HashSet<_> = requests.iter().map(|r| r.3).collect();
        assert_eq!(reached.len(), TABLE.len(), "every row is reached");
    }

    #[test]
    fn an_unknown_subresource_is_never_the_plain_operation() {
        // C83
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE"] {
            for name in NOT_IMPLEMENTED.iter().chain(&["foo", "ACL", "Uploads", "uploadid"]) {
                for uri in [
                    format!("/?{name}"),
                    format!("/bucket?{name}"),
                    format!("/bucket/key?{name}="),
                    format!("/bucket/key?prefix=x&{name}"),
                ] {
                    let error = routed(method, &uri, false).unwrap_err();
                    assert_eq!(error.code(), ErrorCode::NotImplemented, "{method} {uri}");
                }
            }
            for name in NOT_IMPLEMENTED {
                let uri = format!("/bucket/key?{name}=value");
                assert_eq!(
                    routed(method, &uri, false).unwrap_err().code(),
                    ErrorCode::NotImplemented,
                    "{method} {uri}"
                );
            }
        }
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
            ("POST", "/bucket", ErrorCode::NotImplemented),
            ("PUT", "/bucket?versioning", ErrorCode::NotImplemented),
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
            ("PUT", "/bucket/key?uploadId=u", ErrorCode::InvalidArgument),
            ("PUT", "/bucket/key?uploadId=u&partNumber=1&partNumber=2", ErrorCode::InvalidArgument),
            ("PUT", "/bucket/key?versionId=v", ErrorCode::InvalidArgument),
            ("GET", "/bucket/key?versionId=v&versionId=w", ErrorCode::InvalidArgument),
            ("OPTIONS", "/bucket/key", ErrorCode::AccessForbidden),
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

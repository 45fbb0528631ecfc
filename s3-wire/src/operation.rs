//! The one table of operations: what routes where, which permission it needs, what body it has.

use crate::{address::Target, error::Result};
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

impl Operation {
    /// The row of this operation.
    pub fn row(self) -> &'static OperationRow {
        unimplemented!()
    }

    /// The operation's name as in the S3 API reference, for logs and metrics.
    pub fn name(self) -> &'static str {
        unimplemented!()
    }

    /// The action a policy must allow on the addressed resource, such as `s3:GetObject`.
    pub fn action(self) -> &'static str {
        self.row().action
    }
}

/// Decides which operation a request is.
///
/// # Errors
/// `NotImplemented` for a sub-resource S3 has and this server has not (never the plain operation: `PUT ?acl` must not write an
/// object, C83); `MethodNotAllowed`; `AccessForbidden` for CORS preflights.
pub fn route(_method: &Method, _target: &Target, _headers: &HeaderMap) -> Result<Operation> {
    unimplemented!()
}

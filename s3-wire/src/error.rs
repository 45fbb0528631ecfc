//! S3's errors: the code a client acts on, its HTTP status, and the XML document that carries it.

use crate::xml::{Document, XmlWriter};
use bytes::Bytes;
use http::StatusCode;
use std::{borrow::Cow, fmt};

/// The result of everything in this crate.
pub type Result<T, E = S3Error> = std::result::Result<T, E>;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident $status:literal $message:literal;)*) => {
        /// The codes of S3 that this server answers with. The name of the variant is the code on
        /// the wire.
        ///
        /// Source: Amazon S3 API Reference, "Error responses".
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each variant is its code on the wire; `message` says what it means")]
        pub enum ErrorCode { $($(#[$doc])* $name,)* }

        impl ErrorCode {
            /// Every code, in alphabetical order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as it stands in the document.
            pub fn as_str(self) -> &'static str {
                match self {
                    // The one code that is no identifier.
                    code if code == Self::KmsNotFoundException => "KMS.NotFoundException",
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The HTTP status it is sent with.
            pub fn status(self) -> StatusCode {
                let status: u16 = match self { $(Self::$name => $status,)* };
                StatusCode::from_u16(status).expect("the table holds valid statuses only")
            }

            /// The text sent when the caller gives no better one.
            pub fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }
        }
    };
}

error_codes! {
    AccessControlListNotSupported 400 "The bucket does not allow ACLs.";
    AccessDenied 403 "Access Denied";
    AccessForbidden 403 "CORSResponse: CORS is not enabled for this bucket.";
    AuthorizationHeaderMalformed 400 "The authorization header that you provided is not valid.";
    AuthorizationQueryParametersError 400 "The authorization query parameters that you provided are not valid.";
    BadDigest 400 "The Content-MD5 or checksum value that you specified did not match what we received.";
    BadRequest 400 "Bad Request";
    BucketAlreadyExists 409 "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again.";
    BucketAlreadyOwnedByYou 409 "Your previous request to create the named bucket succeeded and you already own it.";
    BucketNotEmpty 409 "The bucket you tried to delete is not empty";
    ConditionalRequestConflict 409 "A conflicting operation occurred during this request. Please retry.";
    EntityTooLarge 400 "Your proposed upload exceeds the maximum allowed object size.";
    EntityTooSmall 400 "Your proposed upload is smaller than the minimum allowed size";
    ExpiredToken 400 "The provided token has expired.";
    IllegalLocationConstraintException 400 "The specified location constraint is not valid for this endpoint.";
    IllegalVersioningConfigurationException 400 "The versioning configuration specified in the request is invalid.";
    IncompleteBody 400 "You did not provide the number of bytes specified by the Content-Length HTTP header";
    InternalError 500 "We encountered an internal error. Please try again.";
    InvalidAccessKeyId 403 "The AWS Access Key Id you provided does not exist in our records.";
    InvalidArgument 400 "Invalid Argument";
    InvalidBucketAclWithObjectOwnership 400 "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    InvalidBucketName 400 "The specified bucket is not valid.";
    InvalidBucketState 409 "The request is not valid with the current state of the bucket.";
    InvalidDigest 400 "The Content-Md5 you specified is not valid.";
    InvalidEncryptionAlgorithmError 400 "The encryption request that you specified is not valid. The valid value is AES256.";
    InvalidLocationConstraint 400 "The specified location-constraint is not valid";
    InvalidObjectState 403 "The operation is not valid for the current state of the object.";
    InvalidPart 400 "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag.";
    InvalidPartOrder 400 "The list of parts was not in ascending order. Parts must be ordered by part number.";
    InvalidPolicyDocument 400 "The content of the form does not meet the conditions specified in the policy document.";
    InvalidRange 416 "The requested range is not satisfiable";
    InvalidRedirectLocation 400 "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.";
    InvalidRequest 400 "Invalid Request";
    InvalidRetentionPeriod 400 "The retention period specified is not valid.";
    InvalidStorageClass 400 "The storage class you specified is not valid.";
    InvalidTag 400 "The tag provided was not a valid tag. This error can occur if the tag did not pass input validation.";
    InvalidToken 400 "The provided token is malformed or otherwise invalid.";
    InvalidURI 400 "Couldn't parse the specified URI.";
    KmsNotFoundException 400 "The specified key does not exist.";
    KeyTooLongError 400 "Your key is too long.";
    MalformedACLError 400 "The XML you provided was not well-formed or did not validate against our published schema.";
    MalformedPOSTRequest 400 "The body of your POST request is not well-formed multipart/form-data.";
    MalformedPolicy 400 "Policy has invalid resource";
    MalformedTrailerError 400 "The request contained trailing data that was not well-formed or did not conform to our published schema.";
    MalformedXML 400 "The XML you provided was not well-formed or did not validate against our published schema.";
    MaxMessageLengthExceeded 400 "Your request was too big.";
    MaxPostPreDataLengthExceededError 400 "Your POST request fields preceding the upload file were too large.";
    MetadataTooLarge 400 "Your metadata headers exceed the maximum allowed metadata size";
    MethodNotAllowed 405 "The specified method is not allowed against this resource.";
    MissingContentLength 411 "You must provide the Content-Length HTTP header.";
    MissingRequestBodyError 400 "Request Body is empty";
    MissingSecurityHeader 400 "Your request was missing a required header.";
    NoSuchBucket 404 "The specified bucket does not exist";
    NoSuchBucketPolicy 404 "The bucket policy does not exist.";
    NoSuchCORSConfiguration 404 "The CORS configuration does not exist";
    NoSuchConfiguration 404 "The specified configuration does not exist.";
    NoSuchKey 404 "The specified key does not exist.";
    NoSuchLifecycleConfiguration 404 "The lifecycle configuration does not exist";
    NoSuchObjectLockConfiguration 404 "The specified object does not have a ObjectLock configuration.";
    NoSuchPublicAccessBlockConfiguration 404 "The public access block configuration was not found";
    NoSuchTagSet 404 "The TagSet does not exist.";
    NoSuchUpload 404 "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.";
    NoSuchVersion 404 "The specified version does not exist.";
    NoSuchWebsiteConfiguration 404 "The specified bucket does not have a website configuration";
    NotImplemented 501 "A header you provided implies functionality that is not implemented.";
    NotModified 304 "Not Modified";
    ObjectLockConfigurationNotFoundError 404 "Object Lock configuration does not exist for this bucket.";
    OperationAborted 409 "A conflicting conditional operation is currently in progress against this resource. Try again.";
    OwnershipControlsNotFoundError 404 "The bucket ownership controls were not found.";
    PreconditionFailed 412 "At least one of the pre-conditions you specified did not hold.";
    QuotaExceeded 403 "The quota of the bucket or of its owner is exceeded.";
    ReplicationConfigurationNotFoundError 404 "The replication configuration was not found";
    RequestTimeTooSkewed 403 "The difference between the request time and the current time is too large.";
    RequestTimeout 400 "Your socket connection to the server was not read from or written to within the timeout period.";
    ServerSideEncryptionConfigurationNotFoundError 404 "The server side encryption configuration was not found";
    ServiceUnavailable 503 "Service is unable to handle request.";
    SignatureDoesNotMatch 403 "The request signature we calculated does not match the signature you provided. Check your key and signing method.";
    SlowDown 503 "Please reduce your request rate.";
    TooManyBuckets 400 "You have attempted to create more buckets than allowed.";
    UnexpectedContent 400 "This request does not support content.";
    UnresolvableGrantByEmailAddress 400 "The email address you provided does not match any account on record.";
    XAmzContentSHA256Mismatch 400 "The provided 'x-amz-content-sha256' header does not match what was computed.";
}

/// One error answer. Cheap to move (one pointer); compare [`S3Error::code`] in tests.
#[derive(Clone)]
pub struct S3Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: ErrorCode,
    message: Cow<'static, str>,
    resource: Option<String>,
    request_id: Option<String>,
    host_id: Option<String>,
    fields: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    close_connection: bool,
}

impl S3Error {
    /// An error with the code's usual message.
    pub fn new(code: ErrorCode) -> Self {
        Self::with_message(code, code.message())
    }

    /// An error with its own message. The message is shown to the client: no paths, hashes or
    /// backend texts (C116).
    pub fn with_message(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            resource: None,
            request_id: None,
            host_id: None,
            fields: Vec::new(),
            headers: Vec::new(),
            close_connection: false,
        }))
    }

    /// `InvalidArgument` with the `ArgumentName` and `ArgumentValue` S3 sends.
    pub fn invalid_argument(
        name: &'static str,
        value: impl Into<String>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::with_message(ErrorCode::InvalidArgument, message)
            .field("ArgumentName", name)
            .field("ArgumentValue", value)
    }

    /// Adds an element such as `BucketName`, `Key`, `Condition` to the document.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.fields.push((name, value.into()));
        self
    }

    /// Adds a header to the answer, such as `allow`. The name is in lower case.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    /// Sets the resource (path) the error is about.
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.0.resource = Some(resource.into());
        self
    }

    /// Sets the ids under which the server logged the request.
    #[must_use]
    pub fn request_id(mut self, request_id: impl Into<String>, host_id: impl Into<String>) -> Self {
        self.0.request_id = Some(request_id.into());
        self.0.host_id = Some(host_id.into());
        self
    }

    /// Marks that the rest of the request body cannot be trusted to be where it should: the
    /// connection must be closed after the answer, else its bytes could be read as another request
    /// (C66).
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.0.close_connection = true;
        self
    }

    /// The code.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.0.code.status()
    }

    /// The message shown to the client.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The value of an extra element.
    pub fn get_field(&self, name: &str) -> Option<&str> {
        self.0.fields.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }

    /// The headers of the answer that belong to this error.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.headers.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// The value of such a header.
    pub fn get_header(&self, name: &str) -> Option<&str> {
        self.headers().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// Whether the connection must be closed after this answer.
    pub fn close_connection(&self) -> bool {
        self.0.close_connection
    }

    /// The XML document.
    pub fn to_xml(&self) -> Bytes {
        self.to_bytes()
    }
}

impl Document for S3Error {
    /// Errors are the one S3 document without a namespace.
    fn write(&self, xml: &mut XmlWriter) {
        xml.open("Error");
        xml.text("Code", self.0.code.as_str());
        xml.message("Message", &self.0.message);
        for (name, value) in &self.0.fields {
            xml.text(name, value);
        }
        xml.optional("Resource", self.0.resource.as_deref());
        xml.optional("RequestId", self.0.request_id.as_deref());
        xml.optional("HostId", self.0.host_id.as_deref());
        xml.close();
    }
}

impl From<ErrorCode> for S3Error {
    fn from(code: ErrorCode) -> Self {
        Self::new(code)
    }
}

impl fmt::Debug for S3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Error({self})")
    }
}

impl fmt::Display for S3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.message)
    }
}

impl std::error::Error for S3Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_an_error_status_and_a_message() {
        for code in ErrorCode::ALL {
            let status = code.status();
            assert!(
                status.is_client_error() || status.is_server_error() || *code == ErrorCode::NotModified,
                "{code:?}"
            );
            assert!(
                !code.message().is_empty()
                    && (code.as_str() == format!("{code:?}") || *code == ErrorCode::KmsNotFoundException)
            );
        }
        assert!(ErrorCode::ALL.is_sorted_by_key(|code| code.as_str()));
    }

    #[test]
    fn the_reference_has_every_code_under_its_status() {
        let reference = include_str!("../../docs/reference/s3-api.md");
        for code in ErrorCode::ALL {
            let status = format!("| {} |", code.status().as_u16());
            let line = reference.lines().find(|line| line.starts_with(&status));
            assert!(line.is_some_and(|line| line.contains(&format!("`{}`", code.as_str()))), "{code:?}");
        }
    }

    #[test]
    fn a_result_stays_small() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn an_argument_error_names_its_argument() {
        let error = S3Error::invalid_argument("max-keys", "-1", "No.");
        assert_eq!(error.get_field("ArgumentName"), Some("max-keys"));
        assert_eq!(error.to_string(), "InvalidArgument: No.");
        assert!(!error.close_connection() && error.clone().closing().close_connection());
    }
}

//! What STS answers.

use crate::{
    error::{ErrorCode, S3Error},
    timestamp,
    xml::{Document, XmlWriter},
};
use http::StatusCode;
use std::{fmt, time::SystemTime};

/// The namespace of every answer.
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

/// Codes of STS.
///
/// Source: AWS Security Token Service API Reference, "Common Error Types" and the errors of each
/// action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is its code on the wire")]
pub enum StsErrorCode {
    AccessDenied,
    ExpiredToken,
    IncompleteSignature,
    InternalFailure,
    InvalidAction,
    InvalidClientTokenId,
    MalformedPolicyDocument,
    MissingAction,
    MissingAuthenticationToken,
    NotImplemented,
    RequestEntityTooLarge,
    ServiceUnavailable,
    SignatureDoesNotMatch,
    Throttling,
    ValidationError,
}

impl StsErrorCode {
    /// The code as it stands in the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AccessDenied => "AccessDenied",
            Self::ExpiredToken => "ExpiredToken",
            Self::IncompleteSignature => "IncompleteSignature",
            Self::InternalFailure => "InternalFailure",
            Self::InvalidAction => "InvalidAction",
            Self::InvalidClientTokenId => "InvalidClientTokenId",
            Self::MalformedPolicyDocument => "MalformedPolicyDocument",
            Self::MissingAction => "MissingAction",
            Self::MissingAuthenticationToken => "MissingAuthenticationToken",
            Self::NotImplemented => "NotImplemented",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::SignatureDoesNotMatch => "SignatureDoesNotMatch",
            Self::Throttling => "Throttling",
            Self::ValidationError => "ValidationError",
        }
    }

    /// The status it is sent with.
    pub fn status(self) -> StatusCode {
        match self {
            Self::AccessDenied
            | Self::ExpiredToken
            | Self::InvalidClientTokenId
            | Self::MissingAuthenticationToken
            | Self::SignatureDoesNotMatch => StatusCode::FORBIDDEN,
            Self::IncompleteSignature
            | Self::InvalidAction
            | Self::MalformedPolicyDocument
            | Self::MissingAction
            | Self::Throttling
            | Self::ValidationError => StatusCode::BAD_REQUEST,
            Self::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::InternalFailure => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An error of STS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StsError {
    /// The code.
    pub code: StsErrorCode,
    message: String,
    request_id: String,
}

impl StsError {
    /// An error with its message, which the client is shown.
    pub fn new(code: StsErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), request_id: String::new() }
    }

    /// Sets the id under which the server logged the request.
    #[must_use]
    pub fn request_id(self, request_id: impl Into<String>) -> Self {
        Self { request_id: request_id.into(), ..self }
    }
}

impl From<&S3Error> for StsError {
    /// What a signature, or a body, was refused for, by the names of STS.
    fn from(error: &S3Error) -> Self {
        let code = match error.code() {
            ErrorCode::InvalidAccessKeyId | ErrorCode::InvalidToken => {
                let message = "The security token included in the request is invalid.";
                return Self::new(StsErrorCode::InvalidClientTokenId, message);
            }
            ErrorCode::ExpiredToken => {
                let message = "The security token included in the request is expired";
                return Self::new(StsErrorCode::ExpiredToken, message);
            }
            ErrorCode::SignatureDoesNotMatch | ErrorCode::RequestTimeTooSkewed => StsErrorCode::SignatureDoesNotMatch,
            ErrorCode::AccessDenied => StsErrorCode::AccessDenied,
            ErrorCode::SlowDown => StsErrorCode::Throttling,
            ErrorCode::ServiceUnavailable => StsErrorCode::ServiceUnavailable,
            ErrorCode::InternalError => StsErrorCode::InternalFailure,
            ErrorCode::EntityTooLarge | ErrorCode::MaxMessageLengthExceeded => StsErrorCode::RequestEntityTooLarge,
            ErrorCode::AuthorizationHeaderMalformed | ErrorCode::AuthorizationQueryParametersError => {
                StsErrorCode::IncompleteSignature
            }
            _ => StsErrorCode::ValidationError,
        };
        Self::new(code, error.message())
    }
}

impl fmt::Display for StsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for StsError {}

impl Document for StsError {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_with("ErrorResponse", [("xmlns", NAMESPACE)]);
        xml.open("Error");
        xml.text("Type", if self.code.status().is_server_error() { "Receiver" } else { "Sender" });
        xml.text("Code", self.code.as_str());
        xml.text("Message", &self.message);
        xml.close();
        xml.text("RequestId", &self.request_id);
        xml.close();
    }
}

/// Temporary credentials, as they are given out.
pub struct IssuedCredentials {
    /// The access key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
    /// The token that requests bring along.
    pub session_token: String,
    /// Until when they are good.
    pub expiration: SystemTime,
}

impl IssuedCredentials {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open("Credentials");
        xml.text("AccessKeyId", &self.access_key_id);
        xml.text("SecretAccessKey", &self.secret_access_key);
        xml.text("SessionToken", &self.session_token);
        xml.text("Expiration", &timestamp::iso8601(self.expiration));
        xml.close();
    }
}

/// The answer to AssumeRole.
pub struct Assumed {
    /// The credentials.
    pub credentials: IssuedCredentials,
    /// The ARN of the session.
    pub arn: String,
    /// The id of the session.
    pub id: String,
    /// How much of what a session policy may have was used, in percent.
    pub packed_policy_percent: Option<u64>,
    /// The request's id.
    pub request_id: String,
}

impl Document for Assumed {
    fn write(&self, xml: &mut XmlWriter) {
        answer(xml, ["AssumeRoleResponse", "AssumeRoleResult"], &self.request_id, |xml| {
            xml.open("AssumedRoleUser");
            xml.text("AssumedRoleId", &self.id);
            xml.text("Arn", &self.arn);
            xml.close();
            self.credentials.write(xml);
            if let Some(percent) = self.packed_policy_percent {
                xml.value("PackedPolicySize", percent);
            }
        });
    }
}

/// The answer to GetSessionToken.
pub struct SessionTokenIssued {
    /// The credentials.
    pub credentials: IssuedCredentials,
    /// The request's id.
    pub request_id: String,
}

impl Document for SessionTokenIssued {
    fn write(&self, xml: &mut XmlWriter) {
        let names = ["GetSessionTokenResponse", "GetSessionTokenResult"];
        answer(xml, names, &self.request_id, |xml| self.credentials.write(xml));
    }
}

/// The answer to GetCallerIdentity.
pub struct CallerIdentity {
    /// The caller's ARN.
    pub arn: String,
    /// Its id.
    pub user_id: String,
    /// The number of its account.
    pub account: String,
    /// The request's id.
    pub request_id: String,
}

impl Document for CallerIdentity {
    fn write(&self, xml: &mut XmlWriter) {
        answer(xml, ["GetCallerIdentityResponse", "GetCallerIdentityResult"], &self.request_id, |xml| {
            xml.text("Arn", &self.arn);
            xml.text("UserId", &self.user_id);
            xml.text("Account", &self.account);
        });
    }
}

fn answer(
    xml: &mut XmlWriter,
    [root, result]: [&'static str; 2],
    request_id: &str,
    write: impl FnOnce(&mut XmlWriter),
) {
    xml.open_with(root, [("xmlns", NAMESPACE)]);
    xml.open(result);
    write(xml);
    xml.close();
    xml.open("ResponseMetadata");
    xml.text("RequestId", request_id);
    xml.close();
    xml.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_in_the_form_of_sts() {
        let error = StsError::new(StsErrorCode::AccessDenied, "No <way>.").request_id("R");
        assert_eq!(
            std::str::from_utf8(&error.to_bytes()).unwrap(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>\
             <Type>Sender</Type><Code>AccessDenied</Code><Message>No &lt;way&gt;.</Message></Error><RequestId>R</RequestId></ErrorResponse>"
        );
    }

    #[test]
    fn refused_signatures_have_the_codes_of_sts() {
        for (code, expected) in [
            (ErrorCode::InvalidAccessKeyId, StsErrorCode::InvalidClientTokenId),
            (ErrorCode::InvalidToken, StsErrorCode::InvalidClientTokenId),
            (ErrorCode::ExpiredToken, StsErrorCode::ExpiredToken),
            (ErrorCode::RequestTimeTooSkewed, StsErrorCode::SignatureDoesNotMatch),
            (ErrorCode::AuthorizationHeaderMalformed, StsErrorCode::IncompleteSignature),
            (ErrorCode::SlowDown, StsErrorCode::Throttling),
        ] {
            assert_eq!(StsError::from(&S3Error::new(code)).code, expected);
        }
    }
}

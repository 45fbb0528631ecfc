//! The signature a request presents, parsed and checked as far as it can be without the secret.

use super::{
    SignatureKind,
    canonical::{canonical_request, string_to_sign},
    signing::{Scope, SigningService},
};
use crate::{
    address::{Query, Target},
    error::{ErrorCode, Result, S3Error},
    headers::{decimal, is_given, single},
    timestamp,
};
use http::{HeaderMap, Method, header};
use std::{
    fmt,
    time::{Duration, SystemTime},
};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How far the client's clock may be off.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// The longest life of a presigned URL: a week.
const EXPIRES_S_MAX: u64 = 604_800;
/// The region of services that have one endpoint for all of them.
const GLOBAL_REGION: &str = "us-east-1";
const ACCESS_KEY_ID_BYTES_MAX: usize = 256;

/// What a signed request claims, before any of it is believed.
#[derive(Clone)]
pub struct Presented {
    /// The access key named.
    pub access_key_id: String,
    /// The session token sent, if any.
    pub session_token: Option<String>,
    pub(super) kind: SignatureKind,
    pub(super) signed_at: SystemTime,
    pub(super) signature: String,
    pub(super) payload: PayloadClaim,
    pub(super) string_to_sign: String,
    pub(super) proof: Proof,
}

impl Presented {
    /// Whether a customer's key is among what was signed.
    pub(super) fn has_customer_key(&self) -> bool {
        let signed = match &self.proof {
            Proof::V4 { canonical_request, .. } => canonical_request,
            Proof::V2 => self.string_to_sign.as_bytes(),
        };
        signed.windows(CUSTOMER_KEY.len()).any(|text| text == CUSTOMER_KEY)
    }
}

/// Whether a text can be an access key's id.
pub(super) fn is_access_key_id(text: &str) -> bool {
    (1..=ACCESS_KEY_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// How the canonical form of a header with a customer's key ends its name.
const CUSTOMER_KEY: &[u8] = b"-server-side-encryption-customer-key:";

/// What the two versions of the signature do not share.
#[derive(Clone)]
pub(super) enum Proof {
    /// Version 4.
    V4 {
        /// When it was signed, as it stands in the string to sign.
        timestamp: String,
        /// What its key is good for.
        scope: Scope,
        /// The canonical request.
        canonical_request: Vec<u8>,
    },
    /// Version 2.
    V2,
}

impl fmt::Debug for Presented {
    /// Leaves out the signature and the canonical request: with them a presigned URL could be
    /// rebuilt from a log (C115).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented")
            .field("access_key_id", &self.access_key_id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// What `x-amz-content-sha256` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadClaim {
    Unsigned,
    Signed([u8; 32]),
    StreamingSigned { trailer: bool },
    StreamingUnsignedTrailer,
}

impl PayloadClaim {
    /// Reads the value.
    pub(super) fn parse(text: &str) -> Result<Self> {
        match text {
            "UNSIGNED-PAYLOAD" => Ok(Self::Unsigned),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Ok(Self::StreamingSigned { trailer: false }),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Ok(Self::StreamingSigned { trailer: true }),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(Self::StreamingUnsignedTrailer),
            hash => {
                let mut sha256 = [0; 32];
                let lower = !hash.bytes().any(|b| b.is_ascii_uppercase());
                match hex::decode_to_slice(hash, &mut sha256) {
                    Ok(()) if lower => Ok(Self::Signed(sha256)),
                    _ => Err(S3Error::invalid_argument(
                        "x-amz-content-sha256",
                        hash,
                        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
                         STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, \
                         STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD, STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER \
                         or a valid sha256 value.",
                    )),
                }
            }
        }
    }
}

/// One request and the moment it is judged at.
pub(super) struct Request<'r> {
    pub(super) method: &'r Method,
    pub(super) target: &'r Target,
    pub(super) headers: &'r HeaderMap,
    pub(super) now: SystemTime,
    pub(super) region: &'r str,
    pub(super) presign_v2: bool,
    pub(super) header_v2: bool,
    pub(super) service: SigningService,
    /// The SHA-256 of the body in hex, for services whose signature always covers it.
    pub(super) body_sha256: Option<&'r str>,
}

/// What of a signature differs between header and query.
struct Claim<'r> {
    kind: SignatureKind,
    credential: &'r str,
    signed_headers: &'r str,
    signature: &'r str,
    session_token: Option<&'r str>,
    signed_at: SystemTime,
}

impl Request<'_> {
    /// Parses and checks; `None` when the request is anonymous.
    pub(super) fn present(&self) -> Result<Option<Presented>> {
        let mut authorizations = self.headers.get_all(header::AUTHORIZATION).iter();
        let authorization = authorizations.next();
        if authorization.is_some_and(|value| value.is_empty()) {
            return Err(ErrorCode::AccessDenied.into());
        }
        if authorizations.next().is_some() {
            return Err(S3Error::invalid_argument("Authorization", "", "The header is given more than once.")); // C17
        }
        let query = &self.target.query;
        let in_query = QUERY_MARKS.iter().any(|mark| query.has(mark));
        match (authorization, in_query) {
            (Some(_), true) => Err(S3Error::invalid_argument(
                "Authorization",
                "",
                "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified",
            )),
            (Some(value), false) => {
                let value = value.to_str().map_err(|_| malformed("it is not printable."))?;
                if let Some(credentials) = value.strip_prefix("AWS ").filter(|_| self.header_v2) {
                    return self.present_header_v2(credentials).map(Some);
                }
                let claim = self.header_claim(value)?;
                self.check(claim).map(Some)
            }
            (None, true) if self.presign_v2 && V2_MARKS.iter().any(|mark| query.has(mark)) => {
                self.present_v2().map(Some)
            }
            (None, true) => {
                let claim = self.query_claim(query)?;
                self.check(claim).map(Some)
            }
            (None, false) => Ok(None),
        }
    }

    fn header_claim<'a>(&'a self, value: &'a str) -> Result<Claim<'a>> {
        let (algorithm, fields) = value.split_once(' ').ok_or_else(|| {
            let message = "Authorization header is invalid -- one and only one ' ' (space) required.";
            S3Error::invalid_argument("Authorization", value, message)
        })?;
        match algorithm {
            ALGORITHM => {}
            "AWS" => return Err(unsupported_mechanism()), // SigV2, C23
            other if other.to_ascii_uppercase().starts_with("AWS4-") => return Err(unsupported_mechanism()), // C24
            other => {
                return Err(S3Error::invalid_argument("Authorization", other, "Unsupported Authorization Type"));
            }
        }
        let components: Vec<&str> = fields.split(',').map(str::trim).collect();
        if components.len() != 3 {
            return Err(malformed(
                "the authorization header requires three components: Credential, SignedHeaders, and Signature.",
            ));
        }
        if let Some(component) = components.iter().find(|component| !component.contains('=')) {
            return Err(malformed(format!("the authorization component \"{component}\" is malformed.")));
        }
        // Three components that must all be there leave no room for another or a repetition.
        let needed = |name: &str| {
            let value = |component: &&'a str| component.split_once('=').filter(|(n, _)| *n == name).map(|(_, v)| v);
            components.iter().find_map(value).ok_or_else(|| malformed(format!("missing {name}.")))
        };
        let (credential, signed_headers, signature) =
            (needed("Credential")?, needed("SignedHeaders")?, needed("Signature")?);
        let signed_at = self.header_date()?;
        self.check_skew(signed_at)?;
        let session_token = single(self.headers, "x-amz-security-token")?;
        Ok(Claim { kind: SignatureKind::Header, credential, signed_headers, signature, session_token, signed_at })
    }

    /// Refuses a request that was signed more than 15 minutes ago, or ahead (C14).
    pub(super) fn check_skew(&self, signed_at: SystemTime) -> Result<()> {
        let skew = match self.now.duration_since(signed_at) {
            Ok(late) => late,
            Err(early) => early.duration(),
        };
        if skew <= SKEW_MAX {
            return Ok(());
        }
        Err(S3Error::new(ErrorCode::RequestTimeTooSkewed)
            .field("RequestTime", timestamp::compact(signed_at))
            .field("ServerTime", timestamp::iso8601(self.now))
            .field("MaxAllowedSkewMilliseconds", SKEW_MAX.as_millis().to_string()))
    }

    fn header_date(&self) -> Result<SystemTime> {
        let date = match single(self.headers, "x-amz-date")? {
            Some(text) => timestamp::parse_compact(text),
            None => single(self.headers, "date")?.and_then(timestamp::parse_http_date),
        };
        date.ok_or_else(|| {
            S3Error::with_message(
                ErrorCode::AccessDenied,
                "AWS authentication requires a valid Date or x-amz-date header.",
            )
        })
    }

    fn query_claim<'a>(&'a self, query: &'a Query) -> Result<Claim<'a>> {
        if V2_MARKS.iter().any(|mark| query.has(mark)) {
            return Err(unsupported_mechanism()); // SigV2, C23
        }
        let one = |name: &'static str| -> Result<Option<&'a str>> {
            query.single(name).map_err(|_| query_error(format!("{name} is given more than once."))) // C18
        };
        let needed = |name: &'static str| -> Result<&'a str> {
            one(name)?.ok_or_else(|| {
                query_error(
                    "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
                     X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
                )
            })
        };
        if needed("X-Amz-Algorithm")? != ALGORITHM {
            return Err(query_error("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")); // C24
        }
        let signed_at = timestamp::parse_compact(needed("X-Amz-Date")?)
            .ok_or_else(|| query_error("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""))?;
        let expires = needed("X-Amz-Expires")?;
        let expires_s = match expires.strip_prefix('-').map_or((false, expires), |digits| (true, digits)) {
            (true, digits) if decimal(digits).is_some() => {
                return Err(query_error("X-Amz-Expires must be non-negative"));
            }
            (_, digits) => decimal(digits).ok_or_else(|| query_error("X-Amz-Expires should be a number"))?,
        };
        if expires_s > EXPIRES_S_MAX {
            return Err(query_error(
                "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds",
            )); // C13
        }
        let denied = |message: &'static str| {
            S3Error::with_message(ErrorCode::AccessDenied, message)
                .field("X-Amz-Expires", expires_s.to_string())
                .field("ServerTime", timestamp::iso8601(self.now))
        };
        if signed_at > self.now + SKEW_MAX {
            return Err(denied("Request is not valid yet."));
        }
        let expires_at = signed_at + Duration::from_secs(expires_s);
        // A life of no seconds is over at once.
        if self.now > expires_at || expires_s == 0 {
            return Err(denied("Request has expired.").field("Expires", timestamp::iso8601(expires_at)));
        }
        Ok(Claim {
            kind: SignatureKind::Presigned,
            credential: needed("X-Amz-Credential")?,
            signed_headers: needed("X-Amz-SignedHeaders")?,
            signature: needed("X-Amz-Signature")?,
            session_token: one("X-Amz-Security-Token")?,
            signed_at,
        })
    }

    /// The checks both kinds share.
    fn check(&self, claim: Claim<'_>) -> Result<Presented> {
        let timestamp = timestamp::compact(claim.signed_at);
        let (access_key_id, scope) = self.check_credential(&claim, &timestamp)?;
        self.check_signed_headers(&claim)?;
        let payload_text = self.payload_text(claim.kind)?;
        let payload = PayloadClaim::parse(payload_text)?;
        let signature_parameter = match claim.kind {
            SignatureKind::Header | SignatureKind::HeaderV2 | SignatureKind::PresignedV2 => None,
            SignatureKind::Presigned => Some("X-Amz-Signature"),
        };
        let canonical_request = canonical_request(
            self.method,
            self.target,
            self.headers,
            claim.signed_headers,
            signature_parameter,
            payload_text,
        );
        let string_to_sign = string_to_sign(&timestamp, &scope.to_string(), &canonical_request);
        Ok(Presented {
            access_key_id: access_key_id.to_owned(),
            session_token: claim.session_token.map(str::to_owned),
            kind: claim.kind,
            signed_at: claim.signed_at,
            signature: claim.signature.to_owned(),
            payload,
            string_to_sign,
            proof: Proof::V4 { timestamp, scope, canonical_request },
        })
    }

    /// Checks `ACCESS-KEY/DATE/REGION/s3/aws4_request` (C15). The access key may itself hold
    /// slashes.
    fn check_credential<'c>(&self, claim: &Claim<'c>, timestamp: &str) -> Result<(&'c str, Scope)> {
        let wrong = |message: String| match claim.kind {
            SignatureKind::Header | SignatureKind::HeaderV2 => malformed(message),
            SignatureKind::Presigned | SignatureKind::PresignedV2 => {
                query_error(format!("Error parsing the X-Amz-Credential parameter; {message}"))
            }
        };
        let no_scope = || {
            wrong(
                "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."
                    .to_owned(),
            )
        };
        let mut parts = claim.credential.rsplitn(5, '/');
        let (Some(terminator), Some(service), Some(region), Some(date), Some(access_key_id)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(no_scope());
        };
        if !is_access_key_id(access_key_id) {
            return Err(wrong("the Credential is mal-formed; the access key is not valid.".to_owned()));
        }
        if terminator != "aws4_request" && access_key_id.contains('/') {
            return Err(no_scope());
        }
        if terminator != "aws4_request" {
            return Err(wrong(format!("incorrect terminal \"{terminator}\". This endpoint uses \"aws4_request\".")));
        }
        let ours = self.service.as_str();
        if service != ours {
            return Err(wrong(format!("incorrect service \"{service}\". This endpoint belongs to \"{ours}\".")));
        }
        // Clients of STS sign for its global endpoint unless they are told a region; minio-py for
        // none.
        let is_global = self.service == SigningService::Sts && (region == GLOBAL_REGION || region.is_empty());
        if region != self.region && !is_global {
            let message = format!("the region '{region}' is wrong; expecting '{}'", self.region);
            return Err(wrong(message).field("Region", self.region));
        }
        if date.len() != 8 || !date.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(wrong(format!(
                "incorrect date format \"{date}\". This date in the credential must be in the format \"yyyyMMdd\"."
            )));
        }
        if date != &timestamp[..8] {
            return Err(wrong(format!(
                "Invalid credential date \"{date}\". This date is not the same as X-Amz-Date: \"{}\".",
                &timestamp[..8]
            )));
        }
        let scope = Scope { date: date.to_owned(), region: region.to_owned(), service: self.service };
        Ok((access_key_id, scope))
    }

    /// `SignedHeaders` is lower case, sorted and without repetition, names only what is there, and
    /// leaves out nothing that means something: `host` and every `x-amz-*` (C1–C3, C19, C20).
    fn check_signed_headers(&self, claim: &Claim<'_>) -> Result<()> {
        let names: Vec<&str> = claim.signed_headers.split(';').collect();
        let in_order = names.windows(2).all(|pair| pair[0] < pair[1]);
        let lower = |name: &&str| !name.is_empty() && !name.bytes().any(|b| b.is_ascii_uppercase());
        let present = |name: &&str| *name == "host" || is_given(self.headers, name);
        if !in_order || !names.iter().all(lower) || !names.iter().all(present) {
            return Err(S3Error::with_message(
                ErrorCode::SignatureDoesNotMatch,
                "SignedHeaders must name headers of the request, in lower case, sorted, each once.",
            ));
        }
        let mut unsigned: Vec<&str> = self
            .headers
            .keys()
            .map(|name| name.as_str())
            .filter(|name| name.starts_with("x-amz-") && names.binary_search(name).is_err())
            .filter(|name| claim.kind == SignatureKind::Header || !INERT_WHEN_PRESIGNED.contains(name))
            .collect();
        if names.binary_search(&"host").is_err() {
            unsigned.push("host");
        }
        if unsigned.is_empty() {
            return Ok(());
        }
        unsigned.sort_unstable();
        Err(S3Error::with_message(
            ErrorCode::AccessDenied,
            "There were headers present in the request which were not signed",
        )
        .field("HeadersNotSigned", unsigned.join(", ")))
    }

    /// The payload line of the canonical request.
    fn payload_text(&self, kind: SignatureKind) -> Result<&str> {
        if let Some(sha256) = self.body_sha256 {
            return Ok(sha256);
        }
        match (single(self.headers, "x-amz-content-sha256")?, kind) {
            (Some(text), _) => Ok(text),
            (None, SignatureKind::Presigned | SignatureKind::PresignedV2) => {
                let once = self.target.query.single("X-Amz-Content-Sha256");
                let text = once.map_err(|_| query_error("X-Amz-Content-Sha256 is given more than once."))?;
                Ok(text.unwrap_or("UNSIGNED-PAYLOAD"))
            }
            (None, SignatureKind::Header | SignatureKind::HeaderV2) => Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Missing required header for this request: x-amz-content-sha256",
            )),
        }
    }
}

/// Headers that the AWS SDKs leave unsigned in presigned URLs and send all the same. They ask for
/// no more than is signed: one is for statistics, the other returns the stored checksums of an
/// object that the signer lets be read.
const INERT_WHEN_PRESIGNED: [&str; 2] = ["x-amz-checksum-mode", "x-amz-user-agent"];

/// Those of version 2.
const V2_MARKS: [&str; 2] = ["Signature", "AWSAccessKeyId"];

/// Parameters whose presence says that the query carries a signature, whatever version.
const QUERY_MARKS: [&str; 5] =
    ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "Signature", "AWSAccessKeyId"];

fn malformed(message: impl std::fmt::Display) -> S3Error {
    let message = format!("The authorization header is malformed; {message}");
    S3Error::with_message(ErrorCode::AuthorizationHeaderMalformed, message)
}

fn query_error(message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    S3Error::with_message(ErrorCode::AuthorizationQueryParametersError, message)
}

pub(super) fn unsupported_mechanism() -> S3Error {
    S3Error::with_message(
        ErrorCode::InvalidRequest,
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
    )
}

//! The verifier.

use super::{
    ChunkSigner, CredentialStore, Presented, SecretKey,
    presented::{PayloadClaim, Request},
    signing::{SigningKey, same_signature},
};
use crate::{
    address::Target,
    error::{ErrorCode, Result, S3Error},
    headers::single,
};
use http::{HeaderMap, Method};
use std::time::SystemTime;

/// Verifies signatures for one region and service `s3`.
#[derive(Clone, Debug)]
pub struct Verifier {
    region: String,
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Nobody said who they are. The payload framing still has to be decoded.
    Anonymous {
        /// How the payload is framed: unsigned, or unsigned with trailer.
        payload: PayloadMode,
    },
    /// A verified signature.
    Authenticated(Authenticated),
}

/// A verified signature.
#[derive(Clone, Debug)]
pub struct Authenticated {
    /// The access key that signed.
    pub access_key_id: String,
    /// How it was presented.
    pub kind: SignatureKind,
    /// When it was signed, as it claims.
    pub signed_at: SystemTime,
    /// How the payload is framed and what covers it.
    pub payload: PayloadMode,
}

/// How a signature was presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureKind {
    /// In the `Authorization` header.
    Header,
    /// In the query (presigned URL).
    Presigned,
}

/// How the payload is framed and what covers it.
#[derive(Clone, Debug)]
pub enum PayloadMode {
    /// Plain bytes that no signature covers (`UNSIGNED-PAYLOAD`, presigned, anonymous).
    Unsigned,
    /// Plain bytes with this SHA-256, which the caller compares ([`crate::checksum::Claims`]).
    Signed([u8; 32]),
    /// aws-chunked, every chunk signed; with a signed trailer when `trailer`.
    StreamingSigned {
        /// Verifies the chunks.
        signer: ChunkSigner,
        /// `STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER`.
        trailer: bool,
    },
    /// aws-chunked without signatures, with a trailer (`STREAMING-UNSIGNED-PAYLOAD-TRAILER`).
    StreamingUnsignedTrailer,
}

impl Identity {
    /// How the payload is framed.
    pub fn payload(&self) -> &PayloadMode {
        match self {
            Self::Anonymous { payload } => payload,
            Self::Authenticated(who) => &who.payload,
        }
    }

    /// The access key, when the request was signed.
    pub fn access_key_id(&self) -> Option<&str> {
        match self {
            Self::Anonymous { .. } => None,
            Self::Authenticated(who) => Some(&who.access_key_id),
        }
    }
}

impl Verifier {
    /// A verifier for a region such as `us-east-1`.
    pub fn new(region: impl Into<String>) -> Self {
        Self { region: region.into() }
    }

    /// Says who sent the request: [`Verifier::present`], the store's secret, then [`Verifier::verify`]. `headers` are those of the
    /// request as it was sent.
    ///
    /// # Errors
    /// As those two.
    pub fn authenticate(
        &self,
        method: &Method,
        target: &Target,
        headers: &HeaderMap,
        now: SystemTime,
        store: &dyn CredentialStore,
    ) -> Result<Identity> {
        match self.present(method, target, headers, now)? {
            None => anonymous(headers),
            Some(presented) => {
                let secret = store.secret(&presented.access_key_id, presented.session_token.as_deref());
                self.verify(presented, secret.as_ref()).map(Identity::Authenticated)
            }
        }
    }

    /// Parses what the request presents, and checks all that needs no secret. `None` when it is anonymous (see [`anonymous`]). For
    /// callers whose secrets have to be awaited; they must answer "no secret" for a session token they do not know (C26).
    ///
    /// # Errors
    /// `InvalidRequest` for SigV2, SigV4A and other mechanisms; `InvalidArgument` for two at once;
    /// `AuthorizationHeaderMalformed`, `AuthorizationQueryParametersError`; `RequestTimeTooSkewed`; `AccessDenied` for expired URLs and for
    /// headers that are not signed; `SignatureDoesNotMatch` for an impossible `SignedHeaders`.
    pub fn present(
        &self,
        method: &Method,
        target: &Target,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Option<Presented>> {
        Request { method, target, headers, now, region: &self.region }.present()
    }

    /// Compares the signature, in constant time. A key that does not exist (`None`), or has an empty secret, takes as long as a wrong signature (C22).
    ///
    /// # Errors
    /// `SignatureDoesNotMatch`; `InvalidAccessKeyId` without a secret.
    pub fn verify(&self, presented: Presented, secret: Option<&SecretKey>) -> Result<Authenticated> {
        let known = secret.filter(|secret| !secret.expose().is_empty());
        let stand_in = SecretKey::new("a key nobody has: its signature is computed and never accepted");
        let key = SigningKey::derive(known.unwrap_or(&stand_in), &presented.scope);
        let same = same_signature(&key.sign(&presented.string_to_sign), &presented.signature);
        if known.is_none() {
            return Err(S3Error::new(ErrorCode::InvalidAccessKeyId).field("AWSAccessKeyId", presented.access_key_id));
        }
        if !same {
            return Err(mismatch(&presented));
        }
        let payload = match presented.payload {
            PayloadClaim::Unsigned => PayloadMode::Unsigned,
            PayloadClaim::Signed(sha256) => PayloadMode::Signed(sha256),
            PayloadClaim::StreamingUnsignedTrailer => PayloadMode::StreamingUnsignedTrailer,
            PayloadClaim::StreamingSigned { trailer } => {
                let signer = ChunkSigner::new(key, presented.timestamp, presented.scope, presented.signature);
                PayloadMode::StreamingSigned { signer, trailer }
            }
        };
        Ok(Authenticated {
            access_key_id: presented.access_key_id,
            kind: presented.kind,
            signed_at: presented.signed_at,
            payload,
        })
    }
}

/// The identity of a request that presents no signature: only its payload framing is left to read.
///
/// # Errors
/// `AccessDenied` when it claims signed chunks (C7); `InvalidArgument` for an unknown framing.
pub fn anonymous(headers: &HeaderMap) -> Result<Identity> {
    let claim = single(headers, "x-amz-content-sha256")?.map_or(Ok(PayloadClaim::Unsigned), PayloadClaim::parse)?;
    let payload = match claim {
        PayloadClaim::Unsigned => PayloadMode::Unsigned,
        PayloadClaim::Signed(sha256) => PayloadMode::Signed(sha256),
        PayloadClaim::StreamingUnsignedTrailer => PayloadMode::StreamingUnsignedTrailer,
        PayloadClaim::StreamingSigned { .. } => return Err(S3Error::new(ErrorCode::AccessDenied)),
    };
    Ok(Identity::Anonymous { payload })
}

/// What S3 tells a client whose signature is wrong: the texts we signed, so that it can compare them with its own. A session token is
/// a credential and stays out.
fn mismatch(presented: &Presented) -> S3Error {
    let error = S3Error::new(ErrorCode::SignatureDoesNotMatch).field("AWSAccessKeyId", &presented.access_key_id);
    if presented.session_token.is_some() {
        return error;
    }
    error
        .field("StringToSign", &presented.string_to_sign)
        .field("SignatureProvided", &presented.signature)
        .field("CanonicalRequest", String::from_utf8_lossy(&presented.canonical_request))
}

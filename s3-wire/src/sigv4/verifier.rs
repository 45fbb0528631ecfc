//! The verifier.

use super::{ChunkSigner, CredentialStore, Presented, SecretKey};
use crate::{address::Target, error::Result};
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

    /// Says who sent the request: [`Verifier::present`], the store's secret, then [`Verifier::verify`].
    ///
    /// # Errors
    /// As those two.
    pub fn authenticate(
        &self,
        _method: &Method,
        _target: &Target,
        _headers: &HeaderMap,
        _now: SystemTime,
        _store: &dyn CredentialStore,
    ) -> Result<Identity> {
        let _ = &self.region;
        unimplemented!()
    }

    /// Parses what the request presents, and checks all that needs no secret. `None` when it is anonymous. For callers whose secrets
    /// have to be awaited.
    pub fn present(
        &self,
        _method: &Method,
        _target: &Target,
        _headers: &HeaderMap,
        _now: SystemTime,
    ) -> Result<Option<Presented>> {
        unimplemented!()
    }

    /// Compares the signature, in constant time. `None` for a key that does not exist takes as long as a wrong signature.
    pub fn verify(&self, _presented: Presented, _secret: Option<&SecretKey>) -> Result<Authenticated> {
        unimplemented!()
    }
}

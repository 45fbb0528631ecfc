//! Who sent a request, and what covers its payload.

use super::signing::ChunkSigner;
use std::time::SystemTime;

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
    /// In the query, by version 2.
    PresignedV2,
    /// In the `Authorization` header, by version 2.
    HeaderV2,
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

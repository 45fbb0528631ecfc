//! S3 on the wire: what a request says and how an answer is written. No storage, no clock, no I/O
//! of its own.
//!
//! A server uses the modules in this order:
//!
//! 1. [`address::Target::parse`]: request line and `Host` become bucket, key and query, decoded
//!    exactly once;
//! 2. [`headers::effective`]: with the headers that a presigned URL carries in its query;
//!    everything but the signature sees these;
//! 3. [`operation::route`]: one table decides which [`operation::Operation`] is meant, or which
//!    error;
//! 4. [`sigv4::Verifier`]: who signed the request as it was sent, and how the payload is framed
//!    ([`sigv4::PayloadMode`]). An error of routing is told only after the signature is good (C21);
//! 5. [`headers::refuse_unsupported`], then [`headers`]: typed views of the headers and parameters
//!    that operation knows;
//! 6. [`body::DecodedBody`]: the payload bytes without aws-chunked framing, every chunk signature
//!    verified; [`checksum`] holds what was claimed against what was received;
//! 7. [`xml`], [`response`] and [`error`]: the answer.
//!
//! The same decoded key is what the signature covers, what authorization sees and what is stored
//! (C25, C36, C37).

pub mod address;
pub mod body;
pub mod checksum;
pub mod cors;
pub mod encryption;
pub mod error;
pub mod etag;
pub mod headers;
pub mod lifecycle;
pub mod notification;
pub mod object_lock;
pub mod operation;
pub mod post_policy;
pub mod response;
pub mod sigv4;
pub mod sts;
pub mod tags;
pub mod timestamp;
pub mod xml;

pub use address::{BucketName, Domains, ObjectKey, Query, Target};
pub use body::{DecodedBody, Framing, Trailers};
pub use cors::CorsConfiguration;
pub use error::{ErrorCode, Result, S3Error};
pub use etag::ETag;
pub use operation::{Operation, route};
pub use tags::TagSet;

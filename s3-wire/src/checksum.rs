//! Checksums: what a client claims, what was received, and how checksums of parts make that of an
//! object.

mod claims;
mod digests;
mod multipart;
mod value;

pub use claims::{ChecksumClaim, Claims};
pub use digests::{DigestSet, DigestValues, Digests};
pub use multipart::combine_parts;
pub use value::{Checksum, ChecksumAlgorithm, ChecksumType};

//! What came after the last chunk.

use crate::checksum::Checksum;

/// The trailer of an aws-chunked body, verified as far as it is signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailers {
    /// The checksum it claims.
    pub checksum: Option<Checksum>,
}

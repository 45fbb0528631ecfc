//! What came after the last chunk.

use crate::checksum::Checksum;

/// The trailer of an aws-chunked body, its own signature verified where the framing has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailers {
    /// The checksum it claims; not yet compared with the bytes
    /// ([`crate::checksum::Claims::settle`]).
    pub checksum: Option<Checksum>,
}

//! The checksum of a multipart object from those of its parts.

use super::{Checksum, ChecksumAlgorithm, ChecksumType};
use crate::error::Result;

/// Combines part checksums, in order, each with the part's length in bytes. O(parts), no object bytes needed.
///
/// # Errors
/// `InvalidRequest` for a full-object SHA (only CRCs combine), or when a part has another algorithm.
pub fn combine_parts(
    _algorithm: ChecksumAlgorithm,
    _checksum_type: ChecksumType,
    _parts: impl IntoIterator<Item = (Checksum, u64)>,
) -> Result<Checksum> {
    unimplemented!()
}

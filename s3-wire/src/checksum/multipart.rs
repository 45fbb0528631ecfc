//! The checksum of a multipart object from those of its parts.

use super::{
    Checksum, ChecksumAlgorithm, ChecksumType, DigestSet, Digests,
    digests::{crc_algorithm, low_half},
};
use crate::error::{ErrorCode, Result, S3Error};

/// Combines part checksums, in order, each with the part's length in bytes. O(parts), no object
/// bytes needed.
///
/// Source: "Checking object integrity", S3 User Guide: a composite checksum is the algorithm over
/// the parts' raw values; a full-object one is what a single pass over the object gives.
///
/// # Errors
/// `InvalidRequest` for a full-object SHA (only CRCs combine), for a composite CRC64NVME, and when
/// a part has another algorithm.
pub fn combine_parts(
    algorithm: ChecksumAlgorithm,
    checksum_type: ChecksumType,
    parts: impl IntoIterator<Item = (Checksum, u64)>,
) -> Result<Checksum> {
    let impossible = || {
        S3Error::with_message(
            ErrorCode::InvalidRequest,
            format!(
                "The {} checksum type cannot be used with the {} checksum algorithm.",
                checksum_type.as_str(),
                algorithm.as_str().to_ascii_lowercase()
            ),
        )
    };
    if !algorithm.allows(checksum_type) {
        return Err(impossible());
    }
    let mut count = 0;
    let same_algorithm = |(checksum, len): (Checksum, u64)| {
        if checksum.algorithm() == algorithm && checksum.parts().is_none() {
            Ok((checksum, len))
        } else {
            Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "A part has another kind of checksum than the upload.",
            ))
        }
    };
    match (checksum_type, crc_algorithm(algorithm)) {
        (ChecksumType::Composite, _) => {
            let mut digests = Digests::new(DigestSet::EMPTY.with(algorithm));
            for part in parts {
                digests.update(same_algorithm(part)?.0.bytes());
                count += 1;
            }
            let whole = digests.finish().checksum(algorithm).ok_or_else(impossible)?;
            Checksum::composite(algorithm, whole.bytes(), count).ok_or_else(impossible)
        }
        (ChecksumType::FullObject, Some(crc)) => {
            let mut combined = crc_fast::checksum(crc, b"");
            for part in parts {
                let (checksum, len) = same_algorithm(part)?;
                combined = crc_fast::checksum_combine(crc, combined, value(&checksum), len);
            }
            let bytes = combined.to_be_bytes();
            match algorithm.value_len() {
                4 => Checksum::full(algorithm, &low_half(combined).to_be_bytes()),
                _ => Checksum::full(algorithm, &bytes),
            }
            .ok_or_else(impossible)
        }
        (ChecksumType::FullObject, None) => Err(impossible()),
    }
}

fn value(checksum: &Checksum) -> u64 {
    checksum.bytes().iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn checksum(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Checksum {
        let mut digests = Digests::new(DigestSet::EMPTY.with(algorithm));
        digests.update(bytes);
        digests.finish().checksum(algorithm).unwrap()
    }

    proptest! {
        #[test]
        fn combined_crcs_equal_one_pass_over_the_object(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..6)) {
            for algorithm in [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Crc64Nvme] {
                let each = parts.iter().map(|part| (checksum(algorithm, part), part.len() as u64));
                let whole = combine_parts(algorithm, ChecksumType::FullObject, each).unwrap();
                prop_assert_eq!(whole, checksum(algorithm, &parts.concat()));
            }
        }
    }

    #[test]
    fn a_composite_checksum_covers_the_parts_checksums() {
        for algorithm in ChecksumAlgorithm::ALL.into_iter().filter(|a| a.allows(ChecksumType::Composite)) {
            let parts = [checksum(algorithm, b"one"), checksum(algorithm, b"two")];
            let whole = combine_parts(algorithm, ChecksumType::Composite, parts.map(|p| (p, 3))).unwrap();
            let over = checksum(algorithm, &[parts[0].bytes(), parts[1].bytes()].concat());
            assert_eq!(whole.to_wire(), format!("{}-2", over.to_wire()));
        }
    }

    #[test]
    fn pairs_s3_does_not_have_are_refused() {
        let sha = checksum(ChecksumAlgorithm::Sha256, b"x");
        for (algorithm, kind, part) in [
            (ChecksumAlgorithm::Sha256, ChecksumType::FullObject, sha),
            (ChecksumAlgorithm::Sha1, ChecksumType::FullObject, checksum(ChecksumAlgorithm::Sha1, b"x")),
            (ChecksumAlgorithm::Crc64Nvme, ChecksumType::Composite, checksum(ChecksumAlgorithm::Crc64Nvme, b"x")),
            (ChecksumAlgorithm::Crc32, ChecksumType::FullObject, sha),
        ] {
            assert_eq!(combine_parts(algorithm, kind, [(part, 1)]).unwrap_err().code(), ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn lengths_past_five_tebibytes_combine_at_once() {
        let part = checksum(ChecksumAlgorithm::Crc64Nvme, b"x");
        assert!(
            combine_parts(ChecksumAlgorithm::Crc64Nvme, ChecksumType::FullObject, [(part, 1), (part, 6 << 40)]).is_ok()
        );
    }
}

//! The names under which second copies of blobs lie.

use crate::error::EngineError;
use catalog::BlobKey;
use object_format::BlobId;
use storage_backends::BlobName;

/// The name of a blob's second copy.
pub(crate) fn copy_name(blob: BlobId, copy: BlobKey) -> Result<BlobName, EngineError> {
    Ok(BlobName::new(format!("copies/{blob}-{}", BlobId(copy.0)))?)
}

/// Blob and copy that a name below `copies/` is for; `None` when it is none of ours.
pub(crate) fn parse_copy_name(name: &BlobName) -> Option<(BlobId, BlobId)> {
    let (blob, copy) = name.as_str().strip_prefix("copies/")?.split_once('-')?;
    Some((BlobId::parse(blob)?, BlobId::parse(copy)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copys_name_tells_blob_and_writer_and_no_other_name_does() {
        let (blob, copy) = (BlobId::new(7, [0xab; 12]), BlobId::new(9, [0xcd; 12]));
        let name = copy_name(blob, BlobKey(copy.0)).unwrap();
        assert_eq!(name.as_str(), "copies/00000007abababababababababababab-00000009cdcdcdcdcdcdcdcdcdcdcdcd");
        assert_eq!(parse_copy_name(&name), Some((blob, copy)));
        for other in [
            format!("copies/{blob}"),
            format!("blobs/{blob}"),
            format!("copies/{blob}-{copy}-{copy}"),
            "copies/a-b".into(),
        ] {
            assert_eq!(parse_copy_name(&BlobName::new(other.clone()).unwrap()), None, "{other}");
        }
    }
}

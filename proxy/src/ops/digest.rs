//! Digests of content: computed while a body arrives, or from content that is stored.

use crate::engine::{BodyDigest, BucketHandle, EngineError};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use hash_lanes::Md5;
use s3_wire::checksum::{ChecksumAlgorithm, DigestSet, DigestValues, Digests};
use std::mem;

/// Every digest a body needs: MD5 for the ETag, SHA-256 for exact duplicates if there can be some,
/// and what the client claims.
pub(super) struct PayloadDigest {
    /// All but MD5: half a kilobyte, which is passed on with each call.
    plain: Box<Digests>,
    /// Lent while others feed it.
    md5: Option<Md5>,
}

impl PayloadDigest {
    /// Of content that goes into a bucket. Under a veil nothing is a duplicate: each object has a
    /// key of its own.
    pub(super) fn new(claimed: DigestSet, bucket: &BucketHandle) -> Self {
        let wanted = if bucket.is_veiled() { claimed } else { claimed.with(ChecksumAlgorithm::Sha256) };
        Self { plain: Box::new(Digests::new(wanted.without(DigestSet::MD5))), md5: Some(Md5::new()) }
    }
}

impl BodyDigest for PayloadDigest {
    type Output = DigestValues;

    fn update(&mut self, bytes: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        self.plain.update(bytes);
    }

    fn lend_md5(&mut self) -> Option<Md5> {
        self.md5.take()
    }

    fn return_md5(&mut self, md5: Md5) {
        self.md5 = Some(md5);
    }

    fn finish(self) -> (DigestValues, Option<[u8; 32]>) {
        let values = DigestValues { md5: self.md5.map(Md5::finalize), ..self.plain.finish() };
        let sha256 = values.sha256;
        (values, sha256)
    }
}

/// Hashes what a stream gives, off the async threads, in pieces of this many bytes at least.
const PIECE_BYTES: usize = 1 << 20;

/// Digests of stored content, for copies whose ETag or checksum is not known without reading. Holds
/// one piece at a time.
pub(super) async fn digest_of(
    mut content: impl Stream<Item = Result<Bytes, EngineError>> + Unpin,
    set: DigestSet,
) -> Result<DigestValues, EngineError> {
    let mut digests = Digests::new(set);
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut gathered = 0;
    loop {
        let next = content.next().await.transpose()?;
        let ended = next.is_none();
        if let Some(bytes) = next {
            gathered += bytes.len();
            pieces.push(bytes);
        }
        if ended || gathered >= PIECE_BYTES {
            let batch = mem::take(&mut pieces);
            gathered = 0;
            let hashing = tokio::task::spawn_blocking(move || {
                batch.iter().for_each(|piece| digests.update(piece));
                digests
            });
            digests = hashing.await.map_err(|_| EngineError::Other("hashing was stopped".into()))?;
        }
        if ended {
            return Ok(digests.finish());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    #[tokio::test]
    async fn digests_do_not_depend_on_how_content_is_cut() {
        let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let set = DigestSet::MD5.with(ChecksumAlgorithm::Crc32c);
        let whole = digest_of(stream::iter([Ok(Bytes::from(content.clone()))]), set).await.unwrap();
        let pieces = content.chunks(65_537).map(|piece| Ok(Bytes::copy_from_slice(piece)));
        assert_eq!(digest_of(stream::iter(pieces), set).await.unwrap(), whole);
        let mut direct = Digests::new(set);
        direct.update(&content);
        assert_eq!(direct.finish(), whole);
    }

    #[tokio::test]
    async fn an_error_of_the_content_is_an_error() {
        let broken = stream::iter([Ok(Bytes::from_static(b"abc")), Err(EngineError::Integrity("broken".into()))]);
        assert!(digest_of(broken, DigestSet::MD5).await.is_err());
    }
}

//! Digests of content: computed while a body arrives, or from content that is stored.

use super::encryption::Cipher;
use crate::engine::{BodyDigest, EngineError};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use hash_lanes::Md5;
use s3_wire::checksum::{ChecksumAlgorithm, DigestSet, DigestValues, Digests};
use sha2::{Digest as _, Sha256};
use std::mem;

/// Every digest a body needs: MD5 for the ETag, SHA-256 for exact duplicates, and what the client
/// claims.
pub(super) struct PayloadDigest {
    /// All but MD5.
    plain: Digests,
    /// Lent while others feed it.
    md5: Option<Md5>,
    /// Of content that is encrypted on its way: what decrypts it, and the SHA-256 of what is
    /// stored.
    sealed: Option<(Cipher, Sha256)>,
}

impl PayloadDigest {
    /// Of content as it is, or as this keystream decrypts it.
    pub(super) fn new(claimed: DigestSet, cipher: Option<Cipher>) -> Self {
        let plain = Digests::new(claimed.with(ChecksumAlgorithm::Sha256).without(DigestSet::MD5));
        Self { plain, md5: Some(Md5::new()), sealed: cipher.map(|cipher| (cipher, Sha256::new())) }
    }
}

impl PayloadDigest {
    fn take(&mut self, plain: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(plain);
        }
        self.plain.update(plain);
    }
}

impl BodyDigest for PayloadDigest {
    type Output = DigestValues;

    fn update(&mut self, bytes: &[u8]) {
        match &mut self.sealed {
            None => self.take(bytes),
            Some((cipher, stored)) => {
                stored.update(bytes);
                let plain = cipher.apply(bytes);
                self.take(&plain);
            }
        }
    }

    fn lend_md5(&mut self) -> Option<Md5> {
        // What is decrypted on its way is hashed where it is decrypted.
        if self.sealed.is_some() { None } else { self.md5.take() }
    }

    fn return_md5(&mut self, md5: Md5) {
        self.md5 = Some(md5);
    }

    fn finish(self) -> (DigestValues, [u8; 32]) {
        let values = DigestValues { md5: self.md5.map(Md5::finalize), ..self.plain.finish() };
        let sha256 = values.sha256.expect("SHA-256 is in the set of every payload digest");
        let stored = self.sealed.map_or(sha256, |(_, stored)| stored.finalize().into());
        (values, stored)
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

//! Whole blobs in memory: for small ones (manifests, keysets, journal pieces), beside the trait and
//! never in it.

use crate::{Backend, BackendError, BlobName, ByteStream, ErrorKind, PutReceipt, Result};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};

/// Everything a stream gives, as one piece. A stream of a single piece is not copied.
///
/// # Errors
/// The stream's own error; [`ErrorKind::Invalid`] as soon as it has given more than `len_max`
/// bytes.
pub async fn collect(mut body: ByteStream, len_max: u64) -> Result<Bytes> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece = piece?;
        let len = (first.len() + all.len() + piece.len()) as u64;
        if len > len_max {
            return Err(BackendError::new(ErrorKind::Invalid, format!("more than {len_max} bytes to collect")));
        }
        if first.is_empty() && all.is_empty() {
            first = piece;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&piece);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// The first `len` bytes of a blob, which is all of it when `len` is its length; `None` when there
/// is no such blob.
///
/// # Errors
/// Those of [`Backend::get`]; [`ErrorKind::Corrupt`] when the backend gives another number of
/// bytes.
pub async fn get_all(backend: &dyn Backend, name: &BlobName, len: u64) -> Result<Option<Bytes>> {
    let Some(stream) = backend.get(name, 0..len).await? else { return Ok(None) };
    let bytes = collect(stream, len).await?;
    if bytes.len() as u64 == len {
        Ok(Some(bytes))
    } else {
        Err(BackendError::new(ErrorKind::Corrupt, format!("{name} gave {} bytes of {len}", bytes.len())))
    }
}

/// Stores `bytes` as a blob.
///
/// # Errors
/// Those of [`Backend::put`].
pub async fn put_bytes(backend: &dyn Backend, name: &BlobName, bytes: Bytes) -> Result<PutReceipt> {
    let len = bytes.len() as u64;
    backend.put(name, body_of(bytes), Some(len)).await
}

/// A body that gives `bytes` in one piece.
pub fn body_of(bytes: Bytes) -> ByteStream {
    stream::iter((!bytes.is_empty()).then_some(Ok(bytes))).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBackend;

    fn pieces(pieces: &[&'static [u8]]) -> ByteStream {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece))).collect();
        stream::iter(pieces).boxed()
    }

    #[tokio::test]
    async fn pieces_are_collected_in_order() {
        assert_eq!(collect(pieces(&[b"ab", b"", b"c", b"def"]), 6).await.unwrap(), "abcdef");
        assert_eq!(collect(pieces(&[]), 0).await.unwrap(), "");
    }

    #[tokio::test]
    async fn one_byte_past_the_bound_is_an_error() {
        let error = collect(pieces(&[b"ab", b"cd"]), 3).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[tokio::test]
    async fn an_error_in_the_stream_is_not_an_end() {
        let torn =
            pieces(&[b"ab"]).chain(stream::iter([Err(BackendError::new(ErrorKind::Transient, "reset"))])).boxed();
        assert_eq!(collect(torn, 10).await.unwrap_err().kind(), ErrorKind::Transient);
    }

    #[tokio::test]
    async fn a_stored_blob_is_read_back_whole() {
        let backend = MemoryBackend::new();
        let name = BlobName::new("blobs/a").unwrap();
        let bytes = Bytes::from(vec![7; 200_000]);
        put_bytes(&backend, &name, bytes.clone()).await.unwrap();
        assert_eq!(get_all(&backend, &name, 200_000).await.unwrap(), Some(bytes));
    }
}

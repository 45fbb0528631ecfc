//! The stream a blob leaves by, towards its backend: fed piece by piece, abandoned unless it is
//! ended.

use crate::{blobs::open::blob_name, error::EngineError, resources::budget::Permit};
use bytes::Bytes;
use futures::stream;
use object_format::BlobId;
use std::sync::Arc;
use storage_backends::{Backend, BackendError, ErrorKind, PutReceipt};
use tokio::{sync::mpsc, task::JoinHandle};

/// Pieces under way between the encoder and the backend.
const PIECES_MAX: usize = 2;

enum Piece {
    Bytes(Bytes),
    End,
}

/// A put that is going on. Dropping it before [`Outlet::end`] makes the backend give up and leave
/// nothing.
pub(crate) struct Outlet {
    pieces: mpsc::Sender<Piece>,
    put: JoinHandle<Result<PutReceipt, BackendError>>,
}

/// Bytes that hold memory from the budget until the last reader lets go of them.
struct Held<T> {
    bytes: T,
    _permit: Option<Permit>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// `bytes` with their permit.
pub(crate) fn held(bytes: impl AsRef<[u8]> + Send + 'static, permit: Option<Permit>) -> Bytes {
    Bytes::from_owner(Held { bytes, _permit: permit })
}

/// Stores a blob that is whole in memory, and waits until it is durable.
///
/// # Errors
/// As [`Outlet::end_at`].
pub(crate) async fn put_whole(backend: Arc<dyn Backend>, id: BlobId, bytes: Vec<u8>) -> Result<(), EngineError> {
    let (len, mut outlet) = (bytes.len() as u64, Outlet::open(backend, id)?);
    outlet.send(bytes.into()).await?;
    outlet.end_at(len).await
}

impl Outlet {
    /// Starts a put of blob `id`.
    pub(crate) fn open(backend: Arc<dyn Backend>, id: BlobId) -> Result<Self, EngineError> {
        tracing::trace!(target: "path", "open()");
        let name = blob_name(id)?;
        let (pieces, receiver) = mpsc::channel(PIECES_MAX);
        let body = stream::unfold(Some(receiver), |receiver| async {
            let mut receiver: mpsc::Receiver<Piece> = receiver?;
            match receiver.recv().await {
                Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(receiver))),
                Some(Piece::End) => None,
                None => Some((Err(BackendError::new(ErrorKind::Body, "the writer gave the blob up")), None)),
            }
        });
        let put = tokio::spawn(async move { backend.put(&name, Box::pin(body), None).await });
        Ok(Self { pieces, put })
    }

    /// Sends on some bytes; waits while the backend is behind.
    ///
    /// # Errors
    /// What the backend says when it has stopped taking bytes.
    pub(crate) async fn send(&mut self, bytes: Bytes) -> Result<(), EngineError> {
        if bytes.is_empty() || self.pieces.send(Piece::Bytes(bytes)).await.is_ok() {
            return Ok(());
        }
        Err(self.outcome().await.err().unwrap_or_else(|| EngineError::Other("backend stopped taking bytes".into())))
    }

    /// Ends a blob of this length and waits until it is durable.
    ///
    /// # Errors
    /// What the backend says; nothing is stored then. [`EngineError::Integrity`] when it stored
    /// another length.
    pub(crate) async fn end_at(self, len: u64) -> Result<(), EngineError> {
        match self.end().await? {
            stored if stored == len => Ok(()),
            _ => Err(EngineError::Integrity("the backend stored another length".into())),
        }
    }

    /// Ends the blob and waits until it is durable. Gives its stored length.
    ///
    /// # Errors
    /// What the backend says; nothing is stored then.
    pub(crate) async fn end(mut self) -> Result<u64, EngineError> {
        // A backend that has stopped listening says why below.
        let _ = self.pieces.send(Piece::End).await;
        self.outcome().await.map(|receipt| receipt.stored_len)
    }

    async fn outcome(&mut self) -> Result<PutReceipt, EngineError> {
        match (&mut self.put).await {
            Ok(outcome) => Ok(outcome?),
            Err(error) => Err(EngineError::Other(format!("backend put ended without an answer: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests;

//! Blobs in memory: for tests, and the model that other backends are compared with. Nothing
//! survives the process.

use crate::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, PutReceipt, Result};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

/// A map of blobs. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryBackend {
    blobs: Arc<Mutex<BTreeMap<BlobName, Stored>>>,
}

#[derive(Clone)]
struct Stored {
    bytes: Bytes,
    modified: SystemTime,
}

impl MemoryBackend {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many blobs it holds.
    pub fn blob_count(&self) -> usize {
        self.blobs().len()
    }

    /// How many bytes all blobs have together.
    pub fn stored_bytes(&self) -> u64 {
        self.blobs().values().map(|stored| stored.bytes.len() as u64).sum()
    }

    /// Changes the bytes of a blob behind everybody's back, as bit rot or an intruder would; false
    /// when there is no such blob.
    pub fn damage(&self, name: &BlobName, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut blobs = self.blobs();
        let Some(stored) = blobs.get_mut(name) else { return false };
        let mut bytes = stored.bytes.to_vec();
        change(&mut bytes);
        stored.bytes = bytes.into();
        true
    }

    fn blobs(&self) -> MutexGuard<'_, BTreeMap<BlobName, Stored>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn put(&self, name: &BlobName, mut body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let mut bytes = BytesMut::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| {
                BackendError::with_source(ErrorKind::Body, format!("the body failed: {error}"), error)
            })?;
            bytes.extend_from_slice(&piece);
        }
        let stored_len = bytes.len() as u64;
        if len.is_some_and(|len| len != stored_len) {
            let message = format!("the body of {name} has {stored_len} bytes, announced were {len:?}");
            return Err(BackendError::new(ErrorKind::Invalid, message));
        }
        let mut blobs = self.blobs();
        if blobs.contains_key(name) {
            return Err(BackendError::new(ErrorKind::Corrupt, format!("{name} exists already")));
        }
        blobs.insert(name.clone(), Stored { bytes: bytes.freeze(), modified: SystemTime::now() });
        Ok(PutReceipt { stored_len })
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        let Some(Stored { bytes, .. }) = self.blobs().get(name).cloned() else { return Ok(None) };
        if range.start > range.end || range.end > bytes.len() as u64 {
            let message = format!("bytes {}..{} do not lie inside {name}", range.start, range.end);
            return Err(BackendError::new(ErrorKind::Invalid, message));
        }
        let at = |offset: u64| usize::try_from(offset).expect("an offset inside a slice fits usize");
        let wanted = bytes.slice(at(range.start)..at(range.end));
        Ok(Some(stream::iter(pieces_of(&wanted)).map(Ok).boxed()))
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        Ok(self.blobs().get(name).map(|stored| stored.bytes.len() as u64))
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.blobs().remove(name);
        Ok(())
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        let listed: Vec<_> = self
            .blobs()
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, stored)| {
                Ok(Listed {
                    name: name.clone(),
                    stored_len: stored.bytes.len() as u64,
                    modified: Some(stored.modified),
                })
            })
            .collect();
        stream::iter(listed).boxed()
    }

    async fn probe(&self) -> Result<()> {
        Ok(())
    }
}

/// Cuts `bytes` into pieces, as a network would, so that readers meet more than one.
fn pieces_of(bytes: &Bytes) -> Vec<Bytes> {
    (0..bytes.len()).step_by(PIECE_BYTES).map(|at| bytes.slice(at..bytes.len().min(at + PIECE_BYTES))).collect()
}

const PIECE_BYTES: usize = 64 << 10;

//! The store under the campaign: one that overwrites without a word, as stores without conditional
//! writes do, and counts when it happens. And wrappers that are wrong on purpose, each a bug that
//! the campaign has to find.

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use storage_backends::{
    Backend, BlobName, ByteStream, Listed, MemoryBackend, PutReceipt, Result, body_of, collect, get_all,
};

/// Most bytes of one blob here.
const BLOB_BYTES_MAX: u64 = 64 << 20;

/// Blobs in memory; a second `put` under a name replaces the first.
#[derive(Clone, Default)]
pub(crate) struct Overwriting {
    blobs: MemoryBackend,
    overwritten: Arc<AtomicU64>,
}

impl Overwriting {
    /// How often a blob was replaced by other bytes (I1: must be never).
    pub(crate) fn overwritten(&self) -> u64 {
        self.overwritten.load(Ordering::Relaxed)
    }

    pub(crate) fn blobs(&self) -> &MemoryBackend {
        &self.blobs
    }
}

#[async_trait]
impl Backend for Overwriting {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let bytes = collect(body, BLOB_BYTES_MAX).await?;
        if let Some(len) = self.blobs.head(name).await? {
            let before = get_all(&self.blobs, name, len).await?;
            self.overwritten.fetch_add(u64::from(before.is_some_and(|before| before != bytes)), Ordering::Relaxed);
            self.blobs.delete(name).await?;
        }
        self.blobs.put(name, body_of(bytes), len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        self.blobs.get(name, range).await
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        self.blobs.head(name).await
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.blobs.delete(name).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        self.blobs.list(prefix)
    }

    async fn probe(&self) -> Result<()> {
        self.blobs.probe().await
    }
}

/// A bug on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// None: what is sold.
    None,
    /// An error of a read means that there is nothing (E2).
    ErrorIsAbsence,
    /// An upload that failed counts as stored (E14).
    ErrorIsSuccess,
    /// Blobs share a few names (E1, E18).
    NamesCollide,
}

impl Mutant {
    /// Every bug.
    pub(crate) const BUGS: [Self; 3] = [Self::ErrorIsAbsence, Self::ErrorIsSuccess, Self::NamesCollide];
}

/// A backend with a bug.
pub(crate) struct Mutated<B> {
    pub(crate) inner: B,
    pub(crate) mutant: Mutant,
}

impl<B: Backend> Mutated<B> {
    fn name(&self, name: &BlobName) -> BlobName {
        if self.mutant != Mutant::NamesCollide || !name.as_str().starts_with("blobs/") {
            return name.clone();
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        BlobName::new(format!("blobs/{}", hasher.finish() % 4)).unwrap()
    }
}

#[async_trait]
impl<B: Backend> Backend for Mutated<B> {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        if self.mutant != Mutant::ErrorIsSuccess {
            return self.inner.put(&self.name(name), body, len).await;
        }
        let bytes = collect(body, BLOB_BYTES_MAX).await?;
        let stored_len = bytes.len() as u64;
        drop(self.inner.put(name, body_of(bytes), len).await);
        Ok(PutReceipt { stored_len })
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        match self.inner.get(&self.name(name), range).await {
            Err(_) if self.mutant == Mutant::ErrorIsAbsence => Ok(None),
            outcome => outcome,
        }
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        match self.inner.head(&self.name(name)).await {
            Err(_) if self.mutant == Mutant::ErrorIsAbsence => Ok(None),
            outcome => outcome,
        }
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.inner.delete(&self.name(name)).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        self.inner.list(prefix).boxed()
    }

    async fn probe(&self) -> Result<()> {
        self.inner.probe().await
    }
}

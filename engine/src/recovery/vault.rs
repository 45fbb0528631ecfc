//! Documents as blobs in the backend that keeps journal and backups: sealed when the store has a
//! key for that, checked when they are read, found by name.

use super::{
    names::{id_of, store_keyset_names},
    trust::Trust,
};
use crate::{
    blobs::open::damaged,
    deployment::keyring::{Keyring, random},
    error::EngineError,
    metrics::Metrics,
    resources::pool::CodecPool,
};
use bytes::Bytes;
use object_format::{
    BlobKind, BlobSpec, BlobWriter, Coding, DomainKey, HEADER_LEN, Header, KeyId, ObjectFacts, SEGMENT_LEN, Seal,
    Segment, Suite, keyset::Keyset, segment_digest, whole,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use storage_backends::{Backend, BlobName, get_all, put_bytes};

/// Longest blob that is read: parts of backups have about 8 MiB, a journal blob a few.
const STORED_LEN_MAX: u64 = 128 << 20;
/// Documents are compressed as fast as can be: most of them are written every few seconds.
const ZSTD_LEVEL: i32 = 1;

/// Writes and reads documents.
pub(super) struct Vault {
    backend: Arc<dyn Backend>,
    keyring: Arc<Keyring>,
    pool: Arc<CodecPool>,
    keys: Mutex<HashMap<KeyId, Arc<DomainKey>>>,
    /// What is read although it is not sealed.
    pub(super) trust: Trust,
    /// The checks that a test leaves out, to show that it is they who refuse.
    #[cfg(test)]
    pub(super) without: super::vouch::Without,
}

/// A document that was read.
pub(super) struct OpenedDocument {
    pub(super) document: Vec<u8>,
    /// The key that it was sealed with, if it was.
    pub(super) sealed_by: Option<KeyId>,
    /// Its bytes in the backend.
    pub(super) stored_len: u64,
}

impl OpenedDocument {
    /// Whether it was sealed.
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed_by.is_some()
    }
}

impl Vault {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        keyring: Arc<Keyring>,
        pool: Arc<CodecPool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            backend,
            keyring,
            pool,
            keys: Mutex::default(),
            trust: Trust::new(metrics),
            #[cfg(test)]
            without: Default::default(),
        }
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(super) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Stores a document; its stored length.
    pub(super) async fn put(
        &self,
        name: &BlobName,
        kind: BlobKind,
        key: Option<Arc<DomainKey>>,
        document: Vec<u8>,
    ) -> Result<u64, EngineError> {
        let (id, salt) = (id_of(name), random::<32>()?);
        let bytes = self
            .pool
            .run(move |_| {
                let seal = match &key {
                    Some(key) => Seal::Aes256Gcm { key, salt },
                    None => Seal::None,
                };
                blob_of(BlobSpec { id, kind, seal }, &document)
            })
            .await??;
        Ok(put_bytes(&*self.backend, name, bytes.into()).await?.stored_len)
    }

    /// Stores bytes that are a blob already.
    pub(super) async fn put_blob(&self, name: &BlobName, bytes: Vec<u8>) -> Result<(), EngineError> {
        put_bytes(&*self.backend, name, Bytes::from(bytes)).await?;
        Ok(())
    }

    /// A document by name; `None` when there is no such blob.
    ///
    /// # Errors
    /// As [`Vault::read`]; [`EngineError::Integrity`] when it is not sealed in a store that has
    /// keys.
    pub(super) async fn get(&self, name: &BlobName, kind: BlobKind) -> Result<Option<OpenedDocument>, EngineError> {
        match self.read(name, kind).await? {
            Some(found) => self.trust.check(name, found.is_sealed(), &found.document).map(|()| Some(found)),
            None => Ok(None),
        }
    }

    /// As [`Vault::get`], for a process that has its catalog: a document that is not to be trusted
    /// counts for nothing.
    ///
    /// # Errors
    /// As [`Vault::read`].
    pub(super) async fn get_trusted(
        &self,
        name: &BlobName,
        kind: BlobKind,
    ) -> Result<Option<OpenedDocument>, EngineError> {
        let found = self.read(name, kind).await?;
        Ok(found.filter(|found| self.trust.check(name, found.is_sealed(), &found.document).is_ok()))
    }

    /// A document by name, sealed or not; `None` when there is no such blob.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] naming the blob when it is damaged or another one;
    /// [`EngineError::Other`] when it is sealed and its key cannot be opened.
    pub(super) async fn read(&self, name: &BlobName, kind: BlobKind) -> Result<Option<OpenedDocument>, EngineError> {
        let found = self.open(name, kind).await;
        #[cfg(test)]
        if self.without.damage && found.as_ref().is_err_and(EngineError::is_damage) {
            return Ok(None);
        }
        found
    }

    async fn open(&self, name: &BlobName, kind: BlobKind) -> Result<Option<OpenedDocument>, EngineError> {
        let Some(bytes) = self.bytes(name).await? else { return Ok(None) };
        let damaged = |error: &dyn std::fmt::Display| EngineError::Integrity(format!("{name} is damaged: {error}"));
        let header = bytes.get(..HEADER_LEN).ok_or_else(|| damaged(&"shorter than a header"))?;
        let header = Header::decode(header).map_err(|error| damaged(&error))?;
        if header.kind != kind {
            return Err(damaged(&"another kind of blob"));
        }
        let sealed_by = (header.suite == Suite::Aes256Gcm).then_some(header.key_id);
        let key = match sealed_by {
            Some(id) => Some(self.key(id).await.map_err(|error| self.or_a_strangers(name, id, error))?),
            None => None,
        };
        let (id, stored_len) = (id_of(name), bytes.len() as u64);
        let document = self.pool.run(move |_| document_of(&bytes, id, key.as_deref())).await?;
        Ok(Some(OpenedDocument { document: document.map_err(|error| damaged(&error))?, sealed_by, stored_len }))
    }

    /// Whether there is a blob of this name.
    pub(super) async fn holds(&self, name: &BlobName) -> Result<bool, EngineError> {
        Ok(self.backend.head(name).await?.is_some())
    }

    /// The store key of this id, from its keysets.
    pub(super) async fn key(&self, id: KeyId) -> Result<Arc<DomainKey>, EngineError> {
        if let Some(key) = self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(key.clone());
        }
        let mut trouble = EngineError::Integrity(format!("no keyset holds the store key {id}"));
        for name in store_keyset_names(id)? {
            match self.keyset_key(&name, id).await {
                Ok(Some(key)) => {
                    let key = Arc::new(key);
                    self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(id, key.clone());
                    return Ok(key);
                }
                Ok(None) => {}
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    /// Why a document does not open. A process that knows its store's key can tell that a document
    /// was sealed with another one; what its own key does not give may only be missing just now.
    fn or_a_strangers(&self, name: &BlobName, id: KeyId, error: EngineError) -> EngineError {
        match (error, self.trust.store_key()) {
            (EngineError::Other(why), Some(own)) if own != id => {
                EngineError::Integrity(format!("{name} is sealed with the key {id}, which is not this store's: {why}"))
            }
            (error, _) => error,
        }
    }

    async fn keyset_key(&self, name: &BlobName, id: KeyId) -> Result<Option<DomainKey>, EngineError> {
        let Some(bytes) = self.bytes(name).await? else { return Ok(None) };
        let keyset = Keyset::read_blob(&bytes, id_of(name))?;
        match keyset.entries().iter().find(|entry| entry.key_id() == id) {
            Some(entry) => Ok(Some(self.keyring.open_entry(entry)?.0)),
            None => Ok(None),
        }
    }

    async fn bytes(&self, name: &BlobName) -> Result<Option<Bytes>, EngineError> {
        let Some(len) = self.backend.head(name).await? else { return Ok(None) };
        if len > STORED_LEN_MAX {
            return Err(EngineError::Integrity(format!("{name} is longer than anything that is written there")));
        }
        Ok(get_all(&*self.backend, name, len).await?)
    }
}

fn blob_of(spec: BlobSpec<'_>, document: &[u8]) -> Result<Vec<u8>, EngineError> {
    let mut out = Vec::new();
    let mut writer = BlobWriter::new(spec, &mut out);
    let mut segments = Vec::new();
    let mut frame = Vec::new();
    for plain in document.chunks(SEGMENT_LEN) {
        frame.clear();
        let (coding, stored) = match delta_codec::whole::compress(plain, ZSTD_LEVEL, plain.len(), &mut frame) {
            Some(_) => (Coding::Zstd, frame.as_slice()),
            None => (Coding::Raw, plain),
        };
        let len = |len: usize| u32::try_from(len).map_err(|_| EngineError::TooLarge);
        segments.push(Segment {
            plain_len: len(plain.len())?,
            stored_offset: writer.payload_len(),
            stored_len: len(stored.len())?,
            coding,
            digest: segment_digest(plain),
            footprint: Vec::new(),
        });
        writer.push(stored, &mut out)?;
    }
    writer.finish(&segments, &[], &ObjectFacts::default(), &mut out)?;
    Ok(out)
}

fn document_of(bytes: &[u8], id: object_format::BlobId, key: Option<&DomainKey>) -> Result<Vec<u8>, EngineError> {
    let blob = whole::open(bytes, id, key)?;
    let mut document = Vec::new();
    for segment in &blob.segments {
        let (start, len) = (segment.stored_offset as usize, segment.stored_len as usize);
        let stored = blob.payload.get(start..start + len).ok_or_else(|| damaged("a segment outside the payload"))?;
        let at = document.len();
        match segment.coding {
            Coding::Raw => document.extend_from_slice(stored),
            Coding::Zstd => {
                document.resize(at + segment.plain_len as usize, 0);
                delta_codec::whole::decompress(stored, &mut document[at..])
                    .map_err(|error| EngineError::Integrity(error.to_string()))?;
            }
            Coding::Delta | Coding::View | Coding::GappedView | Coding::Planes => {
                return Err(damaged("a coding that documents do not have"));
            }
        }
        if segment_digest(&document[at..]) != segment.digest {
            return Err(damaged("segment digest"));
        }
    }
    Ok(document)
}

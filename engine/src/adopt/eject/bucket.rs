//! A bucket of a cloud that objects are written into with their headers and metadata.

use super::outcome::{Fate, ObjectReader};
use crate::{error::EngineError, facts::VersionFacts, read::object::OpenObject};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use crypto::{Digest, Sha256};
use futures::{StreamExt, TryStreamExt};
use std::sync::{Arc, Mutex, PoisonError};
use storage_backends::{BackendError, ErrorKind, PlainPut, PlainRead, PlainStore, PlainWriter};

/// Bytes of an object that are read back in one request.
const READ_BACK_BYTES: u64 = 4 << 20;

/// See the module.
pub(super) struct BucketTarget {
    /// For writing.
    pub(super) writer: Arc<dyn PlainWriter>,
    /// For reading back.
    pub(super) store: Arc<dyn PlainStore>,
    /// Before every key.
    pub(super) prefix: String,
    /// Whether other objects are replaced.
    pub(super) overwrite: bool,
}

impl BucketTarget {
    /// Writes an object and reads it back.
    pub(super) async fn write(
        &self,
        reader: &ObjectReader,
        key: &str,
        object: &OpenObject,
    ) -> Result<Fate, EngineError> {
        let name = format!("{}{key}", self.prefix);
        let bound = self.writer.key_bound();
        if !bound.admits(&name) {
            return Ok(Fate::Failed(format!("its key is longer than {bound} below this prefix")));
        }
        match self.try_write(reader, &name, object).await {
            // Of this object alone: its key or a header cannot be sent, or the store gave back
            // something else.
            Err(CopyError::Backend(error)) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Corrupt) => {
                Ok(Fate::Failed(error.to_string()))
            }
            Err(CopyError::Backend(error)) => Err(error.into()),
            Err(CopyError::Engine(error)) => Err(error),
            Ok(fate) => Ok(fate),
        }
    }

    async fn try_write(&self, reader: &ObjectReader, key: &str, object: &OpenObject) -> Result<Fate, CopyError> {
        let size = object.info.version.size;
        if !self.overwrite
            && let Some(found) = self.store.head(key).await?
        {
            // An earlier attempt of this run wrote it, or somebody else something else.
            let same = found.len == size
                && self.digest_of(reader, key, size).await? == digest_of_version(reader, object, size).await?;
            return Ok(match same {
                true => Fate::Written { bytes: size, line: None, renamed: false },
                false => Fate::Failed("another object stands under this key; --overwrite replaces it".into()),
            });
        }
        let put = put_of(&object.info.facts, size);
        let _permit = reader.budget.acquire(2 * put.buffered_bytes()).await?;
        let digest = Arc::new(Mutex::new(Sha256::new()));
        let (hashed, failed) = (digest.clone(), Arc::new(Mutex::new(None)));
        let why = failed.clone();
        let body = reader.read.read(object, 0..size).map(move |piece| match piece {
            Ok(bytes) => {
                hashed.lock().unwrap_or_else(PoisonError::into_inner).update(&bytes);
                Ok(bytes)
            }
            Err(error) => {
                *why.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Err(BackendError::new(ErrorKind::Body, "the content could not be read"))
            }
        });
        let written = self.writer.write(key, &put, body.boxed()).await;
        if let Some(error) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(CopyError::Engine(error));
        }
        written?;
        let sha256 = digest.lock().unwrap_or_else(PoisonError::into_inner).clone().finalize();
        if self.digest_of(reader, key, size).await? != <[u8; 32]>::from(sha256) {
            return Ok(Fate::Failed("the object that was written does not read back as it was".into()));
        }
        Ok(Fate::Written { bytes: size, line: None, renamed: false })
    }

    /// SHA-256 of an object as the store gives it back.
    async fn digest_of(&self, reader: &ObjectReader, key: &str, size: u64) -> Result<[u8; 32], CopyError> {
        let changed = || BackendError::new(ErrorKind::Corrupt, "the object that was written is another now");
        let found = self.store.head(key).await?.filter(|found| found.len == size).ok_or_else(changed)?;
        let mut digest = Sha256::new();
        let mut at = 0;
        while at < size {
            let end = size.min(at + READ_BACK_BYTES);
            let PlainRead::Bytes(pieces) = self.store.read(key, &found.etag, at..end).await? else {
                return Err(changed().into());
            };
            digest = reader.hash_pool.hash_all(digest, pieces.map_err(CopyError::from)).await?;
            at = end;
        }
        Ok(digest.finalize().into())
    }
}

/// Why an object was not written.
enum CopyError {
    Backend(BackendError),
    Engine(EngineError),
}

impl From<BackendError> for CopyError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl From<EngineError> for CopyError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

async fn digest_of_version(reader: &ObjectReader, object: &OpenObject, size: u64) -> Result<[u8; 32], EngineError> {
    Ok(reader.hash_pool.hash_all(Sha256::new(), reader.read.read(object, 0..size)).await?.finalize().into())
}

/// What is sent beside the content.
fn put_of(facts: &VersionFacts, len: u64) -> PlainPut {
    PlainPut {
        len,
        headers: facts.headers.clone(),
        user_metadata: facts.user_metadata.iter().map(|(name, value)| (name.clone(), as_header(value))).collect(),
        storage_class: facts.storage_class.clone(),
    }
}

/// A metadata value as S3 has it in a header: beyond printable ASCII as an RFC 2047 word.
fn as_header(value: &str) -> String {
    match value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => value.to_owned(),
        false => format!("=?UTF-8?B?{}?=", STANDARD.encode(value)),
    }
}

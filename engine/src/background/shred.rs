//! Shredding: a domain key that a bucket was sealed with before ends, and with it the way to
//! everything that is still sealed with it somewhere: on old disks, in versions that a store keeps
//! of its objects.
//!
//! Nothing that anybody may want to read again may depend on it. Blobs (packs, bases and those that
//! wait for their purge are blobs), rows of versions, uploads and parts are counted by the catalog,
//! which refuses once more in the transaction that removes the key, and refuses from then on what
//! is sealed with it. Backups must be younger than the last use of the key.

use crate::{background::keys::Keys, deployment::keyring::epochs::KeyEpochs, error::EngineError};
use catalog::{Bucket, KeyDependents};
use serde::Serialize;

/// A key of before, and what depends on it.
#[derive(Clone, Debug, Serialize)]
pub struct FormerKey {
    /// Its epoch within the bucket.
    pub epoch: u32,
    /// Its id, in hex.
    pub id: String,
    /// Versions whose metadata is sealed with it.
    pub versions: u64,
    /// Live blobs that are.
    pub blobs: u64,
    /// Their content in bytes.
    pub plain_bytes: u64,
    /// Blobs that wait for their purge.
    pub dying: u64,
    /// Uploads and parts that are.
    pub uploads: u64,
}

/// What shredding a bucket's former keys comes to.
#[derive(Clone, Debug, Serialize)]
pub struct Shredding {
    /// The bucket.
    pub bucket: String,
    /// The epoch that new content is sealed in: its key stays.
    pub sealing: u32,
    /// The keys of before.
    pub keys: Vec<FormerKey>,
    /// Backups in which content is sealed with one of them.
    pub backups: Vec<String>,
    /// What keeps the keys from being shredded, in words; what would be lost is in it.
    pub obstacles: Vec<String>,
    /// Whether they were.
    pub shredded: bool,
    /// Keysets beside the blobs from which they were removed.
    pub keysets: u64,
    /// Keysets that hold, or may hold, a key that the catalog has no more: an earlier shredding was
    /// interrupted.
    pub unfinished: u64,
}

impl Keys {
    /// What would be lost with the keys that a bucket was sealed with before; nothing is changed.
    ///
    /// # Errors
    /// [`EngineError::NoBucket`]; what catalog and backends say.
    pub async fn shredding(&self, bucket: &str) -> Result<Shredding, EngineError> {
        self.look(&self.bucket_row(bucket).await?).await
    }

    /// Shreds the keys that a bucket was sealed with before, when nothing depends on them.
    /// Otherwise the answer says what would be lost, and they stay. One that was interrupted is
    /// gone on with.
    ///
    /// # Errors
    /// As there.
    pub async fn shred(&self, bucket: &str) -> Result<Shredding, EngineError> {
        let _one = self.rotating.lock().await;
        let row = self.bucket_row(bucket).await?;
        KeyEpochs::note_use(&row, &*self.catalog).await?;
        // With what was just noted.
        let row = self.bucket_row(bucket).await?;
        let mut told = self.look(&row).await?;
        if !told.obstacles.is_empty() || told.keys.is_empty() && told.unfinished == 0 {
            return Ok(told);
        }
        let epochs: Vec<u32> = told.keys.iter().map(|key| key.epoch).collect();
        match self.keyring.shred(&row, &epochs, told.sealing, &*self.catalog, &self.blobs).await {
            Ok(keysets) => (told.shredded, told.keysets, told.unfinished) = (true, keysets, 0),
            Err(EngineError::Conflict) => {
                told.obstacles.push("something was sealed with them a moment ago: try again".into());
            }
            Err(error) => return Err(error),
        }
        tracing::info!(bucket, ?epochs, shredded = told.shredded, "domain keys of before are shredded");
        Ok(told)
    }

    async fn bucket_row(&self, name: &str) -> Result<Bucket, EngineError> {
        self.catalog.bucket(name).await?.ok_or(EngineError::NoBucket)
    }

    async fn look(&self, bucket: &Bucket) -> Result<Shredding, EngineError> {
        let epochs = KeyEpochs::of(bucket);
        let (mut keys, mut obstacles) = (Vec::new(), Vec::new());
        for key in epochs.former_keys(bucket, &*self.catalog).await? {
            let found = self.catalog.key_dependents(bucket.id, key.epoch).await?;
            obstacles.extend(in_words(&bucket.name, key.epoch, &found));
            keys.push(FormerKey {
                epoch: key.epoch,
                id: hex::encode(key.id),
                versions: found.versions,
                blobs: found.blobs,
                plain_bytes: found.plain_bytes,
                dying: found.dying,
                uploads: found.uploads,
            });
        }
        let mut unfinished = 0;
        if keys.is_empty() && epochs.sealing > 1 {
            let files = self.keyring.keyset_files(bucket, &*self.catalog, &self.blobs).await?;
            unfinished = files.with_others(&self.keyring).await?;
        }
        let mut backups = Vec::new();
        if !keys.is_empty() {
            let since = if epochs.unused_since == 0 { self.catalog.last_seq().await? } else { epochs.unused_since };
            backups = self.safety.backups_before(since).await?;
        }
        if let Some(newest) = backups.last() {
            obstacles.push(format!(
                "{} backups, the newest of them {newest}, hold content that is sealed with them: make a backup, and wait until \
                 those are past their retention",
                backups.len()
            ));
        }
        let (bucket, sealing) = (bucket.name.clone(), epochs.sealing);
        Ok(Shredding { bucket, sealing, keys, backups, obstacles, shredded: false, keysets: 0, unfinished })
    }
}

/// What would be lost with a key, and what to do about it.
fn in_words(bucket: &str, epoch: u32, found: &KeyDependents) -> Vec<String> {
    let KeyDependents { blobs, plain_bytes, dying, versions, uploads } = *found;
    let mut words = Vec::new();
    if blobs > 0 || versions > 0 {
        words.push(format!(
            "without key {epoch}, {blobs} blobs of {plain_bytes} bytes and the metadata of {versions} versions would be \
             lost: run `deltaweir keys reencrypt {bucket}`"
        ));
    }
    if uploads > 0 {
        words.push(format!(
            "without key {epoch}, {uploads} uploads and parts would be lost: complete or abort them; those that are \
             completed are forgotten in time"
        ));
    }
    if dying > 0 {
        words.push(format!(
            "{dying} blobs under key {epoch} wait for their purge until gc.grace is over: `deltaweir gc --now` does not wait"
        ));
    }
    words
}

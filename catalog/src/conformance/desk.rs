//! What the tests write with: a bucket, an epoch, and commits with sensible contents.

use crate::*;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A catalog with a bucket to write to.
pub struct Desk<C> {
    /// The catalog.
    pub catalog: Arc<C>,
    /// The bucket.
    pub bucket: Bucket,
    /// An open epoch.
    pub epoch: u32,
}

impl<C> Clone for Desk<C> {
    fn clone(&self) -> Self {
        Desk { catalog: Arc::clone(&self.catalog), bucket: self.bucket.clone(), epoch: self.epoch }
    }
}

/// A time to count from.
pub const NOW: UnixMs = 1_700_000_000_000;

static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// 16 bytes that no other call gives, behind `head`.
pub fn unique(head: u32) -> [u8; 16] {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&head.to_be_bytes());
    id[8..].copy_from_slice(&LAST_ID.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    id
}

impl<C: Catalog> Desk<C> {
    /// Opens an epoch and creates the bucket `desk`.
    pub async fn new(catalog: Arc<C>) -> Self {
        let epoch = catalog.open_epoch().await.unwrap();
        let bucket = catalog.create_bucket("desk", "owner", serde_json::json!({}), NOW).await.unwrap();
        Desk { catalog, bucket, epoch }
    }

    /// The same desk with a new bucket.
    pub async fn with_bucket(&self, name: &str) -> Self {
        let bucket = self.catalog.create_bucket(name, "owner", serde_json::json!({}), NOW).await.unwrap();
        Desk { catalog: Arc::clone(&self.catalog), bucket, epoch: self.epoch }
    }

    /// The domain of its blobs.
    pub fn domain(&self) -> Domain {
        Domain { bucket: self.bucket.id, key_epoch: 0, backend: "local".into(), compartment: None }
    }

    /// That domain, then those that differ from it in one thing.
    pub fn domain_and_others(&self, bucket: BucketId) -> Vec<Domain> {
        let here = self.domain();
        vec![
            here.clone(),
            Domain { bucket, ..here.clone() },
            Domain { key_epoch: 1, ..here.clone() },
            Domain { backend: "cloud".into(), ..here.clone() },
            Domain { compartment: Some(Compartment([1; 16])), ..here },
        ]
    }

    /// A whole blob of `plain_len` bytes, stored as half of them.
    pub fn whole(&self, plain_len: u64) -> NewBlob {
        let row = BlobRow {
            id: BlobKey(unique(self.epoch)),
            bucket: self.bucket.id,
            key_epoch: 0,
            backend: "local".into(),
            form: BlobForm::Whole,
            state: BlobState::Live,
            plain_len,
            stored_len: plain_len / 2 + 160,
            root_offset: plain_len / 2,
            root_len: 100,
            root_tag: [7; 16],
            digest: None,
            forms: FormBytes { zstd_plain: plain_len, zstd_stored: plain_len / 2, ..FormBytes::default() },
            inline: None,
            original: None,
            pack: false,
            compartment: None,
            copy: None,
        };
        NewBlob { row, bases: Vec::new(), deferred: false, heat_bytes: 0 }
    }

    /// Content of `plain_len` bytes that lies in the object `key` of a store.
    pub fn foreign(&self, key: &str, plain_len: u64) -> NewBlob {
        let mut blob = self.whole(plain_len);
        blob.row.backend = "store".into();
        blob.row.stored_len = 0;
        (blob.row.root_offset, blob.row.root_len) = (0, 0);
        blob.row.forms = FormBytes::default();
        blob.row.original = Some(Original { key: key.into(), etag: "e".into(), md5: false, offset: 0, owned: false });
        blob
    }

    /// A delta against `bases`, stored as a tenth.
    pub fn delta(&self, plain_len: u64, bases: &[BlobKey]) -> NewBlob {
        let mut blob = self.whole(plain_len);
        blob.row.form = BlobForm::Delta;
        blob.row.stored_len = plain_len / 10 + 160;
        blob.row.forms = FormBytes { delta_plain: plain_len, delta_stored: plain_len / 10, ..FormBytes::default() };
        blob.bases = bases.to_vec();
        blob
    }

    /// A blob that lives in the catalog.
    pub fn inline(&self, bytes: &[u8]) -> NewBlob {
        let mut blob = self.whole(bytes.len() as u64);
        blob.row.stored_len = bytes.len() as u64;
        blob.row.forms = FormBytes { raw_plain: bytes.len() as u64, ..FormBytes::default() };
        blob.row.inline = Some(bytes.to_vec());
        blob
    }

    /// A put of `key` with these blobs one after the other.
    pub fn commit(&self, key: &str, new_blobs: Vec<NewBlob>) -> PutCommit {
        let extents = new_blobs.iter().map(|blob| all_of(&blob.row)).collect();
        self.commit_extents(key, new_blobs, extents)
    }

    /// A put of `key` with these extents.
    pub fn commit_extents(&self, key: &str, new_blobs: Vec<NewBlob>, extents: Vec<Extent>) -> PutCommit {
        PutCommit {
            bucket: self.bucket.id,
            key: key.to_owned(),
            id: VersionId(unique(0)),
            size: extents.iter().map(|extent| extent.len).sum(),
            facts: format!("facts of {key}").into_bytes(),
            extents_digest: [3; 32],
            precondition: Precondition::None,
            new_blobs,
            extents,
            lock: VersionLock::default(),
            notices: Vec::new(),
            now_ms: NOW,
            epoch: self.epoch,
        }
    }

    /// Puts `key` as one whole blob of 1000 bytes; the blob.
    pub async fn put(&self, key: &str) -> BlobKey {
        let blob = self.whole(1000);
        let id = blob.row.id;
        self.catalog.put(self.commit(key, vec![blob])).await.unwrap();
        id
    }

    /// Gives `blob` a second copy in the place of `replaces`; the copy.
    pub async fn copy(&self, blob: BlobKey, replaces: Option<BlobKey>) -> BlobKey {
        let copy = BlobKey(unique(self.epoch));
        self.catalog.set_copy(CopyCommit { blob, replaces, copy, epoch: self.epoch }).await.unwrap();
        copy
    }

    /// Deletes `key`; what was removed.
    pub async fn delete(&self, key: &str) -> Option<Version> {
        self.catalog.delete(self.deletion(key)).await.unwrap().removed
    }

    /// A removal of one version of `key`.
    pub fn removal(&self, key: &str, version: VersionRef) -> DeleteVersionCommit {
        DeleteVersionCommit {
            bucket: self.bucket.id,
            key: key.to_owned(),
            version,
            precondition: Precondition::None,
            hide: false,
            bypass_governance: false,
            notices: Vec::new(),
            now_ms: NOW,
            epoch: self.epoch,
        }
    }

    /// A deletion of `key`.
    pub fn deletion(&self, key: &str) -> DeleteCommit {
        DeleteCommit {
            bucket: self.bucket.id,
            key: key.to_owned(),
            precondition: Precondition::None,
            hide: false,
            marker: Some(VersionId(unique(0))),
            notices: Vec::new(),
            now_ms: NOW,
            epoch: self.epoch,
        }
    }

    /// A rewrite of what `content` is to `new_blobs`, one after the other.
    pub fn rewrite(&self, content: &Content, new_blobs: Vec<NewBlob>) -> RewriteCommit {
        RewriteCommit {
            old_facts: Some(content.version.facts.clone()),
            bucket: self.bucket.id,
            key: content.version.key.clone(),
            id: content.version.id,
            old_extents: content.extents.clone(),
            new_extents: new_blobs.iter().map(|blob| all_of(&blob.row)).collect(),
            facts: b"facts sealed anew".to_vec(),
            extents_digest: [4; 32],
            new_blobs,
            notices: Vec::new(),
            now_ms: NOW,
            epoch: self.epoch,
        }
    }

    /// Creates an upload of `key`.
    pub async fn start_upload(&self, key: &str, created_ms: UnixMs) -> Upload {
        let upload = Upload {
            bucket: self.bucket.id,
            key: key.to_owned(),
            id: UploadId(unique(0)),
            created_ms,
            owner: "owner".into(),
            facts: b"upload facts".to_vec(),
            completed: None,
        };
        self.catalog.create_upload(upload.clone()).await.unwrap();
        upload
    }

    /// A part made of one new whole blob.
    pub fn part(&self, upload: UploadId, number: u32, plain_len: u64) -> PartCommit {
        let blob = self.whole(plain_len);
        PartCommit {
            bucket: self.bucket.id,
            upload,
            part: Part {
                number,
                id: unique(0),
                size: plain_len,
                modified_ms: NOW,
                facts: b"part facts".to_vec(),
                extents: vec![all_of(&blob.row)],
            },
            new_blobs: vec![blob],
            epoch: self.epoch,
        }
    }

    /// Stores a part of `plain_len` bytes.
    pub async fn put_part(&self, upload: UploadId, number: u32, plain_len: u64) -> Part {
        let commit = self.part(upload, number, plain_len);
        self.catalog.put_part(commit.clone()).await.unwrap();
        commit.part
    }

    /// A completion with these parts.
    pub fn completion(&self, upload: &Upload, parts: &[&Part]) -> CompleteCommit {
        CompleteCommit {
            bucket: self.bucket.id,
            key: upload.key.clone(),
            upload: upload.id,
            parts: parts.iter().map(|part| (part.number, part.id)).collect(),
            parts_digest: [9; 32],
            id: VersionId(unique(0)),
            size: parts.iter().map(|part| part.size).sum(),
            facts: b"completed".to_vec(),
            extents_digest: [5; 32],
            precondition: Precondition::None,
            lock: VersionLock::default(),
            notices: Vec::new(),
            now_ms: NOW,
            epoch: self.epoch,
        }
    }

    /// A key's content, which must be there.
    pub async fn content(&self, key: &str) -> Content {
        self.catalog.content(self.bucket.id, key).await.unwrap().unwrap_or_else(|| panic!("no {key}"))
    }

    /// The state of a blob; `None` when its row is gone.
    pub async fn state(&self, blob: BlobKey) -> Option<BlobState> {
        self.catalog.blobs(&[blob]).await.unwrap().first().map(|row| row.state)
    }

    /// Blobs with a tombstone.
    pub async fn dying(&self) -> Vec<BlobKey> {
        let tombstones = self.catalog.tombstones(UnixMs::MAX, 10_000).await.unwrap();
        tombstones.iter().map(|tombstone| tombstone.blob).collect()
    }

    /// Every row of the catalog by table, in order, without the journal and without when writers
    /// were last heard of.
    pub async fn rows(&self) -> Vec<(String, Vec<Vec<Value>>)> {
        let (to, mut from) = tokio::sync::mpsc::channel(1);
        let exporting = tokio::spawn({
            let catalog = Arc::clone(&self.catalog);
            async move { catalog.export(to).await }
        });
        let mut tables: Vec<(String, Vec<Vec<Value>>)> = Vec::new();
        while let Some(mut piece) = from.recv().await {
            if let Some(seen) = piece.columns.iter().position(|column| column == "seen_ms") {
                piece.rows.iter_mut().for_each(|row| row[seen] = Value::Null);
            }
            match tables.last_mut() {
                Some((table, rows)) if *table == piece.table => rows.extend(piece.rows),
                _ => tables.push((piece.table, piece.rows)),
            }
        }
        let exported = exporting.await.unwrap().unwrap();
        assert_eq!(exported.rows, tables.iter().map(|(_, rows)| rows.len() as u64).sum::<u64>());
        assert_eq!(exported.seq, self.catalog.last_seq().await.unwrap());
        tables
    }

    /// Fails unless the recount finds nothing.
    pub async fn assert_sound(&self) {
        assert_eq!(self.catalog.check().await.unwrap(), Vec::<String>::new());
    }
}

/// The whole of a blob as an extent.
pub fn all_of(row: &BlobRow) -> Extent {
    Extent { blob: row.id, offset: 0, len: row.plain_len }
}

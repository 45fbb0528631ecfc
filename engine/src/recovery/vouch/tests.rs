//! The forging matrix: whoever can write to the backend, without any key, writes documents of every
//! kind. A store that has keys reads none of them; the same store without the check reads each, so
//! each is a real forgery.

use super::*;
use crate::{
    deployment::keyring::{Given, Keyring},
    metrics::Metrics,
    recovery::{
        document::{IndexDocument, PartWriter, decode_journal, decode_part, encode_journal},
        names::{id_of, journal_name, store_keyset_names},
        vault::OpenedDocument,
    },
    resources::pool::{CodecPool, PoolKind},
};
use catalog::{JournalEntry, MutationText, Seq};
use object_format::{
    DomainKey, Kek, KeyId,
    keyset::{BucketLabel, Keyset, KeysetEntry},
};
use serde_json::json;
use std::sync::Arc;
use storage_backends::{Backend, BlobName, MemoryBackend, get_all, put_bytes};
use tempfile::TempDir;

/// Forgeries of each kind.
const TRIES: u32 = 800;
/// Where every honest journal of these tests ends.
const END: Seq = 40;

/// A store's documents, and the key that seals them.
struct Store {
    vault: Vault,
    backend: Arc<dyn Backend>,
    key: Option<Arc<DomainKey>>,
    lineage: Lineage,
    backup: BackupName,
    _data: TempDir,
}

/// A mutation that says something harmless.
pub(super) fn entry(seq: Seq, word: &str) -> JournalEntry {
    let setting = json!({ "PutSetting": { "name": word, "value": seq, "creates": false } });
    let mutation = MutationText::of(&setting).expect("JSON");
    JournalEntry { seq, at_ms: 1, mutation }
}

fn entries(first: Seq, last: Seq, word: &str) -> Vec<JournalEntry> {
    (first..=last).map(|seq| entry(seq, word)).collect()
}

fn index(part: &[u8]) -> IndexDocument {
    use crypto::{Digest, Sha256};
    let part = crate::recovery::document::PartEntry { stored_len: 1, digest: Sha256::digest(part).into() };
    IndexDocument { seq: 20, schema: 1, taken_ms: 1, rows: 0, head: None, parts: vec![part] }
}

impl Store {
    /// One with a lineage, a backup and a journal, sealed under a key of its own if it has one.
    async fn make(seed: u8, sealed: bool) -> Self {
        let data = TempDir::new().expect("a directory");
        let metrics = Metrics::new();
        let given = Given { kek: Some(Kek::new([seed; 32])), ..Given::default() };
        let keyring = Arc::new(Keyring::open(data.path(), given, &metrics).expect("opens"));
        let pool = Arc::new(CodecPool::new(1, PoolKind::Codec, &metrics).expect("a pool"));
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
        let vault = Vault::new(backend.clone(), keyring.clone(), pool, metrics);
        let key = DomainKey::new(KeyId([seed; 16]), 1, [seed ^ 0x55; 32]);
        let label = BucketLabel { id: 0, name: String::new() };
        let keyset = Keyset::new([KeysetEntry::new(&keyring.kek(), &key, &label)]);
        if sealed {
            for name in store_keyset_names(key.id()).expect("names") {
                let mut bytes = Vec::new();
                keyset.write_blob(id_of(&name), &mut bytes).expect("written");
                vault.put_blob(&name, bytes).await.expect("stored");
            }
        }
        let lineage = Lineage::after(None, u32::from(seed)).expect("it follows");
        let backup = BackupName { lineage, cut: 20, id: u64::from(seed) };
        let key = sealed.then(|| Arc::new(key));
        let store = Self { vault, backend, key, lineage, backup, _data: data };
        store.write(store.lineage, store.backup, "honest").await;
        store
    }

    /// Writes a whole history.
    async fn write(&self, lineage: Lineage, backup: BackupName, word: &str) {
        let document = LineageDocument { start: 0, parent: None }.encode();
        self.put(&lineage_name(lineage).expect("a name"), BlobKind::Journal, document).await;
        for first in [1, 21] {
            let document = encode_journal(&entries(first, first + 19, word), None).expect("encoded");
            self.put(&journal_name(lineage, first).expect("a name"), BlobKind::Journal, document).await;
        }
        let part = PartWriter::new(&backup, 0).finish();
        let index = index(&part).encode(&backup);
        self.put(&backup.part(0).expect("a name"), BlobKind::Backup, part).await;
        self.put(&backup.index().expect("a name"), BlobKind::Backup, index).await;
    }

    async fn put(&self, name: &BlobName, kind: BlobKind, document: Vec<u8>) {
        self.backend.delete(name).await.expect("removed");
        self.vault.put(name, kind, self.key.clone(), document).await.expect("stored");
    }

    /// The bytes of a document as they lie in the backend.
    async fn bytes(&self, name: &BlobName) -> bytes::Bytes {
        let len = self.backend.head(name).await.expect("answers").expect("is there");
        get_all(&*self.backend, name, len).await.expect("answers").expect("is there")
    }

    /// What whoever has no key does: puts bytes under a name, in the place of what is there.
    async fn plant(&self, name: &BlobName, bytes: bytes::Bytes) {
        self.backend.delete(name).await.expect("removed");
        put_bytes(&*self.backend, name, bytes).await.expect("stored");
    }

    /// A vault over the same backend that does not check: the build before.
    fn unchecked(&self) -> Vault {
        let metrics = Metrics::new();
        let pool = Arc::new(CodecPool::new(1, PoolKind::Codec, &metrics).expect("a pool"));
        let given = Given { kek: Some(Kek::new([1; 32])), ..Given::default() };
        let keyring = Arc::new(Keyring::open(self._data.path(), given, &metrics).expect("opens"));
        Vault::new(self.backend.clone(), keyring, pool, metrics)
    }
}

/// Whether a vault reads a document of this name, as a recovery would.
async fn reads(vault: &Vault, name: &BlobName) -> bool {
    let text = name.as_str();
    let kind = if text.starts_with("backup") { BlobKind::Backup } else { BlobKind::Journal };
    let Ok(Some(OpenedDocument { document, .. })) = vault.get(name, kind).await else { return false };
    match text.split_once('/') {
        Some(("lineage", lineage)) => {
            LineageDocument::decode(&document).is_ok()
                && vault.newest_lineage(None).await.is_ok_and(|newest| newest.is_some_and(|n| n.to_string() == lineage))
        }
        Some(("journal", rest)) => {
            let first = rest.rsplit('/').next().and_then(crate::recovery::names::journal_first).expect("a number");
            decode_journal(&document, first).is_ok()
        }
        Some(("backup", backup)) => {
            let backup: BackupName = backup.parse().expect("a backup");
            let newest = vault.newest_backup(backup.lineage).await;
            IndexDocument::decode(&document, &backup).is_ok() && newest.is_ok_and(|newest| newest == Some(backup))
        }
        _ => true,
    }
}

#[tokio::test]
async fn no_forged_document_is_read_in_a_store_that_has_keys() {
    let store = Store::make(1, true).await;
    store.vault.trust.only_sealed();
    let unchecked = store.unchecked();
    let forger = Store::make(2, false).await;
    let (mut tries, mut accepted) = (0_u32, 0_u32);
    let mut real = 0_u32;
    for attempt in 0..TRIES {
        // Another generation and random part each time: names that sort behind the honest ones, up
        // to the greatest there is.
        let generation = 2 + attempt * 1_340_000;
        let newer: Lineage = format!("{generation:08x}-{attempt:08x}").parse().expect("a lineage");
        let parent: Lineage = format!("{:08x}-{attempt:08x}", generation - 1).parse().expect("a lineage");
        let same = BackupName { lineage: store.lineage, cut: 20 + Seq::from(attempt), id: 7 };
        let word = format!("forged {attempt}");
        let journal =
            encode_journal(&entries(END + 1, END + 1 + Seq::from(attempt % 9), &word), None).expect("encoded");
        let in_place = encode_journal(&entries(21, 21 + Seq::from(attempt % 30), &word), None).expect("encoded");
        let part = PartWriter::new(&same, 0).finish();
        let documents = [
            // A newer generation, an unsealed journal blob behind the sealed ones and one in their
            // place, a newer backup and its part, and a lineage of the greatest generation.
            (lineage_name(newer), BlobKind::Journal, LineageDocument { start: 0, parent: Some(parent) }.encode()),
            (journal_name(store.lineage, END + 1), BlobKind::Journal, journal),
            (journal_name(store.lineage, 21), BlobKind::Journal, in_place),
            (same.part(0), BlobKind::Backup, part.clone()),
            (same.index(), BlobKind::Backup, IndexDocument { seq: 2000, ..index(&part) }.encode(&same)),
            (
                format!("40000000-{attempt:08x}").parse().and_then(lineage_name),
                BlobKind::Journal,
                LineageDocument { start: 0, parent: "3fffffff-00000000".parse().ok() }.encode(),
            ),
            // The sealed copy of a lineage's document, which is none.
            (
                sealed_lineage_name(newer),
                BlobKind::Journal,
                LineageDocument { start: 0, parent: Some(parent) }.encode(),
            ),
        ];
        for (name, kind, document) in documents {
            let name = name.expect("a name");
            forger.put(&name, kind, document).await;
            let honest = match store.backend.head(&name).await.expect("answers") {
                Some(_) => Some(store.bytes(&name).await),
                None => None,
            };
            store.plant(&name, forger.bytes(&name).await).await;
            tries += 1;
            real += u32::from(reads(&unchecked, &name).await);
            accepted += u32::from(reads(&store.vault, &name).await);
            assert_eq!(store.vault.newest_lineage(None).await.expect("found"), Some(store.lineage), "{name}");
            assert_eq!(store.vault.newest_backup(store.lineage).await.expect("found"), Some(store.backup), "{name}");
            store.backend.delete(&name).await.expect("removed");
            if let Some(honest) = honest {
                store.plant(&name, honest).await;
            }
        }
    }
    println!("forging matrix: {tries} tries, {real} read without the check, {accepted} read");
    assert_eq!((tries, real, accepted), (7 * TRIES, 7 * TRIES, 0));
    assert!(tries >= 5000);
}

#[tokio::test]
async fn sealed_documents_are_read_only_whole_and_in_their_place() {
    let store = Store::make(1, true).await;
    store.vault.trust.only_sealed();
    let other = Store::make(3, true).await;
    other.write(store.lineage, store.backup, "another store's").await;
    let names = [
        lineage_name(store.lineage).expect("a name"),
        journal_name(store.lineage, 1).expect("a name"),
        journal_name(store.lineage, 21).expect("a name"),
        store.backup.part(0).expect("a name"),
        store.backup.index().expect("a name"),
    ];
    for name in &names {
        assert!(reads(&store.vault, name).await, "{name} is read as it was written");
        let honest = store.bytes(name).await;
        // Truncated at every byte of the last kilobyte, and at some before.
        for len in (0..honest.len()).filter(|len| len % 7 == 0 || honest.len() - len < 1024) {
            store.plant(name, honest.slice(..len)).await;
            assert!(!reads(&store.vault, name).await, "{name} cut to {len} bytes");
        }
        // Another of ours in its place (a replay, a swap), and another store's of the same name.
        for swapped in names.iter().filter(|swapped| *swapped != name) {
            store.plant(name, store.bytes(swapped).await).await;
            assert!(!reads(&store.vault, name).await, "{swapped} as {name}");
            store.plant(name, honest.clone()).await;
        }
        store.plant(name, other.bytes(name).await).await;
        assert!(!reads(&store.vault, name).await, "another store's {name}");
        store.plant(name, honest).await;
    }
}

#[tokio::test]
async fn what_was_written_before_the_store_was_sealed_is_read_when_an_operator_says_so() {
    let store = Store::make(1, false).await;
    store.vault.trust.only_sealed();
    let (early, late) =
        (journal_name(store.lineage, 1).expect("a name"), journal_name(store.lineage, 21).expect("a name"));
    assert!(!reads(&store.vault, &early).await);
    assert_eq!(store.vault.newest_lineage(None).await.expect("found"), None);
    assert_eq!(
        store.vault.newest_lineage(Some(store.lineage)).await.expect("found"),
        Some(store.lineage),
        "a catalog's own"
    );
    store.vault.trust.accept_unsealed_until(20);
    assert!(reads(&store.vault, &early).await && !reads(&store.vault, &late).await);
    assert!(reads(&store.vault, &lineage_name(store.lineage).expect("a name")).await);
    assert!(reads(&store.vault, &store.backup.index().expect("a name")).await);
    assert!(decode_part(&PartWriter::new(&store.backup, 0).finish(), &store.backup, 0).is_ok());
}

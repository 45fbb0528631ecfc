//! The forging campaign: whoever can write to the backend puts, swaps, cuts and removes documents
//! of every kind. What a recovery then reads is what was written, or an error. Each forgery is
//! real: without the check it counts.

use super::{super::names::tests::UNBOUNDED, tests::entry, *};
use crate::{
    config::AnchorPlace,
    deployment::keyring::{Given, Keyring},
    metrics::Metrics,
    recovery::{
        document::{IndexDocument, PartEntry, PartWriter, encode_journal},
        names::{id_of, journal_name, store_keyset_names},
        outside::OutsideAnchor,
    },
    resources::pool::{CodecPool, PoolKind},
};
use catalog::{JournalEntry, Seq, TableRows, Value};
use crypto::{Digest, Sha256};
use object_format::{
    DomainKey, Kek,
    keyset::{BucketLabel, Keyset, KeysetEntry},
};
use proptest::prelude::ProptestConfig;
use serde_json::json;
use std::sync::Arc;
use storage_backends::{Backend, BlobName, MemoryBackend, get_all, put_bytes};
use tempfile::TempDir;

/// Cases that a property would be tried with (`PROPTEST_CASES`) for each try of a class: making a
/// store takes longer than making a number.
const CASES_PER_TRY: u32 = 4;
/// Where the honest history ends.
const END: Seq = 40;

/// What a recovery would make.
#[derive(Clone, Debug, Default, PartialEq)]
struct History {
    lineage: Option<Lineage>,
    backup: Option<BackupName>,
    rows: Vec<TableRows>,
    entries: Vec<JournalEntry>,
}

impl History {
    fn end(&self) -> Option<(Lineage, Seq)> {
        let last = self.entries.last().map(|entry| entry.seq).or(self.backup.map(|backup| backup.cut));
        Some((self.lineage?, last.unwrap_or(0)))
    }
}

/// Which check a build lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    Nothing,
    Seals,
    Damage,
    Stores,
    Bound,
    Anchor,
}

/// What a forgery comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    /// A build that lacks the check reads something else than what was written.
    real: bool,
    /// This one does.
    accepted: bool,
    /// Whoever has the catalog goes on, and takes no backup for newer than the newest.
    serves: bool,
}

/// What is done to the backend: documents that are put, and some that are removed.
#[derive(Default)]
struct Forgery {
    puts: Vec<(BlobName, bytes::Bytes)>,
    removed: Vec<BlobName>,
}

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn of<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}

/// A store's documents, and what seals them.
struct Store {
    backend: Arc<dyn Backend>,
    keyring: Arc<Keyring>,
    pool: Arc<CodecPool>,
    key: Option<Arc<DomainKey>>,
    data: TempDir,
}

fn lineage(generation: usize, random: usize) -> Lineage {
    format!("{generation:08x}-{random:08x}").parse().expect("a lineage")
}

impl Store {
    /// An empty one. Keys follow from the numbers.
    async fn empty(kek: u8, key: Option<u8>) -> Self {
        let data = TempDir::new().expect("a directory");
        let metrics = Metrics::new();
        let given = Given { kek: Some(Kek::new([kek; 32])), ..Given::default() };
        let keyring = Arc::new(Keyring::open(data.path(), given, &metrics).expect("opens"));
        let pool = Arc::new(CodecPool::new(1, PoolKind::Codec, &metrics).expect("a pool"));
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
        let key = key.map(|key| Arc::new(DomainKey::new(KeyId([key; 16]), 1, [key ^ 0x55; 32])));
        let store = Self { backend, keyring, pool, key, data };
        store.write_keyset().await;
        store
    }

    /// The key that seals, wrapped.
    async fn write_keyset(&self) {
        let Some(key) = &self.key else { return };
        let label = BucketLabel { id: 0, name: String::new() };
        let keyset = Keyset::new([KeysetEntry::new(&self.keyring.kek(), key, &label)]);
        for name in store_keyset_names(key.id()).expect("names") {
            let mut bytes = Vec::new();
            keyset.write_blob(id_of(&name), &mut bytes).expect("written");
            self.vault(Lacks::Nothing).put_blob(&name, bytes).await.expect("stored");
        }
    }

    /// A build that lacks a check, and remembers nothing of the tries before.
    fn vault(&self, lacks: Lacks) -> Vault {
        let mut vault = Vault::new(self.backend.clone(), self.keyring.clone(), self.pool.clone(), Metrics::new());
        vault.without = Without { damage: lacks == Lacks::Damage, stores: lacks == Lacks::Stores };
        if self.key.is_some() && lacks != Lacks::Seals {
            vault.trust.only_sealed();
        }
        vault
    }

    async fn put(&self, name: BlobName, kind: BlobKind, document: Vec<u8>) {
        self.vault(Lacks::Nothing).put(&name, kind, self.key.clone(), document).await.expect("stored");
    }

    async fn write_lineage(&self, lineage: Lineage, parent: Option<Lineage>, start: Seq) {
        let name = lineage_name(lineage).expect("a name");
        self.put(name, BlobKind::Journal, LineageDocument { start, parent }.encode()).await;
    }

    async fn write_journal(&self, lineage: Lineage, first: Seq, last: Seq, word: &str) {
        let entries: Vec<_> = (first..=last).map(|seq| entry(seq, word)).collect();
        let document = encode_journal(&entries, None).expect("encoded");
        self.put(journal_name(lineage, first).expect("a name"), BlobKind::Journal, document).await;
    }

    async fn write_backup(&self, name: BackupName, word: &str) {
        let mut part = PartWriter::new(&name, 0);
        let rows = vec![vec![Value::Text(word.to_owned())]];
        part.push(&TableRows { table: "settings".into(), columns: vec!["name".into()], rows }).expect("pushed");
        let part = part.finish();
        let entry = PartEntry { stored_len: 1, digest: Sha256::digest(&part).into() };
        let index = IndexDocument { seq: name.cut, schema: 1, taken_ms: 1, rows: 1, head: None, parts: vec![entry] };
        self.put(name.part(0).expect("a name"), BlobKind::Backup, part).await;
        self.put(name.index().expect("a name"), BlobKind::Backup, index.encode(&name)).await;
    }

    /// Two lineages, two backups in the second one, and journals.
    async fn write_history(&self, of: &Honest, word: &str) {
        self.write_lineage(of.first, None, 0).await;
        self.write_journal(of.first, 1, 10, word).await;
        self.write_lineage(of.second, Some(of.first), 10).await;
        for (backup, word) in [(of.old, "old"), (of.backup, word)] {
            self.write_backup(backup, word).await;
        }
        for first in [11, 21, 31] {
            self.write_journal(of.second, first, first + 9, word).await;
        }
    }

    /// All that lies in the backend.
    async fn everything(&self) -> BTreeMap<String, bytes::Bytes> {
        let mut found = BTreeMap::new();
        for name in self.vault(Lacks::Nothing).listed("").await.expect("listed") {
            let len = self.backend.head(&name).await.expect("answers").expect("is there");
            let bytes = get_all(&*self.backend, &name, len).await.expect("answers").expect("is there");
            found.insert(name.as_str().to_owned(), bytes);
        }
        found
    }

    async fn plant(&self, name: &BlobName, bytes: &bytes::Bytes) {
        self.backend.delete(name).await.expect("removed");
        put_bytes(&*self.backend, name, bytes.clone()).await.expect("stored");
    }

    /// What a recovery of this moment would read, by the same steps.
    async fn recovered(&self, lacks: Lacks) -> Result<History, EngineError> {
        UNBOUNDED.set(lacks == Lacks::Bound);
        let found = self.read_by(&self.vault(lacks)).await;
        UNBOUNDED.set(false);
        let history = found?;
        let anchor =
            OutsideAnchor::open(Some(AnchorPlace::File(self.data.path().join("anchor"))), None, Metrics::new())
                .expect("a file");
        let known = anchor.read().await?;
        match anchor.why_behind(&known, history.end()) {
            Some(why) if lacks == Lacks::Nothing => Err(EngineError::Other(why)),
            _ => Ok(history),
        }
    }

    async fn read_by(&self, vault: &Vault) -> Result<History, EngineError> {
        let missing = |what: &str| EngineError::Integrity(format!("{what} is missing"));
        let mut history = History::default();
        let Some(lineage) = vault.newest_lineage(None).await? else { return Ok(history) };
        history.lineage = Some(lineage);
        history.backup = vault.newest_backup(lineage).await?;
        let mut next = vault.start_of(lineage).await?.unwrap_or(0) + 1;
        if let Some(backup) = &history.backup {
            next = backup.cut + 1;
            match vault.index(backup).await {
                Ok(index) => {
                    for entry in &index.parts {
                        match vault.part(backup, 0, entry).await? {
                            Some(rows) => history.rows.extend(rows),
                            None if vault.without.damage => {}
                            None => return Err(missing("a part")),
                        }
                    }
                }
                Err(_) if vault.without.damage => {}
                Err(error) => return Err(error),
            }
        }
        while let Some(blob) = vault.journal(lineage, next).await? {
            next = blob.entries.last().map_or(next, |entry| entry.seq) + 1;
            history.entries.extend(blob.entries);
        }
        let firsts = vault.journal_firsts(lineage).await?;
        match vault.trusted_first(lineage, firsts.range(next..)).await? {
            Some(_) if !vault.without.damage => Err(missing("a journal blob")),
            _ => Ok(history),
        }
    }
}

/// Where the honest documents lie.
#[derive(Clone, Copy)]
struct Honest {
    first: Lineage,
    second: Lineage,
    old: BackupName,
    backup: BackupName,
}

impl Honest {
    fn new(generation: usize, random: usize) -> Self {
        let (first, second) = (lineage(generation, random), lineage(generation + 1, random + 1));
        let backup = |cut, id| BackupName { lineage: second, cut, id };
        Self { first, second, old: backup(10, 1), backup: backup(20, 2) }
    }

    /// Those that a recovery reads.
    fn names(&self, key: Option<KeyId>) -> Vec<BlobName> {
        let mut names = vec![
            lineage_name(self.second).expect("a name"),
            journal_name(self.second, 21).expect("a name"),
            journal_name(self.second, 31).expect("a name"),
            self.backup.index().expect("a name"),
            self.backup.part(0).expect("a name"),
        ];
        names.extend(key.iter().flat_map(|key| store_keyset_names(*key).expect("names")).next());
        names
    }
}

/// The victim, and what is true of it.
struct Victim {
    store: Store,
    of: Honest,
    honest: BTreeMap<String, bytes::Bytes>,
}

fn name(text: &str) -> BlobName {
    BlobName::new(text).expect("a name")
}

impl Victim {
    async fn make(key: Option<u8>) -> Self {
        let (store, of) = (Store::empty(1, key).await, Honest::new(1, 0xa0));
        store.write_history(&of, "honest").await;
        let anchor =
            OutsideAnchor::open(Some(AnchorPlace::File(store.data.path().join("anchor"))), None, Metrics::new())
                .expect("a file");
        anchor.set(of.second, END).await.expect("noted");
        let honest = store.everything().await;
        let victim = Self { store, of, honest };
        let history = victim.store.recovered(Lacks::Nothing).await.expect("read");
        assert!(victim.is_true(&history) && history.backup == Some(of.backup), "{history:?}");
        victim
    }

    /// The other copy is put beside: one of two proves nothing.
    fn both(&self, at: &BlobName, bytes: bytes::Bytes) -> Vec<(BlobName, bytes::Bytes)> {
        match at.as_str().strip_suffix("-1").filter(|_| at.as_str().starts_with("keyset/")) {
            Some(stem) => vec![(at.clone(), bytes.clone()), (name(&format!("{stem}-2")), bytes)],
            None => vec![(at.clone(), bytes)],
        }
    }

    fn bytes(&self, at: &BlobName) -> bytes::Bytes {
        self.honest[at.as_str()].clone()
    }

    /// One document that is changed.
    fn changed(&self, dice: &mut Dice, change: impl FnOnce(&mut Dice, &mut Vec<u8>)) -> Forgery {
        let at = dice.of(&self.of.names(self.store.key.as_ref().map(|key| key.id()))).clone();
        let mut bytes = self.bytes(&at).to_vec();
        change(dice, &mut bytes);
        Forgery { puts: self.both(&at, bytes.into()), removed: Vec::new() }
    }

    /// Where the newest backup was changed, the one before is removed: a build that took what does
    /// not open for absent would go back to it, and lose nothing.
    fn without_older(&self, mut forgery: Forgery) -> Forgery {
        let index = self.of.backup.index().expect("a name");
        if forgery.puts.iter().any(|(name, _)| *name == index) {
            forgery.removed.push(self.of.old.index().expect("a name"));
        }
        forgery
    }

    /// Whether this is what was written, all of it: from the newest backup on, or from the one
    /// before, to the end.
    fn is_true(&self, found: &History) -> bool {
        let honest = |word: &str| TableRows {
            table: "settings".into(),
            columns: vec!["name".into()],
            rows: vec![vec![Value::Text(word.to_owned())]],
        };
        let rows = match found.backup {
            Some(backup) if backup == self.of.backup => honest("honest"),
            Some(backup) if backup == self.of.old => honest("old"),
            _ => return false,
        };
        let cut = found.backup.map_or(0, |backup| backup.cut);
        found.lineage == Some(self.of.second)
            && found.rows == [rows]
            && found.entries == Vec::from_iter((cut + 1..=END).map(|seq| entry(seq, "honest")))
    }

    /// Puts it in place; what comes of it. Then all is as it was.
    async fn try_out(&self, forgery: &Forgery, lacks: Lacks) -> Outcome {
        for (name, bytes) in &forgery.puts {
            self.store.plant(name, bytes).await;
        }
        for name in &forgery.removed {
            self.store.backend.delete(name).await.expect("removed");
        }
        let untrue = |found: Result<History, EngineError>| found.is_ok_and(|found| !self.is_true(&found));
        let real = untrue(self.store.recovered(lacks).await);
        let accepted = untrue(self.store.recovered(Lacks::Nothing).await);
        let mut serves = true;
        // Whoever has the catalog is not kept from serving it by what anybody can put there.
        let vault = self.store.vault(Lacks::Nothing);
        if let Some(key) = &self.store.key {
            vault.trust.name_store_key(key.id());
            let newest = vault.newest_lineage(Some(self.of.second)).await;
            let backup = vault.newest_whole_backup(self.of.second).await.expect("found");
            let removed = forgery.removed.contains(&lineage_name(self.of.second).expect("a name"));
            serves = (removed || newest.is_ok_and(|newest| newest == Some(self.of.second)))
                && backup.is_none_or(|backup| backup <= self.of.backup);
        }
        for touched in forgery.puts.iter().map(|(name, _)| name).chain(&forgery.removed) {
            match self.honest.get(touched.as_str()) {
                Some(bytes) => self.store.plant(touched, bytes).await,
                None => self.store.backend.delete(touched).await.expect("removed"),
            }
        }
        Outcome { real, accepted, serves }
    }
}

/// What a store of somebody else's holds, under names that do not clash.
async fn documents_of(kek: u8, key: Option<u8>, generation: usize, word: &str) -> BTreeMap<String, bytes::Bytes> {
    let store = Store::empty(kek, key).await;
    store.write_history(&Honest::new(generation, 0xb0), word).await;
    store.everything().await
}

fn all_of(documents: BTreeMap<String, bytes::Bytes>) -> Forgery {
    let puts = documents.into_iter().map(|(text, bytes)| (name(&text), bytes)).collect();
    Forgery { puts, removed: Vec::new() }
}

/// Without a seal: in the place of a document, behind the last one, a newer backup, a newer
/// lineage.
async fn unsealed(victim: &Victim, dice: &mut Dice) -> Forgery {
    let (forger, of) = (Store::empty(2, None).await, victim.of);
    let word = format!("forged {}", dice.below(1 << 20));
    match dice.below(6) {
        0 => forger.write_journal(of.second, END + 1, END + 1 + dice.below(9) as Seq, &word).await,
        1 => forger.write_journal(of.second, 31, 31 + dice.below(30) as Seq, &word).await,
        2 => {
            let cut = END + dice.below(1 << 20) as Seq;
            forger.write_backup(BackupName { lineage: of.second, cut, id: 9 }, &word).await;
        }
        3 => forger.write_backup(of.backup, &word).await,
        4 => forger.write_lineage(lineage(3, dice.below(1 << 30)), Some(of.second), dice.below(40) as Seq).await,
        _ => return all_of(documents_of(2, None, 3 + dice.below(1 << 29), &word).await),
    }
    all_of(forger.everything().await)
}

/// An older document of ours, or another of ours, in the place of one.
fn replayed(victim: &Victim, dice: &mut Dice) -> Forgery {
    let names = victim.of.names(None);
    let at = dice.of(&names).clone();
    let others: Vec<&String> = victim.honest.keys().filter(|name| **name != at.as_str()).collect();
    let from = name(dice.of::<&String>(&others));
    Forgery { puts: vec![(at, victim.bytes(&from))], removed: Vec::new() }
}

fn swapped(victim: &Victim, dice: &mut Dice) -> Forgery {
    let names = victim.of.names(None);
    let (at, other) = (dice.of(&names).clone(), dice.of(&names).clone());
    let other = if at == other { journal_name(victim.of.second, 11).expect("a name") } else { other };
    Forgery { puts: vec![(at.clone(), victim.bytes(&other)), (other, victim.bytes(&at))], removed: Vec::new() }
}

/// Another store's document of the same name, sealed with the same KEK or another.
async fn of_another(victim: &Victim, dice: &mut Dice) -> Forgery {
    let other = Store::empty(1 + dice.below(2) as u8, Some(0x44)).await;
    other.write_history(&victim.of, "another store's").await;
    let at = dice.of(&victim.of.names(None)).clone();
    let bytes = other.everything().await[at.as_str()].clone();
    Forgery { puts: vec![(at, bytes)], removed: Vec::new() }
}

/// The newest documents are removed: what is left is whole, and older.
fn rolled_back(victim: &Victim, dice: &mut Dice) -> Forgery {
    let of = victim.of;
    let behind = |first: Seq| [11, 21, 31].into_iter().filter(move |at| *at >= first);
    let mut texts: Vec<BlobName> = Vec::new();
    match dice.below(3) {
        0 => texts.push(lineage_name(of.second).expect("a name")),
        1 => texts.extend(behind(*dice.of(&[21, 31])).map(|first| journal_name(of.second, first).expect("a name"))),
        _ => {
            texts.extend([of.backup.index().expect("a name")]);
            let first = *dice.of(&[11, 21, 31]);
            texts.extend(behind(first).map(|first| journal_name(of.second, first).expect("a name")));
        }
    }
    Forgery { puts: Vec::new(), removed: texts }
}

/// A lineage whose generation no store comes to, in a store without keys.
async fn saturated(dice: &mut Dice) -> Forgery {
    UNBOUNDED.set(true);
    let documents = documents_of(2, None, u32::MAX as usize - 1 - dice.below(1 << 30), "forged").await;
    UNBOUNDED.set(false);
    all_of(documents)
}

#[tokio::test]
async fn a_recovery_reads_what_was_written_or_nothing_whatever_was_put_into_the_store() {
    let tries = ProptestConfig::default().cases.div_ceil(CASES_PER_TRY);
    let (sealed, plain) = (Victim::make(Some(0x33)).await, Victim::make(None).await);
    let mut dice = Dice(141);
    let classes = [
        ("unsealed", Lacks::Seals),
        ("replay", Lacks::Damage),
        ("truncation", Lacks::Damage),
        ("swap", Lacks::Damage),
        ("bit flip", Lacks::Damage),
        ("another store's", Lacks::Damage),
        ("another store's history", Lacks::Stores),
        ("older state", Lacks::Anchor),
        ("saturated generation", Lacks::Bound),
    ];
    let (mut ops, mut failed) = (0, Vec::new());
    for (class, lacks) in classes {
        for number in 0..tries {
            let (victim, forgery) = match class {
                "unsealed" => (&sealed, unsealed(&sealed, &mut dice).await),
                "replay" => (&sealed, replayed(&sealed, &mut dice)),
                "truncation" => {
                    (&sealed, sealed.changed(&mut dice, |dice, bytes| bytes.truncate(dice.below(bytes.len()))))
                }
                "swap" => (&sealed, swapped(&sealed, &mut dice)),
                "bit flip" => {
                    let flip = |dice: &mut Dice, bytes: &mut Vec<u8>| {
                        let at = dice.below(bytes.len());
                        bytes[at] ^= 1 << dice.below(8);
                    };
                    (&sealed, sealed.changed(&mut dice, flip))
                }
                "another store's" => (&sealed, of_another(&sealed, &mut dice).await),
                "another store's history" => {
                    let generation = 2 + dice.below(1 << 29);
                    (&sealed, all_of(documents_of(1, Some(0x44), generation, "another store's").await))
                }
                "older state" => (&sealed, rolled_back(&sealed, &mut dice)),
                _ => (&plain, saturated(&mut dice).await),
            };
            let forgery = if lacks == Lacks::Damage { victim.without_older(forgery) } else { forgery };
            let outcome = victim.try_out(&forgery, lacks).await;
            ops += 1;
            if outcome != (Outcome { real: true, accepted: false, serves: true }) {
                let names = forgery.puts.iter().map(|put| &put.0).chain(&forgery.removed).map(BlobName::as_str);
                failed.push((class, number, outcome, names.take(3).map(str::to_owned).collect::<Vec<_>>()));
            }
        }
    }
    let of = |what: fn(&Outcome) -> bool| failed.iter().filter(|(_, _, outcome, _)| what(outcome)).count();
    let (real, accepted, stopped) =
        (ops - of(|outcome| !outcome.real), of(|outcome| outcome.accepted), of(|outcome| !outcome.serves));
    assert_eq!(sealed.store.everything().await, sealed.honest);
    println!(
        "{}",
        json!({ "campaign": "forging", "classes": classes.len(), "ops": ops, "real": real, "wrong": accepted, "unexpected": stopped, "mutant_detected": real == ops })
    );
    assert_eq!(failed.len(), 0, "{:#?}", failed.iter().take(30).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_does_not_open_or_is_another_stores_keeps_no_catalog_from_serving_and_stops_a_recovery() {
    let victim = Victim::make(Some(0x33)).await;
    let own = victim.of.second;
    let newer = lineage(0x3fff_ffff, 1);
    let later = BackupName { lineage: own, cut: 1 << 40, id: 7 };
    let copy = |of: &BlobName| victim.bytes(of);
    let documents = [
        (lineage_name(newer).expect("a name"), copy(&lineage_name(own).expect("a name")), "delete it"),
        (lineage_name(newer).expect("a name"), bytes::Bytes::from_static(b"noise"), "delete it"),
        (later.index().expect("a name"), copy(&victim.of.backup.index().expect("a name")), "is damaged"),
    ];
    let strangers = all_of(documents_of(1, Some(0x44), 7, "another store's").await);
    let planted = documents.map(|(name, bytes, why)| (vec![(name, bytes)], why));
    for (puts, why) in planted.into_iter().chain([(strangers.puts, "documents of two stores")]) {
        for (name, bytes) in &puts {
            victim.store.plant(name, bytes).await;
        }
        let vault = victim.store.vault(Lacks::Nothing);
        vault.trust.name_store_key(KeyId([0x33; 16]));
        assert_eq!(vault.newest_lineage(Some(own)).await.expect("found"), Some(own));
        assert_eq!(vault.newest_whole_backup(own).await.expect("found"), Some(victim.of.backup));
        let refused = victim.store.recovered(Lacks::Nothing).await.expect_err("it is not chosen").to_string();
        assert!(refused.contains(why), "{refused}");
        for (name, _) in &puts {
            victim.store.backend.delete(name).await.expect("removed");
        }
    }
    // One that another process began from ours is no stranger, whatever seals it.
    let heir = Store { key: Some(Arc::new(DomainKey::new(KeyId([0x44; 16]), 1, [0x11; 32]))), ..victim.store };
    heir.write_keyset().await;
    heir.write_lineage(lineage(3, 5), Some(own), END).await;
    let vault = heir.vault(Lacks::Nothing);
    vault.trust.name_store_key(KeyId([0x33; 16]));
    assert_eq!(vault.newest_lineage(Some(own)).await.expect("found"), Some(lineage(3, 5)));
    assert_eq!(vault.newest_lineage(None).await.expect("found"), Some(lineage(3, 5)));
}

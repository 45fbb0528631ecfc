//! Histories: buckets that keep versions, delete markers, null versions, and their listing.

use super::{
    Factory,
    desk::{Desk, NOW, unique},
};
use crate::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A desk whose bucket keeps versions.
async fn keeping<F: Factory>(factory: &F) -> Desk<F::Catalog> {
    let desk = Desk::new(factory.fresh().await).await;
    set(&desk, Versioning::Enabled).await;
    desk
}

async fn set<C: Catalog>(desk: &Desk<C>, versioning: Versioning) {
    desk.catalog.set_versioning(desk.bucket.id, versioning).await.unwrap();
}

/// Puts `key`; its name and its blob.
async fn put<C: Catalog>(desk: &Desk<C>, key: &str) -> (VersionRef, BlobKey) {
    let blob = desk.put(key).await;
    (desk.content(key).await.version.reference(), blob)
}

/// Marks `key` as deleted; the marker.
async fn mark<C: Catalog>(desk: &Desk<C>, key: &str) -> Version {
    desk.catalog.delete(desk.deletion(key)).await.unwrap().marker.expect("a marker")
}

async fn remove<C: Catalog>(desk: &Desk<C>, key: &str, version: VersionRef) -> Option<Version> {
    desk.catalog.delete_version(desk.removal(key, version)).await.unwrap()
}

async fn current<C: Catalog>(desk: &Desk<C>, key: &str) -> Option<VersionRef> {
    desk.catalog.current(desk.bucket.id, key).await.unwrap().map(|version| version.reference())
}

async fn named<C: Catalog>(desk: &Desk<C>, key: &str, version: VersionRef) -> Option<Content> {
    desk.catalog.named_version(desk.bucket.id, key, version).await.unwrap()
}

fn all(bucket: &Bucket) -> VersionsQuery {
    let (prefix, delimiter) = (String::new(), None);
    VersionsQuery { bucket: bucket.id, prefix, delimiter, key_after: None, version_after: None, limit: 1000 }
}

/// An entry as a client sees it.
type Seen = (String, Option<(VersionRef, bool, bool)>);

fn seen(entry: VersionEntry) -> Seen {
    match entry {
        VersionEntry::CommonPrefix(prefix) => (prefix, None),
        VersionEntry::Version { version, latest } => {
            let what = (version.reference(), version.marker, latest);
            (version.key, Some(what))
        }
    }
}

/// All pages of `query`.
async fn walk<C: Catalog>(desk: &Desk<C>, query: &VersionsQuery) -> Vec<Seen> {
    let mut query = query.clone();
    let mut entries = Vec::new();
    loop {
        let page = desk.catalog.list_versions(&query).await.unwrap();
        assert!(page.next.is_none() || page.entries.len() == query.limit, "{query:?}");
        entries.extend(page.entries.into_iter().map(seen));
        match page.next {
            None => return entries,
            Some((key, version)) => (query.key_after, query.version_after) = (Some(key), version),
        }
    }
}

/// And says so by its row; what was said already is no mutation.
pub async fn a_bucket_keeps_versions_or_suspends_it_and_never_goes_back<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, id) = (&desk.catalog, desk.bucket.id);
    assert_eq!(desk.bucket.versioning, Versioning::Off);
    for versioning in [Versioning::Suspended, Versioning::Enabled, Versioning::Suspended] {
        set(&desk, versioning).await;
        assert_eq!(catalog.bucket("desk").await.unwrap().unwrap().versioning, versioning);
        assert_eq!(catalog.buckets().await.unwrap()[0].versioning, versioning);
    }
    let seq = catalog.last_seq().await.unwrap();
    set(&desk, Versioning::Suspended).await;
    assert_eq!(catalog.last_seq().await.unwrap(), seq);
    assert!(matches!(catalog.set_versioning(id, Versioning::Off).await, Err(CatalogError::Invalid(_))));
    let elsewhere = BucketId(id.0 + 1);
    assert!(matches!(catalog.set_versioning(elsewhere, Versioning::Enabled).await, Err(CatalogError::NoBucket)));
    desk.assert_sound().await;
}

/// Each under its name, with its content; the last one is current.
pub async fn a_put_keeps_the_version_it_follows<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let mut versions = Vec::new();
    for _ in 0..3 {
        versions.push(put(&desk, "k").await);
    }
    for (version, blob) in &versions {
        let content = named(&desk, "k", *version).await.unwrap();
        assert_eq!((content.version.reference(), content.blobs[0].id), (*version, *blob));
        assert!(content.version.named && !content.version.marker);
        assert_eq!(named(&desk, "other", *version).await, None);
    }
    assert_eq!(current(&desk, "k").await, Some(versions[2].0));
    assert_eq!(named(&desk, "k", VersionRef::Null).await, None);
    assert_eq!(desk.dying().await, []);
    let list = ListQuery { bucket: desk.bucket.id, prefix: String::new(), delimiter: None, after: None, limit: 9 };
    assert_eq!(desk.catalog.list(&list).await.unwrap().entries.len(), 1);
    desk.assert_sound().await;
}

/// Also a key that was never there, and one that is marked already.
pub async fn a_deletion_adds_a_marker_and_frees_nothing<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let (version, _) = put(&desk, "k").await;
    for key in ["k", "k", "never"] {
        let deleted = desk.catalog.delete(desk.deletion(key)).await.unwrap();
        assert_eq!(deleted.removed, None);
        let marker = deleted.marker.unwrap();
        assert!(marker.marker && marker.named && marker.size == 0);
        assert_eq!(current(&desk, key).await, None);
        assert_eq!(desk.catalog.newest_marker(desk.bucket.id, key).await.unwrap(), Some(marker.clone()));
        let content = named(&desk, key, marker.reference()).await.unwrap();
        assert_eq!((content.version, content.extents, content.blobs), (marker, vec![], vec![]));
    }
    assert!(named(&desk, "k", version).await.is_some());
    assert_eq!(desk.dying().await, []);
    let list = ListQuery { bucket: desk.bucket.id, prefix: String::new(), delimiter: None, after: None, limit: 9 };
    assert_eq!(desk.catalog.list(&list).await.unwrap(), ListPage::default());
    assert_eq!(desk.catalog.newest_marker(desk.bucket.id, "other").await.unwrap(), None);
    put(&desk, "k").await;
    assert_eq!(desk.catalog.newest_marker(desk.bucket.id, "k").await.unwrap(), None);
    desk.assert_sound().await;
}

/// Which frees its blobs, unless another version has them.
pub async fn when_the_newest_version_is_removed_the_next_one_is_the_newest<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let (first, first_blob) = put(&desk, "k").await;
    let (second, second_blob) = put(&desk, "k").await;
    let marker = mark(&desk, "k").await;
    let (third, third_blob) = put(&desk, "k").await;
    assert_eq!(remove(&desk, "k", third).await.map(|version| version.reference()), Some(third));
    assert_eq!(current(&desk, "k").await, None, "the marker is the newest again");
    assert_eq!(desk.catalog.newest_marker(desk.bucket.id, "k").await.unwrap(), Some(marker.clone()));
    assert_eq!(remove(&desk, "k", marker.reference()).await, Some(marker.clone()));
    assert_eq!(current(&desk, "k").await, Some(second), "and the object is back");
    remove(&desk, "k", first).await.unwrap();
    assert_eq!(current(&desk, "k").await, Some(second));
    assert_eq!(desk.dying().await.len(), 2);
    assert_eq!(desk.state(second_blob).await, Some(BlobState::Live));
    for blob in [first_blob, third_blob] {
        assert_eq!(desk.state(blob).await, Some(BlobState::Dying));
    }
    let seq = desk.catalog.last_seq().await.unwrap();
    for gone in [first, third, marker.reference(), VersionRef::Null, VersionRef::Id(VersionId([9; 16]))] {
        assert_eq!(remove(&desk, "k", gone).await, None);
    }
    assert_eq!(desk.catalog.last_seq().await.unwrap(), seq, "nothing was left to be done");
    remove(&desk, "k", second).await.unwrap();
    assert_eq!((current(&desk, "k").await, walk(&desk, &all(&desk.bucket)).await), (None, vec![]));
    desk.assert_sound().await;
}

/// It becomes nobody's current version, and its blob stays.
pub async fn what_was_there_before_versions_were_kept_is_the_null_version<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (before, blob) = put(&desk, "k").await;
    assert_eq!(before, VersionRef::Null);
    assert!(named(&desk, "k", VersionRef::Null).await.is_some(), "even where none are kept");
    let id = desk.content("k").await.version.id;
    assert_eq!(named(&desk, "k", VersionRef::Id(id)).await, None, "it has no other name");
    set(&desk, Versioning::Enabled).await;
    put(&desk, "k").await;
    let null = named(&desk, "k", VersionRef::Null).await.unwrap();
    assert_eq!((null.version.id, null.blobs[0].id), (id, blob));
    assert_eq!(desk.catalog.version(desk.bucket.id, "k", id).await.unwrap(), Some(null));
    desk.assert_sound().await;
    assert!(remove(&desk, "k", VersionRef::Null).await.is_some());
    assert_eq!(desk.dying().await, [blob]);
    desk.assert_sound().await;
}

/// Wherever it stands, with an object or with a marker.
pub async fn while_suspended_the_null_version_alone_is_replaced<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (_, null_before) = put(&desk, "k").await;
    set(&desk, Versioning::Enabled).await;
    let (kept, kept_blob) = put(&desk, "k").await;
    set(&desk, Versioning::Suspended).await;
    let (null, blob) = put(&desk, "k").await;
    assert_eq!((null, current(&desk, "k").await), (VersionRef::Null, Some(VersionRef::Null)));
    assert_eq!(desk.state(null_before).await, Some(BlobState::Dying));
    assert_eq!(named(&desk, "k", kept).await.unwrap().blobs[0].id, kept_blob);
    let (_, next) = put(&desk, "k").await;
    assert_eq!(desk.state(blob).await, Some(BlobState::Dying));
    let deleted = desk.catalog.delete(desk.deletion("k")).await.unwrap();
    let marker = deleted.marker.unwrap();
    assert_eq!((marker.reference(), marker.marker), (VersionRef::Null, true));
    assert!(deleted.removed.is_some());
    assert_eq!(desk.state(next).await, Some(BlobState::Dying));
    let again = mark(&desk, "k").await;
    let expected = [("k".into(), Some((VersionRef::Null, true, true))), ("k".into(), Some((kept, false, false)))];
    assert_eq!(walk(&desk, &all(&desk.bucket)).await, expected, "one null marker took the place of the other");
    assert_eq!(desk.catalog.version(desk.bucket.id, "k", marker.id).await.unwrap(), None);
    assert_eq!(remove(&desk, "k", VersionRef::Null).await, Some(again));
    assert_eq!(current(&desk, "k").await, Some(kept));
    set(&desk, Versioning::Enabled).await;
    put(&desk, "k").await;
    assert!(named(&desk, "k", kept).await.is_some());
    desk.assert_sound().await;
}

/// Whether it is current or not.
pub async fn a_bucket_with_a_version_or_a_marker_is_not_deleted<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let (version, _) = put(&desk, "k").await;
    let marker = mark(&desk, "k").await;
    let refused = async || matches!(desk.catalog.delete_bucket(desk.bucket.id).await, Err(CatalogError::NotEmpty));
    assert!(refused().await);
    remove(&desk, "k", version).await.unwrap();
    assert!(refused().await, "a marker is left");
    remove(&desk, "k", marker.reference()).await.unwrap();
    assert!(desk.catalog.delete_bucket(desk.bucket.id).await.unwrap());
    desk.assert_sound().await;
}

/// Be it an object or a marker (I12).
pub async fn a_version_is_not_older_than_the_one_it_follows<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let late = DeleteCommit { now_ms: NOW + 50, ..desk.deletion("k") };
    assert_eq!(desk.catalog.delete(late).await.unwrap().marker.unwrap().modified_ms, NOW + 50);
    let early = desk.catalog.put(desk.commit("k", vec![])).await.unwrap();
    assert_eq!((early.modified_ms, early.named), (NOW + 50, true));
    assert_eq!(mark(&desk, "k").await.modified_ms, NOW + 50);
}

/// A marked key is absent, and no condition reads what lies behind.
pub async fn conditions_are_held_against_the_current_version<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let catalog = &desk.catalog;
    put(&desk, "k").await;
    let id = desk.content("k").await.version.id;
    let on = |precondition| PutCommit { precondition, ..desk.commit("k", vec![desk.whole(10)]) };
    assert!(matches!(catalog.put(on(Precondition::Absent)).await, Err(CatalogError::PreconditionFailed)));
    mark(&desk, "k").await;
    assert!(matches!(catalog.put(on(Precondition::Current(id))).await, Err(CatalogError::PreconditionFailed)));
    catalog.put(on(Precondition::Absent)).await.unwrap();
    let delete = DeleteCommit { precondition: Precondition::Current(id), ..desk.deletion("k") };
    assert!(matches!(catalog.delete(delete).await, Err(CatalogError::PreconditionFailed)));
    let first = VersionRef::Id(id);
    let removal = |precondition| DeleteVersionCommit { precondition, ..desk.removal("k", first) };
    let outcome = catalog.delete_version(removal(Precondition::Current(id))).await;
    assert!(matches!(outcome, Err(CatalogError::PreconditionFailed)));
    let now = desk.content("k").await.version.id;
    assert!(catalog.delete_version(removal(Precondition::Current(now))).await.unwrap().is_some());
    desk.assert_sound().await;
}

/// A marker says so as well as a hidden key, and what a removal leaves empty is hidden where the
/// commit says so.
pub async fn what_was_deleted_is_not_adopted<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let catalog = &desk.catalog;
    let adopt = || PutCommit { precondition: Precondition::Adoptable, ..desk.commit("k", vec![desk.foreign("k", 10)]) };
    catalog.put(adopt()).await.unwrap();
    let marker = mark(&desk, "k").await;
    assert!(matches!(catalog.put(adopt()).await, Err(CatalogError::PreconditionFailed)));
    remove(&desk, "k", marker.reference()).await.unwrap();
    let version = current(&desk, "k").await.unwrap();
    mark(&desk, "k").await;
    let hiding = |version| DeleteVersionCommit { hide: true, ..desk.removal("k", version) };
    catalog.delete_version(hiding(version)).await.unwrap();
    assert!(!catalog.hidden(desk.bucket.id, "k").await.unwrap(), "a marker is left");
    let marker = catalog.newest_marker(desk.bucket.id, "k").await.unwrap().unwrap();
    catalog.delete_version(hiding(marker.reference())).await.unwrap();
    assert!(catalog.hidden(desk.bucket.id, "k").await.unwrap());
    assert!(matches!(catalog.put(adopt()).await, Err(CatalogError::PreconditionFailed)));
    desk.assert_sound().await;
}

/// And one of them is current.
pub async fn of_64_writers_of_one_key_each_has_its_version<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..64 {
        let desk = desk.clone();
        writers.spawn(async move {
            if number % 8 == 7 {
                return mark(&desk, "k").await.id;
            }
            let commit = desk.commit("k", vec![desk.whole(10)]);
            let id = commit.id;
            assert!(desk.catalog.put(commit).await.unwrap().named);
            id
        });
    }
    let mut written: Vec<_> = writers.join_all().await.into_iter().map(VersionRef::Id).collect();
    let listed = walk(&desk, &all(&desk.bucket)).await;
    let mut found: Vec<_> = listed.iter().filter_map(|(_, version)| version.map(|version| version.0)).collect();
    let latest: Vec<_> = listed.iter().filter_map(|(_, version)| version.filter(|version| version.2)).collect();
    assert_eq!((listed.len(), latest.len()), (64, 1));
    assert_eq!(latest[0].0, found[0]);
    assert_eq!(current(&desk, "k").await, Some(latest[0].0).filter(|_| !latest[0].1));
    let order = |version: &VersionRef| match version {
        VersionRef::Id(id) => id.0,
        VersionRef::Null => [0; 16],
    };
    written.sort_by_key(order);
    found.sort_by_key(order);
    assert_eq!(written, found);
    desk.assert_sound().await;
}

/// Whose parts' blobs it has, while the one before keeps its own.
pub async fn a_completed_upload_is_one_more_version<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let (first, _) = put(&desk, "k").await;
    let upload = desk.start_upload("k", NOW).await;
    let part = desk.put_part(upload.id, 1, 100).await;
    let completion = desk.completion(&upload, &[&part]);
    assert!(desk.catalog.complete(completion.clone()).await.unwrap().named);
    assert_eq!(current(&desk, "k").await, Some(VersionRef::Id(completion.id)));
    assert_eq!(named(&desk, "k", first).await.unwrap().version.size, 1000);
    desk.assert_sound().await;
}

/// It does not become current by that.
pub async fn a_version_that_is_not_current_is_rewritten_like_any<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let (first, old) = put(&desk, "k").await;
    let (second, base) = put(&desk, "k").await;
    let content = named(&desk, "k", first).await.unwrap();
    desk.catalog.rewrite(desk.rewrite(&content, vec![desk.delta(1000, &[base])])).await.unwrap();
    assert_eq!(desk.dying().await, [old]);
    assert_eq!(current(&desk, "k").await, Some(second));
    let rewritten = named(&desk, "k", first).await.unwrap();
    assert_eq!((rewritten.version.seq, rewritten.blobs[0].form), (content.version.seq, BlobForm::Delta));
    remove(&desk, "k", second).await.unwrap();
    assert_eq!(desk.state(base).await, Some(BlobState::Live), "the older version needs it");
    assert_eq!(current(&desk, "k").await, Some(first));
    desk.assert_sound().await;
}

/// A history of small versions is packed like any small objects; markers are none.
pub async fn small_versions_are_found_whether_they_are_current_or_not<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    let versions = [put(&desk, "k").await.0, put(&desk, "k").await.0];
    mark(&desk, "k").await;
    let found = desk.catalog.small_contents(0, 1000, 100).await.unwrap();
    assert_eq!(found.iter().map(|content| content.version.reference()).collect::<Vec<_>>(), versions);
}

/// Sizes, markers, and the bytes that nothing current needs.
pub async fn stats_tell_history_apart<F: Factory>(factory: &F) {
    let desk = keeping(factory).await;
    put(&desk, "k").await;
    let shared = desk.content("k").await.extents;
    put(&desk, "k").await;
    put(&desk, "k").await;
    desk.catalog.put(desk.commit_extents("copy", vec![], shared)).await.unwrap();
    mark(&desk, "marked").await;
    let stats = desk.catalog.stats().await.unwrap().remove(0);
    assert_eq!((stats.objects, stats.logical_bytes), (2, 2000));
    assert_eq!((stats.noncurrent_versions, stats.noncurrent_bytes, stats.delete_markers), (2, 2000, 1));
    assert_eq!(stats.noncurrent_stored, 660, "one of the two is what a copy needs");
}

/// By key in byte order, markers among versions.
pub async fn versions_are_listed_by_key_and_newest_first<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    put(&desk, "a").await;
    put(&desk, "b/1").await;
    set(&desk, Versioning::Enabled).await;
    let (a, _) = put(&desk, "a").await;
    let marker = mark(&desk, "a").await.reference();
    let (deep, _) = put(&desk, "b/2").await;
    let (c, _) = put(&desk, "c").await;
    let row = |key: &str, version, marker, latest| (key.to_owned(), Some((version, marker, latest)));
    let expected = [
        row("a", marker, true, true),
        row("a", a, false, false),
        row("a", VersionRef::Null, false, false),
        row("b/1", VersionRef::Null, false, true),
        row("b/2", deep, false, true),
        row("c", c, false, true),
    ];
    for limit in [1, 2, 3, 5, 6, 1000] {
        assert_eq!(walk(&desk, &VersionsQuery { limit, ..all(&desk.bucket) }).await, expected, "{limit}");
        let rolled = VersionsQuery { limit, delimiter: Some("/".into()), ..all(&desk.bucket) };
        let mut folded = expected.to_vec();
        folded.splice(3..5, [("b/".to_owned(), None)]);
        assert_eq!(walk(&desk, &rolled).await, folded, "{limit}");
    }
    let from =
        |key: &str, version| VersionsQuery { key_after: Some(key.into()), version_after: version, ..all(&desk.bucket) };
    assert_eq!(walk(&desk, &from("a", None)).await, expected[3..]);
    assert_eq!(walk(&desk, &from("a", Some(a))).await, expected[2..]);
    assert_eq!(walk(&desk, &from("a", Some(VersionRef::Null))).await, expected[3..]);
    let other = VersionsQuery { prefix: "b".into(), ..from("a", Some(marker)) };
    assert_eq!(walk(&desk, &other).await, expected[3..5], "a marker outside the prefix");
    let gone = VersionRef::Id(VersionId([9; 16]));
    assert_eq!(walk(&desk, &from("a", Some(gone))).await, expected, "a version that was removed");
    for wrong in [0, 1001] {
        let page = desk.catalog.list_versions(&VersionsQuery { limit: wrong, ..all(&desk.bucket) }).await;
        assert!(matches!(page, Err(CatalogError::Invalid(_))));
    }
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Put {
        key: String,
        absent: bool,
    },
    Delete {
        key: String,
    },
    /// Numbers choose among what there ever was.
    Remove {
        number: usize,
    },
    Set {
        enabled: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let key = || "[ab/]{1,3}";
    prop_oneof![
        6 => (key(), any::<bool>()).prop_map(|(key, absent)| Step::Put { key, absent }),
        3 => key().prop_map(|key| Step::Delete { key }),
        3 => any::<u16>().prop_map(|number| Step::Remove { number: number.into() }),
        1 => any::<bool>().prop_map(|enabled| Step::Set { enabled }),
    ]
}

/// The versions of each key, oldest first: name and whether it is a marker.
type Histories = BTreeMap<String, Vec<(VersionRef, bool)>>;

#[derive(Default)]
struct Model {
    versioning: Versioning,
    keys: Histories,
    ever: Vec<(String, VersionRef)>,
}

impl Model {
    fn current(&self, key: &str) -> Option<VersionRef> {
        self.keys.get(key)?.last().filter(|newest| !newest.1).map(|newest| newest.0)
    }

    fn write(&mut self, key: &str, id: VersionId, marker: bool) {
        let versions = self.keys.entry(key.to_owned()).or_default();
        let name = if self.versioning == Versioning::Enabled { VersionRef::Id(id) } else { VersionRef::Null };
        versions.retain(|version| version.0 != name);
        if !marker || self.versioning != Versioning::Off {
            versions.push((name, marker));
            self.ever.push((key.to_owned(), name));
        }
        self.keys.retain(|_, versions| !versions.is_empty());
    }

    /// What the contract says a listing is: every version, one after the other.
    fn listed(&self, query: &VersionsQuery) -> Vec<Seen> {
        let mut entries: Vec<Seen> = Vec::new();
        for (key, versions) in self.keys.iter().filter(|(key, _)| key.starts_with(&query.prefix)) {
            let at = query
                .delimiter
                .as_deref()
                .and_then(|delimiter| Some(key[query.prefix.len()..].find(delimiter)? + delimiter.len()));
            if let Some(at) = at {
                let entry = (key[..query.prefix.len() + at].to_owned(), None);
                if entries.last() != Some(&entry) {
                    entries.push(entry);
                }
                continue;
            }
            let newest_first = versions.iter().rev().enumerate();
            entries.extend(newest_first.map(|(age, (name, marker))| (key.clone(), Some((*name, *marker, age == 0)))));
        }
        entries
    }
}

async fn take<C: Catalog>(desk: &Desk<C>, model: &mut Model, step: &Step) {
    match step {
        Step::Put { key, absent } => {
            let precondition = if *absent { Precondition::Absent } else { Precondition::None };
            let commit = PutCommit { precondition, ..desk.commit(key, vec![desk.whole(10)]) };
            let id = commit.id;
            match desk.catalog.put(commit).await {
                Ok(committed) => {
                    assert!(!*absent || model.current(key).is_none());
                    assert_eq!(committed.named, model.versioning == Versioning::Enabled);
                    model.write(key, id, false);
                }
                Err(CatalogError::PreconditionFailed) => assert!(*absent && model.current(key).is_some()),
                Err(other) => panic!("{other}"),
            }
        }
        Step::Delete { key } => {
            let commit = desk.deletion(key);
            let id = commit.marker.unwrap();
            let deleted = desk.catalog.delete(commit).await.unwrap();
            assert_eq!(deleted.marker.is_some(), !model.versioning.is_off());
            model.write(key, id, true);
        }
        Step::Remove { number } => {
            let Some((key, name)) = model.ever.get(*number % model.ever.len().max(1)).cloned() else { return };
            let there = model.keys.get(&key).is_some_and(|versions| versions.iter().any(|version| version.0 == name));
            assert_eq!(remove(desk, &key, name).await.is_some(), there);
            model.keys.entry(key).or_default().retain(|version| version.0 != name);
            model.keys.retain(|_, versions| !versions.is_empty());
        }
        Step::Set { enabled } => {
            model.versioning = if *enabled { Versioning::Enabled } else { Versioning::Suspended };
            set(desk, model.versioning).await;
        }
    }
}

/// Puts, deletions, removals and changes of mind, and every listing of what they leave.
pub async fn random_histories_of_versions_agree_with_the_model<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let query = ("[ab/]{0,2}", proptest::option::of("(/|a|//)"), 1usize..5);
        let case = (proptest::collection::vec(step(), 1..60), proptest::collection::vec(query, 6));
        let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let outcome = runner.run(&case, |(steps, queries)| {
            runtime.block_on(async {
                let desk = desk.with_bucket(&format!("{:?}", unique(0))).await;
                let mut model = Model::default();
                for step in &steps {
                    take(&desk, &mut model, step).await;
                }
                desk.assert_sound().await;
                for (key, versions) in &model.keys {
                    assert_eq!(current(&desk, key).await, model.current(key), "{key}");
                    let marker = desk.catalog.newest_marker(desk.bucket.id, key).await.unwrap();
                    let newest = versions.last().filter(|newest| newest.1).map(|newest| newest.0);
                    assert_eq!(marker.map(|marker| marker.reference()), newest, "{key}");
                }
                for (prefix, delimiter, limit) in queries {
                    let query = VersionsQuery { prefix, delimiter, limit, ..all(&desk.bucket) };
                    assert_eq!(walk(&desk, &query).await, model.listed(&query), "{query:?}");
                }
            });
            Ok(())
        });
        outcome.unwrap();
    })
    .await
    .unwrap();
}

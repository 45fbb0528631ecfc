//! Listings, against a model that reads everything and sorts.

use super::{
    Factory,
    desk::{Desk, unique},
};
use crate::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// An entry without what only a catalog knows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Key(String),
    Prefix(String),
}

/// What the contract says a page is, in the plainest way: every key, one after the other.
fn model(keys: &BTreeSet<String>, query: &ListQuery) -> (Vec<Entry>, Option<String>) {
    let common = |key: &str| {
        let delimiter = query.delimiter.as_deref()?;
        let at = key.strip_prefix(query.prefix.as_str())?.find(delimiter)?;
        Some(key[..query.prefix.len() + at + delimiter.len()].to_owned())
    };
    let mut entries: Vec<Entry> = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(&query.prefix)) {
        let entry = common(key).map_or_else(|| Entry::Key(key.clone()), Entry::Prefix);
        let skipped = match (&entry, &query.after) {
            (_, None) => false,
            (Entry::Key(key), Some(after)) => key <= after,
            (Entry::Prefix(prefix), Some(after)) => prefix <= after,
        };
        if !skipped && entries.last() != Some(&entry) {
            entries.push(entry);
        }
    }
    if entries.len() <= query.limit {
        return (entries, None);
    }
    entries.truncate(query.limit);
    let next = match entries.last() {
        Some(Entry::Key(name) | Entry::Prefix(name)) => Some(name.clone()),
        None => None,
    };
    (entries, next)
}

async fn listed<C: Catalog>(catalog: &C, query: &ListQuery) -> (Vec<Entry>, Option<String>) {
    let page = catalog.list(query).await.unwrap();
    let entry = |entry: ListEntry| match entry {
        ListEntry::Key(version) => Entry::Key(version.key),
        ListEntry::CommonPrefix(prefix) => Entry::Prefix(prefix),
    };
    (page.entries.into_iter().map(entry).collect(), page.next)
}

async fn fill<C: Catalog>(desk: &Desk<C>, keys: impl IntoIterator<Item = impl AsRef<str>>) -> BTreeSet<String> {
    let keys: BTreeSet<String> = keys.into_iter().map(|key| key.as_ref().to_owned()).collect();
    let mut puts = tokio::task::JoinSet::new();
    for key in keys.clone() {
        let desk = desk.clone();
        puts.spawn(async move { desk.catalog.put(desk.commit(&key, vec![])).await.unwrap() });
    }
    puts.join_all().await;
    keys
}

fn all_of(bucket: &Bucket) -> ListQuery {
    ListQuery { bucket: bucket.id, prefix: String::new(), delimiter: None, after: None, limit: 1000 }
}

/// Walks all pages of `query`, compares each with the model, and gives their entries together.
async fn walk<C: Catalog>(desk: &Desk<C>, keys: &BTreeSet<String>, query: &ListQuery) -> Vec<Entry> {
    let mut query = query.clone();
    let mut all = Vec::new();
    loop {
        let (entries, next) = listed(&*desk.catalog, &query).await;
        assert_eq!((&entries, &next), (&model(keys, &query).0, &model(keys, &query).1), "{query:?} over {keys:?}");
        all.extend(entries);
        match next {
            None => return all,
            Some(next) => query.after = Some(next),
        }
    }
}

fn keys_of(names: &[&str]) -> Vec<Entry> {
    names.iter().map(|name| Entry::Key((*name).to_owned())).collect()
}

/// With another bucket's keys left out.
pub async fn keys_are_listed_in_byte_order_and_paged<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let other = desk.with_bucket("other").await;
    fill(&other, ["0", "b", "z"]).await;
    let keys = fill(&desk, ["b", "B", "a", "é", "z", "ab", "a/", "a/b", "\u{10FFFF}", "\u{10FFFF}x", "~"]).await;
    let expected = keys_of(&["B", "a", "a/", "a/b", "ab", "b", "z", "~", "é", "\u{10FFFF}", "\u{10FFFF}x"]);
    for limit in [1, 2, 10, 11, 12, 1000] {
        assert_eq!(walk(&desk, &keys, &ListQuery { limit, ..all_of(&desk.bucket) }).await, expected);
    }
    let query = ListQuery { prefix: "\u{10FFFF}".into(), ..all_of(&desk.bucket) };
    assert_eq!(walk(&desk, &keys, &query).await, expected[9..]);
    let query = ListQuery { after: Some("ab".into()), ..all_of(&desk.bucket) };
    assert_eq!(walk(&desk, &keys, &query).await, expected[5..]);
    let version = desk.content("ab").await.version;
    let page = desk.catalog.list(&ListQuery { prefix: "ab".into(), ..all_of(&desk.bucket) }).await.unwrap();
    assert_eq!(page.entries, [ListEntry::Key(version)], "entries are whole rows");
}

/// Delimiters of one and several characters, in the prefix, at its end, and nowhere.
pub async fn a_delimiter_rolls_keys_up<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let names = ["foo", "foo/", "foo/bar", "foo/bar/baz", "foo//x", "foobar", "a/b/c", "/", "//", "x::y::z", "x:y"];
    let keys = fill(&desk, names).await;
    for prefix in ["", "foo", "foo/", "foo//", "f", "/", "x", "x:", "x::", "nothing"] {
        for delimiter in ["/", "::", "o", "oo", "bar", "\u{10FFFF}"] {
            for limit in [1, 3, 1000] {
                let (prefix, delimiter) = (prefix.to_owned(), Some(delimiter.to_owned()));
                let query = ListQuery { prefix, delimiter, limit, ..all_of(&desk.bucket) };
                walk(&desk, &keys, &query).await;
            }
        }
    }
    let query = ListQuery { prefix: "foo".into(), delimiter: Some("/".into()), ..all_of(&desk.bucket) };
    let expected = [Entry::Key("foo".into()), Entry::Prefix("foo/".into()), Entry::Key("foobar".into())];
    assert_eq!(walk(&desk, &keys, &query).await, expected);
}

/// Whether `after` is the prefix, inside it, or before it.
pub async fn a_listing_goes_on_behind_a_common_prefix<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let mut names: Vec<String> = (0..40).map(|number| format!("d/{number:02}")).collect();
    names.extend(["c", "d", "d\u{10FFFF}", "e/\u{10FFFF}", "e/x", "f"].map(str::to_owned));
    let keys = fill(&desk, names).await;
    let query = ListQuery { delimiter: Some("/".into()), ..all_of(&desk.bucket) };
    let from = |after: &str| ListQuery { after: Some(after.into()), ..query.clone() };
    let behind = [Entry::Key("d\u{10FFFF}".into()), Entry::Prefix("e/".into()), Entry::Key("f".into())];
    for after in ["d/", "d/00", "d/20", "d/39", "d/zzz"] {
        assert_eq!(walk(&desk, &keys, &from(after)).await, behind, "after {after}");
    }
    assert_eq!(walk(&desk, &keys, &from("d")).await[0], Entry::Prefix("d/".into()));
    assert_eq!(walk(&desk, &keys, &from("d.")).await[0], Entry::Prefix("d/".into()));
    assert_eq!(walk(&desk, &keys, &from("e/")).await, [Entry::Key("f".into())]);
    assert_eq!(walk(&desk, &keys, &from("\u{10FFFF}")).await, []);
    for after in ["", "a", "c"] {
        assert_eq!(walk(&desk, &keys, &ListQuery { prefix: "d/1".into(), ..from(after) }).await.len(), 10);
    }
}

/// Random keys over a small alphabet, with random prefixes, delimiters, starts and page sizes.
pub async fn any_listing_is_what_the_model_says<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let text = "[ab/\u{10FFFF}\u{7f}-]{0,5}";
        let query = (text, proptest::option::of("(/|a|ab|//)"), proptest::option::of(text), 1usize..5);
        let case = (
            proptest::collection::btree_set("[ab/\u{10FFFF}\u{7f}-]{1,5}", 0..40),
            proptest::collection::vec(query, 12),
        );
        let config = ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let outcome = runner.run(&case, |(names, queries)| {
            runtime.block_on(async {
                let desk = desk.with_bucket(&format!("{:?}", unique(0))).await;
                let keys = fill(&desk, names).await;
                for (prefix, delimiter, after, limit) in queries {
                    let query = ListQuery { bucket: desk.bucket.id, prefix, delimiter, after, limit };
                    walk(&desk, &keys, &query).await;
                }
            });
            Ok(())
        });
        outcome.unwrap();
    })
    .await
    .unwrap();
}

/// As is one of more than 1,000.
pub async fn a_page_of_no_entries_or_an_empty_delimiter_is_refused<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for wrong in [
        ListQuery { limit: 0, ..all_of(&desk.bucket) },
        ListQuery { limit: 1001, ..all_of(&desk.bucket) },
        ListQuery { delimiter: Some(String::new()), ..all_of(&desk.bucket) },
    ] {
        assert!(matches!(desk.catalog.list(&wrong).await, Err(CatalogError::Invalid(_))));
    }
}

/// Nearest first, without the key itself, whether it is there or not.
pub async fn neighbours_are_the_nearest_keys_of_the_prefix<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    fill(&desk, ["a", "p/1", "p/2", "p/3", "p/5", "p/6", "p/\u{10FFFF}", "q"]).await;
    let near = async |prefix: &str, key: &str, limit| {
        desk.catalog.neighbours(desk.bucket.id, prefix, key, limit).await.unwrap()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(near("p/", "p/3", 2).await, (names(&["p/2", "p/1"]), names(&["p/5", "p/6"])));
    assert_eq!(near("p/", "p/4", 9).await, (names(&["p/3", "p/2", "p/1"]), names(&["p/5", "p/6", "p/\u{10FFFF}"])));
    assert_eq!(near("p/", "p/1", 1).await, (names(&[]), names(&["p/2"])));
    assert_eq!(near("", "p/1", 1).await, (names(&["a"]), names(&["p/2"])));
    assert_eq!(near("p/", "zzz", 1).await, (names(&["p/\u{10FFFF}"]), names(&[])));
    assert_eq!(near("p/", "a", 1).await, (names(&[]), names(&["p/1"])));
    assert_eq!(near("", "", 1).await, (names(&[]), names(&["a"])));
}

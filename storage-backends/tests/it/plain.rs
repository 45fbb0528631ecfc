//! Stores of plain objects: what any of them promises, and what a real S3 server makes of unusual
//! keys.

use crate::gateway::Gateway;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};
use storage_backends::{
    ByteStream, ErrorKind, Measured, PlainBucket, PlainDirectory, PlainPut, PlainRead, PlainRemoval, PlainStore,
    RetryPolicy, Retrying, S3Config, Unobserved,
};

fn body(content: &[u8]) -> ByteStream {
    let pieces: Vec<_> = content.chunks(1 << 20).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces).boxed()
}

async fn put(store: &PlainBucket, key: &str, content: &[u8]) -> String {
    let object = PlainPut { len: content.len() as u64, ..PlainPut::default() };
    store.put(key, &object, body(content)).await.unwrap_or_else(|error| panic!("{key}: {error}"))
}

async fn read_all(read: PlainRead) -> Option<Vec<u8>> {
    match read {
        PlainRead::Bytes(pieces) => Some(pieces.try_collect::<Vec<_>>().await.expect("the store answers").concat()),
        PlainRead::Changed | PlainRead::Absent => None,
    }
}

async fn keys(store: &impl PlainStore, prefix: &str, after: Option<&str>) -> Vec<String> {
    store.list(prefix, after).map_ok(|entry| entry.key).try_collect().await.expect("the store answers")
}

/// What every store promises, of one that holds `a/1` and `a/2` of ten bytes each, and `b`.
async fn keeps_its_promises(store: &impl PlainStore, change: impl AsyncFn(&str, &[u8])) {
    assert_eq!(keys(store, "", None).await, ["a/1", "a/2", "b"]);
    assert_eq!(keys(store, "a/", Some("a/1")).await, ["a/2"]);
    assert_eq!(store.head("a/3").await.expect("the store answers"), None);
    let found = store.head("a/1").await.expect("the store answers").expect("the store answers");
    assert_eq!(found.len, 10);
    assert!(found.modified.is_some());
    let read = store.read("a/1", &found.etag, 2..5).await.expect("the store answers");
    assert_eq!(read_all(read).await.expect("the store answers"), b"234");
    let whole = store.read("a/1", &found.etag, 0..10).await.expect("the store answers");
    assert_eq!(read_all(whole).await.expect("the store answers"), b"0123456789");
    assert!(matches!(store.read("a/3", &found.etag, 0..1).await.expect("the store answers"), PlainRead::Absent));
    change("a/1", b"another one").await;
    assert!(matches!(store.read("a/1", &found.etag, 2..5).await.expect("the store answers"), PlainRead::Changed));
    assert_eq!(store.remove("a/1", &found.etag).await.expect("the store answers"), PlainRemoval::Changed);
    let now = store.head("a/1").await.expect("the store answers").expect("the store answers");
    assert_eq!(now.len, 11);
    assert_eq!(store.remove("a/1", &now.etag).await.expect("the store answers"), PlainRemoval::Gone);
    assert_eq!(store.remove("a/1", &now.etag).await.expect("the store answers"), PlainRemoval::Gone);
    assert_eq!(store.head("a/1").await.expect("the store answers"), None);
}

#[tokio::test]
async fn a_directory_keeps_the_promises_of_a_plain_store() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("a")).unwrap();
    for key in ["a/1", "a/2", "b"] {
        fs::write(root.path().join(key), b"0123456789").unwrap();
    }
    let store = PlainDirectory::new(root.path().to_owned());
    keeps_its_promises(&store, async |key, content| fs::write(root.path().join(key), content).unwrap()).await;
}

#[tokio::test]
async fn a_bucket_keeps_the_promises_of_a_plain_store_below_any_prefix() {
    let gateway = Gateway::start().await;
    for prefix in ["", "old/things"] {
        let store = S3Config { prefix: prefix.to_owned(), ..gateway.config() }.open_plain().unwrap();
        for key in ["a/1", "a/2", "b"] {
            put(&store, key, b"0123456789").await;
        }
        let wrapped = Measured::new(store.clone(), Arc::new(Unobserved));
        let wrapped = Retrying::new(wrapped, RetryPolicy::default(), Arc::new(Unobserved));
        keeps_its_promises(&wrapped, async |key, content| drop(put(&store, key, content).await)).await;
        for key in ["a/2", "b"] {
            let etag = store.head(key).await.unwrap().unwrap().etag;
            store.remove(key, &etag).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_written_beside_the_content_is_said_of_it() {
    let gateway = Gateway::start().await;
    let store = gateway.config().open_plain().unwrap();
    let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let object = PlainPut {
        len: 20 << 20,
        headers: pairs(&[("content-type", "text/x"), ("cache-control", "no-store")]),
        user_metadata: pairs(&[("k", "v w"), ("u", "=?UTF-8?B?w6k=?=")]),
        storage_class: None,
    };
    // Three parts.
    let content: Vec<u8> = (0..20 << 20).map(|i: u32| (i % 251) as u8).collect();
    let etag = store.put("long", &object, body(&content)).await.unwrap();
    let found = store.head("long").await.unwrap().unwrap();
    assert_eq!((found.len, &found.etag), (20 << 20, &etag));
    assert!(etag.ends_with("-3"), "{etag}");
    assert_eq!(found.headers, object.headers);
    assert_eq!(found.user_metadata, object.user_metadata);
    assert_eq!(read_all(store.read("long", &etag, 0..20 << 20).await.unwrap()).await, Some(content));
}

#[tokio::test]
async fn a_body_of_another_length_leaves_nothing_behind() {
    let gateway = Gateway::start().await;
    let store = gateway.config().open_plain().unwrap();
    for len in [5, 20 << 20] {
        let object = PlainPut { len, ..PlainPut::default() };
        let error = store.put("k", &object, body(&vec![1; 17 << 20])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(store.head("k").await.unwrap(), None);
    }
    let unfinished =
        gateway.config().open().unwrap().abort_unfinished_uploads(Duration::ZERO, &|_| true).await.unwrap();
    assert_eq!(unfinished, 0, "it gives its parts up itself");
}

#[tokio::test]
async fn keys_go_as_they_are_or_not_at_all() {
    let gateway = Gateway::start().await;
    let store = gateway.config().open_plain().unwrap();
    let unusual = ["a b", "a+b%41", "é/ü&x=1?", "quote\"'<>", "tilde~_-."];
    for key in unusual {
        put(&store, key, key.as_bytes()).await;
    }
    let mut expected = unusual.map(str::to_owned).to_vec();
    expected.sort();
    let mut listed = keys(&store, "", None).await;
    listed.sort();
    assert_eq!(listed, expected);
    for key in unusual {
        let found = store.head(key).await.unwrap().unwrap();
        let read = store.read(key, &found.etag, 0..found.len).await.unwrap();
        assert_eq!(read_all(read).await.unwrap(), key.as_bytes(), "{key}");
    }
    for key in ["", "..", "a/../b", "./a"] {
        assert_eq!(store.head(key).await.unwrap_err().kind(), ErrorKind::Invalid, "{key:?}");
    }
}

#[tokio::test]
async fn a_missing_bucket_is_an_error_and_never_an_absent_object() {
    let gateway = Gateway::start().await;
    let store = S3Config { bucket: "no-such-bucket".to_owned(), ..gateway.config() }.open_plain().unwrap();
    assert!(store.head("k").await.is_err());
    assert!(store.read("k", "e", 0..1).await.is_err());
    assert!(store.remove("k", "e").await.is_err());
    assert!(store.list("", None).next().await.unwrap().is_err());
}

#[tokio::test]
async fn a_listing_of_many_pages_goes_on_after_any_key() {
    let gateway = Gateway::start().await;
    let dir = gateway.bucket_dir().join("prod/many");
    fs::create_dir_all(&dir).unwrap();
    for i in 0..2_500 {
        fs::write(dir.join(format!("{i:05}")), "").unwrap();
    }
    let store = gateway.config().open_plain().unwrap();
    let all = keys(&store, "many/", None).await;
    assert_eq!(all, (0..2_500).map(|i| format!("many/{i:05}")).collect::<Vec<_>>());
    assert_eq!(keys(&store, "many/", Some("many/01499")).await, all[1_500..]);
    // The same through object_store, as GCS and Azure are listed and read.
    let cloud = gateway.config().open().unwrap().plain();
    assert_eq!(keys(&cloud, "many/", Some("many/01499")).await, all[1_500..]);
    put(&store, "x", b"0123456789").await;
    let found = cloud.head("x").await.unwrap().unwrap();
    assert_eq!(read_all(cloud.read("x", &found.etag, 3..5).await.unwrap()).await.unwrap(), b"34");
    put(&store, "x", b"9876543210").await;
    assert!(matches!(cloud.read("x", &found.etag, 3..5).await.unwrap(), PlainRead::Changed));
    assert!(matches!(cloud.read("y", &found.etag, 3..5).await.unwrap(), PlainRead::Absent));
    assert_eq!(cloud.remove("x", &found.etag).await.unwrap(), PlainRemoval::Changed);
    assert_eq!(cloud.head("y").await.unwrap(), None);
}

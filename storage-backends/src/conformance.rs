//! What every backend must keep, as checks that any implementation runs through. A new backend's
//! own test is a factory.
//!
//! Every check takes names under a prefix of its own, so the store need not be empty, and a check
//! that fails panics with what it saw. This is test code: it is compiled only with the feature
//! `conformance`.

use crate::{Backend, BackendError, BlobName, ByteStream, ErrorKind, body_of, collect, get_all, put_bytes};
use bytes::Bytes;
use futures::{
    FutureExt, StreamExt, TryStreamExt,
    future::{BoxFuture, join_all},
    stream,
};
use std::{collections::BTreeMap, future::Future, sync::Arc};

/// What a store offers beyond the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// A second `put` under a name fails ([`ErrorKind::Corrupt`]) for blobs of up to this many
    /// bytes.
    pub exclusive_len_max: u64,
    /// A blob may be called `a` while another is called `a/b`.
    pub nested_names: bool,
}

/// A store that offers everything.
pub const ALL_PROMISES: Promises = Promises { exclusive_len_max: u64::MAX, nested_names: true };

/// Runs every check, each on a backend that `open` gives.
pub async fn run<F: Future<Output = Arc<dyn Backend>>>(open: impl Fn() -> F, promises: Promises) {
    for (check, run) in checks() {
        let trial = Trial { backend: open().await, prefix: format!("check-{:016x}", unique()), promises };
        let backend = trial.backend.clone();
        let prefix = format!("{}/", trial.prefix);
        tracing::debug!(check, "conformance");
        let caught = std::panic::AssertUnwindSafe(run(trial)).catch_unwind().await;
        if let Err(panic) = caught {
            eprintln!("conformance check failed: {check}");
            std::panic::resume_unwind(panic);
        }
        let left: Vec<_> = backend.list(&prefix).try_collect().await.expect("listing what a check left");
        for listed in left {
            backend.delete(&listed.name).await.expect("removing what a check left");
        }
    }
}

type Check = (&'static str, fn(Trial) -> BoxFuture<'static, ()>);

/// The checks by name.
fn checks() -> Vec<Check> {
    macro_rules! named {
        ($($check:ident),* $(,)?) => { vec![$((stringify!($check), |trial| $check(trial).boxed())),*] };
    }
    named![
        a_stored_blob_reads_back_whole_and_by_range,
        a_range_outside_the_blob_is_invalid,
        what_is_not_there_is_absent_and_not_an_error,
        a_body_that_fails_stores_nothing,
        a_body_of_another_length_than_announced_stores_nothing,
        an_upload_that_is_dropped_stores_nothing,
        a_name_is_used_once,
        one_of_many_writers_of_a_name_wins,
        a_deleted_blob_is_gone_and_deleting_again_is_fine,
        a_listing_gives_what_starts_with_the_prefix,
        a_listing_of_many_blobs_is_complete,
        the_pieces_of_a_body_do_not_matter,
        many_uploads_and_reads_at_once_do_not_mix,
        a_reader_that_leaves_early_disturbs_nobody,
        a_blob_removed_under_a_reader_is_never_shortened,
        a_blob_may_be_called_like_a_directory,
        the_store_answers_a_probe,
    ]
}

/// One check's world.
struct Trial {
    backend: Arc<dyn Backend>,
    prefix: String,
    promises: Promises,
}

impl Trial {
    fn name(&self, leaf: &str) -> BlobName {
        BlobName::new(format!("{}/{leaf}", self.prefix)).expect("checks use proper names")
    }

    async fn put(&self, name: &BlobName, bytes: &Bytes) {
        let receipt = put_bytes(&*self.backend, name, bytes.clone()).await.expect("a put succeeds");
        assert_eq!(receipt.stored_len, bytes.len() as u64);
    }

    async fn assert_absent(&self, name: &BlobName) {
        assert_eq!(self.backend.head(name).await.expect("head answers"), None, "{name} must not be there");
        assert!(self.backend.get(name, 0..1).await.expect("get answers").is_none(), "{name} must not be there");
        assert!(!self.listed("").await.contains_key(name), "{name} must not be listed");
    }

    /// What a listing of the trial's names that go on with `rest` gives.
    async fn listed(&self, rest: &str) -> BTreeMap<BlobName, u64> {
        let items: Vec<_> =
            self.backend.list(&format!("{}/{rest}", self.prefix)).try_collect().await.expect("a listing succeeds");
        let count = items.len();
        let listed: BTreeMap<_, _> = items.into_iter().map(|item| (item.name, item.stored_len)).collect();
        assert_eq!(listed.len(), count, "no blob is listed twice");
        listed
    }

    async fn read(&self, name: &BlobName, start: u64, end: u64) -> Bytes {
        let stream = self.backend.get(name, start..end).await.expect("get answers").expect("the blob is there");
        collect(stream, end - start).await.expect("the stream is whole")
    }
}

async fn a_stored_blob_reads_back_whole_and_by_range(trial: Trial) {
    for len in [0, 1, 65_535, 65_536, 1 << 20, (1 << 20) + 1, LARGE_LEN] {
        let name = trial.name(&format!("len-{len}"));
        let bytes = content(len, 1);
        trial.put(&name, &bytes).await;
        assert_eq!(trial.backend.head(&name).await.expect("head answers"), Some(len as u64));
        assert_eq!(get_all(&*trial.backend, &name, len as u64).await.expect("get answers"), Some(bytes.clone()));
        let third = len / 3;
        for (start, end) in [(0, len), (third, len - third), (len.saturating_sub(1), len), (0, 1.min(len)), (len, len)]
        {
            assert_eq!(
                trial.read(&name, start as u64, end as u64).await,
                bytes.slice(start..end),
                "{start}..{end} of {len}"
            );
        }
    }
}

async fn a_range_outside_the_blob_is_invalid(trial: Trial) {
    let name = trial.name("a");
    trial.put(&name, &content(100, 1)).await;
    #[expect(clippy::reversed_empty_ranges, reason = "one of the wrong ranges")]
    for range in [0..101, 99..101, 100..101, 5000..6000, 101..101, 6..5, 0..u64::MAX] {
        let error = trial.backend.get(&name, range.clone()).await.err().expect("a wrong range is refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{range:?}: {error}");
    }
}

async fn what_is_not_there_is_absent_and_not_an_error(trial: Trial) {
    let name = trial.name("never-stored");
    trial.assert_absent(&name).await;
    assert!(
        trial.backend.get(&name, 0..0).await.expect("get answers").is_none(),
        "an empty range of nothing is absent"
    );
    trial.backend.delete(&name).await.expect("deleting nothing is fine");
    assert!(trial.listed("").await.is_empty());
}

async fn a_body_that_fails_stores_nothing(trial: Trial) {
    for (case, good) in [("at-once", 0), ("early", 1000), ("late", LARGE_LEN)] {
        for (announced, len) in [("no-len", None), ("len", Some(good as u64 + 1000))] {
            // Of each upload its own name: a server may still be giving up the one before.
            let name = trial.name(&format!("{case}-{announced}"));
            let broken = stream::iter([Err(BackendError::new(ErrorKind::Transient, "the client went away"))]);
            let body = pieces(&content(good, 1), 100_000).chain(broken).boxed();
            let error = trial.backend.put(&name, body, len).await.expect_err("a failed body fails the put");
            assert_eq!(error.kind(), ErrorKind::Body, "{error}");
            trial.assert_absent(&name).await;
        }
    }
}

async fn a_body_of_another_length_than_announced_stores_nothing(trial: Trial) {
    for actual in [0, 1000, LARGE_LEN as u64] {
        for announced in [actual + 1, actual.saturating_sub(1), actual + LARGE_LEN as u64, 0] {
            if announced == actual {
                continue;
            }
            let name = trial.name(&format!("len-{actual}-{announced}"));
            let body = pieces(&content(actual as usize, 1), 100_000);
            let error = trial.backend.put(&name, body, Some(announced)).await.expect_err("the length is checked");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            trial.assert_absent(&name).await;
        }
    }
}

async fn an_upload_that_is_dropped_stores_nothing(trial: Trial) {
    for (case, good) in [("small", 1000), ("large", LARGE_LEN)] {
        let name = trial.name(case);
        let (all_taken, taken) = tokio::sync::oneshot::channel::<()>();
        let hang = stream::once(async move {
            drop(all_taken);
            std::future::pending().await
        });
        let body = pieces(&content(good, 1), 100_000).chain(hang).boxed();
        tokio::select! {
            _ = trial.backend.put(&name, body, None) => panic!("a body without an end cannot be stored"),
            _ = taken => {}
        }
        trial.assert_absent(&name).await;
        // The name is free: what was begun does not stand in the way.
        trial.put(&name, &content(10, 2)).await;
    }
}

async fn a_name_is_used_once(trial: Trial) {
    for len in [10, LARGE_LEN] {
        if len as u64 > trial.promises.exclusive_len_max {
            continue;
        }
        let name = trial.name(&format!("len-{len}"));
        let first = content(len, 1);
        trial.put(&name, &first).await;
        let error = put_bytes(&*trial.backend, &name, content(len, 2)).await.expect_err("a second put is refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(get_all(&*trial.backend, &name, len as u64).await.expect("get answers"), Some(first));
    }
}

async fn one_of_many_writers_of_a_name_wins(trial: Trial) {
    if trial.promises.exclusive_len_max < 1000 {
        return;
    }
    let name = trial.name("a");
    let results = join_all((0..8).map(|writer| put_bytes(&*trial.backend, &name, content(1000, writer)))).await;
    let winners: Vec<_> =
        (0u8..).zip(&results).filter(|(_, result)| result.is_ok()).map(|(writer, _)| writer).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    assert_eq!(trial.read(&name, 0, 1000).await, content(1000, winners[0]));
}

async fn a_deleted_blob_is_gone_and_deleting_again_is_fine(trial: Trial) {
    let (name, other) = (trial.name("a"), trial.name("ba"));
    trial.put(&name, &content(1000, 1)).await;
    trial.put(&other, &content(1000, 2)).await;
    for _ in 0..2 {
        trial.backend.delete(&name).await.expect("delete succeeds");
        trial.assert_absent(&name).await;
    }
    assert_eq!(trial.read(&other, 0, 1000).await, content(1000, 2));
}

async fn a_listing_gives_what_starts_with_the_prefix(trial: Trial) {
    let leaves = ["blobs/00aa", "blobs/00ab", "blobs/01aa", "blobs-2/x", "keyset/a/b/c", "z", "zz", "y"];
    for (len, leaf) in leaves.iter().enumerate() {
        trial.put(&trial.name(leaf), &content(len, 1)).await;
    }
    for rest in [
        "",
        "b",
        "blobs",
        "blobs/",
        "blobs/0",
        "blobs/00a",
        "blobs/00aa",
        "keyset/a/",
        "keyset/a/b/c",
        "z",
        "none",
        "blobs/none/",
    ] {
        let expected: BTreeMap<_, _> = leaves
            .iter()
            .enumerate()
            .filter(|(_, leaf)| leaf.starts_with(rest))
            .map(|(len, leaf)| (trial.name(leaf), len as u64))
            .collect();
        assert_eq!(trial.listed(rest).await, expected, "{rest:?}");
    }
    assert_eq!(trial.backend.list("../").count().await, 0, "no name starts so");
}

async fn a_listing_of_many_blobs_is_complete(trial: Trial) {
    let names: Vec<_> = (0..1100).map(|i| trial.name(&format!("{i:08x}"))).collect();
    let put = |name| {
        let trial = &trial;
        async move { trial.put(name, &content(3, 1)).await }
    };
    stream::iter(&names).for_each_concurrent(16, put).await;
    let listed = trial.listed("").await;
    assert!(listed.keys().eq(names.iter()), "{} of {} blobs are listed", listed.len(), names.len());
}

async fn the_pieces_of_a_body_do_not_matter(trial: Trial) {
    let bytes = content(LARGE_LEN, 1);
    for (case, piece_len) in [("tiny", 777), ("uneven", 1_048_573), ("one", LARGE_LEN)] {
        let name = trial.name(case);
        let empty = || stream::iter([Ok(Bytes::new()), Ok(Bytes::new())]);
        let body = empty().chain(pieces(&bytes, piece_len)).chain(empty()).boxed();
        let receipt = trial.backend.put(&name, body, None).await.expect("a put succeeds");
        assert_eq!(receipt.stored_len, LARGE_LEN as u64);
        assert!(trial.read(&name, 0, LARGE_LEN as u64).await == bytes, "{case}");
    }
}

async fn many_uploads_and_reads_at_once_do_not_mix(trial: Trial) {
    let round_trip = |i: u8| {
        let trial = &trial;
        async move {
            let (name, bytes) = (trial.name(&format!("n{i}")), content(300_000 + usize::from(i), i));
            trial.put(&name, &bytes).await;
            assert!(trial.read(&name, 0, bytes.len() as u64).await == bytes, "{name}");
        }
    };
    join_all((0..24).map(round_trip)).await;
}

async fn a_reader_that_leaves_early_disturbs_nobody(trial: Trial) {
    let (name, bytes) = (trial.name("a"), content(LARGE_LEN, 1));
    trial.put(&name, &bytes).await;
    for _ in 0..20 {
        let mut stream =
            trial.backend.get(&name, 0..LARGE_LEN as u64).await.expect("get answers").expect("it is there");
        let first = stream.next().await.expect("a piece").expect("without error");
        assert_eq!(first, bytes.slice(..first.len()));
    }
    assert!(trial.read(&name, 0, LARGE_LEN as u64).await == bytes);
}

async fn a_blob_removed_under_a_reader_is_never_shortened(trial: Trial) {
    let (name, bytes) = (trial.name("a"), content(LARGE_LEN, 1));
    trial.put(&name, &bytes).await;
    let mut stream = trial.backend.get(&name, 0..LARGE_LEN as u64).await.expect("get answers").expect("it is there");
    let first = stream.next().await.expect("a piece").expect("without error");
    trial.backend.delete(&name).await.expect("delete succeeds");
    let rest = collect(stream, LARGE_LEN as u64).await;
    // An error is as good as the bytes; a clean end before them is not.
    if let Ok(rest) = rest {
        assert!(first.len() + rest.len() == LARGE_LEN && rest == bytes.slice(first.len()..));
    }
}

async fn a_blob_may_be_called_like_a_directory(trial: Trial) {
    if !trial.promises.nested_names {
        return;
    }
    for (leaf, fill) in [("a", 1), ("a/b", 2), ("a/b/c", 3)] {
        trial.put(&trial.name(leaf), &content(10, fill)).await;
    }
    assert_eq!(trial.listed("a").await.len(), 3);
    trial.backend.delete(&trial.name("a/b")).await.expect("delete succeeds");
    assert_eq!(trial.read(&trial.name("a"), 0, 10).await, content(10, 1));
    assert_eq!(trial.read(&trial.name("a/b/c"), 0, 10).await, content(10, 3));
}

async fn the_store_answers_a_probe(trial: Trial) {
    trial.backend.probe().await.expect("the store can serve");
    assert!(trial.listed("").await.is_empty());
}

/// Bytes that differ at every offset and for every `fill`, so that a mix-up shows.
fn content(len: usize, fill: u8) -> Bytes {
    let byte = |i: usize| (i as u32).wrapping_mul(0x9e37_79b1).wrapping_add(u32::from(fill)) >> 8;
    (0..len).map(|i| byte(i) as u8 ^ fill).collect::<Vec<_>>().into()
}

fn pieces(bytes: &Bytes, piece_len: usize) -> ByteStream {
    if bytes.len() <= piece_len {
        return body_of(bytes.clone());
    }
    let bytes = bytes.clone();
    let starts = (0..bytes.len()).step_by(piece_len);
    stream::iter(starts.map(move |at| Ok(bytes.slice(at..bytes.len().min(at + piece_len))))).boxed()
}

fn unique() -> u64 {
    getrandom::u64().expect("the OS gives random numbers")
}

/// More than one batch, piece or part of every backend (an S3 part has at least 5 MiB).
const LARGE_LEN: usize = (11 << 20) + 12_345;

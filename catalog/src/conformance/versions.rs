//! Versions: what is put is read back, and conditions hold.

use super::{
    Factory,
    desk::{Desk, NOW, all_of},
};
use crate::*;

/// In every read (I10).
pub async fn absence_is_none_and_not_an_error<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    assert_eq!(catalog.current(bucket, "k").await.unwrap(), None);
    assert_eq!(catalog.content(bucket, "k").await.unwrap(), None);
    assert_eq!(catalog.version(bucket, "k", VersionId([1; 16])).await.unwrap(), None);
    assert_eq!(catalog.upload(bucket, "k", UploadId([1; 16])).await.unwrap(), None);
    assert_eq!(catalog.blobs(&[BlobKey([1; 16])]).await.unwrap(), []);
    assert_eq!(catalog.bases_of(BlobKey([1; 16])).await.unwrap(), []);
    assert_eq!(catalog.fan_in(BlobKey([1; 16])).await.unwrap(), 0);
    assert_eq!(catalog.duplicate(&desk.domain(), [0; 32], 1).await.unwrap(), None);
    assert_eq!(catalog.parts(UploadId([1; 16]), 0, 10, true).await.unwrap(), []);
    assert_eq!(catalog.keys(bucket).await.unwrap(), []);
    assert_eq!(desk.delete("k").await, None);
}

/// Every field, of a content of several extents over blobs of every kind, one of them used twice.
pub async fn a_version_is_read_back_with_its_extents_and_blobs<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let base = desk.put("base").await;
    let mut whole = desk.whole(5 << 30);
    whole.row.digest = Some([8; 32]);
    let delta = desk.delta(300, &[base]);
    let inline = desk.inline(b"\0inline\xff");
    let extents = vec![
        Extent { blob: whole.row.id, offset: (5 << 30) - 10, len: 10 },
        all_of(&delta.row),
        Extent { blob: whole.row.id, offset: 0, len: 5 << 30 },
        all_of(&inline.row),
    ];
    let commit = desk.commit_extents("k", vec![whole.clone(), delta.clone(), inline.clone()], extents.clone());
    let committed = desk.catalog.put(commit.clone()).await.unwrap();

    let content = desk.content("k").await;
    let expected = Version {
        bucket: desk.bucket.id,
        key: "k".into(),
        id: commit.id,
        seq: committed.seq,
        modified_ms: committed.modified_ms,
        size: commit.size,
        facts: commit.facts.clone(),
        extents_digest: commit.extents_digest,
        named: false,
        marker: false,
        lock: VersionLock::default(),
    };
    assert_eq!(content.version, expected);
    assert_eq!(content.extents, extents);
    assert_eq!(content.blobs, [whole.row, delta.row.clone(), inline.row]);
    assert_eq!(desk.catalog.current(desk.bucket.id, "k").await.unwrap(), Some(expected));
    assert_eq!(desk.catalog.version(desk.bucket.id, "k", commit.id).await.unwrap(), Some(content));
    assert_eq!(desk.catalog.version(desk.bucket.id, "other", commit.id).await.unwrap(), None);
    assert_eq!(desk.catalog.bases_of(delta.row.id).await.unwrap(), [base]);
    assert_eq!(desk.catalog.fan_in(base).await.unwrap(), 1);
    desk.assert_sound().await;
}

/// And needs no blob.
pub async fn an_empty_version_has_no_extents<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.catalog.put(desk.commit("empty", vec![])).await.unwrap();
    let content = desk.content("empty").await;
    assert_eq!((content.version.size, content.extents, content.blobs), (0, vec![], vec![]));
    desk.assert_sound().await;
}

/// In the same transaction.
pub async fn a_second_put_replaces_the_first_and_frees_its_blob<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let first = desk.put("k").await;
    let old = desk.content("k").await.version;
    let second = desk.put("k").await;
    let new = desk.content("k").await;
    assert!(new.version.seq > old.seq);
    assert_eq!(new.blobs[0].id, second);
    assert_eq!(desk.state(first).await, Some(BlobState::Dying));
    assert_eq!(desk.dying().await, [first]);
    assert_eq!(desk.catalog.version(desk.bucket.id, "k", old.id).await.unwrap(), None);
    desk.assert_sound().await;
}

/// The others are told so, and their blobs are unknown afterwards.
pub async fn one_of_64_concurrent_absent_puts_wins<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let commits: Vec<_> = (0..64)
        .map(|_| PutCommit { precondition: Precondition::Absent, ..desk.commit("k", vec![desk.whole(100)]) })
        .collect();
    let mut puts = tokio::task::JoinSet::new();
    for commit in commits.clone() {
        let desk = desk.clone();
        puts.spawn(async move { (commit.id, desk.catalog.put(commit).await) });
    }
    let mut winners = Vec::new();
    for (id, outcome) in puts.join_all().await {
        match outcome {
            Ok(_) => winners.push(id),
            Err(error) => assert!(matches!(error, CatalogError::PreconditionFailed), "{error}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(desk.content("k").await.version.id, winners[0]);
    let blobs: Vec<_> = commits.iter().map(|commit| commit.new_blobs[0].row.id).collect();
    assert_eq!(desk.catalog.blobs(&blobs).await.unwrap().len(), 1);
    desk.assert_sound().await;
}

/// Of puts and deletions.
pub async fn a_precondition_that_does_not_hold_changes_nothing<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let put = |precondition| PutCommit { precondition, ..desk.commit("k", vec![desk.whole(10)]) };
    let delete = |precondition| DeleteCommit { precondition, ..desk.deletion("k") };
    let nothing = VersionId([0xee; 16]);
    let failed = |outcome: Result<Committed>| matches!(outcome, Err(CatalogError::PreconditionFailed));
    assert!(failed(catalog.put(put(Precondition::Current(nothing))).await));
    assert!(matches!(
        catalog.delete(delete(Precondition::Current(nothing))).await,
        Err(CatalogError::PreconditionFailed)
    ));
    catalog.put(put(Precondition::Absent)).await.unwrap();
    let first = desk.content("k").await;
    assert!(failed(catalog.put(put(Precondition::Absent)).await));
    assert!(failed(catalog.put(put(Precondition::Current(nothing))).await));
    assert!(matches!(catalog.delete(delete(Precondition::Absent)).await, Err(CatalogError::PreconditionFailed)));
    assert_eq!(desk.content("k").await, first);
    catalog.put(put(Precondition::Current(first.version.id))).await.unwrap();
    let second = desk.content("k").await.version;
    assert!(failed(catalog.put(put(Precondition::Current(first.version.id))).await));
    let removed = catalog.delete(delete(Precondition::Current(second.id))).await.unwrap();
    assert_eq!(removed, Deleted { removed: Some(second), marker: None });
    desk.assert_sound().await;
}

/// Though a writer's clock does (I12).
pub async fn last_modified_never_goes_back<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for (now_ms, expected) in [(NOW, NOW), (NOW - 5000, NOW), (NOW + 1, NOW + 1), (0, NOW + 1)] {
        let commit = PutCommit { now_ms, ..desk.commit("k", vec![]) };
        assert_eq!(desk.catalog.put(commit).await.unwrap().modified_ms, expected);
        assert_eq!(desk.content("k").await.version.modified_ms, expected);
    }
    let upload = desk.start_upload("k", NOW).await;
    let part = desk.put_part(upload.id, 1, 5).await;
    let completion = CompleteCommit { now_ms: NOW - 9, ..desk.completion(&upload, &[&part]) };
    assert_eq!(desk.catalog.complete(completion).await.unwrap().modified_ms, NOW + 1);
}

/// And nothing the second time.
pub async fn a_delete_gives_what_it_removed<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put("k").await;
    let version = desk.content("k").await.version;
    assert_eq!(desk.delete("k").await, Some(version));
    assert_eq!(desk.delete("k").await, None);
    assert_eq!(desk.catalog.current(desk.bucket.id, "k").await.unwrap(), None);
    assert_eq!(desk.state(blob).await, Some(BlobState::Dying));
    desk.assert_sound().await;
}

/// Case, normal form, control characters and 1,024 bytes of it.
pub async fn a_key_may_be_any_utf8<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let long = "\u{10FFFF}".repeat(256);
    let mut keys =
        ["foo", "foo/", "foo/bar", "Foo", "é", "e\u{301}", "\0", "a\0b", "a", "\u{10FFFF}", "'; --", "%_", &long];
    for key in keys {
        desk.catalog.put(desk.commit(key, vec![desk.whole(10)])).await.unwrap();
    }
    for key in keys {
        assert_eq!(desk.content(key).await.version.key, key);
    }
    let query = ListQuery { bucket: desk.bucket.id, prefix: String::new(), delimiter: None, after: None, limit: 1000 };
    let listed = desk.catalog.list(&query).await.unwrap().entries;
    keys.sort_unstable_by_key(|key| key.as_bytes());
    let listed: Vec<_> = listed
        .iter()
        .map(|entry| match entry {
            ListEntry::Key(version) => version.key.as_str(),
            ListEntry::CommonPrefix(prefix) => panic!("{prefix} without a delimiter"),
        })
        .collect();
    assert_eq!(listed, keys);
}

/// As are deletions and completions.
pub async fn a_put_to_a_missing_bucket_is_refused<F: Factory>(factory: &F) {
    let mut desk = Desk::new(factory.fresh().await).await;
    desk.bucket.id.0 += 1;
    assert!(matches!(desk.catalog.put(desk.commit("k", vec![desk.whole(1)])).await, Err(CatalogError::NoBucket)));
    assert!(matches!(desk.catalog.delete(desk.deletion("k")).await, Err(CatalogError::NoBucket)));
    desk.assert_sound().await;
}

/// A writer that does not know whether its commit went through asks by id, or commits the same
/// again (I9).
pub async fn a_version_id_is_taken_once_and_tells_an_unknown_outcome<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let commit = desk.commit("k", vec![desk.whole(10)]);
    let committed = desk.catalog.put(commit.clone()).await.unwrap();
    let found = desk.catalog.version(desk.bucket.id, "k", commit.id).await.unwrap().unwrap();
    assert_eq!(found.version.seq, committed.seq);
    assert!(matches!(desk.catalog.put(commit.clone()).await, Err(CatalogError::Exists)));
    let elsewhere = PutCommit { id: commit.id, ..desk.commit("other", vec![]) };
    assert!(matches!(desk.catalog.put(elsewhere).await, Err(CatalogError::Exists)));
    assert_eq!(desk.content("k").await, found);
    desk.assert_sound().await;
}

/// Place, id and Last-Modified stay; facts and extents change, and what was referenced before is
/// freed.
pub async fn a_rewrite_swaps_extents_and_keeps_the_version<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let base = desk.put("base").await;
    let old = desk.put("k").await;
    let before = desk.content("k").await;
    let rewrite = desk.rewrite(&before, vec![desk.delta(600, &[base]), desk.whole(400)]);
    desk.catalog.rewrite(rewrite.clone()).await.unwrap();
    let after = desk.content("k").await;
    let expected =
        Version { facts: rewrite.facts.clone(), extents_digest: rewrite.extents_digest, ..before.version.clone() };
    assert_eq!(after.version, expected);
    assert_eq!(after.extents, rewrite.new_extents);
    assert_eq!(desk.dying().await, [old]);
    desk.assert_sound().await;
}

/// Because another rewrite, a put or a deletion came first (E20).
pub async fn a_rewrite_of_what_has_changed_is_a_conflict<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put("k").await;
    let before = desk.content("k").await;
    let rewrite = || desk.rewrite(&before, vec![desk.whole(1000)]);
    let late = rewrite();
    desk.catalog.rewrite(rewrite()).await.unwrap();
    assert!(matches!(desk.catalog.rewrite(late.clone()).await, Err(CatalogError::Conflict)));
    desk.put("k").await;
    assert!(matches!(desk.catalog.rewrite(late.clone()).await, Err(CatalogError::Conflict)));
    desk.delete("k").await;
    assert!(matches!(desk.catalog.rewrite(late.clone()).await, Err(CatalogError::Conflict)));
    desk.put("k").await;
    let shorter = desk.rewrite(&desk.content("k").await, vec![desk.whole(999)]);
    assert!(matches!(desk.catalog.rewrite(shorter).await, Err(CatalogError::Invalid(_))));
    desk.assert_sound().await;
}

/// With the same extents it gives a version other facts, unless somebody else did so meanwhile.
pub async fn facts_are_replaced_alone_and_never_over_another_change<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put("k").await;
    let before = desk.content("k").await;
    let with = |content: &Content, facts: &[u8]| RewriteCommit {
        new_extents: content.extents.clone(),
        extents_digest: content.version.extents_digest,
        facts: facts.to_vec(),
        ..desk.rewrite(content, Vec::new())
    };
    let (first, late) = (with(&before, b"first"), with(&before, b"late"));
    desk.catalog.rewrite(first).await.unwrap();
    let now = desk.content("k").await;
    assert_eq!(now.version, Version { facts: b"first".to_vec(), ..before.version.clone() });
    assert_eq!(now.extents, before.extents);
    assert!(matches!(desk.catalog.rewrite(late).await, Err(CatalogError::Conflict)));
    let moved = desk.rewrite(&before, vec![desk.whole(1000)]);
    assert!(matches!(desk.catalog.rewrite(moved).await, Err(CatalogError::Conflict)), "a job that read older facts");
    desk.assert_sound().await;
}

/// Every fourth change is refused, for four different reasons; the rest goes through.
pub async fn one_refused_change_does_not_harm_the_others_of_its_group<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put("taken").await;
    let mut puts = tokio::task::JoinSet::new();
    for number in 0..200u32 {
        let desk = desk.clone();
        puts.spawn(async move {
            let mut commit = desk.commit(&format!("k{number:03}"), vec![desk.whole(10)]);
            match number % 16 {
                3 => commit.size += 1,
                7 => commit.key = "taken".into(),
                11 => commit.extents[0].blob = BlobKey([0xaa; 16]),
                15 => commit.epoch += 1,
                _ => {}
            }
            if number % 16 == 7 {
                commit.precondition = Precondition::Absent;
            }
            if number % 16 == 11 {
                commit.new_blobs.clear();
            }
            if number % 16 == 15 {
                commit.new_blobs.clear();
                commit.extents.clear();
                commit.size = 0;
            }
            (number, desk.catalog.put(commit).await)
        });
    }
    let mut seqs = Vec::new();
    for (number, outcome) in puts.join_all().await {
        match (number % 16, outcome) {
            (3, Err(CatalogError::Invalid(_)))
            | (7, Err(CatalogError::PreconditionFailed))
            | (11, Err(CatalogError::BaseGone))
            | (15, Err(CatalogError::Fenced)) => {}
            (3 | 7 | 11 | 15, outcome) => panic!("put {number} gave {outcome:?}"),
            (_, outcome) => seqs.push(outcome.unwrap().seq),
        }
    }
    assert_eq!(seqs.len(), 150);
    seqs.sort_unstable();
    assert!(seqs.windows(2).all(|pair| pair[0] + 1 == pair[1]), "refused changes leave no gap: {seqs:?}");
    desk.assert_sound().await;
}

/// Whatever is committed meanwhile: the recount finds nothing, and a part's extents are those of
/// its row.
pub async fn a_read_of_several_statements_sees_one_state<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("u", NOW).await;
    desk.put_part(upload.id, 1, 100).await;
    let writing = {
        let desk = desk.clone();
        tokio::spawn(async move {
            for number in 0..150 {
                desk.put_part(upload.id, 1, 10 + number).await;
                desk.put("k").await;
                desk.delete("k").await;
            }
        })
    };
    let mut reads = 0;
    while !writing.is_finished() {
        desk.assert_sound().await;
        let part = desk.catalog.parts(upload.id, 0, 10, true).await.unwrap().remove(0);
        assert_eq!(part.extents.iter().map(|extent| extent.len).sum::<u64>(), part.size);
        reads += 1;
    }
    writing.await.unwrap();
    assert!(reads > 1, "the reads did not meet the writes");
}

/// All of them, with nothing in between (I9).
pub async fn acknowledged_changes_survive_a_crash<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for number in 0..20 {
        desk.put(&format!("k{number:02}")).await;
    }
    desk.delete("k00").await;
    let upload = desk.start_upload("u", NOW).await;
    desk.put_part(upload.id, 1, 10).await;
    let before: Vec<_> = desk.catalog.journal(0, 1000).await.unwrap();
    let (bucket, epoch) = (desk.bucket.clone(), desk.epoch);
    let desk = Desk { catalog: factory.after_crash(desk.catalog).await, bucket, epoch };
    desk.assert_sound().await;
    assert_eq!(desk.catalog.journal(0, 1000).await.unwrap(), before);
    assert_eq!(desk.catalog.current(desk.bucket.id, "k00").await.unwrap(), None);
    for number in 1..20 {
        desk.content(&format!("k{number:02}")).await;
    }
    assert_eq!(desk.catalog.parts(upload.id, 0, 10, true).await.unwrap().len(), 1);
    let epoch = desk.catalog.open_epoch().await.unwrap();
    assert!(epoch > desk.epoch);
}

//! The journal: complete, consecutive, and enough.

use super::{
    Factory,
    desk::{Desk, NOW, all_of, unique},
    notices::notice,
};
use crate::*;
use async_trait::async_trait;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
};

const LINK: JournalLink = JournalLink([7; 32]);

/// Also those of one group commit, and whatever kind they are.
pub async fn sequence_numbers_are_consecutive_over_all_mutations<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let mut puts = tokio::task::JoinSet::new();
    for number in 0..100 {
        let desk = desk.clone();
        puts.spawn(async move {
            let (key, blob) = (format!("k{}", number % 10), desk.whole(10));
            desk.catalog.put(desk.commit(&key, vec![blob])).await.unwrap().seq
        });
    }
    let mut seqs = puts.join_all().await;
    seqs.sort_unstable();
    let journal = desk.catalog.journal(0, 1000).await.unwrap();
    assert!(journal.iter().map(|entry| entry.seq).eq(1..=102), "an epoch, a bucket and 100 puts");
    assert!(seqs.into_iter().eq(3..=102));
    assert_eq!(desk.catalog.last_seq().await.unwrap(), 102);
    for entry in &journal[2..] {
        let Ok(Mutation::Put { commit, .. }) = entry.mutation.read() else { panic!("{entry:?}") };
        assert_eq!(entry.at_ms, NOW);
        assert_eq!(commit.bucket, desk.bucket.id);
    }
}

/// Nor does what is refused.
pub async fn what_changes_nothing_takes_no_number<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    let before = catalog.last_seq().await.unwrap();
    assert_eq!(desk.delete("nothing").await, None);
    assert!(!catalog.abort(bucket, "nothing", UploadId([1; 16]), desk.epoch).await.unwrap());
    assert!(!catalog.delete_bucket(BucketId(bucket.0 + 1)).await.unwrap());
    assert_eq!(catalog.forget_completed_uploads(NOW).await.unwrap(), 0);
    assert_eq!(catalog.close_epochs(&[desk.epoch + 1]).await.unwrap(), [0u32; 0]);
    assert!(catalog.create_bucket("desk", "o", json!({}), NOW).await.is_err());
    assert!(catalog.purge(BlobKey([1; 16]), NOW).await.is_err());
    assert_eq!(catalog.last_seq().await.unwrap(), before);
    desk.put("k").await;
    assert_eq!(desk.content("k").await.version.seq, before + 1);
    assert_eq!(catalog.journal(before, 10).await.unwrap().len(), 1);
}

/// Every kind of mutation, made again in an empty catalog, gives the same rows (I11).
pub async fn the_journal_alone_gives_the_catalog_back<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    one_of_each(&desk).await;
    let journal = desk.catalog.journal(0, 10_000).await.unwrap();
    let again = Desk { catalog: factory.fresh().await, bucket: desk.bucket.clone(), epoch: desk.epoch };
    again.catalog.begin_import().await.unwrap();
    for some in journal.chunks(7) {
        again.catalog.replay(some.to_vec()).await.unwrap();
    }
    assert_eq!(again.rows().await, desk.rows().await);
    assert_eq!(again.catalog.stats().await.unwrap(), desk.catalog.stats().await.unwrap());
    for key in ["base", "delta", "inline", "empty", "multipart"] {
        assert_eq!(again.content(key).await, desk.content(key).await);
    }
    // What buckets hold is counted at the end.
    again.catalog.end_import(0).await.unwrap();
    again.assert_sound().await;
}

/// Puts, overwrites, deletions, deltas, duplicates and parts that share commits have the order that
/// the journal says, whatever of them is refused.
pub async fn changes_that_come_at_once_give_what_they_give_in_the_order_of_the_journal<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let versioned = desk.with_bucket("versioned").await;
    desk.catalog.set_versioning(versioned.bucket.id, Versioning::Enabled).await.unwrap();
    let mut random = 0x9e37_79b9_u32;
    let mut next = move |below: u32| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random % below
    };
    for round in 0..30 {
        let shared = [desk.put("shared").await, versioned.put("shared").await];
        let uploads = [desk.start_upload("upload", NOW).await.id, versioned.start_upload("upload", NOW).await.id];
        let mut changes = tokio::task::JoinSet::new();
        for number in 0..24 {
            let which = next(2) as usize;
            let (shared, upload) = (shared[which], uploads[which]);
            let (desk, kind, key) = (
                [&desk, &versioned][which].clone(),
                next(10),
                format!("k{}", next(if round % 2 == 0 { 6 } else { 40 })),
            );
            let absent = if next(4) == 0 { Precondition::Absent } else { Precondition::None };
            changes.spawn(async move {
                let put = match kind {
                    0..=3 => desk.commit(&key, vec![desk.whole(10)]),
                    4 => desk.commit(&key, vec![desk.delta(10, &[shared])]),
                    5 => desk.commit_extents(&key, Vec::new(), vec![Extent { blob: shared, offset: 0, len: 10 }]),
                    6 | 7 => return drop(desk.put_part(upload, 1 + number % 3, 10).await),
                    8 => return drop(desk.catalog.delete(desk.deletion(&key)).await.unwrap()),
                    _ => return drop(desk.catalog.delete(desk.deletion("shared")).await.unwrap()),
                };
                let put = PutCommit { precondition: absent, now_ms: NOW + UnixMs::from(number), ..put };
                match desk.catalog.put(put).await {
                    Ok(_) | Err(CatalogError::PreconditionFailed | CatalogError::BaseGone) => {}
                    Err(error) => panic!("{error}"),
                }
            });
        }
        changes.join_all().await;
    }
    desk.assert_sound().await;
    let journal = desk.catalog.journal(0, 10_000).await.unwrap();
    let again = Desk { catalog: factory.fresh().await, bucket: desk.bucket.clone(), epoch: desk.epoch };
    again.catalog.begin_import().await.unwrap();
    again.catalog.replay(journal).await.unwrap();
    assert_eq!(again.rows().await, desk.rows().await);
    again.catalog.end_import(0).await.unwrap();
    again.assert_sound().await;
}

/// What does not follow, or would give something else, is refused with everything that came with
/// it.
pub async fn a_record_that_does_not_fit_is_not_replayed<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put("a").await;
    desk.put("b").await;
    desk.delete("a").await;
    let journal = desk.catalog.journal(0, 100).await.unwrap();
    let catalog = factory.fresh().await;
    let refused = |outcome| match outcome {
        Err(CatalogError::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    refused(catalog.replay(journal.clone()).await);
    catalog.begin_import().await.unwrap();
    refused(catalog.replay(journal[1..].to_vec()).await);
    let mut gap = journal.clone();
    gap.remove(2);
    refused(catalog.replay(gap).await);
    let mut other = journal.clone();
    let mut changed = other[4].mutation.value();
    *changed.pointer_mut("/Delete/removed").unwrap() = "00".repeat(16).into();
    other[4].mutation = MutationText::of(&changed).unwrap();
    assert!(refused(catalog.replay(other).await).contains("mutation 5"));
    let mut unknown = journal.clone();
    unknown[4].mutation = MutationText::of(&json!({"Futuristic": {}})).unwrap();
    refused(catalog.replay(unknown).await);
    assert_eq!(catalog.last_seq().await.unwrap(), 0);
    catalog.replay(journal).await.unwrap();
    assert_eq!(catalog.last_seq().await.unwrap(), 5);
}

/// A hole in the journal: what is behind it is made again as far as it does not need what is
/// missing.
pub async fn behind_a_hole_what_fits_is_made_and_the_rest_only_takes_its_number<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put("kept").await;
    let base = desk.put("base").await;
    desk.put("kept").await;
    let delta = desk.delta(10, &[base]);
    let delta_id = delta.row.id;
    desk.catalog.put(desk.commit("delta", vec![delta])).await.unwrap();
    desk.delete("kept").await;
    desk.delete("base").await;
    let journal = desk.catalog.journal(0, 100).await.unwrap();
    // Epoch, bucket and the first version; the base and the second version are missing.
    let (known, behind) = (&journal[..3], &journal[5..]);
    let again = Desk { catalog: factory.fresh().await, bucket: desk.bucket.clone(), epoch: desk.epoch };
    let outside = again.catalog.replay_behind_hole(behind[0].clone()).await;
    assert!(matches!(outside, Err(CatalogError::Invalid(_))), "{outside:?}");
    again.catalog.begin_import().await.unwrap();
    again.catalog.replay(known.to_vec()).await.unwrap();
    let refused = again.catalog.replay_behind_hole(behind[0].clone()).await;
    assert!(matches!(refused, Err(CatalogError::Invalid(_))), "{refused:?}");
    assert_eq!(again.catalog.last_seq().await.unwrap(), behind[0].seq);
    again.catalog.replay_behind_hole(behind[1].clone()).await.unwrap();
    again.catalog.replay_behind_hole(behind[2].clone()).await.unwrap();
    assert_eq!(again.catalog.last_seq().await.unwrap(), behind[2].seq);
    let kept = again.catalog.current(again.bucket.id, "kept").await.unwrap();
    assert_eq!(kept, None, "it was deleted behind the hole, whichever version it had then");
    assert!(again.catalog.blobs(&[delta_id]).await.unwrap().is_empty());
    again.catalog.end_import(0).await.unwrap();
    again.assert_sound().await;
}

/// Shippers that do not know of each other write the same blobs.
pub async fn where_a_journal_blob_ends_is_decided_once<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for key in ["a", "b", "c", "d"] {
        desk.put(key).await;
    }
    let catalog = &desk.catalog;
    let run = catalog.journal_marks().await.unwrap().run;
    assert_eq!(catalog.journal_marks().await.unwrap(), JournalMarks { shipped: 0, cut: 0, last: 6, head: None, run });
    assert_eq!(catalog.cut_journal(0, 4).await.unwrap(), 4);
    assert_eq!(catalog.cut_journal(0, 6).await.unwrap(), 4, "decided before");
    let catalog = &factory.after_crash(desk.catalog).await;
    let run = catalog.journal_marks().await.unwrap().run;
    assert_eq!(catalog.journal_marks().await.unwrap(), JournalMarks { shipped: 0, cut: 4, last: 6, head: None, run });
    let journal = catalog.journal(0, 10).await.unwrap();
    assert_eq!(catalog.trim_journal(&journal[3], LINK).await.unwrap(), 4);
    assert_eq!(
        catalog.journal_marks().await.unwrap(),
        JournalMarks { shipped: 4, cut: 4, last: 6, head: Some(LINK), run }
    );
    assert_eq!(catalog.cut_journal(0, 2).await.unwrap(), 0, "somebody who was asleep looks again");
    assert_eq!(catalog.cut_journal(4, 6).await.unwrap(), 6);
    assert_eq!(catalog.cut_journal(0, 6).await.unwrap(), 0, "the next cut is not the end of the first blob");
    catalog.trim_journal(&journal[5], LINK).await.unwrap();
    assert_eq!(catalog.cut_journal(4, 6).await.unwrap(), 4, "nothing is left to be shipped");
    assert_eq!(
        catalog.journal_marks().await.unwrap(),
        JournalMarks { shipped: 6, cut: 6, last: 6, head: Some(LINK), run }
    );
    assert_eq!(catalog.last_seq().await.unwrap(), 6, "none of this is a mutation");
}

/// Committed is not acknowledged (I11), also when the outcome is read back.
pub async fn what_a_client_waits_for_passes_the_gate<F: Factory>(factory: &F) {
    struct Closed(AtomicU64, AtomicBool, AtomicI64);

    #[async_trait]
    impl Gate for Closed {
        async fn admit(&self) -> Result<()> {
            if self.1.load(Ordering::Relaxed) { Err(CatalogError::Refused("shut".into())) } else { Ok(()) }
        }

        async fn pass(&self, run: ServerRun) -> Result<()> {
            self.2.store(run, Ordering::Relaxed);
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0..5 => Err(CatalogError::Unknown("shut".into())),
                _ => Ok(()),
            }
        }
    }

    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("m", NOW).await;
    let part = desk.part(upload.id, 3, 10);
    let gate = Arc::new(Closed(AtomicU64::new(0), AtomicBool::new(false), AtomicI64::new(-1)));
    desk.catalog.acknowledge_behind(gate.clone());
    let commit = desk.commit("k", vec![desk.whole(1)]);
    let (bucket, id) = (commit.bucket, commit.id);
    assert!(matches!(desk.catalog.put(commit).await, Err(CatalogError::Unknown(_))));
    let run = desk.catalog.journal_marks().await.unwrap().run;
    assert_eq!(gate.2.swap(-1, Ordering::Relaxed), run, "it is committed in the run that is asked now");
    assert!(matches!(desk.catalog.version(bucket, "k", id).await, Err(CatalogError::Unknown(_))));
    assert_eq!(gate.2.load(Ordering::Relaxed), run);
    assert_eq!(desk.content("k").await.version.id, id, "it is committed all the same");
    assert!(matches!(desk.catalog.delete(desk.deletion("k")).await, Err(CatalogError::Unknown(_))));
    assert!(matches!(desk.catalog.put_part(part.clone()).await, Err(CatalogError::Unknown(_))));
    assert!(matches!(desk.catalog.part(upload.id, 3).await, Err(CatalogError::Unknown(_))));
    assert_eq!(desk.catalog.parts(upload.id, 2, 1, true).await.unwrap()[0], part.part, "so is the part");
    desk.put("open again").await;
    let passed = gate.0.load(Ordering::Relaxed);
    assert_eq!(passed, 6);
    assert_eq!(desk.catalog.part(upload.id, 2).await.unwrap(), None);
    assert_eq!(gate.0.load(Ordering::Relaxed), passed, "nothing is acknowledged by it");
    assert_eq!(desk.catalog.part(upload.id, 3).await.unwrap(), Some(part.part));
    let passed = passed + 1;
    assert_eq!(desk.delete("nothing").await, None);
    desk.catalog.put_setting("s", json!(1)).await.unwrap();
    desk.catalog.open_epoch().await.unwrap();
    assert_eq!(gate.0.load(Ordering::Relaxed), passed, "nobody waits for these");

    gate.1.store(true, Ordering::Relaxed);
    let before = desk.catalog.last_seq().await.unwrap();
    assert!(matches!(desk.catalog.put(desk.commit("k", vec![desk.whole(1)])).await, Err(CatalogError::Refused(_))));
    assert!(matches!(desk.catalog.delete(desk.deletion("open again")).await, Err(CatalogError::Refused(_))));
    assert_eq!(desk.catalog.last_seq().await.unwrap(), before, "what is refused changes nothing");
    desk.catalog.put_setting("s", json!(2)).await.unwrap();
}

/// A history with every kind of mutation in it.
pub(super) async fn one_of_each<C: Catalog>(desk: &Desk<C>) {
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    catalog.put_setting("s", json!({"x": 1})).await.unwrap();
    catalog.set_bucket_settings(bucket, json!({"encryption": "aes256"})).await.unwrap();
    let key = WrappedKey { id: unique(9), bucket, epoch: 1, kek: [2; 8], wrapped: vec![0, 255, 128] };
    catalog.put_key(key.clone()).await.unwrap();
    let before = key.wrapped.clone();
    let rewrap = Rewrap { before, key: WrappedKey { kek: [3; 8], wrapped: vec![7, 0, 7], ..key.clone() } };
    catalog.rewrap_keys(vec![rewrap]).await.unwrap();
    catalog.put_key(WrappedKey { id: unique(10), epoch: 2, ..key }).await.unwrap();
    assert!(catalog.remove_keys(bucket, &[2]).await.unwrap());
    let ann = super::accounts::row(AccountKind::User, "ann", "sealed");
    let create = AccountsChange { creates: vec![ann.clone()], ..AccountsChange::default() };
    catalog.change_accounts(create).await.unwrap();
    let replace = AccountsChange { replaces: vec![ann], ..AccountsChange::default() };
    catalog.change_accounts(replace).await.unwrap();
    let temporary = catalog.create_bucket("temporary", "o", json!({}), NOW).await.unwrap();
    catalog.delete_bucket(temporary.id).await.unwrap();
    let base = desk.put("base").await;
    desk.copy(base, None).await;
    let mut delta = desk.delta(100, &[base]);
    delta.row.digest = Some([0xdd; 32]);
    delta.deferred = true;
    delta.heat_bytes = 7;
    let deferred = delta.row.id;
    catalog.put(desk.commit("delta", vec![delta])).await.unwrap();
    catalog.undefer(deferred).await.unwrap();
    catalog.cool(deferred).await.unwrap();
    catalog.put(desk.commit("hot", vec![NewBlob { heat_bytes: 5, ..desk.whole(100) }])).await.unwrap();
    catalog.put(desk.commit("inline", vec![desk.inline(&[0, 1, 254, 255])])).await.unwrap();
    catalog.put(PutCommit { precondition: Precondition::Absent, ..desk.commit("empty", vec![]) }).await.unwrap();
    let purged = desk.put("gone").await;
    desk.put("gone").await;
    desk.delete("gone").await;
    catalog.purge(purged, NOW).await.unwrap();
    let content = desk.content("inline").await;
    catalog.rewrite(desk.rewrite(&content, vec![desk.whole(4)])).await.unwrap();
    for abort in [true, false] {
        let upload = desk.start_upload("multipart", NOW).await;
        let parts = [desk.put_part(upload.id, 1, 10).await, desk.put_part(upload.id, 2, 10).await];
        match abort {
            true => assert!(catalog.abort(bucket, "multipart", upload.id, desk.epoch).await.unwrap()),
            false => drop(catalog.complete(desk.completion(&upload, &[&parts[1]])).await.unwrap()),
        }
    }
    let id = desk.content("multipart").await.version.id;
    let copy = all_of(&desk.content("delta").await.blobs[0]);
    let current = PutCommit {
        precondition: Precondition::Current(id),
        now_ms: 1,
        ..desk.commit_extents("multipart", vec![], vec![copy])
    };
    catalog.put(current).await.unwrap();
    catalog.forget_completed_uploads(NOW + 1).await.unwrap();
    let notices = vec![notice("a", "told", NoticeOf::Any), notice("b", "told", NoticeOf::Any)];
    let told = catalog.put(PutCommit { notices, ..desk.commit("told", vec![desk.whole(3)]) }).await.unwrap();
    let done = NoticesDone { lane: "a".into(), places: vec![(told.seq, 0)], lost: false };
    catalog.notices_done(done).await.unwrap();
    some_history(&desk.with_bucket("history").await).await;
    catalog.open_epoch().await.unwrap();
    catalog.close_epochs(&[desk.epoch + 1]).await.unwrap();
    let trash = |name: &str| TrashFile { backend: "b".into(), name: name.into(), stored_len: 3, since_ms: NOW };
    catalog.note_sweep(&[desk.epoch + 1], vec![trash("blobs/kept"), trash("blobs/gone")]).await.unwrap();
    catalog.untrash(vec![trash("blobs/gone")]).await.unwrap();
    desk.assert_sound().await;
}

/// Versions and markers, named and null, some removed, in a bucket that changed its mind twice.
async fn some_history<C: Catalog>(desk: &Desk<C>) {
    let catalog = &desk.catalog;
    desk.put("k").await;
    for versioning in [Versioning::Enabled, Versioning::Suspended, Versioning::Enabled] {
        catalog.set_versioning(desk.bucket.id, versioning).await.unwrap();
        desk.put("k").await;
        let marked = DeleteCommit { now_ms: NOW - 1, ..desk.deletion("k") };
        let marker = catalog.delete(marked).await.unwrap().marker.unwrap();
        let upload = desk.start_upload("k", NOW).await;
        let part = desk.put_part(upload.id, 1, 10).await;
        catalog.complete(desk.completion(&upload, &[&part])).await.unwrap();
        catalog.delete_version(desk.removal("k", marker.reference())).await.unwrap();
    }
    let newest = desk.content("k").await.version.reference();
    catalog.delete_version(desk.removal("k", newest)).await.unwrap();
    desk.delete("k").await;
}

/// Up to where it was shipped; the numbers go on.
pub async fn a_shipped_journal_is_trimmed<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for _ in 0..8 {
        desk.put("k").await;
    }
    let catalog = &desk.catalog;
    assert_eq!(catalog.journal(3, 2).await.unwrap().iter().map(|entry| entry.seq).collect::<Vec<_>>(), [4, 5]);
    let journal = catalog.journal(0, 20).await.unwrap();
    assert_eq!(catalog.trim_journal(&journal[4], LINK).await.unwrap(), 5);
    assert_eq!(catalog.trim_journal(&journal[4], LINK).await.unwrap(), 0, "another shipper was faster");
    assert!(catalog.journal(0, 100).await.unwrap().iter().map(|entry| entry.seq).eq(6..=10));
    desk.assert_sound().await;
    assert_eq!(catalog.trim_journal(&journal[9], LINK).await.unwrap(), 5);
    desk.put("k").await;
    assert!(catalog.journal(0, 100).await.unwrap().iter().map(|entry| entry.seq).eq([11]));
    desk.assert_sound().await;
}

/// A shipper that read its rows before the database went back trims nothing of what followed.
pub async fn rows_that_are_not_those_that_were_shipped_stay<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for _ in 0..4 {
        desk.put("k").await;
    }
    let catalog = &desk.catalog;
    let journal = catalog.journal(0, 20).await.unwrap();
    let last = journal.last().unwrap().clone();
    let other = JournalEntry { at_ms: last.at_ms + 1, ..last.clone() };
    let behind = JournalEntry { seq: last.seq + 1, ..last.clone() };
    for stranger in [other, behind] {
        let trimmed = catalog.trim_journal(&stranger, LINK).await;
        assert!(matches!(trimmed, Err(CatalogError::Conflict)), "{trimmed:?}");
    }
    assert_eq!(catalog.journal(0, 20).await.unwrap(), journal);
    assert_eq!(catalog.trim_journal(&last, LINK).await.unwrap(), journal.len() as u64);
}

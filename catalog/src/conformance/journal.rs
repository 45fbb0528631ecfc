//! The journal: complete, consecutive, and enough.

use super::{
    Factory,
    desk::{Desk, NOW, all_of, unique},
};
use crate::*;
use serde_json::json;

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
        let Ok(Mutation::Put { commit, .. }) = serde_json::from_value(entry.mutation.clone()) else {
            panic!("{entry:?}")
        };
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
    for entry in &journal {
        let text = entry.mutation.to_string();
        let mutation: Mutation = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        replay(&*again.catalog, mutation).await;
    }
    let mutations = |journal: Vec<JournalEntry>| {
        let row = |mut entry: JournalEntry| {
            // Made again through the contract, an abort takes the time of now; everything else takes the row's.
            if let Some(now_ms) = entry.mutation.pointer_mut("/Abort/now_ms") {
                *now_ms = NOW.into();
            }
            (entry.seq, entry.mutation)
        };
        journal.into_iter().map(row).collect()
    };
    let replayed: Vec<_> = mutations(again.catalog.journal(0, 10_000).await.unwrap());
    let original: Vec<_> = mutations(journal);
    for (replayed, original) in replayed.iter().zip(&original) {
        assert_eq!(replayed, original);
    }
    assert_eq!(replayed.len(), original.len());
    assert_eq!(again.catalog.buckets().await.unwrap(), desk.catalog.buckets().await.unwrap());
    assert_eq!(again.catalog.stats().await.unwrap(), desk.catalog.stats().await.unwrap());
    assert_eq!(again.catalog.closed_epochs().await.unwrap(), desk.catalog.closed_epochs().await.unwrap());
    assert_eq!(again.catalog.setting("s").await.unwrap(), desk.catalog.setting("s").await.unwrap());
    assert_eq!(again.catalog.keys(desk.bucket.id).await.unwrap(), desk.catalog.keys(desk.bucket.id).await.unwrap());
    let dying = |mut blobs: Vec<BlobKey>| {
        blobs.sort_unstable();
        blobs
    };
    assert_eq!(dying(again.dying().await), dying(desk.dying().await));
    for key in ["base", "delta", "inline", "empty", "multipart"] {
        assert_eq!(again.content(key).await, desk.content(key).await);
    }
    again.assert_sound().await;
}

/// A history with every kind of mutation in it.
async fn one_of_each<C: Catalog>(desk: &Desk<C>) {
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    catalog.put_setting("s", json!({"x": 1})).await.unwrap();
    catalog.set_bucket_settings(bucket, json!({"encryption": "aes256"})).await.unwrap();
    let key = WrappedKey { id: unique(9), bucket, epoch: 1, kek: [2; 8], wrapped: vec![0, 255, 128] };
    catalog.put_key(key).await.unwrap();
    let temporary = catalog.create_bucket("temporary", "o", json!({}), NOW).await.unwrap();
    catalog.delete_bucket(temporary.id).await.unwrap();
    let base = desk.put("base").await;
    let mut delta = desk.delta(100, &[base]);
    delta.row.digest = Some([0xdd; 32]);
    catalog.put(desk.commit("delta", vec![delta])).await.unwrap();
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
    catalog.open_epoch().await.unwrap();
    catalog.close_epochs(&[desk.epoch + 1]).await.unwrap();
    desk.assert_sound().await;
}

/// Makes a mutation again, and checks that the catalog chooses what it chose before.
async fn replay<C: Catalog>(catalog: &C, mutation: Mutation) {
    match mutation {
        Mutation::OpenEpoch { epoch, .. } => assert_eq!(catalog.open_epoch().await.unwrap(), epoch),
        Mutation::CloseEpochs { epochs } => assert_eq!(catalog.close_epochs(&epochs).await.unwrap(), epochs),
        Mutation::PutSetting { name, value } => catalog.put_setting(&name, value).await.unwrap(),
        Mutation::CreateBucket { bucket } => {
            let made = catalog.create_bucket(&bucket.name, &bucket.owner, bucket.settings.clone(), bucket.created_ms);
            assert_eq!(made.await.unwrap(), bucket);
        }
        Mutation::SetBucketSettings { bucket, settings } => {
            catalog.set_bucket_settings(bucket, settings).await.unwrap();
        }
        Mutation::DeleteBucket { bucket } => assert!(catalog.delete_bucket(bucket).await.unwrap()),
        Mutation::PutKey { key } => catalog.put_key(key).await.unwrap(),
        Mutation::Put { commit, modified_ms } => {
            assert_eq!(catalog.put(*commit).await.unwrap().modified_ms, modified_ms);
        }
        Mutation::Delete { commit, removed } => {
            assert_eq!(catalog.delete(*commit).await.unwrap().map(|version| version.id), Some(removed));
        }
        Mutation::Rewrite { commit } => catalog.rewrite(*commit).await.unwrap(),
        Mutation::CreateUpload { upload } => catalog.create_upload(*upload).await.unwrap(),
        Mutation::PutPart { commit } => catalog.put_part(*commit).await.unwrap(),
        Mutation::Complete { commit, modified_ms } => {
            assert_eq!(catalog.complete(*commit).await.unwrap().modified_ms, modified_ms);
        }
        Mutation::Abort { bucket, key, upload, epoch, .. } => {
            assert!(catalog.abort(bucket, &key, upload, epoch).await.unwrap());
        }
        Mutation::ForgetCompletedUploads { before_ms } => {
            assert!(catalog.forget_completed_uploads(before_ms).await.unwrap() > 0);
        }
        Mutation::Purge { blob, now_ms } => catalog.purge(blob, now_ms).await.unwrap(),
    }
}

/// Up to where it was shipped; the numbers go on.
pub async fn a_shipped_journal_is_trimmed<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for _ in 0..8 {
        desk.put("k").await;
    }
    let catalog = &desk.catalog;
    assert_eq!(catalog.journal(3, 2).await.unwrap().iter().map(|entry| entry.seq).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(catalog.trim_journal(5).await.unwrap(), 5);
    assert_eq!(catalog.trim_journal(5).await.unwrap(), 0);
    assert!(catalog.journal(0, 100).await.unwrap().iter().map(|entry| entry.seq).eq(6..=10));
    desk.assert_sound().await;
    assert_eq!(catalog.trim_journal(1000).await.unwrap(), 5);
    desk.put("k").await;
    assert!(catalog.journal(0, 100).await.unwrap().iter().map(|entry| entry.seq).eq([11]));
    desk.assert_sound().await;
}

//! References: what keeps a blob alive, and what may be referenced.

use super::{
    Factory,
    desk::{Desk, NOW, all_of},
};
use crate::*;

/// Through deletion and purge, one after the other (I3).
pub async fn a_base_outlives_its_version_while_a_delta_needs_it<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let base = desk.put("base").await;
    let deltas = [desk.delta(1000, &[base]), desk.delta(1000, &[base])];
    let ids = [deltas[0].row.id, deltas[1].row.id];
    for (key, delta) in ["d0", "d1"].into_iter().zip(deltas) {
        desk.catalog.put(desk.commit(key, vec![delta])).await.unwrap();
    }
    assert_eq!(desk.catalog.fan_in(base).await.unwrap(), 2);
    let sum = desk.catalog.deltas_sum(base).await.unwrap();
    assert_eq!((sum.deltas, sum.plain_bytes, sum.shares_ppm), (2, 2000, 2 * sum.least_share_ppm));
    assert!(sum.least_share_ppm > 0);
    assert_eq!(desk.catalog.deltas_sum(ids[0]).await.unwrap(), DeltasSum::default());
    desk.delete("base").await;
    assert_eq!(desk.state(base).await, Some(BlobState::Live));
    desk.delete("d0").await;
    desk.catalog.purge(ids[0], NOW).await.unwrap();
    assert_eq!(desk.state(base).await, Some(BlobState::Live));
    desk.delete("d1").await;
    assert_eq!(desk.dying().await, [ids[1]], "a dying delta may still be read, and needs its base");
    assert_eq!(desk.state(base).await, Some(BlobState::Live));
    desk.assert_sound().await;
    desk.catalog.purge(ids[1], NOW).await.unwrap();
    assert_eq!(desk.dying().await, [base]);
    desk.catalog.purge(base, NOW).await.unwrap();
    assert_eq!(desk.catalog.blobs(&[base, ids[0], ids[1]]).await.unwrap(), []);
    desk.assert_sound().await;
}

/// Neither by an extent nor as a base, in no kind of commit (E3, E4).
pub async fn a_dying_blob_cannot_be_referenced<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let gone = desk.put("k").await;
    let extent = Extent { blob: gone, offset: 0, len: 1000 };
    desk.put("k").await;
    assert_eq!(desk.state(gone).await, Some(BlobState::Dying));
    let upload = desk.start_upload("u", NOW).await;
    for purged in [false, true] {
        if purged {
            catalog.purge(gone, NOW).await.unwrap();
        }
        let base_gone = |outcome: Result<()>| assert!(matches!(outcome, Err(CatalogError::BaseGone)), "{outcome:?}");
        base_gone(catalog.put(desk.commit_extents("copy", vec![], vec![extent])).await.map(|_| ()));
        base_gone(catalog.put(desk.commit("delta", vec![desk.delta(10, &[gone])])).await.map(|_| ()));
        let mut part = desk.part(upload.id, 1, 1000);
        part.new_blobs.clear();
        part.part.extents = vec![extent];
        base_gone(catalog.put_part(part).await);
        let content = desk.content("k").await;
        base_gone(catalog.rewrite(desk.rewrite(&content, vec![desk.delta(1000, &[gone])])).await);
    }
    desk.assert_sound().await;
}

/// A domain never leaves its bucket.
pub async fn a_blob_of_another_bucket_cannot_be_referenced<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let other = desk.with_bucket("other").await;
    let blob = desk.put("k").await;
    let copy = other.commit_extents("k", vec![], vec![Extent { blob, offset: 0, len: 1000 }]);
    assert!(matches!(other.catalog.put(copy).await, Err(CatalogError::BaseGone)));
    let delta = other.commit("k", vec![other.delta(10, &[blob])]);
    assert!(matches!(other.catalog.put(delta).await, Err(CatalogError::BaseGone)));
    desk.assert_sound().await;
}

/// A base that no version needs is promoted in the same transaction (E15).
pub async fn a_base_may_come_with_the_delta_that_needs_it<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let base = desk.whole(1000);
    let delta = desk.delta(900, &[base.row.id]);
    let (base_id, extents) = (base.row.id, vec![all_of(&delta.row)]);
    desk.catalog.put(desk.commit_extents("k", vec![delta, base], extents)).await.unwrap();
    assert_eq!(desk.state(base_id).await, Some(BlobState::Live));
    desk.assert_sound().await;
}

/// Makes a commit wrong.
type Break<'a> = Box<dyn Fn(&mut PutCommit) + 'a>;

/// What a refusal says, and what brings it about.
fn contradictions<C: Catalog>(desk: &Desk<C>, base: BlobKey, delta: BlobKey) -> Vec<(&'static str, Break<'_>)> {
    vec![
        ("an extent is empty", Box::new(move |c| c.extents[0].len = 0)),
        ("add up", Box::new(move |c| c.size += 1)),
        ("add up", Box::new(move |c| c.extents[0].len -= 1)),
        ("overflow", Box::new(move |c| c.extents = vec![Extent { len: u64::MAX, ..c.extents[0] }; 2])),
        ("outside its blob", Box::new(move |c| c.extents[0].offset = 1)),
        ("outside its blob", Box::new(move |c| c.extents[0].offset = u64::MAX)),
        ("not referenced", Box::new(move |c| c.new_blobs.push(desk.whole(10)))),
        ("named twice", Box::new(move |c| c.new_blobs.push(c.new_blobs[0].clone()))),
        (
            "another epoch",
            Box::new(move |c| {
                c.new_blobs[0].row.id.0[0] ^= 1;
                c.extents[0].blob = c.new_blobs[0].row.id;
            }),
        ),
        ("another bucket", Box::new(move |c| c.new_blobs[0].row.bucket.0 += 1)),
        ("not live", Box::new(move |c| c.new_blobs[0].row.state = BlobState::Dying)),
        ("second copy already", Box::new(move |c| c.new_blobs[0].row.copy = Some(base))),
        ("inline", Box::new(move |c| c.new_blobs[0].row.inline = Some(vec![1]))),
        ("whole blob has bases", Box::new(move |c| c.new_blobs[0].bases = vec![base])),
        ("no base", Box::new(move |c| c.new_blobs[0].row.form = BlobForm::Delta)),
        (
            "not whole",
            Box::new(move |c| {
                c.new_blobs[0].row.form = BlobForm::Delta;
                c.new_blobs[0].bases = vec![delta];
            }),
        ),
        (
            "a base twice",
            Box::new(move |c| {
                c.new_blobs[0].row.form = BlobForm::Delta;
                c.new_blobs[0].bases = vec![base, base];
            }),
        ),
        (
            "another domain",
            Box::new(move |c| {
                c.new_blobs[0].row.form = BlobForm::Delta;
                c.new_blobs[0].row.key_epoch = 1;
                c.new_blobs[0].bases = vec![base];
            }),
        ),
        (
            "another domain",
            Box::new(move |c| {
                c.new_blobs[0].row.form = BlobForm::Delta;
                c.new_blobs[0].row.backend = "cloud".into();
                c.new_blobs[0].bases = vec![base];
            }),
        ),
        (
            "more than 256",
            Box::new(move |c| {
                c.new_blobs[0].row.form = BlobForm::Delta;
                c.new_blobs[0].bases = (0..=256u32).map(|n| BlobKey(super::desk::unique(n))).collect();
            }),
        ),
        ("out of range", Box::new(move |c| c.new_blobs[0].row.stored_len = u64::MAX)),
    ]
}

/// Each for its own reason, and nothing is changed by the attempt.
pub async fn a_commit_that_contradicts_itself_is_refused<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let base = desk.put("base").await;
    let existing_delta = desk.delta(50, &[base]);
    let delta_id = existing_delta.row.id;
    desk.catalog.put(desk.commit("delta", vec![existing_delta])).await.unwrap();
    let (id, bucket) = ([1; 16], desk.bucket.id);
    desk.catalog.put_key(WrappedKey { id, bucket, epoch: 1, kek: [1; 8], wrapped: vec![1; 40] }).await.unwrap();
    let before = desk.catalog.last_seq().await.unwrap();
    for (reason, make_wrong) in contradictions(&desk, base, delta_id) {
        let mut commit = desk.commit("k", vec![desk.whole(100)]);
        make_wrong(&mut commit);
        match desk.catalog.put(commit).await {
            Err(CatalogError::Invalid(why)) => assert!(why.contains(reason), "{why:?} instead of {reason:?}"),
            other => panic!("{reason}: {other:?}"),
        }
    }
    assert_eq!(desk.catalog.last_seq().await.unwrap(), before);
    assert_eq!(desk.catalog.current(desk.bucket.id, "k").await.unwrap(), None);
    desk.assert_sound().await;
}

/// Copies share extents; the blob does not mind which of them goes first.
pub async fn a_shared_blob_dies_with_its_last_version<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put("a").await;
    for (key, offset) in [("b", 0), ("c", 500)] {
        let extent = Extent { blob, offset, len: 1000 - offset };
        desk.catalog.put(desk.commit_extents(key, vec![], vec![extent])).await.unwrap();
    }
    // A copy of a key onto itself keeps what it has.
    let itself = desk.commit_extents("b", vec![], vec![Extent { blob, offset: 0, len: 1000 }]);
    desk.catalog.put(itself).await.unwrap();
    for key in ["a", "c", "b"] {
        assert_eq!(desk.state(blob).await, Some(BlobState::Live));
        desk.delete(key).await;
    }
    assert_eq!(desk.dying().await, [blob]);
    desk.assert_sound().await;
}

/// Neither a live one nor one that is purged already.
pub async fn only_a_dying_blob_is_purged<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put("k").await;
    assert!(matches!(desk.catalog.purge(blob, NOW).await, Err(CatalogError::Conflict)));
    desk.delete("k").await;
    desk.catalog.purge(blob, NOW).await.unwrap();
    assert!(matches!(desk.catalog.purge(blob, NOW).await, Err(CatalogError::Conflict)));
    assert_eq!(desk.dying().await, []);
    desk.assert_sound().await;
}

/// Same bucket, key epoch, backend, compartment, length and digest, and alive.
pub async fn a_duplicate_is_found_only_alive_and_in_its_domain<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let other = desk.with_bucket("other").await;
    let catalog = &desk.catalog;
    let mut blob = desk.whole(100);
    blob.row.digest = Some([6; 32]);
    let row = blob.row.clone();
    catalog.put(desk.commit("k", vec![blob])).await.unwrap();
    desk.put("without a digest").await;
    let found = async |domain: &Domain, digest, len| catalog.duplicate(domain, digest, len).await.unwrap();
    let here = desk.domain();
    assert_eq!(found(&here, [6; 32], 100).await, Some(row.clone()));
    for domain in desk.domain_and_others(other.bucket.id).into_iter().skip(1) {
        assert_eq!(found(&domain, [6; 32], 100).await, None, "{domain:?}");
    }
    assert_eq!(found(&here, [7; 32], 100).await, None);
    assert_eq!(found(&here, [6; 32], 101).await, None);
    assert_eq!(found(&here, [6; 32], u64::MAX).await, None);
    // Of several always the same one.
    let mut twin = desk.whole(100);
    twin.row.digest = Some([6; 32]);
    let first = twin.row.id.min(row.id);
    catalog.put(desk.commit("twin", vec![twin])).await.unwrap();
    assert_eq!(found(&here, [6; 32], 100).await.map(|found| found.id), Some(first));
    desk.delete("twin").await;
    desk.delete("k").await;
    assert_eq!(found(&here, [6; 32], 100).await, None);
}

/// With all that a collector needs to know.
pub async fn tombstones_are_given_oldest_first<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let late = desk.put("late").await;
    let early = desk.inline(b"early");
    let row = early.row.clone();
    desk.catalog.put(desk.commit("early", vec![early])).await.unwrap();
    desk.catalog.delete(DeleteCommit { now_ms: NOW + 2000, ..desk.deletion("late") }).await.unwrap();
    desk.catalog.delete(DeleteCommit { now_ms: NOW + 1000, ..desk.deletion("early") }).await.unwrap();
    let all = desk.catalog.tombstones(NOW + 2001, 10).await.unwrap();
    let expected = [
        Tombstone {
            blob: row.id,
            backend: "local".into(),
            inline: true,
            original: None,
            copy: None,
            stored_len: row.stored_len,
            since_ms: NOW + 1000,
            needed: false,
        },
        Tombstone {
            blob: late,
            backend: "local".into(),
            inline: false,
            original: None,
            copy: None,
            stored_len: 660,
            since_ms: NOW + 2000,
            needed: false,
        },
    ];
    assert_eq!(all, expected);
    assert_eq!(desk.catalog.tombstones(NOW + 2000, 10).await.unwrap(), expected[..1]);
    assert_eq!(desk.catalog.tombstones(NOW + 1000, 10).await.unwrap(), []);
    assert_eq!(desk.catalog.tombstones(UnixMs::MAX, 1).await.unwrap(), expected[..1]);
}

/// Either the delta came first and the base lives, or the end came first and the delta is told
/// (E3).
pub async fn a_delta_and_the_end_of_its_base_do_not_pass_each_other<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let mut outcomes = [0u32; 2];
    for round in 0..24 {
        let base = desk.put("base").await;
        let delta = desk.delta(10, &[base]);
        let (writer, remover) = (desk.clone(), desk.clone());
        let put = tokio::spawn(async move { writer.catalog.put(writer.commit("delta", vec![delta])).await });
        let delete = tokio::spawn(async move { remover.delete("base").await });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        assert!(delete.await.unwrap().is_some());
        match put.await.unwrap() {
            Ok(_) => {
                assert_eq!(desk.state(base).await, Some(BlobState::Live));
                outcomes[0] += 1;
            }
            Err(CatalogError::BaseGone) => {
                assert_eq!(desk.state(base).await, Some(BlobState::Dying));
                outcomes[1] += 1;
            }
            Err(error) => panic!("{error}"),
        }
        desk.assert_sound().await;
    }
    assert_eq!(outcomes[0] + outcomes[1], 24);
}

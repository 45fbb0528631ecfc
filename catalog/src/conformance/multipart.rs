//! Multipart uploads.

use super::{
    Factory,
    desk::{Desk, NOW, all_of},
};
use crate::*;

/// Not in the order they came.
pub async fn parts_become_a_version_in_the_order_of_their_numbers<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let replaced = desk.put("k").await;
    let upload = desk.start_upload("k", NOW).await;
    let third = desk.put_part(upload.id, 10_000, 30).await;
    let mut two_blobs = desk.part(upload.id, 1, 10);
    let more = desk.whole(5);
    two_blobs.part.extents.push(all_of(&more.row));
    two_blobs.part.size = 15;
    two_blobs.new_blobs.push(more);
    desk.catalog.put_part(two_blobs.clone()).await.unwrap();
    let empty = PartCommit {
        part: Part { extents: vec![], size: 0, ..desk.part(upload.id, 2, 1).part },
        new_blobs: vec![],
        ..desk.part(upload.id, 2, 1)
    };
    desk.catalog.put_part(empty.clone()).await.unwrap();
    desk.assert_sound().await;

    let completion = desk.completion(&upload, &[&two_blobs.part, &empty.part, &third]);
    let committed = desk.catalog.complete(completion.clone()).await.unwrap();
    let content = desk.content("k").await;
    assert_eq!(content.extents, [two_blobs.part.extents, third.extents].concat());
    let version = &content.version;
    assert_eq!((version.id, version.seq, version.size), (completion.id, committed.seq, 45));
    assert_eq!((&version.facts, version.extents_digest), (&completion.facts, completion.extents_digest));
    assert_eq!(desk.dying().await, [replaced]);
    assert_eq!(desk.catalog.parts(upload.id, 0, 10, true).await.unwrap(), []);
    desk.assert_sound().await;
}

/// And frees its blob.
pub async fn a_part_that_is_uploaded_again_replaces_the_first<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("k", NOW).await;
    let first = desk.put_part(upload.id, 1, 10).await;
    let second = desk.put_part(upload.id, 1, 20).await;
    assert_eq!(desk.catalog.parts(upload.id, 0, 10, true).await.unwrap(), [second]);
    assert_eq!(desk.dying().await, [first.extents[0].blob]);
    desk.assert_sound().await;
}

/// And its blob freed, unless the version has it too.
pub async fn a_part_that_was_not_chosen_is_dropped<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("k", NOW).await;
    let chosen = desk.put_part(upload.id, 2, 10).await;
    let left_out = desk.put_part(upload.id, 3, 10).await;
    let mut shared = desk.part(upload.id, 4, 10);
    shared.new_blobs.clear();
    shared.part.extents = chosen.extents.clone();
    desk.catalog.put_part(shared).await.unwrap();
    desk.catalog.complete(desk.completion(&upload, &[&chosen])).await.unwrap();
    assert_eq!(desk.content("k").await.extents, chosen.extents);
    assert_eq!(desk.dying().await, [left_out.extents[0].blob]);
    desk.assert_sound().await;
}

/// As does one that is missing; and the upload stays open.
pub async fn a_part_that_was_replaced_makes_completion_a_conflict<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("k", NOW).await;
    let first = desk.put_part(upload.id, 1, 10).await;
    let completion = desk.completion(&upload, &[&first]);
    let second = desk.put_part(upload.id, 1, 10).await;
    assert!(matches!(desk.catalog.complete(completion).await, Err(CatalogError::Conflict)));
    let missing = Part { number: 2, ..first };
    let completion = desk.completion(&upload, &[&second, &missing]);
    assert!(matches!(desk.catalog.complete(completion).await, Err(CatalogError::Conflict)));
    for wrong in [desk.completion(&upload, &[]), desk.completion(&upload, &[&second, &second]), {
        let completion = desk.completion(&upload, &[&second]);
        CompleteCommit { size: 11, ..completion }
    }] {
        assert!(matches!(desk.catalog.complete(wrong).await, Err(CatalogError::Invalid(_))));
    }
    desk.catalog.complete(desk.completion(&upload, &[&second])).await.unwrap();
    desk.assert_sound().await;
}

/// So a client that asks again can be told what it became.
pub async fn an_upload_is_completed_once_and_remembered<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("k", NOW).await;
    assert_eq!(desk.catalog.upload(desk.bucket.id, "k", upload.id).await.unwrap(), Some(upload.clone()));
    let part = desk.put_part(upload.id, 1, 10).await;
    let refused = CompleteCommit {
        precondition: Precondition::Current(VersionId([1; 16])),
        ..desk.completion(&upload, &[&part])
    };
    assert!(matches!(desk.catalog.complete(refused).await, Err(CatalogError::PreconditionFailed)));
    let completion = desk.completion(&upload, &[&part]);
    desk.catalog.complete(completion.clone()).await.unwrap();
    assert!(matches!(desk.catalog.complete(completion.clone()).await, Err(CatalogError::NoUpload)));
    let completed =
        CompletedUpload { version: completion.id, parts_digest: completion.parts_digest, completed_ms: NOW };
    let found = desk.catalog.upload(desk.bucket.id, "k", upload.id).await.unwrap();
    assert_eq!(found, Some(Upload { completed: Some(completed), ..upload.clone() }));
    assert!(!desk.catalog.abort(desk.bucket.id, "k", upload.id, desk.epoch).await.unwrap());
    assert_eq!(desk.catalog.create_upload(upload).await.unwrap_err().to_string(), "exists already");
    desk.content("k").await;
}

/// And is not known any more.
pub async fn an_aborted_upload_frees_its_parts<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("k", NOW).await;
    let part = desk.put_part(upload.id, 1, 10).await;
    assert!(!desk.catalog.abort(desk.bucket.id, "other key", upload.id, desk.epoch).await.unwrap());
    assert!(desk.catalog.abort(desk.bucket.id, "k", upload.id, desk.epoch).await.unwrap());
    assert!(!desk.catalog.abort(desk.bucket.id, "k", upload.id, desk.epoch).await.unwrap());
    assert_eq!(desk.catalog.upload(desk.bucket.id, "k", upload.id).await.unwrap(), None);
    assert_eq!(desk.dying().await, [part.extents[0].blob]);
    desk.assert_sound().await;
}

/// However it ended, nor one that never began or is another bucket's.
pub async fn an_upload_takes_no_part_once_it_has_ended<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let other = desk.with_bucket("other").await;
    let no_upload = |outcome: Result<()>| assert!(matches!(outcome, Err(CatalogError::NoUpload)), "{outcome:?}");
    no_upload(desk.catalog.put_part(desk.part(UploadId([7; 16]), 1, 10)).await);
    let upload = desk.start_upload("k", NOW).await;
    no_upload(desk.catalog.put_part(other.part(upload.id, 1, 10)).await);
    for number in [0, 10_001] {
        let outcome = desk.catalog.put_part(desk.part(upload.id, number, 10)).await;
        assert!(matches!(outcome, Err(CatalogError::Invalid(_))));
    }
    let part = desk.put_part(upload.id, 1, 10).await;
    desk.catalog.complete(desk.completion(&upload, &[&part])).await.unwrap();
    no_upload(desk.catalog.put_part(desk.part(upload.id, 2, 10)).await);
    let upload = desk.start_upload("k", NOW).await;
    desk.catalog.abort(desk.bucket.id, "k", upload.id, desk.epoch).await.unwrap();
    no_upload(desk.catalog.put_part(desk.part(upload.id, 1, 10)).await);
    let nothing = desk.catalog.complete(desk.completion(&upload, &[&part])).await;
    assert!(matches!(nothing, Err(CatalogError::NoUpload)));
    desk.assert_sound().await;
}

/// With extents only where asked for.
pub async fn parts_are_paged_by_number<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("k", NOW).await;
    let mut stored = Vec::new();
    for number in [5, 1, 900, 7] {
        stored.push(desk.put_part(upload.id, number, 10).await);
    }
    stored.sort_by_key(|part| part.number);
    assert_eq!(desk.catalog.parts(upload.id, 0, 3, true).await.unwrap(), stored[..3]);
    assert_eq!(desk.catalog.parts(upload.id, 7, 3, true).await.unwrap(), stored[3..]);
    let bare = desk.catalog.parts(upload.id, 1, 1, false).await.unwrap();
    assert_eq!(bare, [Part { extents: vec![], ..stored[1].clone() }]);
}

async fn all_pages<C: Catalog>(desk: &Desk<C>, mut query: UploadsQuery) -> (Vec<Upload>, Vec<String>, usize) {
    let (mut uploads, mut prefixes, mut pages) = (Vec::new(), Vec::new(), 0);
    loop {
        let page = desk.catalog.uploads(&query).await.unwrap();
        pages += 1;
        assert!(page.uploads.len() + page.common_prefixes.len() <= query.limit);
        assert_eq!(page.truncated, page.next.is_some());
        uploads.extend(page.uploads);
        prefixes.extend(page.common_prefixes);
        match page.next {
            None => return (uploads, prefixes, pages),
            Some((key, upload)) => (query.key_after, query.upload_after) = (Some(key), upload),
        }
    }
}

/// On pages of any size; completed ones are not listed.
pub async fn uploads_are_listed_by_key_creation_and_id<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let mut open = Vec::new();
    for (key, created_ms) in [("b", 5), ("a", 9), ("b", 1), ("b", 5), ("a/b", 1), ("c", 0), ("\u{10FFFF}", 3)] {
        open.push(desk.start_upload(key, NOW + created_ms).await);
    }
    let completed = desk.start_upload("b", NOW).await;
    let part = desk.put_part(completed.id, 1, 1).await;
    desk.catalog.complete(desk.completion(&completed, &[&part])).await.unwrap();
    open.sort_by(|x, y| (&x.key, x.created_ms, x.id).cmp(&(&y.key, y.created_ms, y.id)));
    let query = UploadsQuery {
        bucket: desk.bucket.id,
        prefix: String::new(),
        delimiter: None,
        key_after: None,
        upload_after: None,
        limit: 1000,
    };
    for limit in [1, 2, 3, 7, 1000] {
        let (uploads, prefixes, pages) = all_pages(&desk, UploadsQuery { limit, ..query.clone() }).await;
        assert_eq!(uploads, open);
        assert_eq!((prefixes.len(), pages), (0, open.len().div_ceil(limit)));
    }
    let after_key = UploadsQuery { key_after: Some("b".into()), ..query.clone() };
    assert_eq!(all_pages(&desk, after_key).await.0, open[5..]);
    // The marker's upload ended meanwhile: the others of its key come again rather than not at all.
    let marker = UploadsQuery { key_after: Some("b".into()), upload_after: Some(UploadId([1; 16])), ..query.clone() };
    assert_eq!(all_pages(&desk, marker).await.0, open[2..]);
    let prefixed = UploadsQuery { prefix: "a".into(), ..query };
    assert_eq!(all_pages(&desk, prefixed).await.0, open[..2]);
}

/// As keys are.
pub async fn uploads_are_rolled_up_at_a_delimiter<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for key in ["d/x/1", "d/x/2", "d/x/2", "d/y", "d/z/1", "e", "d"] {
        desk.start_upload(key, NOW).await;
    }
    for number in 0..30 {
        desk.start_upload(&format!("d/many/{number}"), NOW).await;
    }
    for limit in [1, 2, 1000] {
        let query = UploadsQuery {
            bucket: desk.bucket.id,
            prefix: "d/".into(),
            delimiter: Some("/".into()),
            key_after: None,
            upload_after: None,
            limit,
        };
        let (uploads, prefixes, pages) = all_pages(&desk, query).await;
        assert_eq!(uploads.iter().map(|upload| upload.key.as_str()).collect::<Vec<_>>(), ["d/y"]);
        assert_eq!(prefixes, ["d/many/", "d/x/", "d/z/"]);
        assert_eq!(pages, 4usize.div_ceil(limit));
    }
}

/// By age.
pub async fn stale_uploads_are_found_and_completed_ones_forgotten<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let old = desk.start_upload("old", NOW - 10).await;
    desk.start_upload("new", NOW).await;
    let done = desk.start_upload("done", NOW - 20).await;
    let part = desk.put_part(done.id, 1, 1).await;
    desk.catalog.complete(desk.completion(&done, &[&part])).await.unwrap();
    assert_eq!(desk.catalog.stale_uploads(NOW, 10).await.unwrap(), [old]);
    for (owner, limit, open) in [("owner", 10, 2), ("owner", 1, 1), ("owner", 0, 0), ("another", 10, 0)] {
        assert_eq!(desk.catalog.open_uploads(owner, limit).await.unwrap(), open, "{owner} {limit}");
    }
    assert_eq!(desk.catalog.stale_uploads(NOW + 1, 1).await.unwrap().len(), 1);
    assert_eq!(desk.catalog.forget_completed_uploads(NOW).await.unwrap(), 0);
    assert_eq!(desk.catalog.forget_completed_uploads(NOW + 1).await.unwrap(), 1);
    assert_eq!(desk.catalog.upload(desk.bucket.id, "done", done.id).await.unwrap(), None);
    desk.content("done").await;
    desk.assert_sound().await;
}

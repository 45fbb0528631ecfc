//! Writers and their epochs.

use super::{
    Factory,
    desk::{Desk, NOW},
};
use crate::*;

/// Every one is greater than all before.
pub async fn epochs_grow<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let first = catalog.open_epoch().await.unwrap();
    let second = catalog.open_epoch().await.unwrap();
    let third = catalog.open_epoch().await.unwrap();
    assert!(0 < first && first < second && second < third);
    let closed = catalog.close_epochs(&[second]).await.unwrap();
    assert!(catalog.closed_epochs().await.unwrap().contains(&second));
    assert!(closed.is_empty() || closed == [second], "only what was open is closed");
    assert_eq!(catalog.close_epochs(&[second]).await.unwrap(), [0u32; 0]);
    assert!(!catalog.closed_epochs().await.unwrap().contains(&third));
    let open: Vec<u32> = catalog.open_writers().await.unwrap().iter().map(|writer| writer.epoch).collect();
    assert!(open.contains(&third) && !open.contains(&second), "{open:?}");
}

/// Whatever it tries, and nothing is changed by the attempt (E4).
pub async fn a_closed_epoch_commits_nothing<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    desk.put("k").await;
    let content = desk.content("k").await;
    let upload = desk.start_upload("u", NOW).await;
    let part = desk.put_part(upload.id, 1, 10).await;
    assert_eq!(catalog.close_epochs(&[desk.epoch]).await.unwrap(), [desk.epoch]);
    let before = catalog.last_seq().await.unwrap();

    assert!(matches!(catalog.put(desk.commit("n", vec![desk.whole(1)])).await, Err(CatalogError::Fenced)));
    assert!(matches!(catalog.delete(desk.deletion("k")).await, Err(CatalogError::Fenced)));
    let rewrite = desk.rewrite(&content, vec![desk.whole(1000)]);
    assert!(matches!(catalog.rewrite(rewrite).await, Err(CatalogError::Fenced)));
    assert!(matches!(catalog.put_part(desk.part(upload.id, 2, 5)).await, Err(CatalogError::Fenced)));
    assert!(matches!(catalog.complete(desk.completion(&upload, &[&part])).await, Err(CatalogError::Fenced)));
    let abort = catalog.abort(desk.bucket.id, "u", upload.id, desk.epoch).await;
    assert!(matches!(abort, Err(CatalogError::Fenced)));

    assert_eq!(catalog.last_seq().await.unwrap(), before);
    assert_eq!(desk.content("k").await, content);
    desk.assert_sound().await;
}

/// An epoch that somebody made up is as good as a closed one.
pub async fn an_epoch_that_was_never_opened_commits_nothing<F: Factory>(factory: &F) {
    let mut desk = Desk::new(factory.fresh().await).await;
    desk.epoch += 1;
    assert!(matches!(desk.catalog.put(desk.commit("k", vec![desk.whole(1)])).await, Err(CatalogError::Fenced)));
}

/// So a writer that lost its lease learns of it.
pub async fn a_heartbeat_of_a_closed_epoch_is_fenced<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let epoch = catalog.open_epoch().await.unwrap();
    let before = catalog.last_seq().await.unwrap();
    catalog.heartbeat(epoch).await.unwrap();
    assert_eq!(catalog.close_stale_epochs(3_600_000).await.unwrap(), [0u32; 0], "it was just heard of");
    assert_eq!(catalog.last_seq().await.unwrap(), before, "leases are no mutations");
    catalog.close_epochs(&[epoch]).await.unwrap();
    assert!(matches!(catalog.heartbeat(epoch).await, Err(CatalogError::Fenced)));
    assert!(matches!(catalog.heartbeat(epoch + 1).await, Err(CatalogError::Fenced)));
}

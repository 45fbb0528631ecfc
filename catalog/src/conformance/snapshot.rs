//! The catalog as a whole: out and in.

use super::{
    Factory,
    desk::{Desk, NOW},
    journal::one_of_each,
};
use crate::*;
use tokio::sync::mpsc;

/// Everything a catalog streams, with its description.
async fn exported<C: Catalog>(desk: &Desk<C>) -> (Vec<TableRows>, Exported) {
    let (to, mut from) = mpsc::channel(1);
    let catalog = desk.catalog.clone();
    let exporting = tokio::spawn(async move { catalog.export(to).await });
    let mut pieces = Vec::new();
    while let Some(piece) = from.recv().await {
        pieces.push(piece);
    }
    (pieces, exporting.await.unwrap().unwrap())
}

/// Every table, every column.
pub async fn a_snapshot_gives_the_catalog_back<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.start_upload("open", NOW).await;
    let upload = desk.start_upload("open", NOW + 1).await;
    desk.put_part(upload.id, 7, 10).await;
    for number in 0..700 {
        desk.put(&format!("many/{number}")).await;
    }
    one_of_each(&desk).await;
    let (pieces, snapshot) = exported(&desk).await;
    assert!(pieces.iter().filter(|piece| piece.table == "versions").count() > 1, "read in pages");

    let again = Desk { catalog: factory.fresh().await, bucket: desk.bucket.clone(), epoch: desk.epoch };
    again.catalog.begin_import().await.unwrap();
    again.catalog.import(pieces).await.unwrap();
    assert_eq!(again.rows().await, desk.rows().await);
    again.catalog.end_import(0).await.unwrap();
    assert_eq!(again.catalog.last_seq().await.unwrap(), snapshot.seq);
    assert_eq!(again.catalog.stats().await.unwrap(), desk.catalog.stats().await.unwrap());
    assert_eq!(again.content("delta").await, desk.content("delta").await);
    again.assert_sound().await;
    let epoch = again.catalog.open_epoch().await.unwrap();
    let again = Desk { epoch, ..again };
    again.put("more").await;
    assert_eq!(again.catalog.last_seq().await.unwrap(), snapshot.seq + 2);
    again.assert_sound().await;
}

/// What is committed while the rows stream is not in it.
pub async fn a_snapshot_is_of_one_moment<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for number in 0..50 {
        desk.put(&format!("k{number:02}")).await;
    }
    let (to, mut from) = mpsc::channel(1);
    let catalog = desk.catalog.clone();
    let exporting = tokio::spawn(async move { catalog.export(to).await });
    let mut rows = vec![from.recv().await.unwrap()];
    let before = desk.catalog.last_seq().await.unwrap();
    desk.put("later").await;
    desk.delete("k00").await;
    while let Some(piece) = from.recv().await {
        rows.push(piece);
    }
    assert_eq!(exporting.await.unwrap().unwrap().seq, before);
    let versions: usize = rows.iter().filter(|piece| piece.table == "versions").map(|piece| piece.rows.len()).sum();
    assert_eq!(versions, 50);
}

/// A restore that died leaves a catalog that says so.
pub async fn an_import_that_was_interrupted_begins_again<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put("k").await;
    let (pieces, _) = exported(&desk).await;
    let catalog = factory.fresh().await;
    assert!(!catalog.is_importing().await.unwrap());
    catalog.begin_import().await.unwrap();
    for piece in &pieces[..pieces.len() / 2 + 1] {
        catalog.import(vec![piece.clone()]).await.unwrap();
    }
    let catalog = factory.after_crash(catalog).await;
    assert!(catalog.is_importing().await.unwrap());
    catalog.begin_import().await.unwrap();
    for piece in pieces {
        catalog.import(vec![piece]).await.unwrap();
    }
    catalog.end_import(0).await.unwrap();
    assert!(!catalog.is_importing().await.unwrap());
    let again = Desk { catalog, bucket: desk.bucket.clone(), epoch: desk.epoch };
    assert_eq!(again.content("k").await, desk.content("k").await);
    again.assert_sound().await;
}

/// A bucket is enough to be in the way.
pub async fn only_an_empty_catalog_is_filled<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    assert!(matches!(desk.catalog.begin_import().await, Err(CatalogError::NotEmpty)));
    let (pieces, _) = exported(&desk).await;
    for piece in pieces {
        assert!(matches!(desk.catalog.import(vec![piece]).await, Err(CatalogError::Invalid(_))));
    }
    assert!(matches!(desk.catalog.end_import(9).await, Err(CatalogError::Invalid(_))));
    desk.put("still here").await;
}

/// Nothing is guessed about a newer program's rows.
pub async fn rows_that_no_snapshot_has_are_refused<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    catalog.begin_import().await.unwrap();
    let piece = |table: &str, column: &str, row: Vec<Value>| TableRows {
        table: table.into(),
        columns: vec![column.into()],
        rows: vec![row],
    };
    for wrong in [
        piece("nothing", "a", vec![Value::Int(1)]),
        piece("settings", "name, value", vec![Value::Null]),
        piece("settings", "name", vec![]),
        piece("counters", "name", vec![Value::Text("cut".into()), Value::Int(1)]),
    ] {
        assert!(matches!(catalog.import(vec![wrong.clone()]).await, Err(CatalogError::Invalid(_))), "{wrong:?}");
    }
}

/// Ids of before and after never collide.
pub async fn epochs_after_an_import_are_greater_than_all_before<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (pieces, _) = exported(&desk).await;
    let catalog = factory.fresh().await;
    catalog.begin_import().await.unwrap();
    for piece in pieces {
        catalog.import(vec![piece]).await.unwrap();
    }
    catalog.end_import(41).await.unwrap();
    assert_eq!(catalog.closed_epochs().await.unwrap(), [desk.epoch]);
    assert_eq!(catalog.open_epoch().await.unwrap(), 42);
    assert!(matches!(catalog.put(desk.commit("late", vec![desk.whole(1)])).await, Err(CatalogError::Fenced)));
}

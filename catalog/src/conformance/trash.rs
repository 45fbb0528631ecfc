//! What closed epochs left behind: looked through once, listed until it is removed.

use super::{
    Factory,
    desk::{Desk, NOW},
};
use crate::*;

fn file(name: &str, since_ms: UnixMs) -> TrashFile {
    TrashFile { backend: "local".into(), name: format!("blobs/{name}"), stored_len: 10, since_ms }
}

/// Only a closed epoch can be: what an open one stores later would never be found.
pub async fn a_closed_epoch_is_looked_through_once<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    assert_eq!(catalog.unswept_epochs().await.unwrap(), [0u32; 0]);
    catalog.note_sweep(&[desk.epoch], vec![]).await.unwrap();
    let next = catalog.open_epoch().await.unwrap();
    catalog.close_epochs(&[desk.epoch]).await.unwrap();
    assert_eq!(catalog.unswept_epochs().await.unwrap(), [desk.epoch], "it was open when it was looked through");
    catalog.note_sweep(&[desk.epoch], vec![]).await.unwrap();
    assert_eq!(catalog.unswept_epochs().await.unwrap(), [0u32; 0]);
    catalog.close_epochs(&[next]).await.unwrap();
    let catalog = &factory.after_crash(desk.catalog).await;
    assert_eq!(catalog.unswept_epochs().await.unwrap(), [next]);
    assert_eq!(catalog.closed_epochs().await.unwrap(), [desk.epoch, next]);
}

/// Found again is not found later.
pub async fn a_file_on_the_list_keeps_its_date_until_it_is_taken_off<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    assert_eq!(catalog.trash_sum().await.unwrap(), TrashSum::default());
    catalog.note_sweep(&[], vec![file("b", NOW + 1), file("a", NOW)]).await.unwrap();
    catalog.note_sweep(&[], vec![file("b", NOW + 9), file("c", NOW + 2)]).await.unwrap();
    let all = [file("a", NOW), file("b", NOW + 1), file("c", NOW + 2)];
    assert_eq!(catalog.trash(UnixMs::MAX, 10).await.unwrap(), all);
    assert_eq!(catalog.trash(NOW + 2, 10).await.unwrap(), all[..2]);
    assert_eq!(catalog.trash(UnixMs::MAX, 1).await.unwrap(), all[..1]);
    let sum = TrashSum { files: 3, stored_bytes: 30, oldest_ms: Some(NOW) };
    assert_eq!(catalog.trash_sum().await.unwrap(), sum);
    assert_eq!(catalog.untrash(vec![file("b", 0), file("unknown", 0)]).await.unwrap(), 1);
    assert_eq!(catalog.untrash(vec![file("b", 0)]).await.unwrap(), 0);
    assert_eq!(catalog.trash(UnixMs::MAX, 10).await.unwrap(), [file("a", NOW), file("c", NOW + 2)]);
    desk.assert_sound().await;
}

//! Leases of background jobs.

use super::Factory;
use crate::*;
use serde_json::json;
use std::time::Duration;

/// Longer than any test takes.
const LONG_MS: UnixMs = 3_600_000;

fn wanting(name: &str, epoch: u32, lease_ms: UnixMs) -> JobTake {
    JobTake { name: name.into(), epoch, lease_ms, rest_ms: 0 }
}

fn lease(row: &JobRow) -> JobLease {
    JobLease { name: row.name.clone(), fence: row.fence }
}

/// Takes a job as soon as its lease is over.
async fn take_when_over<C: Catalog>(catalog: &C, name: &str, epoch: u32) -> JobRow {
    for _ in 0..10_000 {
        if let Some(row) = catalog.take_job(wanting(name, epoch, LONG_MS)).await.unwrap() {
            return row;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the lease does not end");
}

/// Others get it once it is released, and not before, whatever else is held.
pub async fn a_job_is_held_by_one_at_a_time<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let epoch = catalog.open_epoch().await.unwrap();
    let row = catalog.take_job(wanting("scrub", epoch, LONG_MS)).await.unwrap().unwrap();
    assert!(row.held && row.holder == Some(epoch) && row.fence > 0);
    assert_eq!((row.ended_ms, row.idle_ms, &row.state), (None, None, &json!(null)));
    assert!(catalog.take_job(wanting("scrub", epoch, LONG_MS)).await.unwrap().is_none());
    assert!(catalog.take_job(wanting("gc", epoch, LONG_MS)).await.unwrap().is_some(), "another job is another lease");
    catalog.save_job(&lease(&row), json!({ "at": 7 })).await.unwrap();
    catalog.release_job(&lease(&row), json!({ "at": 9 })).await.unwrap();
    let again = catalog.take_job(wanting("scrub", epoch, LONG_MS)).await.unwrap().unwrap();
    assert!(again.fence > row.fence && again.state == json!({ "at": 9 }) && again.ended_ms.is_some());
    let names: Vec<String> = catalog.jobs().await.unwrap().into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["gc", "scrub"]);
    let fenced = catalog.take_job(wanting("scrub", epoch + 1, LONG_MS)).await;
    assert!(matches!(fenced, Err(CatalogError::Fenced)), "an epoch that nobody opened takes nothing");
}

/// And then the first neither renews nor saves nor releases (E23).
pub async fn a_lease_that_is_over_is_taken_by_another_under_a_greater_fence<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let epoch = catalog.open_epoch().await.unwrap();
    let first = catalog.take_job(wanting("scrub", epoch, 0)).await.unwrap().unwrap();
    // Nobody took it meanwhile, so there is nothing that its holder could be in the way of.
    assert!(catalog.renew_job(&lease(&first), 0).await.is_ok());
    let second = take_when_over(&*catalog, "scrub", epoch).await;
    assert!(second.fence > first.fence);
    catalog.save_job(&lease(&second), json!("second")).await.unwrap();

    assert!(matches!(catalog.renew_job(&lease(&first), LONG_MS).await, Err(CatalogError::Fenced)));
    assert!(matches!(catalog.save_job(&lease(&first), json!("first")).await, Err(CatalogError::Fenced)));
    assert!(matches!(catalog.release_job(&lease(&first), json!("first")).await, Err(CatalogError::Fenced)));
    let row = catalog.jobs().await.unwrap().remove(0);
    assert!(row.held && row.fence == second.fence && row.state == json!("second"));

    catalog.release_job(&lease(&second), json!("ended")).await.unwrap();
    assert!(matches!(catalog.renew_job(&lease(&second), LONG_MS).await, Err(CatalogError::Fenced)), "it gave it up");
    assert!(matches!(catalog.save_job(&lease(&second), json!("late")).await, Err(CatalogError::Fenced)));
}

/// However long it still had.
pub async fn a_lease_dies_with_its_holders_epoch<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let epoch = catalog.open_epoch().await.unwrap();
    let row = catalog.take_job(wanting("scrub", epoch, LONG_MS)).await.unwrap().unwrap();
    let next = catalog.open_epoch().await.unwrap();
    catalog.close_epochs(&[epoch]).await.unwrap();
    assert!(matches!(catalog.renew_job(&lease(&row), LONG_MS).await, Err(CatalogError::Fenced)));
    assert!(matches!(catalog.save_job(&lease(&row), json!(1)).await, Err(CatalogError::Fenced)));
    assert!(!catalog.jobs().await.unwrap()[0].held);
    let taken = catalog.take_job(wanting("scrub", next, LONG_MS)).await.unwrap().unwrap();
    assert!(taken.holder == Some(next) && taken.fence > row.fence);
}

/// So processes that share an interval run the job once in it.
pub async fn a_job_rests_as_long_as_it_is_told<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let epoch = catalog.open_epoch().await.unwrap();
    let resting = JobTake { rest_ms: LONG_MS, ..wanting("gc", epoch, LONG_MS) };
    let row = catalog.take_job(resting.clone()).await.unwrap().expect("it never ran");
    catalog.release_job(&lease(&row), json!(null)).await.unwrap();
    assert!(catalog.take_job(resting).await.unwrap().is_none());
    assert!(catalog.take_job(wanting("gc", epoch, LONG_MS)).await.unwrap().is_some(), "who does not ask gets it");
}

/// A pause stays until it is taken back; a cancellation ends with the run it was meant for.
pub async fn a_wish_reaches_whoever_holds_the_job<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let epoch = catalog.open_epoch().await.unwrap();
    assert!(catalog.wish_job("scrub", JobWish::Pause).await.unwrap().paused, "there need not be a row");
    let row = catalog.take_job(wanting("scrub", epoch, LONG_MS)).await.unwrap().unwrap();
    assert!(row.paused && !row.cancelled);
    assert!(!catalog.wish_job("scrub", JobWish::Resume).await.unwrap().paused);
    catalog.wish_job("scrub", JobWish::Cancel).await.unwrap();
    let seen = catalog.renew_job(&lease(&row), LONG_MS).await.unwrap();
    assert!(seen.cancelled && !seen.paused && seen.held);
    catalog.release_job(&lease(&row), json!(null)).await.unwrap();
    assert!(!catalog.jobs().await.unwrap()[0].cancelled);
    catalog.wish_job("scrub", JobWish::Cancel).await.unwrap();
    let next = catalog.take_job(wanting("scrub", epoch, LONG_MS)).await.unwrap().unwrap();
    assert!(!next.cancelled, "nothing was under way that could have been meant");
}

/// What a rebuild needs is in the journal; where a job stopped is not needed.
pub async fn a_jobs_state_outlives_a_crash_and_takes_no_sequence_number<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let epoch = catalog.open_epoch().await.unwrap();
    let before = catalog.last_seq().await.unwrap();
    let row = catalog.take_job(wanting("scrub", epoch, LONG_MS)).await.unwrap().unwrap();
    catalog.save_job(&lease(&row), json!({ "cursor": "k" })).await.unwrap();
    catalog.renew_job(&lease(&row), LONG_MS).await.unwrap();
    catalog.wish_job("scrub", JobWish::Pause).await.unwrap();
    assert_eq!(catalog.last_seq().await.unwrap(), before);
    let catalog = factory.after_crash(catalog).await;
    let found = catalog.jobs().await.unwrap().remove(0);
    assert!(found.paused && found.fence == row.fence && found.state == json!({ "cursor": "k" }));
}

//! What is kept in memory has a bound, and is let go of.

use super::*;
use crate::{blobs::piece::BasePiece, resources::budget::MemoryBudget};

fn piece(number: u32) -> BasePiece {
    BasePiece::of(BlobId::new(number, [0; 12]), 0..1 << 20)
}

#[tokio::test]
async fn a_window_that_nobody_waits_for_any_more_keeps_no_place() {
    let deployment = Deployment::start(64 << 20).await;
    let (windows, budget) = (deployment.engine.foundation.bases.windows(), &deployment.engine.foundation.budget);
    let _everything = MemoryBudget::acquire(budget, 1 << 40).await.expect("nobody else has it");
    let mut first = Box::pin(windows.get(vec![piece(1)], &[], None));
    let mut second = Box::pin(windows.get(vec![piece(1)], &[], None));
    let mut other = Box::pin(windows.get(vec![piece(2)], &[], None));
    for asked in [&mut first, &mut second, &mut other] {
        assert!(futures::poll!(asked).is_pending(), "there is no memory");
    }
    assert_eq!(windows.places(), 2);
    drop(first);
    assert_eq!(windows.places(), 2, "the second waits");
    drop((second, other));
    assert_eq!(windows.places(), 0);
}

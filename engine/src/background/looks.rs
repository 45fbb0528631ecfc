//! What earlier looks at the catalog have passed, so that a store in which nothing happens is not
//! looked through again and again.

use crate::{Engine, error::EngineError};
use catalog::Seq;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A recount passes over every row: it may take one two-hundredth of the time.
const RECOUNT_SHARE: u32 = 200;

/// How far looks have come. Advice: what is forgotten is looked at again.
#[derive(Default)]
pub(crate) struct Looks {
    counted: Mutex<Option<Counted>>,
    /// Behind the packing cursor of the first number, nothing up to the second wants packing.
    unpackable: Mutex<Option<(Seq, Seq)>>,
    /// Where the catalog stood when no base needed a copy any more.
    copied: Mutex<Option<Seq>>,
}

/// A recount of everything.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Where the catalog stood.
    seq: Seq,
    ended: Instant,
    took: Duration,
}

fn is_due(counted: Option<Counted>, seq: Seq, now: Instant) -> bool {
    counted.is_none_or(|counted| {
        counted.seq != seq && now.saturating_duration_since(counted.ended) >= counted.took * RECOUNT_SHARE
    })
}

impl Looks {
    /// From where on to look for what wants packing, when everything up to `cursor` is done with.
    pub(crate) fn packing_from(&self, cursor: Seq) -> Seq {
        match *locked(&self.unpackable) {
            Some((behind, until)) if behind == cursor => until.max(cursor),
            _ => cursor,
        }
    }

    /// Behind `cursor`, nothing up to `until` wants packing.
    pub(crate) fn nothing_to_pack(&self, cursor: Seq, until: Seq) {
        *locked(&self.unpackable) = Some((cursor, until));
    }

    /// Whether no base can need a copy that did not need one before.
    pub(crate) fn are_copied(&self, seq: Seq) -> bool {
        *locked(&self.copied) == Some(seq)
    }

    /// No base needed a copy when the catalog stood at `seq`.
    pub(crate) fn note_copied(&self, seq: Seq) {
        *locked(&self.copied) = Some(seq);
    }
}

impl Engine {
    /// Sets the gauges that take a recount, when something has changed since the last one and it is
    /// not too soon for another.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn refresh_counts(&self) -> Result<(), EngineError> {
        let (seq, began) = (self.catalog.last_seq().await?, Instant::now());
        let counted = *locked(&self.looks.counted);
        if !is_due(counted, seq, began) {
            return Ok(());
        }
        self.stats().await?;
        *locked(&self.looks.counted) = Some(Counted { seq, ended: Instant::now(), took: began.elapsed() });
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recount_waits_for_a_change_and_takes_its_share_of_the_time() {
        let ended = Instant::now();
        let counted = Some(Counted { seq: 7, ended, took: Duration::from_secs(1) });
        let after = |seconds| ended + Duration::from_secs(seconds);
        assert!(is_due(None, 7, ended));
        assert!(!is_due(counted, 7, after(86_400)), "nothing has changed");
        assert!(!is_due(counted, 8, after(199)));
        assert!(is_due(counted, 8, after(200)));
        assert!(is_due(counted, 6, after(200)), "a catalog may go back");
    }

    #[test]
    fn a_look_goes_on_where_the_last_one_ended_unless_the_cursor_has_moved() {
        let looks = Looks::default();
        assert_eq!(looks.packing_from(5), 5);
        looks.nothing_to_pack(5, 90);
        assert_eq!(looks.packing_from(5), 90);
        assert_eq!((looks.packing_from(0), looks.packing_from(95)), (0, 95));
    }
}

//! What earlier looks at the catalog have passed, so that a store in which nothing happens is not
//! looked through again and again.

use catalog::Seq;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// What passes over every row may take one two-hundredth of the time.
const LOOK_SHARE: u32 = 200;
/// Between two looks for bases that are kept only for deltas.
const BASES_EVERY: Duration = Duration::from_secs(60);
/// Between two looks for what has cooled down.
const HEATED_EVERY: Duration = Duration::from_secs(5);

/// A count that takes longer is not made again for each page, or each look at what is read often.
const WAITED_FOR: Duration = Duration::from_millis(50);

/// How far looks have come. Advice: what is forgotten is looked at again.
#[derive(Default)]
pub(crate) struct Looks {
    counted: Mutex<Option<Look>>,
    /// When kept bases were last found to be in order.
    bases: Mutex<Option<Look>>,
    heated: Mutex<Option<Look>>,
    /// Behind the packing cursor of the first number, nothing up to the second wants packing.
    unpackable: Mutex<Option<(Seq, Seq)>>,
    /// What deltas saved when that was last counted.
    saved: Mutex<Option<(Look, u64)>>,
    /// Where the catalog stood when no base needed a copy any more.
    copied: Mutex<Option<Seq>>,
}

/// A look at everything of a kind.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Where the catalog stood.
    seq: Seq,
    ended: Instant,
    took: Duration,
}

impl Look {
    fn ends(seq: Seq, began: Instant) -> Self {
        let ended = Instant::now();
        Self { seq, ended, took: ended.saturating_duration_since(began) }
    }

    fn has_rested(self, pause_min: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.ended) >= pause_min.max(self.took * LOOK_SHARE)
    }
}

/// Whether something has changed since a look, and it is not too soon for another.
fn is_due(look: Option<Look>, seq: Seq, pause_min: Duration, now: Instant) -> bool {
    look.is_none_or(|look| look.seq != seq && look.has_rested(pause_min, now))
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

    /// Whether kept bases are to be looked through. `at_once`: however soon after the last time.
    pub(crate) fn bases_are_due(&self, seq: Seq, at_once: bool) -> bool {
        let look = *locked(&self.bases);
        match at_once {
            true => look.is_none_or(|look| look.seq != seq),
            false => is_due(look, seq, BASES_EVERY, Instant::now()),
        }
    }

    /// Kept bases were in order when the catalog stood at `seq`.
    pub(crate) fn bases_are_in_order(&self, seq: Seq, began: Instant) {
        *locked(&self.bases) = Some(Look::ends(seq, began));
    }

    /// Whether what was made whole for its readers is to be looked through: it cools without a
    /// change of the catalog.
    pub(crate) fn heated_is_due(&self) -> bool {
        locked(&self.heated).is_none_or(|look| look.has_rested(HEATED_EVERY, Instant::now()))
    }

    /// All of it was looked through.
    pub(crate) fn note_heated(&self, began: Instant) {
        *locked(&self.heated) = Some(Look::ends(0, began));
    }

    /// Whether everything is to be counted again.
    pub(crate) fn counts_are_due(&self, seq: Seq) -> bool {
        is_due(*locked(&self.counted), seq, Duration::ZERO, Instant::now())
    }

    /// Whether counting everything is quick, as far as is known.
    pub(crate) fn counts_are_quick(&self) -> bool {
        locked(&self.counted).is_none_or(|look| look.took <= WAITED_FOR)
    }

    /// Everything was counted when the catalog stood at `seq`.
    pub(crate) fn note_counted(&self, seq: Seq, began: Instant) {
        *locked(&self.counted) = Some(Look::ends(seq, began));
    }

    /// What deltas save; `None` when it is to be counted.
    pub(crate) fn saved(&self, seq: Seq) -> Option<u64> {
        let (look, saved) = (*locked(&self.saved))?;
        let rests = look.took > WAITED_FOR && !is_due(Some(look), seq, Duration::ZERO, Instant::now());
        rests.then_some(saved)
    }

    /// Deltas saved so much when the catalog stood at `seq`.
    pub(crate) fn note_saved(&self, seq: Seq, began: Instant, saved: u64) {
        *locked(&self.saved) = Some((Look::ends(seq, began), saved));
    }

    /// A count of long ago took long.
    #[cfg(test)]
    pub(crate) fn note_slow_count(&self, seq: Seq) {
        let (took, ended) = (2 * WAITED_FOR, Instant::now() - 3 * WAITED_FOR * LOOK_SHARE);
        *locked(&self.counted) = Some(Look { seq, ended, took });
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_everything_waits_for_a_change_and_takes_its_share_of_the_time() {
        let ended = Instant::now();
        let look = Some(Look { seq: 7, ended, took: Duration::from_secs(1) });
        let due = |look, seq, seconds| is_due(look, seq, BASES_EVERY, ended + Duration::from_secs(seconds));
        assert!(due(None, 7, 0));
        assert!(!due(look, 7, 86_400), "nothing has changed");
        assert!(!due(look, 8, 199));
        assert!(due(look, 8, 200));
        assert!(due(look, 6, 200), "a catalog may go back");
        let short = look.map(|look| Look { took: Duration::from_millis(1), ..look });
        assert!(!due(short, 8, 59) && due(short, 8, 60), "nor is a short one repeated at once");
    }

    #[test]
    fn what_deltas_save_is_counted_each_time_only_where_that_is_quick() {
        let (looks, now) = (Looks::default(), Instant::now());
        assert_eq!(looks.saved(5), None);
        looks.note_saved(5, now, 7);
        assert_eq!(looks.saved(6), None, "a quick count is not missed");
        looks.note_saved(5, now - Duration::from_secs(10), 7);
        assert_eq!((looks.saved(5), looks.saved(6)), (Some(7), Some(7)), "a slow one rests 200 times as long");
    }

    #[test]
    fn kept_bases_that_are_in_order_are_looked_through_again_only_after_a_change() {
        let looks = Looks::default();
        assert!(looks.bases_are_due(5, false) && looks.bases_are_due(5, true));
        looks.bases_are_in_order(5, Instant::now());
        assert!(!looks.bases_are_due(5, true), "even when somebody waits");
        assert!(looks.bases_are_due(6, true) && !looks.bases_are_due(6, false));
    }

    #[test]
    fn what_cools_is_looked_through_again_after_a_while() {
        let looks = Looks::default();
        assert!(looks.heated_is_due());
        looks.note_heated(Instant::now());
        assert!(!looks.heated_is_due());
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

//! When a series of versions has drifted so far from its base that the next one is to be a base.

use super::plan::{StoredShare, Trial};
use catalog::DeltasSum;

/// How far a series has gone from its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drift {
    /// Not far.
    None,
    /// Its deltas have grown, and what they took beyond the shortest of them has paid for another
    /// base. In thousandths of whole content, what the last of them took.
    Paid {
        /// What the last delta took.
        last_permille: u32,
    },
    /// Its last delta took more than half of what whole content takes.
    Far,
    /// Much of its last delta is content that its bases lack. Lying in a delta, it cannot be a base
    /// of later versions, which most likely have it, too. What the deltas took has paid for another
    /// base.
    Apart,
}

impl Drift {
    /// True when a series that has drifted so is to have this content as its next base. `trial` is
    /// of this very content: what differs less than the last version did comes from the middle of
    /// the series.
    pub(crate) fn ends_series(self, trial: Trial) -> bool {
        match self {
            Self::None => false,
            Self::Paid { last_permille } => trial.permille().is_none_or(|permille| permille >= last_permille / 4 * 3),
            Self::Far => !trial.helps(false),
            // A trial sees the beginning alone, which may well be what the bases have.
            Self::Apart => true,
        }
    }
}

/// How far a series is from its bases, judged by its last delta, by how far the bases themselves
/// shrank, and by all deltas they bear.
///
/// What each delta takes beyond the shortest one is the price of not having begun a new base
/// before it. Half of it comes back when the base is there: what lies between two bases is encoded
/// over both. Once the other half adds up to a base, one is due: that costs at most twice what the
/// best choice beforehand would have (the rule of who rents skis), and a series that does not grow
/// pays nothing.
pub(crate) fn drift(last: StoredShare, bases: StoredShare, deltas: &[DeltasSum]) -> Drift {
    // last.stored / last.plain > bases.stored / bases.plain / 2, in integers that cannot overflow.
    if u128::from(last.stored) * u128::from(bases.plain) > u128::from(bases.stored) * u128::from(last.plain) / 2 {
        return Drift::Far;
    }
    let ppm = |share: StoredShare| share.stored.saturating_mul(1_000_000) / share.plain.max(1);
    let (last_ppm, whole_ppm) = (ppm(last), ppm(bases));
    let count: u64 = deltas.iter().map(|sum| sum.deltas).sum();
    let least_ppm = deltas.iter().map(|sum| sum.least_share_ppm).min().unwrap_or(0);
    let beyond_ppm = deltas
        .iter()
        .map(|sum| sum.shares_ppm.saturating_sub(sum.deltas.saturating_mul(sum.least_share_ppm)))
        .sum::<u64>();
    // Shares that only vary have their last one anywhere; where they grow it is far above the mean.
    let grows = last_ppm.saturating_sub(least_ppm).saturating_mul(2 * count) >= beyond_ppm.saturating_mul(3);
    // Each base bears a part of the series: together they pay for all of them.
    let is_paid = beyond_ppm / 2 >= whole_ppm.saturating_sub(last_ppm).saturating_mul(deltas.len() as u64);
    match u32::try_from(last_ppm * 1000 / whole_ppm.max(1)) {
        Ok(last_permille) if is_paid && grows && !deltas.is_empty() => Drift::Paid { last_permille },
        _ => Drift::None,
    }
}

/// How much of what whole content takes a delta holds itself when it stands apart from its bases:
/// one part of so many.
const APART_SHARE: u64 = 4;

/// True when a series has drifted [`Apart`](Drift::Apart) from its bases. `own` is the content of
/// its last deltas that no base has: of one alone it could be that every other version has it.
/// `is_second`: these bases ended such a series before; they are kept unless they bear a delta that
/// is shorter by half, which shows that another base helps here.
pub(crate) fn is_apart(own: &[StoredShare], bases: StoredShare, deltas: &[DeltasSum], is_second: bool) -> bool {
    let ppm = |share: &StoredShare| share.stored.saturating_mul(1_000_000) / share.plain.max(1);
    let whole_ppm = ppm(&bases);
    let own_ppm = own.iter().map(ppm).min().unwrap_or(0);
    let taken_ppm: u64 = deltas.iter().map(|sum| sum.shares_ppm).sum();
    let least_ppm = deltas.iter().map(|sum| sum.least_share_ppm).min().unwrap_or(0);
    own.len() > 1
        && own_ppm.saturating_mul(APART_SHARE) > whole_ppm
        && taken_ppm >= whole_ppm.saturating_mul(deltas.len() as u64)
        && (!is_second || least_ppm <= own_ppm / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_drifted_far_when_its_delta_takes_half_of_what_whole_content_takes() {
        let base = StoredShare { plain: 1000, stored: 400 };
        assert_eq!(drift(StoredShare { plain: 2000, stored: 400 }, base, &[]), Drift::None);
        assert_eq!(drift(StoredShare { plain: 2000, stored: 401 }, base, &[]), Drift::Far);
        let huge = StoredShare { plain: u64::MAX, stored: u64::MAX };
        assert_eq!(drift(huge, huge, &[]), Drift::Far);
    }

    /// The number of the version that begins a new base, when the share of the n-th delta is this.
    fn next_base(whole_ppm: u64, share_ppm: impl Fn(u64) -> u64) -> Option<(u64, Drift)> {
        let base = StoredShare { plain: 1_000_000, stored: whole_ppm };
        let mut sum = DeltasSum { least_share_ppm: u64::MAX, ..DeltasSum::default() };
        for number in 1..=900 {
            let ppm = share_ppm(number);
            sum.deltas += 1;
            sum.shares_ppm += ppm;
            sum.least_share_ppm = sum.least_share_ppm.min(ppm);
            let found = drift(StoredShare { plain: 1_000_000, stored: ppm }, base, &[sum]);
            if found != Drift::None {
                return Some((number, found));
            }
        }
        None
    }

    #[test]
    fn a_series_that_grows_begins_a_base_when_its_deltas_have_paid_for_one() {
        // The best distance of bases is the root of four times a base for what a version adds: 74.
        let (number, found) = next_base(1_000_000, |number| 725 * number).unwrap();
        assert!((70..=78).contains(&number), "{number}");
        assert_eq!(found, Drift::Paid { last_permille: u32::try_from(725 * number / 1000).unwrap() });
        // What every version costs anyhow does not count.
        let (number, _) = next_base(1_000_000, |number| 30_000 + 725 * number).unwrap();
        assert!((70..=78).contains(&number), "{number}");
        // Content that shrinks alone has a cheaper base, sooner.
        let (number, _) = next_base(250_000, |number| 725 * number).unwrap();
        assert!((34..=40).contains(&number), "{number}");
    }

    #[test]
    fn a_series_that_stays_as_near_keeps_its_base() {
        assert_eq!(next_base(1_000_000, |_| 50_000), None);
        assert_eq!(next_base(1_000_000, |number| 40_000 + number % 7), None);
        // Drifted halfway, and back again.
        assert_eq!(next_base(1_000_000, |number| 500_000 / number), None);
    }

    #[test]
    fn content_that_only_deltas_hold_gets_a_base_when_they_have_paid_for_one() {
        let base = StoredShare { plain: 1000, stored: 1000 };
        let one = |stored| StoredShare { plain: 1000, stored };
        let own = |stored| [one(stored); 2];
        let sum = |deltas, each| DeltasSum {
            deltas,
            plain_bytes: deltas * 1000,
            shares_ppm: deltas * each,
            least_share_ppm: each,
        };
        assert!(!is_apart(&own(334), base, &[sum(2, 334_000)], false), "two thirds are paid");
        assert!(is_apart(&own(334), base, &[sum(3, 334_000)], false));
        assert!(!is_apart(&[one(334)], base, &[sum(3, 334_000)], false), "of one alone nobody can tell");
        assert!(!is_apart(&own(250), base, &[sum(900, 250_000)], false), "too little to matter");
        assert!(!is_apart(&own(334), base, &[sum(3, 334_000), sum(2, 334_000)], false), "each base bears a part");
        assert!(!is_apart(&own(334), base, &[sum(900, 334_000)], true), "another base was no help");
        let both = DeltasSum { least_share_ppm: 1_000, ..sum(900, 334_000) };
        assert!(is_apart(&own(334), base, &[both], true), "another base was a help once");
        let every_other = [own(334), own(1)].concat();
        assert!(!is_apart(&every_other, base, &[sum(900, 334_000)], false));
        assert!(Drift::Apart.ends_series(Trial { alone: 100, delta: Some(1) }));
    }

    #[test]
    fn content_from_the_middle_of_a_series_is_no_new_base_of_it() {
        let paid = Drift::Paid { last_permille: 40 };
        let trial = |delta| Trial { alone: 100_000, delta };
        assert!(paid.ends_series(trial(Some(4_000))));
        assert!(paid.ends_series(trial(Some(3_000))));
        assert!(!paid.ends_series(trial(Some(2_900))));
        assert!(paid.ends_series(trial(None)));
        assert!(!Drift::None.ends_series(trial(None)));
        assert!(Drift::Far.ends_series(trial(Some(60_000))) && !Drift::Far.ends_series(trial(Some(50_000))));
    }
}

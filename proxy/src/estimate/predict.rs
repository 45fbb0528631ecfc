//! From what a sample took to what everything would take, with an interval.
//!
//! In each size class, what was sampled counts as it is. The rest of the heads and of the followers
//! takes the shares that the sampled ones took (ratio estimates). The interval is a bootstrap over
//! runs, which keeps objects of one series together: shares from runs drawn anew say how far the
//! sample may be off, and as many runs as are left, drawn once more, say how far the rest may be
//! off its own mean. With few runs a bootstrap is too sure of itself; it is widened as Student's t
//! is wider than the normal distribution.

use super::series::{CLASSES, Class, Dice, Observed, Population, Share};
use serde::Serialize;

/// Draws of the bootstrap.
const DRAWS: usize = 1_000;
/// Runs drawn for what is left, at most: past this their mean hardly moves.
const REST_RUNS_MAX: usize = 500;
/// What content may take at most, headers and tables included.
const SHARE_MAX: f64 = 1.02;

/// Stored bytes with a 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// The best guess.
    pub predicted: u64,
    /// 2.5 % of draws are below.
    pub low: u64,
    /// 2.5 % of draws are above.
    pub high: u64,
}

/// One size class.
#[derive(Debug, Serialize)]
pub struct ClassEstimate {
    /// Objects from this length on, in bytes.
    pub from_bytes: u64,
    /// Objects of it.
    pub objects: u64,
    /// Their bytes.
    pub logical_bytes: u64,
    /// How many series of similar names they form.
    pub series: u64,
    /// What they would take.
    pub stored_bytes: Prediction,
}

/// The whole, and each class that has something.
pub(super) fn predict(population: &Population, observed: &[Observed], seed: u64) -> (Prediction, Vec<ClassEstimate>) {
    let mut dice = Dice(seed ^ 0x0065_7374_696d_6174);
    let (mut point, mut draws) = (0.0, vec![0.0; DRAWS]);
    let mut classes = Vec::new();
    for (n, class) in population.classes.iter().enumerate().filter(|(_, class)| class.objects > 0) {
        let runs: Vec<Observed> = observed.iter().filter(|run| run.class == n).copied().collect();
        let (predicted, class_draws) = predict_class(class, &runs, &mut dice);
        point += predicted;
        draws.iter_mut().zip(&class_draws).for_each(|(sum, draw)| *sum += draw);
        classes.push(ClassEstimate {
            from_bytes: CLASSES[n],
            objects: class.objects,
            logical_bytes: class.head_bytes + class.follower_bytes,
            series: class.series,
            stored_bytes: interval(predicted, class_draws),
        });
    }
    (interval(point, draws), classes)
}

/// The best guess for a class, and a draw of the bootstrap for each of [`DRAWS`].
fn predict_class(class: &Class, runs: &[Observed], dice: &mut Dice) -> (f64, Vec<f64>) {
    let sampled = Sums::of(runs.iter());
    // The first object of a run that began inside its series would be a follower: what it took is
    // no part of the answer.
    let heads = Sums::of(runs.iter().filter(|run| run.begins_series)).head;
    let left = Left {
        heads: class.head_bytes.saturating_sub(heads.plain) as f64,
        followers: class.follower_bytes.saturating_sub(sampled.followers.plain) as f64,
    };
    let certain = (heads.stored + sampled.followers.stored) as f64;
    if left.heads + left.followers < 1.0 {
        return (certain, vec![certain; DRAWS]);
    }
    let shares = sampled.shares(None);
    let predicted = certain + left.at(shares);
    if runs.len() < 2 {
        // One run says nothing about how runs differ: anything between nothing and everything.
        let draws = (0..DRAWS).map(|n| certain + left.at((SHARE_MAX, SHARE_MAX)) * n as f64 / (DRAWS - 1) as f64);
        return (predicted, draws.collect());
    }
    let runs_left = ((left.heads + left.followers) * runs.len() as f64 / sampled.plain().max(1) as f64).ceil();
    let rest_runs = (runs_left as usize).clamp(1, REST_RUNS_MAX);
    let widening = widening(runs.len());
    let mut draw = |count: usize| {
        let drawn: Vec<&Observed> = (0..count).map(|_| &runs[dice.below(runs.len())]).collect();
        left.at(Sums::of(drawn.into_iter()).shares(Some(shares))) - left.at(shares)
    };
    let draws = (0..DRAWS)
        .map(|_| {
            let off = draw(runs.len()) + draw(rest_runs);
            let total = predicted + off * widening;
            total.clamp(certain, certain + left.at((SHARE_MAX, SHARE_MAX)))
        })
        .collect();
    (predicted, draws)
}

/// Bytes of a class that were not sampled.
struct Left {
    heads: f64,
    followers: f64,
}

impl Left {
    fn at(&self, (head, follower): (f64, f64)) -> f64 {
        self.heads * head + self.followers * follower
    }
}

#[derive(Default)]
struct Sums {
    head: Share,
    followers: Share,
}

impl Sums {
    fn of<'a>(runs: impl Iterator<Item = &'a Observed>) -> Self {
        runs.fold(Self::default(), |mut sums, run| {
            sums.head.plain += run.head.plain;
            sums.head.stored += run.head.stored;
            sums.followers.plain += run.followers.plain;
            sums.followers.stored += run.followers.stored;
            sums
        })
    }

    fn plain(&self) -> u64 {
        self.head.plain + self.followers.plain
    }

    /// Stored bytes per byte of heads and of followers; a kind that was not seen takes what it took
    /// in `known`, else what the other kind takes: whole content is the worst that a follower can
    /// be.
    fn shares(&self, known: Option<(f64, f64)>) -> (f64, f64) {
        let share = |share: &Share| (share.plain > 0).then(|| share.stored as f64 / share.plain as f64);
        let head = share(&self.head).or(known.map(|known| known.0));
        let follower = share(&self.followers).or(known.map(|known| known.1));
        let head = head.or(follower).unwrap_or(1.0);
        (head, follower.unwrap_or(head))
    }
}

/// 97.5 % quantiles of Student's t by those of the normal distribution, for `runs - 1` degrees of
/// freedom.
fn widening(runs: usize) -> f64 {
    match runs {
        0..=2 => 6.48,
        3 => 2.20,
        4 => 1.62,
        5 => 1.42,
        6 => 1.31,
        7 => 1.25,
        8 => 1.21,
        9..=11 => 1.18,
        12..=20 => 1.12,
        21..=40 => 1.06,
        _ => 1.0,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes: not negative, below 2^63")]
fn interval(predicted: f64, mut draws: Vec<f64>) -> Prediction {
    draws.sort_by(f64::total_cmp);
    let at = |permille: usize| draws[(draws.len() - 1) * permille / 1000].round() as u64;
    let predicted = predicted.round() as u64;
    Prediction { predicted, low: at(25).min(predicted), high: at(975).max(predicted) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::series::Listed;
    use storage_backends::PlainEntry;

    /// A hundred series of ten, each of whose members takes what `stored` says of series and place.
    fn predicted(sample_bytes: u64, seed: u64, stored: impl Fn(usize, usize) -> u64) -> (Prediction, u64) {
        let key = |n: usize| format!("series-{}x/v-{}", n / 10, n % 10);
        let listed = (0..1000).map(|n| Listed::of(PlainEntry { key: key(n), len: 10_000, etag: None })).collect();
        let population = Population::of(listed);
        let cost = |key: &str| {
            let digits =
                |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
            let (series, place) = key.split_once('/').unwrap();
            stored(digits(series), digits(place))
        };
        let observed: Vec<Observed> = population
            .choose(sample_bytes, seed)
            .iter()
            .map(|run| {
                let mut observed = run.unobserved();
                population.objects_of(run).iter().for_each(|object| observed.add(object.len, cost(&object.key)));
                observed
            })
            .collect();
        let truth = (0..1000).map(|n| stored(n / 10, n % 10)).sum();
        (predict(&population, &observed, seed).0, truth)
    }

    #[test]
    fn a_sample_of_everything_is_certain() {
        let (found, truth) =
            predicted(u64::MAX, 1, |series, place| if place == 0 { 5_000 + series as u64 } else { 100 });
        assert_eq!(found, Prediction { predicted: truth, low: truth, high: truth });
    }

    #[test]
    fn the_interval_holds_the_truth_about_as_often_as_it_says() {
        // Series that differ a lot: heads of 1,000 to 9,000 bytes, followers of 10 to 2,000.
        let stored = |series: usize, place: usize| match place {
            0 => 1_000 + (series as u64 * 37 % 81) * 100,
            _ => 10 + (series as u64 * 53 % 20) * 100,
        };
        let held = (0..200).filter(|seed| {
            let (found, truth) = predicted(1_000_000, *seed, stored);
            assert!(found.low < found.predicted && found.predicted < found.high);
            (found.low..=found.high).contains(&truth)
        });
        let held = held.count();
        assert!((184..=200).contains(&held), "{held} of 200");
    }

    #[test]
    fn a_single_run_promises_nothing() {
        let key = |n: usize| format!("s/v-{n:05}");
        let listed = (0..64).map(|n| Listed::of(PlainEntry { key: key(n), len: 10_000, etag: None })).collect();
        let population = Population::of(listed);
        let mut run = Observed::nothing(1, false);
        (0..32).for_each(|_| run.add(10_000, 100));
        let (found, _) = predict(&population, &[run], 1);
        assert!(found.low < 20_000 && found.high > 300_000, "{found:?}");
    }
}
